//! Mends with their arguments, as a server has taught them.

use crate::wire::MendKind;

/// The most mends of one body.
pub const MENDS_MAX: usize = 16;
/// Bytes of the longest word of a mend.
const WORD_BYTES_MAX: usize = 128;

/// A mend with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mend {
    /// Its kind.
    pub kind: MendKind,
    /// Its argument: a type, a role, a member, or a number. Empty if it has none.
    pub word: Box<str>,
    /// The class of objects on which it acts, by their role or type. Empty for all.
    pub class: Box<str>,
    /// `true` if only blocks are mended that a provider has refused before.
    pub only_refused: bool,
}

impl Mend {
    /// Creates a mend of all classes. `None` if the word is longer than 128 bytes.
    pub fn new(kind: MendKind, word: &str) -> Option<Self> {
        Self::of_class(kind, word, "")
    }

    /// Creates a mend of one class. `None` if a word is longer than 128 bytes.
    pub fn of_class(kind: MendKind, word: &str, class: &str) -> Option<Self> {
        let fits = word.len() <= WORD_BYTES_MAX && class.len() <= WORD_BYTES_MAX;
        fits.then(|| Self {
            kind,
            word: word.into(),
            class: class.into(),
            only_refused: false,
        })
    }

    /// Returns the bytes of a list of mends in a record: of each its number, 1 if it is for refused blocks only, and its words
    /// with their lengths.
    pub fn write_list(mends: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for mend in mends.iter().take(MENDS_MAX) {
            bytes.extend([mend.kind.number(), u8::from(mend.only_refused)]);
            for word in [&mend.word, &mend.class] {
                bytes.push(u8::try_from(word.len()).unwrap_or_default());
                bytes.extend_from_slice(word.as_bytes());
            }
        }
        bytes
    }

    /// Reads a list of mends. Those of a later version are skipped. `None` if the bytes are damaged.
    pub fn read_list(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut mends = Vec::new();
        while let Some((&[number, only_refused], rest)) = bytes.split_first_chunk() {
            let (word, rest) = read_word(rest)?;
            let (class, rest) = read_word(rest)?;
            bytes = rest;
            let mend = MendKind::from_number(number).and_then(|kind| Self::of_class(kind, word, class));
            let mend = mend.filter(|_| mends.len() < MENDS_MAX);
            mends.extend(mend.map(|mend| Self {
                only_refused: only_refused != 0,
                ..mend
            }));
        }
        bytes.is_empty().then_some(mends)
    }
}

fn read_word(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (word, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((std::str::from_utf8(word).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_later_mends_are_skipped() {
        let mends = vec![
            Mend::of_class(MendKind::DropMember, "status", "function_call").unwrap(),
            Mend {
                only_refused: true,
                ..Mend::new(MendKind::QuoteBlock, "image").unwrap()
            },
        ];
        let mut bytes = Mend::write_list(&mends);
        assert_eq!(Mend::read_list(&bytes), Some(mends.clone()));
        bytes.extend([250, 0, 1, b'x', 0]);
        assert_eq!(Mend::read_list(&bytes), Some(mends));
        assert_eq!(Mend::read_list(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Mend::new(MendKind::DropMember, &"x".repeat(129)), None);
    }

    #[test]
    fn each_kind_has_a_name_and_a_number_of_its_own() {
        for kind in MendKind::all() {
            assert_eq!(MendKind::from_name(kind.name()), Some(kind));
            assert_eq!(MendKind::from_number(kind.number()), Some(kind));
        }
    }
}
