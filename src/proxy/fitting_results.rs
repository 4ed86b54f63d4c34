//! The late results that fit into one message.

use crate::late::NamedResult;

/// Returns the first of these results that fit into one message. The others wait for the next message.
pub(super) fn choose_that_fit(
    results: Vec<NamedResult>,
    result_bytes_max: usize,
    bytes_max: usize,
) -> Vec<NamedResult> {
    let mut chosen = Vec::new();
    let mut room = bytes_max as u64;
    for result in results {
        let posted = result.1.posted.as_ref().map_or(0, |posted| posted.content.byte_len());
        let length = posted.min(result_bytes_max as u64);
        // A provider that has refused the result would refuse it again.
        if result.1.is_withheld {
            continue;
        }
        // A result above the limit is sent alone: it would otherwise wait for ever.
        if chosen.is_empty() || length <= room {
            room = room.saturating_sub(length);
            chosen.push(result);
        }
    }
    chosen
}
