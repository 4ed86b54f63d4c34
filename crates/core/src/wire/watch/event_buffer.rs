//! A bounded buffer for an event that comes in several chunks. An event inside one chunk is read without a copy.

use std::ops::Range;

use super::EVENT_BYTES_MAX;

/// Bytes of capacity that remain for the next event.
const IDLE_CAPACITY_MAX: usize = 4 * 1024;

/// The received part of the event that is still open.
#[derive(Clone, Debug, Default)]
pub(super) struct EventBuffer(Vec<u8>);

/// The bytes of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventBytes<'a> {
    pub(super) bytes: &'a [u8],
    /// Set if bytes are missing at the end.
    pub(super) truncated: bool,
}

impl EventBytes<'_> {
    /// Returns the same bytes, up to their last comma if some are missing behind them.
    pub(super) fn ending_before_comma(self) -> Self {
        if !self.truncated {
            return self;
        }
        // Half a number would pass for a smaller one.
        let comma = memchr::memrchr(b',', self.bytes).unwrap_or(0);
        let bytes = self.bytes.get(..comma).unwrap_or_default();
        Self { bytes, ..self }
    }
}

impl EventBuffer {
    /// Returns the event at `range`, which ends in `chunk`. The chunk begins at offset `start` of the stream.
    pub(super) fn event_bytes<'a>(&'a mut self, range: &Range<u64>, start: u64, chunk: &'a [u8]) -> EventBytes<'a> {
        let end = chunk_offset(range.end, start);
        let bytes = if range.start >= start {
            chunk.get(chunk_offset(range.start, start)..end).unwrap_or_default()
        } else {
            self.extend_bounded(chunk.get(..end).unwrap_or_default());
            self.0.as_slice()
        };
        EventBytes {
            bytes: bytes.get(..EVENT_BYTES_MAX).unwrap_or(bytes),
            truncated: range.end.saturating_sub(range.start) > EVENT_BYTES_MAX as u64,
        }
    }

    /// Stores the part of `chunk` that belongs to the event which begins at `from`. The chunk begins at `start`.
    pub(super) fn store_open_event(&mut self, from: u64, start: u64, chunk: &[u8]) {
        self.extend_bounded(chunk.get(chunk_offset(from, start)..).unwrap_or_default());
    }

    /// Removes the event, which has ended.
    pub(super) fn clear(&mut self) {
        self.0.clear();
        // One large event must not hold its memory until the stream ends.
        self.0.shrink_to(IDLE_CAPACITY_MAX);
    }

    fn extend_bounded(&mut self, bytes: &[u8]) {
        let room = EVENT_BYTES_MAX.saturating_sub(self.0.len()).min(bytes.len());
        self.0.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }
}

fn chunk_offset(at: u64, start: u64) -> usize {
    usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX)
}
