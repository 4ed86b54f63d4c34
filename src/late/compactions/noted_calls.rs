//! The calls of a lane that compactions may have removed, and their bytes in the ledger.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;

use crate::ledger::RecordName;

/// The format version of a record.
const VERSION: u8 = 1;
/// Calls of one lane that are stored. The oldest are forgotten first, and their results wait to be read by their owner.
const CALLS_MAX: usize = 512;
/// Bytes of a call in a record: a flag and a name.
pub(super) const CALL_BYTES: usize = 33;

/// A call that stood in a history which was compacted, or could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedCall {
    /// The name of its record.
    pub name: RecordName,
    /// `true` if the client asked for a summary of the history. Otherwise only a compaction in a later body proves one.
    pub by_client: bool,
}

/// Returns the calls of both lists, each once, without the oldest above the limit.
pub(super) fn merge_calls(older: &[NotedCall], newer: &[NotedCall]) -> Arc<[NotedCall]> {
    let in_newer: HashSet<&RecordName> = newer.iter().map(|call| &call.name).collect();
    let by_client: HashSet<&RecordName> = older
        .iter()
        .filter(|call| call.by_client)
        .map(|call| &call.name)
        .collect();
    let older_only = older.iter().filter(|call| !in_newer.contains(&call.name)).copied();
    let newer = newer.iter().map(|call| NotedCall {
        // What one compaction has proven, a later turn does not undo.
        by_client: call.by_client || by_client.contains(&call.name),
        ..*call
    });
    let calls: Vec<NotedCall> = older_only.chain(newer).collect();
    let surplus = calls.len().saturating_sub(CALLS_MAX);
    calls.get(surplus..).unwrap_or_default().into()
}

/// Returns the bytes of a record.
pub(super) fn encode_calls(calls: &[NotedCall]) -> Bytes {
    let mut bytes = vec![VERSION];
    for call in calls {
        bytes.push(u8::from(call.by_client));
        bytes.extend(call.name);
    }
    bytes.into()
}

/// Decodes the calls of a record. Returns `None` for another version.
pub(super) fn decode_calls(bytes: &[u8]) -> Option<Vec<NotedCall>> {
    let (VERSION, rest) = bytes.split_first().map(|(version, rest)| (*version, rest))? else {
        return None;
    };
    let (calls, rest) = rest.as_chunks::<CALL_BYTES>();
    let decode = |[by_client, name @ ..]: &[u8; CALL_BYTES]| NotedCall {
        name: *name,
        by_client: *by_client == 1,
    };
    rest.is_empty().then(|| calls.iter().map(decode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(number: usize, by_client: bool) -> NotedCall {
        let mut name = [0; 32];
        name[..8].copy_from_slice(&number.to_le_bytes());
        NotedCall { name, by_client }
    }

    #[test]
    fn the_oldest_calls_are_forgotten_first() {
        let older: Vec<NotedCall> = (0..CALLS_MAX).map(|number| noted(number, number == 1)).collect();
        let merged = merge_calls(&older, &[noted(1, false), noted(CALLS_MAX, false)]);
        assert_eq!(merged.len(), CALLS_MAX);
        assert!(!merged.contains(&noted(0, false)));
        assert_eq!(merged[CALLS_MAX - 2..], [noted(1, true), noted(CALLS_MAX, false)]);
        // A long history that is noted again changes nothing.
        let long: Vec<NotedCall> = (0..CALLS_MAX + 90).map(|number| noted(number, false)).collect();
        let merged = merge_calls(&[], &long);
        assert_eq!(merge_calls(&merged, &long), merged);
    }

    #[test]
    fn stored_calls_are_read_as_a_whole_or_not_at_all() {
        let calls = [noted(1, true), noted(2, false)];
        let bytes = encode_calls(&calls);
        assert_eq!(decode_calls(&bytes), Some(calls.to_vec()));
        for bytes in [&bytes[..bytes.len() - 1], &[], &[VERSION + 1]] {
            assert_eq!(decode_calls(bytes), None);
        }
    }
}
