//! One text of a table as a pattern, and its match with the beginning of a message.
//!
//! A pattern is written as a provider writes the text, with variables for what differs. Case does not matter, and quotes,
//! backticks and backslashes are skipped on both sides. A variable ends at the first place where the pattern continues:
//! there is no backtracking. Only a place before a last step, as in `<place>.<member>`, takes every step but that one.

use super::{
    demand::MatchedTexts,
    fault::RowFault,
    ids::{self, QUOTE_MARKS},
    meaning::TokenCount,
};

/// Bytes of the longest variable: for an id and the quotes around it.
const VARIABLE_BYTES_MAX: usize = 264;
/// Bytes of the longest name of a member or tool.
const NAME_BYTES_MAX: usize = 128;
/// Number of marks in a row that are skipped.
const QUOTE_MARKS_MAX: usize = 4;
/// The text between a place and its last step.
const LAST_STEP: &[u8] = b".";
/// Largest number of variables of a pattern.
const VARIABLES_MAX: usize = 8;

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pieces: Vec<PatternPiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPiece {
    /// Text without quotes.
    Literal(Box<[u8]>),
    Variable(VariableKind),
}

/// Text that differs from message to message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VariableKind {
    /// `<ids>`: an id; at the end of a pattern a list of ids, separated by commas or blanks.
    Ids,
    /// `<place>`: the rest of a place in the body, such as `3.content.0`: numbers and known names.
    Place,
    /// `<member>`: the name of a member: letters, digits, `_` and `-`, with the quotes before it.
    Member,
    /// `<name>`: a name in quotes, without a blank.
    Name,
    /// `<number>`: a number.
    Number,
    /// `<limit>`, `<prompt>`, `<output>`, `<total>`: a number of tokens.
    Tokens(TokenCount),
    /// `<word>`: bytes without a blank.
    Word,
    /// `<words>`: bytes of one line.
    Words,
}

impl VariableKind {
    /// Every variable, with its name.
    const NAMES: [(&str, Self); 11] = [
        ("ids", Self::Ids),
        ("place", Self::Place),
        ("member", Self::Member),
        ("name", Self::Name),
        ("number", Self::Number),
        ("limit", Self::Tokens(TokenCount::Limit)),
        ("prompt", Self::Tokens(TokenCount::Prompt)),
        ("output", Self::Tokens(TokenCount::Output)),
        ("total", Self::Tokens(TokenCount::Total)),
        ("word", Self::Word),
        ("words", Self::Words),
    ];

    /// Returns `true` if the byte cannot belong to the variable.
    const fn ends_at(self, byte: u8) -> bool {
        match self {
            Self::Words => byte == b'\n',
            Self::Number | Self::Tokens(_) => !byte.is_ascii_digit(),
            Self::Member => !is_member_letter(byte),
            Self::Ids | Self::Place | Self::Name | Self::Word => byte.is_ascii_whitespace(),
        }
    }

    /// Returns `true` if these bytes are what the variable stands for.
    fn accepts(self, gap: &[u8], place_names: &[String]) -> bool {
        match self {
            Self::Ids | Self::Word | Self::Words => true,
            Self::Member => is_member(gap),
            Self::Name => !gap.is_empty() && gap.len() <= NAME_BYTES_MAX,
            Self::Number | Self::Tokens(_) => !gap.is_empty() && gap.iter().all(u8::is_ascii_digit),
            Self::Place => is_place(gap, place_names),
        }
    }
}

/// Returns `true` if a member may have this name. Quotes around it do not belong to it.
fn is_member(text: &[u8]) -> bool {
    let text = without_quotes(text);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.iter().all(|byte| is_member_letter(*byte))
}

/// Returns `true` if the name of a member may have this byte.
const fn is_member_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Returns the text without quotes at both ends.
fn without_quotes(text: &[u8]) -> &[u8] {
    let is_quote = |byte: &&u8| QUOTE_MARKS.contains(*byte);
    let before = text.iter().take_while(is_quote).count();
    let after = text.iter().rev().take_while(is_quote).count();
    text.get(before..text.len().saturating_sub(after)).unwrap_or_default()
}

/// Returns `true` if a place in a body may be written like this: `messages[3].content`. Its steps are numbers and `names`.
pub(super) fn is_place(text: &[u8], names: &[String]) -> bool {
    let is_name = |step: &[u8]| names.iter().any(|name| name.as_bytes() == step);
    text.split(|byte| b".[]".contains(byte) || QUOTE_MARKS.contains(byte))
        .all(|step| step.iter().all(u8::is_ascii_digit) || is_name(step))
}

