//! The encoding of a carried value in the ledger.

use bytes::{BufMut, Bytes};

use super::carried_value::CarriedValue;

/// The first byte of every row.
const VERSION: u8 = 1;
const NOTED: u8 = 0;
const PINNED: u8 = 1;
const TEXT: u8 = b't';
const NEUTRAL: u8 = b'n';

/// A carried value, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueRow {
    pub(super) value: CarriedValue,
    /// `true` if a provider has accepted a request with this value.
    pub(super) is_pinned: bool,
}

impl ValueRow {
    /// Encodes the row.
    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION, if self.is_pinned { PINNED } else { NOTED }];
        match &self.value {
            CarriedValue::Neutral => bytes.put_u8(NEUTRAL),
            CarriedValue::Text(text) => {
                bytes.put_u8(TEXT);
                bytes.put_slice(text.as_bytes());
            }
        }
        bytes.into()
    }

    /// Decodes a row. `None` if this version does not know the encoding.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [VERSION, state @ (NOTED | PINNED), kind, text @ ..] = bytes else {
            return None;
        };
        let value = match (*kind, text) {
            (NEUTRAL, []) => CarriedValue::Neutral,
            (TEXT, text) => CarriedValue::Text(std::str::from_utf8(text).ok()?.into()),
            _ => return None,
        };
        Some(Self {
            value,
            is_pinned: *state == PINNED,
        })
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
            for is_pinned in [true, false] {
                let row = ValueRow {
                    value: value.clone(),
                    is_pinned,
                };
                assert_eq!(ValueRow::decode(&row.encode()), Some(row));
            }
        }
    }

    proptest! {
        #[test]
        fn other_bytes_are_no_row(bytes in any::<Vec<u8>>()) {
            if let Some(row) = ValueRow::decode(&bytes) {
                prop_assert_eq!(ValueRow::decode(&row.encode()), Some(row));
            }
        }
    }
}
