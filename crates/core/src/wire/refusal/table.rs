//! The table of refusals: each row has the texts of one fault, and the statuses with which they count.

use serde::Deserialize;

use super::{
    demand::{MatchedTexts, MendKind, MendTexts, RowMend},
    fault::RowFault,
    kind::{Refusal, RefusalKind},
    known_words::KnownWords,
    meaning::ErrorMeaning,
    pattern::{Pattern, PatternMatch, is_place},
};

/// Fewest bytes of text in a row, apart from variables.
const LITERAL_BYTES_MIN: usize = 16;
/// Largest number of sentences that may follow the text of a row, with what gateways append.
const SENTENCES_MAX: usize = 6;

/// The rows of a table, as a file has them.
#[derive(Clone, Debug, Deserialize)]
pub struct RefusalTexts {
    /// The rows. Their order does not matter: of two that match, the one with more text counts.
    pub row: Vec<RowTexts>,
    /// Texts that may precede a refusal, or an error body as text.
    pub leads: Vec<String>,
    /// Texts that may follow a refusal, and that gateways append.
    #[serde(default)]
    pub tails: Vec<String>,
    /// The names that places consist of, besides numbers.
    pub place_names: Vec<String>,
}

/// One row, as a file has it.
#[derive(Clone, Debug, Deserialize)]
pub struct RowTexts {
    /// The name, which never changes.
    pub name: String,
    /// The fault, by its name in [`RefusalKind::LABELS`].
    pub fault: String,
    /// The statuses with which the texts count.
    #[serde(default = "bad_request")]
    pub status: Vec<u16>,
    /// The texts, as patterns.
    pub text: Vec<String>,
    /// Sentences that may follow the texts, as patterns. Only for texts that must be the whole message.
    #[serde(default)]
    pub then: Vec<String>,
    /// The mend that meets the demand, with its argument: `drop_member <member>`. Only for the fault `demand`.
    #[serde(default)]
    pub mend: Option<String>,
    /// The places at which the mend acts: `all`, or `named`. `None` for those of its kind.
    #[serde(default)]
    pub fits: Option<String>,
    /// The lifetime of what an accepted mend teaches: `rule`, `block` or `once`. `None` for `rule`.
    #[serde(default)]
    pub learn: Option<String>,
    /// `true` if `antiphon check` notes bodies that the mend would change.
    #[serde(default)]
    pub note: bool,
}

fn bad_request() -> Vec<u16> {
    vec![400]
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct RefusalRow {
    /// The name, which never changes.
    pub name: String,
    /// The fault that its texts name.
    pub kind: RefusalKind,
    /// The statuses with which its texts count.
    pub statuses: Vec<u16>,
    /// The mend that meets the demand. `None` for any other fault.
    pub mend: Option<RowMend>,
    /// `true` if an operator has written it, `false` if it is built in.
    pub is_own: bool,
    /// `true` if a report about a body notes that the mend would change it.
    pub is_noted: bool,
    /// The first text, as the file has it.
    pub first_text: String,
    pub(super) texts: Vec<Pattern>,
    then: Vec<Pattern>,
}

/// A row that matches a text, with the refusal that it reads there.
#[derive(Clone, Debug)]
pub struct FoundRefusal<'t> {
    /// The row.
    pub row: &'t RefusalRow,
    /// The refusal.
    pub refusal: Refusal,
    /// The meaning beyond the history. `None` if it has none.
    pub meaning: Option<ErrorMeaning>,
}

/// A text after its leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct LedText<'t> {
    pub(super) text: &'t [u8],
    /// The quote that begins the message, if a lead was the beginning of an error body as text. `None` otherwise.
    pub(super) quote: Option<u8>,
}

/// The table. The default has no row, and reads nothing.
#[derive(Clone, Debug, Default)]
pub struct RefusalTable {
    rows: Vec<RefusalRow>,
    leads: Vec<Pattern>,
    tails: Vec<Pattern>,
    pub(super) place_names: Vec<String>,
    /// The words of all texts and leads, and of other errors.
    words: KnownWords,
}

impl RefusalTable {
    /// Compiles a table. Fails with the first fault of a row.
    pub fn compile(texts: &RefusalTexts) -> Result<Self, RowFault> {
        let rows = texts.row.iter().map(RefusalRow::compile);
        let leads = texts.leads.iter().map(|lead| Pattern::compile(lead));
        let tails = texts.tails.iter().map(|tail| Pattern::compile(tail));
        let rows: Vec<RefusalRow> = rows.collect::<Result<_, _>>()?;
        let leads: Vec<Pattern> = leads.collect::<Result<_, _>>()?;
        let tails: Vec<Pattern> = tails.collect::<Result<_, _>>()?;
        let of_rows = rows.iter().flat_map(|row| row.texts.iter().chain(&row.then));
        let literals = of_rows.chain(&leads).chain(&tails).flat_map(Pattern::literals);
        let words = KnownWords::new(literals.filter_map(|literal| std::str::from_utf8(literal).ok()));
        Ok(Self {
            rows,
            leads,
            tails,
            words,
            place_names: texts.place_names.clone(),
        })
    }

