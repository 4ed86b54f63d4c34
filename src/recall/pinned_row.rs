//! The encoding of a pinned answer in the ledger.

use bytes::{BufMut, Bytes};

use crate::repair::{PinnedAnswer, Placeholder, RealResult};

/// The first byte of every row.
const VERSION: u8 = 1;
const PENDING: u8 = 0;
const COMMITTED: u8 = 1;
const PLACEHOLDER: u8 = b'p';
const BLOCK: u8 = b'b';
const CONTENT: u8 = b'c';
const FAILED: u8 = b'f';

/// A pinned answer, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedRow {
    /// The answer.
    pub answer: PinnedAnswer,
    /// `true` if a provider has accepted a request with this answer.
    pub is_committed: bool,
}

impl PinnedRow {
    /// Encodes the row.
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION, if self.is_committed { COMMITTED } else { PENDING }];
        match &self.answer {
            PinnedAnswer::Placeholder(placeholder) => bytes.put_slice(&[PLACEHOLDER, placeholder.number()]),
            PinnedAnswer::Result(RealResult::Block(block)) => {
                bytes.put_u8(BLOCK);
                bytes.put_slice(block.as_bytes());
            }
            PinnedAnswer::Result(RealResult::Content { content, failed }) => {
                bytes.put_u8(if *failed { FAILED } else { CONTENT });
                bytes.put_slice(content.as_bytes());
            }
        }
        bytes.into()
    }

    /// Decodes a row. `None` if this version does not know the encoding.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        // Bytes of another version count as no row, so that the call is pinned anew.
        let [VERSION, state @ (PENDING | COMMITTED), kind, said @ ..] = bytes else {
            return None;
        };
        let text = || String::from_utf8(said.to_vec()).ok();
        let answer = match *kind {
            PLACEHOLDER => PinnedAnswer::Placeholder(Placeholder::from_number(*said.first()?)?),
            BLOCK => PinnedAnswer::Result(RealResult::Block(text()?)),
            CONTENT | FAILED => PinnedAnswer::Result(RealResult::Content {
                content: text()?,
                failed: *kind == FAILED,
            }),
            _ => return None,
        };
        Some(Self {
            answer,
            is_committed: *state == COMMITTED,
        })
    }

    /// Returns the bytes of the answer's text in memory.
    pub fn text_bytes(&self) -> usize {
        match &self.answer {
            // A placeholder is a number in the row itself.
            PinnedAnswer::Placeholder(_) => 0,
            PinnedAnswer::Result(real) => real.byte_len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_comes_back_as_it_was() {
        let text = || "{\"é\":1}".to_owned();
        for answer in [
            PinnedAnswer::Placeholder(Placeholder::ReadInterrupted),
            PinnedAnswer::Placeholder(Placeholder::OutcomeUnknown),
            PinnedAnswer::Result(RealResult::Block(text())),
            PinnedAnswer::Result(RealResult::Content {
                content: text(),
                failed: true,
            }),
            PinnedAnswer::Result(RealResult::Content {
                content: text(),
                failed: false,
            }),
        ] {
            for firm in [true, false] {
                let answer = answer.clone();
                let row = PinnedRow {
                    answer,
                    is_committed: firm,
                };
                assert_eq!(PinnedRow::decode(&row.encode()), Some(row));
            }
        }
    }

    proptest! {
        #[test]
        fn other_bytes_are_no_row(bytes in any::<Vec<u8>>()) {
            if let Some(row) = PinnedRow::decode(&bytes) {
                prop_assert_eq!(PinnedRow::decode(&row.encode()), Some(row));
            }
        }
    }
}