/// The match of a pattern with the beginning of a text.
#[derive(Debug)]
pub(super) struct PatternMatch<'t> {
    /// The ids that the text names, in its order, each once.
    pub(super) ids: Vec<String>,
    /// The texts of its other variables.
    pub(super) slots: MatchedTexts,
    /// The text after the pattern. Empty after a list of ids.
    pub(super) rest: &'t [u8],
}

impl Pattern {
    /// Compiles a pattern. `<<` stands for `<`. Fails if a variable is unknown or directly follows another one.
    pub(super) fn compile(text: &str) -> Result<Self, RowFault> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), Vec::new(), text);
        while let Some(letter) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("<<") {
                literal.push(b'<');
                rest = after;
            } else if let Some(variable) = rest.strip_prefix('<') {
                let unknown = || RowFault::UnknownVariable(text.to_owned());
                let (name, after) = variable.split_once('>').ok_or_else(unknown)?;
                let (_, variable) = VariableKind::NAMES
                    .iter()
                    .find(|(known, _)| *known == name)
                    .ok_or_else(unknown)?;
                if literal.is_empty() && !pieces.is_empty() {
                    return Err(RowFault::JoinedVariables(text.to_owned()));
                }
                if !literal.is_empty() {
                    pieces.push(PatternPiece::Literal(std::mem::take(&mut literal).into()));
                }
                pieces.push(PatternPiece::Variable(*variable));
                rest = after;
            } else {
                let (piece, after) = rest.split_at(letter.len_utf8());
                let bytes = piece.bytes().filter(|byte| !QUOTE_MARKS.contains(byte));
                literal.extend(bytes.map(|byte| byte.to_ascii_lowercase()));
                rest = after;
            }
        }
        if !literal.is_empty() {
            pieces.push(PatternPiece::Literal(literal.into()));
        }
        let variables = pieces.iter().filter(|piece| matches!(piece, PatternPiece::Variable(_)));
        if variables.count() > VARIABLES_MAX {
            return Err(RowFault::TooManyVariables(text.to_owned()));
        }
        Ok(Self { pieces })
    }

    /// Returns the number of bytes that are not variables: the more of them, the more the pattern says.
    pub(super) fn literal_bytes(&self) -> usize {
        self.literals().map(<[u8]>::len).sum()
    }

    /// Returns the pieces of text between the variables, in lower case and without quotes.
    pub(super) fn literals(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().filter_map(|piece| match piece {
            PatternPiece::Literal(literal) => Some(&**literal),
            PatternPiece::Variable(_) => None,
        })
    }

    /// Returns `true` if the pattern has a variable of this name.
    pub(super) fn has_variable(&self, name: &str) -> bool {
        let mut known = VariableKind::NAMES.iter().filter(|(known, _)| *known == name);
        known.any(|(_, kind)| self.pieces.contains(&PatternPiece::Variable(*kind)))
    }

    /// Returns the number of bytes of `text` that the pattern matches before the first that differs.
    pub(super) fn matched_bytes(&self, text: &[u8], place_names: &[String]) -> usize {
        let matched = |pieces: &[PatternPiece]| {
            let begin = Self {
                pieces: pieces.to_vec(),
            };
            let found = begin.match_start(text, place_names)?;
            Some(text.len().saturating_sub(found.rest.len()))
        };
        let count = self.pieces.len();
        let whole = (0..=count).rev().find_map(|end| {
            let bytes = self.pieces.get(..end).and_then(matched)?;
            Some((end, bytes))
        });
        let (end, bytes) = whole.unwrap_or_default();
        let rest = text.get(bytes..).unwrap_or_default();
        match self.pieces.get(end) {
            Some(PatternPiece::Literal(literal)) => bytes.saturating_add(common_bytes(literal, rest)),
            Some(PatternPiece::Variable(_)) | None => bytes,
        }
    }

    /// Returns `true` if nothing limits what stands at the pattern's end.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.pieces.last(),
            None | Some(PatternPiece::Variable(VariableKind::Ids | VariableKind::Words))
        )
    }

    /// Matches the pattern with the beginning of `text`.
    pub(super) fn match_start<'t>(&self, text: &'t [u8], place_names: &[String]) -> Option<PatternMatch<'t>> {
        let (mut found, mut slots, mut rest) = (Vec::new(), MatchedTexts::default(), text);
        let mut pieces = self.pieces.iter();
        while let Some(piece) = pieces.next() {
            let variable = match piece {
                PatternPiece::Literal(literal) => {
                    rest = match_literal(literal, rest)?;
                    continue;
                }
                PatternPiece::Variable(variable) => *variable,
            };
            let (gap, after) = match pieces.next() {
                Some(PatternPiece::Literal(next)) => find_variable_end(next, rest, variable)?,
                // Nothing delimits a variable at the end of a pattern, so it takes a whole list.
                _ if variable == VariableKind::Ids => {
                    found.extend(ids::read_id_list(rest));
                    return Some(PatternMatch {
                        ids: found,
                        slots,
                        rest: &[],
                    });
                }
                _ => rest.split_at(variable_width(rest, variable)),
            };
            if !variable.accepts(gap, place_names) {
                return None;
            }
            match variable {
                VariableKind::Ids => found.extend(ids::parse_id(gap).filter(|id| !found.contains(id))),
                VariableKind::Place => slots.place = slots.place.or_else(|| text_of(gap)),
                VariableKind::Member => slots.member = slots.member.or_else(|| text_of(gap)),
                VariableKind::Name => slots.name = slots.name.or_else(|| text_of(gap)),
                VariableKind::Number => slots.numbers.extend(number_of(gap)),
                VariableKind::Tokens(count) => {
                    if let Some(number) = number_of(gap) {
                        slots.numbers.push(number);
                        slots.tokens.set(count, number);
                    }
                }
                VariableKind::Word | VariableKind::Words => {}
            }
            rest = after;
        }
        Some(PatternMatch {
            ids: found,
            slots,
            rest,
        })
    }
}

