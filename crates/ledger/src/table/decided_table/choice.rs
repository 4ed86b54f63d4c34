//! A decided row for tests.

use bytes::{BufMut, Bytes};

use super::{DecidedRow, StoredRow};
use crate::ledger::Record;

/// A row of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::table) struct Choice {
    pub(in crate::table) text: String,
    pub(in crate::table) is_accepted: bool,
}

impl Choice {
    pub(in crate::table) fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            text: String::from_utf8(bytes[1..].to_vec()).unwrap(),
            is_accepted: bytes[0] == 1,
        }
    }
}

impl StoredRow for Choice {
    fn encode(&self) -> Option<Bytes> {
        let mut bytes = vec![u8::from(self.is_accepted)];
        bytes.put_slice(self.text.as_bytes());
        Some(bytes.into())
    }

    fn decode(record: &Record) -> Option<Self> {
        Some(Self::from_bytes(&record.value))
    }

    fn byte_len(&self) -> usize {
        self.text.len()
    }
}

impl DecidedRow for Choice {
    fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    fn has_same_content(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
