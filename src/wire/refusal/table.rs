//! The table of refusals: each row has the texts of one fault, and the statuses with which they count.

use memchr::memmem;
use serde::Deserialize;

use super::{
    fault::RowFault,
    kind::{Refusal, RefusalKind},
    known_words::KnownWords,
    pattern::{Pattern, is_place},
};

/// The beginning of the beta header value that Anthropic's binding controls need.
const BINDING_HEADER: &[u8] = b"thinking-binding-controls-";
/// Fewest bytes of text in a row, apart from slots.
const LITERAL_BYTES_MIN: usize = 16;
/// Largest number of sentences that may follow the text of a row.
const SENTENCES_MAX: usize = 6;

/// The rows of a table, as a file has them.
#[derive(Clone, Debug, Deserialize)]
pub struct RefusalTexts {
    /// The rows. Their order does not matter: of two that match, the one with more text counts.
    pub row: Vec<RowTexts>,
    /// Texts that may precede a refusal, or an error body as text.
    pub leads: Vec<String>,
    /// The names that places consist of, besides numbers.
    pub place_names: Vec<String>,
}

/// One row, as a file has it.
#[derive(Clone, Debug, Deserialize)]
pub struct RowTexts {
    /// The name, which never changes.
    pub name: String,
    /// The fault, by [`RefusalKind::label`].
    pub fault: String,
    /// The statuses with which the texts count.
    #[serde(default = "bad_request")]
    pub status: Vec<u16>,
    /// The texts, as patterns.
    pub text: Vec<String>,
    /// Sentences that may follow the texts, as patterns. Only for faults whose repair loses something.
    #[serde(default)]
    pub then: Vec<String>,
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
    texts: Vec<Pattern>,
    then: Vec<Pattern>,
}

/// A row that matches a text, with the refusal that it reads there.
#[derive(Clone, Debug)]
pub struct FoundRefusal<'t> {
    /// The row.
    pub row: &'t RefusalRow,
    /// The refusal.
    pub refusal: Refusal,
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
    place_names: Vec<String>,
    /// The words of all texts and leads, and of other errors.
    words: KnownWords,
}

impl RefusalTable {
    /// Compiles a table. Fails with the first fault of a row.
    pub fn compile(texts: &RefusalTexts) -> Result<Self, RowFault> {
        let rows = texts.row.iter().map(RefusalRow::compile);
        let leads = texts.leads.iter().map(|lead| Pattern::compile(lead));
        let (rows, leads): (Vec<RefusalRow>, Vec<Pattern>) =
            (rows.collect::<Result<_, _>>()?, leads.collect::<Result<_, _>>()?);
        let of_rows = rows.iter().flat_map(|row| row.texts.iter().chain(&row.then));
        let literals = of_rows.chain(&leads).flat_map(Pattern::literals);
        let words = KnownWords::new(literals.filter_map(|literal| std::str::from_utf8(literal).ok()));
        Ok(Self {
            rows,
            leads,
            words,
            place_names: texts.place_names.clone(),
        })
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
    pub(super) fn find_row(&self, led: LedText<'_>) -> Option<FoundRefusal<'_>> {
        let matches = self.rows.iter().filter_map(|row| {
            let (bytes, ids) = row.match_text(led, &self.place_names)?;
            Some((bytes, row, ids))
        });
        let (_, row, ids) = matches.max_by_key(|(bytes, ..)| *bytes)?;
        // The header is named after the text, or not at all.
        let kind = match row.kind {
            RefusalKind::Bound { .. } => RefusalKind::Bound {
                header_named: memmem::find(led.text, BINDING_HEADER).is_some(),
            },
            kind => kind,
        };
        Some(FoundRefusal {
            row,
            refusal: Refusal { kind, ids },
        })
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
        let row = Self {
            name: texts.name.clone(),
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
        let all = texts.text.iter().chain(&texts.then);
        let mut open = all
            .zip(row.texts.iter().chain(&row.then))
            .filter(|(_, pattern)| pattern.is_open());
        match open.next() {
            Some((text, _)) if kind.loses_content() => Err(RowFault::OpenEnd(text.clone())),
            _ => Ok(row),
        }
    }

    /// Matches the texts with the beginning of `led`. Returns the bytes that matched besides slots, and the ids.
    fn match_text(&self, led: LedText<'_>, place_names: &[String]) -> Option<(usize, Vec<String>)> {
        let matches = self.texts.iter().filter_map(|text| {
            let found = text.match_start(led.text, place_names)?;
            // What stands behind a text may repeat the client's, and so may the text itself, as the name of a member.
            let counts = !self.kind.loses_content() || self.ends_message(found.rest, led, place_names);
            counts.then(|| (text.literal_bytes(), found.ids))
        });
        matches.max_by_key(|(bytes, _)| *bytes)
    }

    /// Returns `true` if only known sentences of this row follow, up to the end of the message.
    fn ends_message(&self, rest: &[u8], led: LedText<'_>, place_names: &[String]) -> bool {
        let mut rest = rest;
        for _ in 0..=SENTENCES_MAX {
            rest = skip_stops(rest);
            let next = self
                .then
                .iter()
                .find_map(|sentence| sentence.match_start(rest, place_names));
            match next {
                Some(found) => rest = found.rest,
                None => break,
            }
        }
        let tail = rest.trim_ascii();
        tail.is_empty() || led.quote.is_some_and(|quote| ends_body(tail, quote))
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

/// Returns `true` if a text is the end of an error body, from the `quote` behind the message on.
fn ends_body(tail: &[u8], quote: u8) -> bool {
    tail.first() == Some(&quote) && tail.ends_with(b"}")
}
