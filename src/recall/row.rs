//! The encoding of a pinned answer in the ledger.

use bytes::{BufMut, Bytes};

use crate::repair::{PinnedAnswer, Placeholder, RealResult};

/// The first byte of every row.
const VERSION: u8 = 1;
const TENTATIVE: u8 = 0;
const FIRM: u8 = 1;
const PLACEHOLDER: u8 = b'p';
const BLOCK: u8 = b'b';
const CONTENT: u8 = b'c';
const FAILED: u8 = b'f';

/// A pinned answer, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The answer.
    pub answer: PinnedAnswer,
    /// `true` if a provider has accepted a request with this answer.
    pub firm: bool,
}

impl Row {
    /// Encodes the row.
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION, if self.firm { FIRM } else { TENTATIVE }];
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
        let [VERSION, state @ (TENTATIVE | FIRM), kind, said @ ..] = bytes else {
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
            firm: *state == FIRM,
        })
    }

    /// Returns the bytes of the answer's text in memory.
    pub fn weight(&self) -> usize {
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
                let row = Row { answer, firm };
                assert_eq!(Row::decode(&row.encode()), Some(row));
            }
        }
    }

    proptest! {
        #[test]
        fn other_bytes_are_no_row(bytes in any::<Vec<u8>>()) {
            if let Some(row) = Row::decode(&bytes) {
                prop_assert_eq!(Row::decode(&row.encode()), Some(row));
            }
        }
    }
}