    /// Compiles an operator's own rows, which share the leads, the tails and the names of places of this table. Rows with
    /// a fault are left out, and returned by their index with the fault.
    pub fn compile_own(&self, texts: &[RowTexts]) -> (Self, Vec<(usize, RowFault)>) {
        let (mut rows, mut faults) = (Vec::new(), Vec::new());
        for (at, texts) in texts.iter().enumerate() {
            match RefusalRow::compile(texts) {
                Ok(row) => rows.push(RefusalRow { is_own: true, ..row }),
                Err(fault) => faults.push((at, fault)),
            }
        }
        // A masked text is one that no row reads: the words of these rows are in none.
        let own = Self {
            rows,
            ..self.without_rows()
        };
        (own, faults)
    }

    fn without_rows(&self) -> Self {
        Self {
            rows: Vec::new(),
            leads: self.leads.clone(),
            tails: self.tails.clone(),
            place_names: self.place_names.clone(),
            words: KnownWords::default(),
        }
    }

    /// Returns the rows.
    pub fn rows(&self) -> &[RefusalRow] {
        &self.rows
    }

    /// Returns the words that are kept of a refusal.
    pub(super) const fn words(&self) -> &KnownWords {
        &self.words
    }

    /// Returns `true` if a place in a body may be written like this.
    pub(super) fn is_place(&self, text: &[u8]) -> bool {
        is_place(text, &self.place_names)
    }

    /// Finds the row that says most of those that match the beginning of a text.
    pub(super) fn find_row(&self, led: LedText<'_>, status: Option<u16>) -> Option<FoundRefusal<'_>> {
        let counts = |row: &&RefusalRow| status.is_none_or(|status| row.statuses.contains(&status));
        let matches = self.rows.iter().filter(counts).filter_map(|row| {
            let (bytes, found) = self.match_row(row, led)?;
            Some((bytes, row, found))
        });
        // Of two with the same length the name decides, so that the order never does.
        let (_, row, found) = matches.max_by_key(|(bytes, row, _)| (*bytes, &row.name))?;
        let meaning = row.meaning(&found.slots);
        let demand = match &row.mend {
            // Without its argument there is nothing to mend.
            Some(mend) => Some(Box::new(mend.demand(&row.name, &found.slots)?)),
            None => None,
        };
        let refusal = Refusal {
            row: (*row.name).into(),
            kind: row.kind,
            ids: found.ids,
            demand,
        };
        Some(FoundRefusal { row, refusal, meaning })
    }

    /// Matches a row with the beginning of `led`. Returns the bytes that matched besides variables, and the match.
    pub(super) fn match_row<'t>(&self, row: &RefusalRow, led: LedText<'t>) -> Option<(usize, PatternMatch<'t>)> {
        let matches = row.texts.iter().filter_map(|text| {
            let found = text.match_start(led.text, &self.place_names)?;
            // The client may have written what follows a text, and the text itself, as the name of a member.
            let counts = !row.fills_message() || self.ends_message(row, found.rest, led);
            counts.then(|| (text.literal_bytes(), found))
        });
        matches.max_by_key(|(bytes, _)| *bytes)
    }

    /// Returns `true` if only known sentences of the row follow, and what gateways append, up to the end of the message.
    fn ends_message(&self, row: &RefusalRow, rest: &[u8], led: LedText<'_>) -> bool {
        let ends = |rest: &[u8]| {
            let rest = rest.trim_ascii();
            rest.is_empty()
                || led
                    .quote
                    .is_some_and(|quote| ends_body(skip_inner_quotes(rest, quote), quote))
        };
        let mut rest = rest;
        for _ in 0..=SENTENCES_MAX {
            let next = skip_stops(rest);
            if ends(rest) || ends(next) {
                return true;
            }
            let mut sentences = row.then.iter().chain(&self.tails);
            match sentences.find_map(|sentence| sentence.match_start(next, &self.place_names)) {
                Some(found) => rest = found.rest,
                None => return false,
            }
        }
        false
    }

    /// Returns `true` if a row counts with this status.
    pub fn has_status(&self, status: u16) -> bool {
        self.rows.iter().any(|row| row.statuses.contains(&status))
    }

    /// Returns the text after the lead at its beginning that says most. `None` if it has none.
    pub(super) fn after_lead<'t>(&self, led: LedText<'t>) -> Option<LedText<'t>> {
        let matches = self.leads.iter().filter_map(|lead| {
            let found = lead.match_start(led.text, &self.place_names)?;
            Some((lead.literal_bytes(), found.rest))
        });
        let (_, rest) = matches.max_by_key(|(bytes, _)| *bytes)?;
        let text = rest.trim_ascii_start();
        let opening = text
            .first()
            .copied()
            .filter(|byte| led.text.starts_with(b"{") && b"'\"".contains(byte));
        Some(LedText {
            text,
            quote: led.quote.or(opening),
        })
    }
}

