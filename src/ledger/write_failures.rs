//! The failures of one write, which tell a fault of the write from an outage of the store.

use std::time::Duration;

use tokio::time::Instant;

/// The failed attempts at one write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteFailures {
    last_at: Option<Instant>,
    /// The time of the first failure since which the store did other writes.
    alone_since: Option<Instant>,
}

impl WriteFailures {
    /// Notes a failed attempt. `worked_at` is the last time at which the store did another write.
    ///
    /// Returns for how long the write has failed although the store did others. This is zero if the store did none
    /// since the attempt before: in an outage every write fails, and is not at fault.
    pub fn note(&mut self, now: Instant, worked_at: Option<Instant>) -> Duration {
        let last_at = self.last_at.replace(now);
        let is_alone = worked_at.is_some_and(|at| last_at.map_or(at == now, |last| at > last));
        if !is_alone {
            return Duration::ZERO;
        }
        now.duration_since(*self.alone_since.get_or_insert(now))
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
            let worked_at = (second > 0).then(|| start.checked_sub(SECOND).unwrap());
            assert_eq!(failures.note(start + SECOND * second, worked_at), Duration::ZERO);
        }
    }

    #[test]
    fn the_time_counts_while_the_store_does_other_writes() {
        let (start, mut failures) = (clock::now(), WriteFailures::default());
        assert_eq!(failures.note(start, Some(start)), Duration::ZERO);
        assert_eq!(failures.note(start + SECOND, Some(start + SECOND)), SECOND);
        // Nothing was stored since the attempt before.
        assert_eq!(failures.note(start + SECOND * 2, Some(start + SECOND)), Duration::ZERO);
        assert_eq!(failures.note(start + SECOND * 4, Some(start + SECOND * 3)), SECOND * 4);
    }
}
