//! The beginning of an event that comes in pieces, bounded; an event that came whole is looked at where it stands.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use super::EVENT_BYTES_MAX;

/// Room that is kept for the next event in pieces.
const KEPT_MAX: usize = 4 * 1024;

/// What came so far of the event at hand.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Vec<u8>);

/// The bytes of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether these are not all of them. Then they end before a comma: no number is cut in two.
    pub(super) truncated: bool,
}

impl Held {
    /// The event at `range`, which ends in `chunk`; the chunk begins at `start`.
    pub(super) fn whole<'a>(&'a mut self, range: &Range<u64>, start: u64, chunk: &'a [u8]) -> Whole<'a> {
        let end = offset(range.end, start);
        let bytes = if range.start >= start {
            chunk.get(offset(range.start, start)..end).unwrap_or_default()
        } else {
            self.extend(chunk.get(..end).unwrap_or_default());
            self.0.as_slice()
        };
        if range.end.saturating_sub(range.start) <= EVENT_BYTES_MAX as u64 {
            return Whole {
                bytes,
                truncated: false,
            };
        }
        let head = bytes.get(..EVENT_BYTES_MAX).unwrap_or(bytes);
        let comma = memchr::memrchr(b',', head).unwrap_or(0);
        Whole {
            bytes: head.get(..comma).unwrap_or_default(),
            truncated: true,
        }
    }

    /// Keeps what `chunk` has of the event that begins at `from`; the chunk begins at `start`.
    pub(super) fn keep(&mut self, from: u64, start: u64, chunk: &[u8]) {
        self.extend(chunk.get(offset(from, start)..).unwrap_or_default());
    }

    /// Forgets the event: it is over.
    pub(super) fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(KEPT_MAX);
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = EVENT_BYTES_MAX.saturating_sub(self.0.len()).min(bytes.len());
        self.0.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }
}

fn offset(at: u64, start: u64) -> usize {
    usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX)
}