/// Returns the text of a variable without the quotes around it. `None` if it is no UTF-8.
fn text_of(gap: &[u8]) -> Option<Box<str>> {
    std::str::from_utf8(without_quotes(gap)).ok().map(Into::into)
}

/// Returns the number that a variable has matched. `None` if it is too large.
fn number_of(gap: &[u8]) -> Option<u64> {
    text_of(gap)?.parse().ok()
}

/// Matches a literal with the beginning of `text`. Returns the text after it.
fn match_literal<'t>(literal: &[u8], text: &'t [u8]) -> Option<&'t [u8]> {
    let mut rest = text;
    for wanted in literal {
        // Each gateway quotes and escapes in its own way.
        let (byte, tail) = rest.get(quotes_before(rest)..)?.split_first()?;
        if !byte.eq_ignore_ascii_case(wanted) {
            return None;
        }
        rest = tail;
    }
    Some(rest)
}

/// Returns the number of bytes at the beginning of `text` that agree with a literal.
fn common_bytes(literal: &[u8], text: &[u8]) -> usize {
    let mut rest = text;
    for wanted in literal {
        let tail = rest.get(quotes_before(rest)..).and_then(<[u8]>::split_first);
        match tail {
            Some((byte, tail)) if byte.eq_ignore_ascii_case(wanted) => rest = tail,
            Some(_) | None => break,
        }
    }
    text.len().saturating_sub(rest.len())
}

/// Returns the number of bytes that a variable at the beginning of `text` may take.
fn variable_width(text: &[u8], variable: VariableKind) -> usize {
    let marks = match variable {
        VariableKind::Member => quotes_before(text),
        VariableKind::Ids
        | VariableKind::Place
        | VariableKind::Name
        | VariableKind::Number
        | VariableKind::Tokens(_)
        | VariableKind::Word
        | VariableKind::Words => 0,
    };
    let bytes = text.iter().take(VARIABLE_BYTES_MAX).skip(marks);
    let width = bytes.take_while(|byte| !variable.ends_at(**byte)).count();
    width.saturating_add(marks)
}

/// Returns the number of quotes at the beginning of a text that are skipped.
fn quotes_before(text: &[u8]) -> usize {
    let marks = text.iter().take(QUOTE_MARKS_MAX);
    marks.take_while(|byte| QUOTE_MARKS.contains(byte)).count()
}

/// Returns the bytes of a variable, up to the first position at which `literal` matches, and the text after that literal.
fn find_variable_end<'t>(literal: &[u8], text: &'t [u8], variable: VariableKind) -> Option<(&'t [u8], &'t [u8])> {
    let width = variable_width(text, variable);
    let split = |length: usize| {
        let (gap, rest) = text.split_at_checked(length)?;
        match_literal(literal, rest).map(|after| (gap, after))
    };
    if variable == VariableKind::Place && literal == LAST_STEP {
        // A full stop behind the last step ends a sentence.
        let begins_step = |rest: &[u8]| rest.get(quotes_before(rest)).copied().is_some_and(is_member_letter);
        return (0..=width)
            .rev()
            .find_map(|length| split(length).filter(|(_, rest)| begins_step(rest)));
    }
    (0..=width).find_map(split)
}
