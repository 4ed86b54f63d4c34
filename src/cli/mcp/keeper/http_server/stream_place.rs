//! The place that was reached in a stream, and the pauses before it is asked for again.

use std::time::Duration;

use tokio::time::sleep;

use super::event_reader::StreamEvent;

/// Most failures in a row.
const FAILURES_MAX: u32 = 8;
/// The pauses, if the server names none: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The place that was reached in a stream.
#[derive(Debug, Default)]
pub(super) struct StreamPlace {
    /// The id of the last event that has one. `None` if the stream cannot be resumed.
    pub(super) last_event: Option<Vec<u8>>,
    retry: Option<Duration>,
    /// Pauses since the last event.
    pauses: u32,
    failures: u32,
}

impl StreamPlace {
    /// Notes an event.
    pub(super) fn note_event(&mut self, event: &StreamEvent) {
        // An empty id takes the one before back.
        if let Some(id) = &event.id {
            self.last_event = Some(id.clone()).filter(|id| !id.is_empty());
        }
        self.retry = event.retry.map(Duration::from_millis).or(self.retry);
        self.pauses = 0;
        self.failures = 0;
    }

    /// Notes that the server gives the stream again.
    pub(super) fn note_success(&mut self) {
        self.failures = 0;
    }

    /// Notes that it does not.
    pub(super) fn note_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Waits before the next try. Returns `false` if there were too many.
    pub(super) async fn pause(&mut self) -> bool {
        if self.failures >= FAILURES_MAX {
            return false;
        }
        let own = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(self.pauses).unwrap_or(u32::MAX));
        self.pauses = self.pauses.saturating_add(1);
        sleep(self.retry.unwrap_or(own).clamp(FIRST_PAUSE, LONGEST_PAUSE)).await;
        true
    }
}
