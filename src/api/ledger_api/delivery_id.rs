//! The id of a delivery in JSON and in paths: the record name of its call, in hexadecimal digits.

use crate::ledger::RecordName;

/// Writes the delivery id of a call.
pub(super) fn format_delivery_id(name: &RecordName) -> String {
    blake3::Hash::from_bytes(*name).to_hex().to_string()
}

/// Reads a delivery id. Returns `None` if the text is no such id.
pub(super) fn parse_delivery_id(text: &[u8]) -> Option<RecordName> {
    blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
}
