//! The encoding of a carried value in the ledger.

use bytes::{BufMut, Bytes};

use super::carried_value::CarriedValue;
use crate::{ledger::Record, table::StoredRow};

/// The first byte of every row.
const VERSION: u8 = 1;
const NOTED: u8 = 0;
const PINNED: u8 = 1;
const TEXT: u8 = b't';
const NEUTRAL: u8 = b'n';

/// A row of carried values: a value, or a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueRow {
    /// A carried value, and its state. A neutral one that is not pinned is the mark of a value that was left out, and under
    /// the name of a scope a pinned one is the mark that bodies were sent with values of it.
    Value {
        value: CarriedValue,
        /// `true` if a provider has accepted a request with this value.
        is_pinned: bool,
    },
    /// This process knows that there is none. This is never stored.
    Nothing,
}

impl ValueRow {
    /// Returns a value that an answer carried.
    pub(super) const fn noted(value: CarriedValue) -> Self {
        let is_pinned = false;
        Self::Value { value, is_pinned }
    }

    /// Returns a value with which a provider has accepted a request.
    pub(super) const fn pinned(value: CarriedValue) -> Self {
        let is_pinned = true;
        Self::Value { value, is_pinned }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [VERSION, state @ (NOTED | PINNED), kind, text @ ..] = bytes else {
            return None;
        };
        let value = match (*kind, text) {
            (NEUTRAL, []) => CarriedValue::Neutral,
            (TEXT, text) => CarriedValue::Text(std::str::from_utf8(text).ok()?.into()),
            _ => return None,
        };
        let is_pinned = *state == PINNED;
        Some(Self::Value { value, is_pinned })
    }
}

impl StoredRow for ValueRow {
    fn encode(&self) -> Option<Bytes> {
        let Self::Value { value, is_pinned } = self else {
            return None;
        };
        let mut bytes = vec![VERSION, if *is_pinned { PINNED } else { NOTED }];
        match value {
            CarriedValue::Neutral => bytes.put_u8(NEUTRAL),
            CarriedValue::Text(text) => {
                bytes.put_u8(TEXT);
                bytes.put_slice(text.as_bytes());
            }
        }
        Some(bytes.into())
    }

    fn decode(record: &Record) -> Option<Self> {
        Self::from_bytes(&record.value)
    }

    fn is_settled(&self, is_exclusive: bool) -> bool {
        // Another process may pin a noted value, or leave it out.
        is_exclusive || matches!(self, Self::Value { is_pinned: true, .. })
    }

    fn merged(self, read: Self) -> Self {
        // The first record of a value stays, unless this process has pinned it meanwhile.
        if matches!(self, Self::Value { is_pinned: true, .. }) {
            self
        } else {
            read
        }
    }

    fn byte_len(&self) -> usize {
        match self {
            Self::Value {
                value: CarriedValue::Text(text),
                ..
            } => text.len(),
            Self::Value { .. } | Self::Nothing => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_comes_back_as_it_was() {
        for value in [
            CarriedValue::Neutral,
            CarriedValue::Text("é".into()),
            CarriedValue::Text("".into()),
        ] {
            for row in [ValueRow::noted(value.clone()), ValueRow::pinned(value.clone())] {
                assert_eq!(ValueRow::from_bytes(&row.encode().unwrap()), Some(row));
            }
        }
        assert_eq!(ValueRow::Nothing.encode(), None);
    }

    proptest! {
        #[test]
        fn other_bytes_are_no_row(bytes in any::<Vec<u8>>()) {
            if let Some(row) = ValueRow::from_bytes(&bytes) {
                prop_assert_eq!(ValueRow::from_bytes(&row.encode().unwrap()), Some(row));
            }
        }
    }
}
