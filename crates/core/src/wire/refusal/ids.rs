//! Reads the ids that a refusal names.

use memchr::memmem;

/// Quotes of every kind, and the backslash before one.
pub(super) const QUOTE_MARKS: &[u8] = b"`'\"\\";
/// Text that litellm appends without a blank.
pub(super) const LITELLM_TAIL: &[u8] = b"No fallback model group found";
/// Largest number of ids that are read.
const IDS_MAX: usize = 64;
/// Bytes of the longest id that is read.
const ID_BYTES_MAX: usize = 256;

/// Reads the ids of a list at the end of the text, or before other words.
pub(super) fn read_id_list(text: &[u8]) -> Vec<String> {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let end = memmem::find(line, LITELLM_TAIL).unwrap_or(line.len());
    let line = line.get(..end).unwrap_or_default();
    let mut ids = Vec::new();
    // The first word is an id, and so is any word after a comma.
    let mut expected = true;
    for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        let listed = ListedId::new(word);
        if ids.len() == IDS_MAX || !(expected || listed.looks_like_id()) {
            break;
        }
        ids.extend(parse_id(listed.name).filter(|id| !ids.contains(id)));
        if listed.ends_list {
            break;
        }
        expected = word.ends_with(b",");
    }
    ids
}

/// One word of a list of ids.
struct ListedId<'t> {
    /// The word without quotes and punctuation.
    name: &'t [u8],
    /// Set if the list ends with this word.
    ends_list: bool,
}

impl<'t> ListedId<'t> {
    fn new(word: &'t [u8]) -> Self {
        let opening = word.iter().take_while(|byte| QUOTE_MARKS.contains(byte)).count();
        let inner = word.get(opening..).unwrap_or_default();
        let closing = inner
            .iter()
            .position(|byte| QUOTE_MARKS.contains(byte))
            .unwrap_or(inner.len());
        let (name, tail) = inner.split_at_checked(closing).unwrap_or_default();
        let stops = name.iter().rev().take_while(|byte| b".,)]}".contains(byte)).count();
        let (name, stops) = name
            .split_at_checked(name.len().saturating_sub(stops))
            .unwrap_or_default();
        Self {
            name,
            // A comma continues the list. Other punctuation ends it, and so does a quote that was opened before it.
            ends_list: stops.iter().any(|byte| *byte != b',')
                || tail.iter().any(|byte| *byte != b',' && !QUOTE_MARKS.contains(byte))
                || tail.iter().filter(|byte| QUOTE_MARKS.contains(byte)).count() > opening,
        }
    }

    /// Returns `true` if the word may be an id although no comma precedes it. Plain words contain no digit.
    fn looks_like_id(&self) -> bool {
        self.name.iter().any(|byte| byte.is_ascii_digit() || *byte == b'_')
    }
}

/// Reads an id. `None` if it is empty, too long, not UTF-8, or an index (`message[532].role`).
pub(super) fn parse_id(name: &[u8]) -> Option<String> {
    let begin = name.iter().take_while(|byte| QUOTE_MARKS.contains(byte)).count();
    let end = name
        .iter()
        .rposition(|byte| !QUOTE_MARKS.contains(byte))?
        .saturating_add(1);
    let id = std::str::from_utf8(name.get(begin..end)?).ok()?;
    let is_index = id.starts_with("message[") || id.starts_with("messages[");
    let is_whole = id.len() <= ID_BYTES_MAX && !id.bytes().any(|byte| QUOTE_MARKS.contains(&byte));
    (is_whole && !is_index).then(|| id.to_owned())
}
