//! The encoding of a pinned result in the ledger.

use bytes::{BufMut, Bytes};

use crate::{
    ledger::Record,
    repair::{PinnedResult, Placeholder, RealResult},
    table::{DecidedRow, StoredRow},
};

/// The first byte of every row.
const VERSION: u8 = 1;
const PENDING: u8 = 0;
const COMMITTED: u8 = 1;
const PLACEHOLDER: u8 = b'p';
const BLOCK: u8 = b'b';
const CONTENT: u8 = b'c';
const FAILED: u8 = b'f';

/// A pinned result, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PinnedRow {
    /// The result.
    pub(super) result: PinnedResult,
    /// `true` if a provider has accepted a request with this result.
    pub(super) is_committed: bool,
}

impl PinnedRow {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // Bytes of another version count as no row, so that the call is pinned anew.
        let [VERSION, state @ (PENDING | COMMITTED), kind, said @ ..] = bytes else {
            return None;
        };
        let text = || String::from_utf8(said.to_vec()).ok();
        let result = match *kind {
            PLACEHOLDER => PinnedResult::Placeholder(Placeholder::from_number(*said.first()?)?),
            BLOCK => PinnedResult::Result(RealResult::Block(text()?)),
            CONTENT | FAILED => PinnedResult::Result(RealResult::Content {
                content: text()?,
                failed: *kind == FAILED,
            }),
            _ => return None,
        };
        Some(Self {
            result,
            is_committed: *state == COMMITTED,
        })
    }
}

impl StoredRow for PinnedRow {
    fn encode(&self) -> Option<Bytes> {
        let mut bytes = vec![VERSION, if self.is_committed { COMMITTED } else { PENDING }];
        match &self.result {
            PinnedResult::Placeholder(placeholder) => bytes.put_slice(&[PLACEHOLDER, placeholder.number()]),
            PinnedResult::Result(RealResult::Block(block)) => {
                bytes.put_u8(BLOCK);
                bytes.put_slice(block.as_bytes());
            }
            PinnedResult::Result(RealResult::Content { content, failed }) => {
                bytes.put_u8(if *failed { FAILED } else { CONTENT });
                bytes.put_slice(content.as_bytes());
            }
        }
        Some(bytes.into())
    }

    fn decode(record: &Record) -> Option<Self> {
        Self::from_bytes(&record.value)
    }

    fn byte_len(&self) -> usize {
        match &self.result {
            // A placeholder is a number in the row itself.
            PinnedResult::Placeholder(_) => 0,
            PinnedResult::Result(real) => real.byte_len(),
        }
    }
}

impl DecidedRow for PinnedRow {
    fn is_accepted(&self) -> bool {
        self.is_committed
    }

    fn has_same_content(&self, other: &Self) -> bool {
        self.result == other.result
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_comes_back_as_it_was() {
        let text = || "{\"é\":1}".to_owned();
        for result in [
            PinnedResult::Placeholder(Placeholder::ReadInterrupted),
            PinnedResult::Placeholder(Placeholder::OutcomeUnknown),
            PinnedResult::Result(RealResult::Block(text())),
            PinnedResult::Result(RealResult::Content {
                content: text(),
                failed: true,
            }),
            PinnedResult::Result(RealResult::Content {
                content: text(),
                failed: false,
            }),
        ] {
            for is_committed in [true, false] {
                let result = result.clone();
                let row = PinnedRow { result, is_committed };
                assert_eq!(PinnedRow::from_bytes(&row.encode().unwrap()), Some(row));
            }
        }
    }

    proptest! {
        #[test]
        fn other_bytes_are_no_row(bytes in any::<Vec<u8>>()) {
            if let Some(row) = PinnedRow::from_bytes(&bytes) {
                prop_assert_eq!(PinnedRow::from_bytes(&row.encode().unwrap()), Some(row));
            }
        }
    }
}
