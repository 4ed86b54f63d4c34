//! The last event of an answer with calls, held until the calls are in the ledger.
//!
//! A tool service may post its result as soon as the client has the whole answer. The call must be known by then, also
//! if the process dies in between.

use std::{
    fmt,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use memchr::memmem;
use tokio::time::Instant;

use crate::{clock, proxy::late_results::CallRecording, wire::watch::Framing};

/// The held end of an answer.
pub(super) struct HeldEnd {
    bytes: Bytes,
    began_at: Instant,
    recording: CallRecording,
}

impl HeldEnd {
    /// Splits the last event off a frame that completes an answer. Of a value and a binary frame, this is the last byte.
    pub(super) fn split_off(data: &mut Bytes, framing: Option<Framing>, recording: CallRecording) -> Self {
        let at = match framing {
            Some(Framing::Events) => last_event_start(data),
            // Without its last byte no client can read it.
            Some(Framing::Values | Framing::Frames) | None => data.len().saturating_sub(1),
        };
        Self {
            bytes: data.split_off(at),
            began_at: clock::now(),
            recording,
        }
    }

    /// Returns the number of held bytes.
    pub(super) const fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the instant at which the hold began.
    pub(super) const fn held_since(&self) -> Instant {
        self.began_at
    }

    /// Returns the held bytes once the calls are recorded, or have taken too long.
    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        ready!(self.recording.as_mut().poll(cx));
        Poll::Ready(std::mem::take(&mut self.bytes))
    }
}

impl fmt::Debug for HeldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldEnd({} bytes)", self.bytes.len())
    }
}

/// Returns the offset of the last event that the data contains, whole or in part.
fn last_event_start(data: &[u8]) -> usize {
    let events = data.trim_ascii_end();
    let after = |separator: &[u8]| memmem::rfind(events, separator).map(|at| at + separator.len());
    after(b"\n\n").max(after(b"\r\n\r\n")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_begins_after_the_blank_line_before_it() {
        for (data, wanted) in [
            ("data: a\n\ndata: b\n\n", 9),
            ("data: a\r\n\r\ndata: b\r\n\r\n", 11),
            ("data: b\n\n", 0),
            ("rest\n\ndata: b", 6),
            ("", 0),
        ] {
            assert_eq!(last_event_start(data.as_bytes()), wanted, "{data:?}");
        }
    }
}
