//! Failures to accept connections: a pause after each, and one log line for each outage.

use std::{io, time::Duration};

use tokio::time::Instant;

use crate::clock;

/// Pause after an accept that failed for lack of resources.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Time without a failure after which an outage has ended. In between, each descriptor that is freed is used at once.
const OUTAGE_GAP: Duration = Duration::from_secs(10);

/// The failures of one listener in a row.
#[derive(Debug)]
pub struct AcceptOutage {
    listener: &'static str,
    failures: u64,
    last_failure: Option<Instant>,
}

impl AcceptOutage {
    /// Creates the state of a listener, under this name in the log.
    pub const fn new(listener: &'static str) -> Self {
        Self {
            listener,
            failures: 0,
            last_failure: None,
        }
    }

    /// Records a connection that was accepted.
    pub fn record_success(&mut self) {
        if let Some(failures) = self.end_outage() {
            tracing::info!(listener = self.listener, failures, "accepting connections again");
        }
    }

    /// Records an accept that failed, and waits until the next attempt is worthwhile.
    pub async fn wait_after_failure(&mut self, error: &io::Error) {
        if is_connection_error(error) {
            return;
        }
        if self.begin_outage() {
            tracing::warn!(listener = self.listener, %error, "failed to accept a connection: retrying every 100 ms");
        }
        // Without the pause the loop of the listener would spin until descriptors are free again.
        tokio::time::sleep(ACCEPT_BACKOFF).await;
    }

    /// Records a failure. Returns `true` if it is the first of an outage.
    fn begin_outage(&mut self) -> bool {
        self.last_failure = Some(clock::now());
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }

    /// Records a success. Returns the number of failures if an outage has ended.
    fn end_outage(&mut self) -> Option<u64> {
        let last = self.last_failure?;
        if clock::now() - last < OUTAGE_GAP {
            return None;
        }
        self.last_failure = None;
        Some(std::mem::take(&mut self.failures))
    }
}

/// Returns `true` if an accept error concerns only the one connection, so that the next accept may succeed.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_has_one_line_at_its_start_and_one_at_its_end() {
        let mut outage = AcceptOutage::new("test");
        assert_eq!(outage.end_outage(), None);
        for round in 0..100 {
            assert_eq!(outage.begin_outage(), round == 0);
            tokio::time::advance(ACCEPT_BACKOFF).await;
            // A connection that ends makes room for one other.
            assert_eq!(outage.end_outage(), None);
        }
        tokio::time::advance(OUTAGE_GAP).await;
        assert_eq!(outage.end_outage(), Some(100));
        assert_eq!(outage.end_outage(), None);
        assert!(outage.begin_outage(), "the next outage");
    }
}