impl RefusalRow {
    /// Returns `true` if a text counts only as the whole message: what else precedes or follows it may be the client's.
    ///
    /// That is so if the repair or the mend removes something that the model could read, and if clients act on the text.
    pub fn fills_message(&self) -> bool {
        self.loses_content() || !self.kind.is_about_history()
    }

    /// Returns `true` if the repair or the mend may remove something that the model could read.
    pub fn loses_content(&self) -> bool {
        let may_lose = self.mend.as_ref().is_some_and(|mend| mend.kind.may_lose_content());
        self.kind.loses_content() || may_lose
    }

    /// Returns what a text says beyond the history.
    fn meaning(&self, slots: &MatchedTexts) -> Option<ErrorMeaning> {
        let mend = self.mend.as_ref().map(|mend| mend.kind);
        if self.kind == RefusalKind::Overflow || mend == Some(MendKind::LowerMaxTokens) {
            return Some(ErrorMeaning::Overflow(slots.tokens));
        }
        let index = slots.numbers.first().filter(|_| self.kind == RefusalKind::BadTool)?;
        usize::try_from(*index).ok().map(ErrorMeaning::BadTool)
    }

    /// Fails if a text lacks the variable that the mend takes its argument from: then the row would never be read.
    fn check_variables(&self, texts: &RowTexts) -> Result<(), RowFault> {
        let Some(variable) = self.mend.as_ref().and_then(RowMend::variable) else {
            return Ok(());
        };
        let mut all = texts.text.iter().zip(&self.texts);
        match all.find(|(_, pattern)| !pattern.has_variable(variable.name())) {
            Some((text, _)) => Err(RowFault::LacksVariable {
                text: text.clone(),
                variable: variable.name(),
            }),
            None => Ok(()),
        }
    }

    fn compile(texts: &RowTexts) -> Result<Self, RowFault> {
        let kind = RefusalKind::from_label(&texts.fault).ok_or_else(|| RowFault::UnknownFault {
            row: texts.name.clone(),
            fault: texts.fault.clone(),
        })?;
        let compile_all = |list: &[String]| {
            list.iter()
                .map(|text| Pattern::compile(text))
                .collect::<Result<Vec<_>, _>>()
        };
        let mend = texts.mend.as_deref().map(|mend| {
            RowMend::compile(MendTexts {
                row: &texts.name,
                mend,
                fits: texts.fits.as_deref(),
                learn: texts.learn.as_deref(),
            })
        });
        let mend = mend.transpose()?;
        if mend.is_some() != (kind == RefusalKind::Demand) {
            return Err(RowFault::DemandWithoutMend(texts.name.clone()));
        }
        let row = Self {
            name: texts.name.clone(),
            mend,
            is_own: false,
            is_noted: texts.note,
            first_text: texts.text.first().cloned().unwrap_or_default(),
            kind,
            statuses: texts.status.clone(),
            texts: compile_all(&texts.text)?,
            then: compile_all(&texts.then)?,
        };
        for (text, pattern) in texts.text.iter().zip(&row.texts) {
            if pattern.literal_bytes() < LITERAL_BYTES_MIN {
                return Err(RowFault::TooShort(text.clone()));
            }
        }
        row.check_variables(texts)?;
        let all = texts.text.iter().chain(&texts.then);
        let patterns = row.texts.iter().chain(&row.then);
        let mut open = all.zip(patterns).filter(|(_, pattern)| pattern.is_open());
        if !row.then.is_empty() && !row.fills_message() {
            return Err(RowFault::UnusedSentences(texts.name.clone()));
        }
        let open = open.next();
        match open {
            Some((text, _)) if row.fills_message() => Err(RowFault::OpenEnd(text.clone())),
            Some(_) | None => Ok(row),
        }
    }
}

/// Skips full stops, blanks, and quotes that a full stop or blank follows.
fn skip_stops(text: &[u8]) -> &[u8] {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'.' | b' ' | b'\n' | b'\r' | b'\t', after @ ..] => after,
            [b'`' | b'\'' | b'"', after @ ..] if matches!(after.first(), None | Some(b'.' | b' ')) => after,
            _ => return rest,
        };
    }
}

/// Skips quotes that end a quotation in the message: those that are escaped, or of another kind than the `quote` behind it.
fn skip_inner_quotes(text: &[u8], quote: u8) -> &[u8] {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'\'' | b'"', after @ ..] => after,
            [b'`' | b'\'' | b'"', after @ ..] if rest.first() != Some(&quote) => after,
            _ => return rest,
        };
    }
}

/// Returns `true` if a text is the end of an error body, from the `quote` behind the message on.
fn ends_body(tail: &[u8], quote: u8) -> bool {
    tail.first() == Some(&quote) && tail.ends_with(b"}")
}
