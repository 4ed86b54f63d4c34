//! Reads one phrase of the table in a text: word by word from its beginning, with the ids that it names.

use memchr::memmem;

/// What litellm puts behind a text without a blank.
const LITELLM_TAIL: &[u8] = b"No fallback model group found";
const IDS_MAX: usize = 64;
const ID_BYTES_MAX: usize = 256;
/// An id and the quotes around it.
const GAP_BYTES_MAX: usize = 264;
/// Quotes of every kind, and the backslash before one.
const MARKS: &[u8] = b"`'\"\\";
/// Marks in a row that are passed over.
const MARKS_MAX: usize = 4;

/// The ids that `text` names if it begins as `phrase` says, and what follows the phrase.
pub(super) fn read<'t>(phrase: &str, text: &'t [u8]) -> Option<(Vec<String>, &'t [u8])> {
    let mut ids = Vec::new();
    let (mut rest, mut slots) = behind(phrase, text)?;
    while let Some((slot, next)) = slots.split_once('>') {
        if slot == "ids" && next.is_empty() {
            return Some((listed(rest), &[]));
        }
        let stops: fn(&u8) -> bool = match slot {
            "words" => |byte| *byte == b'\n',
            _ => u8::is_ascii_whitespace,
        };
        let (gap, left) = up_to(next, rest, stops)?;
        if slot == "ids" {
            ids.extend(id(gap));
        }
        (rest, slots) = left;
    }
    Some((ids, rest))
}

/// What is left of a text, and of its phrase: from the name of its next slot on.
type Left<'t, 'p> = (&'t [u8], &'p str);

/// What is left behind the beginning of `phrase`, up to its first slot.
fn behind<'t, 'p>(phrase: &'p str, text: &'t [u8]) -> Option<Left<'t, 'p>> {
    let mut rest = text;
    for (at, wanted) in phrase.bytes().enumerate() {
        if wanted == b'<' {
            return Some((rest, phrase.get(at.saturating_add(1)..)?));
        }
        let marks = rest
            .iter()
            .take(MARKS_MAX)
            .take_while(|byte| MARKS.contains(byte))
            .count();
        let (byte, tail) = rest.get(marks..)?.split_first()?;
        if !byte.eq_ignore_ascii_case(&wanted) {
            return None;
        }
        rest = tail;
    }
    Some((rest, ""))
}

/// The gap before the first place where `phrase` goes on, no further than the first byte that `stops`; and what is left
/// behind that.
fn up_to<'t, 'p>(phrase: &'p str, text: &'t [u8], stops: fn(&u8) -> bool) -> Option<(&'t [u8], Left<'t, 'p>)> {
    let width = text.iter().take(GAP_BYTES_MAX).take_while(|byte| !stops(byte)).count();
    (0..=width).find_map(|length| {
        let (gap, rest) = text.split_at_checked(length)?;
        behind(phrase, rest).map(|left| (gap, left))
    })
}

/// The ids of a list that ends the text, or goes before other words.
fn listed(text: &[u8]) -> Vec<String> {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let end = memmem::find(line, LITELLM_TAIL).unwrap_or(line.len());
    let line = line.get(..end).unwrap_or_default();
    let mut ids = Vec::new();
    let mut expected = true;
    for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        let listed = Listed::new(word);
        if ids.len() == IDS_MAX || !(expected || listed.looks_like_id()) {
            break;
        }
        ids.extend(id(listed.name).filter(|id| !ids.contains(id)));
        if listed.ends {
            break;
        }
        expected = word.ends_with(b",");
    }
    ids
}

/// One word of a list of ids.
struct Listed<'t> {
    /// Without quotes and what stops it.
    name: &'t [u8],
    /// Whether the list ends with it.
    ends: bool,
}

impl<'t> Listed<'t> {
    fn new(word: &'t [u8]) -> Self {
        let opening = word.iter().take_while(|byte| MARKS.contains(byte)).count();
        let inner = word.get(opening..).unwrap_or_default();
        let closing = inner
            .iter()
            .position(|byte| MARKS.contains(byte))
            .unwrap_or(inner.len());
        let (name, tail) = inner.split_at_checked(closing).unwrap_or_default();
        let stops = name.iter().rev().take_while(|byte| b".,)]}".contains(byte)).count();
        let (name, stops) = name
            .split_at_checked(name.len().saturating_sub(stops))
            .unwrap_or_default();
        Self {
            name,
            ends: stops.iter().any(|byte| *byte != b',')
                || tail.iter().any(|byte| *byte != b',' && !MARKS.contains(byte))
                || tail.iter().filter(|byte| MARKS.contains(byte)).count() > opening,
        }
    }

    /// Whether it may be an id where no comma says so: other words hold no digit.
    fn looks_like_id(&self) -> bool {
        self.name.iter().any(|byte| byte.is_ascii_digit() || *byte == b'_')
    }
}

/// An id, unless it is empty, too long, no UTF-8, or an index in its place (`message[532].role`).
fn id(name: &[u8]) -> Option<String> {
    let begin = name.iter().take_while(|byte| MARKS.contains(byte)).count();
    let end = name.iter().rposition(|byte| !MARKS.contains(byte))?.saturating_add(1);
    let id = std::str::from_utf8(name.get(begin..end)?).ok()?;
    let is_index = id.starts_with("message[") || id.starts_with("messages[");
    let is_whole = id.len() <= ID_BYTES_MAX && !id.bytes().any(|byte| MARKS.contains(&byte));
    (is_whole && !is_index).then(|| id.to_owned())
}
