//! The failures of one write, which tell a fault of the write from an outage of the store.

use std::time::Duration;

use tokio::time::Instant;

/// The most time between two such failures that is charged to the write: a minute in which no other write came, and the
/// pause of 5 seconds. A longer gap may have been an outage.
const ALONE_GAP_MAX: Duration = Duration::from_secs(65);

/// The failed tries of one write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteFailures {
    last_at: Option<Instant>,
    /// The last failure that came after a success of another write.
    alone_at: Option<Instant>,
    /// The time for which the write has failed alone.
    alone_for: Duration,
}

impl WriteFailures {
    /// Notes a failed try. `last_stored_at` is the last time at which the store did another write.
    ///
    /// Returns for how long in all the write has failed although the store did others. An outage adds 65 seconds at
    /// most: in it every write fails, and is not at fault.
    pub(super) fn note(&mut self, now: Instant, last_stored_at: Option<Instant>) -> Duration {
        let last_at = self.last_at.replace(now);
        let is_alone = last_stored_at.is_some_and(|at| last_at.map_or(at == now, |last| at > last));
        if is_alone && let Some(alone_at) = self.alone_at.replace(now) {
            let gap = now.duration_since(alone_at).min(ALONE_GAP_MAX);
            self.alone_for = self.alone_for.saturating_add(gap);
        }
        self.alone_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_outage_blames_no_write() {
        let (start, mut failures) = (clock::now(), WriteFailures::default());
        for second in 0..1000 {
            let last_stored_at = (second > 0).then(|| start.checked_sub(SECOND).unwrap());
            assert_eq!(failures.note(start + SECOND * second, last_stored_at), Duration::ZERO);
        }
    }

    #[test]
    fn the_time_counts_while_the_store_does_other_writes() {
        let (start, mut failures) = (clock::now(), WriteFailures::default());
        assert_eq!(failures.note(start, Some(start)), Duration::ZERO);
        assert_eq!(failures.note(start + SECOND, Some(start + SECOND)), SECOND);
        // Nothing was stored since the try before.
        assert_eq!(failures.note(start + SECOND * 2, Some(start + SECOND)), SECOND);
        assert_eq!(failures.note(start + SECOND * 4, Some(start + SECOND * 3)), SECOND * 4);
    }

    #[test]
    fn an_outage_between_two_failures_adds_65_seconds() {
        let (start, mut failures) = (clock::now(), WriteFailures::default());
        assert_eq!(failures.note(start, Some(start)), Duration::ZERO);
        for second in 1..3600 {
            assert_eq!(failures.note(start + SECOND * second, Some(start)), Duration::ZERO);
        }
        let end = start + SECOND * 3600;
        assert_eq!(failures.note(end, Some(end)), SECOND * 65);
    }
}
