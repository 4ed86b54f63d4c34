//! The hourly removal of expired records. No read returns them any more, but they use up space.

use std::{sync::Arc, time::Duration};

use super::{Ledger, LedgerError, Moment};
use crate::clock;

/// The time between two removals.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The lead that the system clock may gain on the monotonic clock between two removals. NTP adjusts it a little.
const CLOCK_LEAP_MAX: Duration = Duration::from_secs(10 * 60);

/// One reading of the system clock and of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct ClockReadings {
    system: Moment,
    monotonic: std::time::Instant,
}

impl ClockReadings {
    fn read_clocks() -> Self {
        Self {
            system: clock::unix_time(),
            monotonic: clock::std_now(),
        }
    }
}

/// Returns the lead that the system clock gained on the monotonic clock. `None` if it is plausible.
///
/// Records that are removed under a wrong clock are lost for good. A new time must therefore hold for one more hour.
fn clock_leap(before: ClockReadings, now: ClockReadings) -> Option<Duration> {
    let of_world = now.system.saturating_sub(before.system);
    let ours = now.monotonic.saturating_duration_since(before.monotonic);
    // Only a lead matters: with a clock that was set back, too few records expire, which is harmless.
    let ahead = of_world.saturating_sub(ours);
    (ahead > CLOCK_LEAP_MAX).then_some(ahead)
}

/// Removes the expired records of `ledger` every hour. Runs until the ledger is closed.
pub async fn remove_expired_hourly(ledger: Arc<dyn Ledger>) {
    let mut before = ClockReadings::read_clocks();
    loop {
        tokio::time::sleep(REMOVAL_INTERVAL).await;
        let now = ClockReadings::read_clocks();
        // The next round compares with this reading, so that a correct new time is accepted after one hour.
        let leap = clock_leap(std::mem::replace(&mut before, now), now);
        if let Some(ahead) = leap {
            let seconds = ahead.as_secs();
            tracing::warn!(
                seconds,
                "the system clock jumped forward, or the machine slept: expired records stay for another hour"
            );
            continue;
        }
        match ledger.remove_expired(now.system).await {
            Ok(0) => {}
            Ok(gone) => tracing::debug!(gone, "removed expired records from the ledger"),
            Err(LedgerError::Closed) => return,
            Err(error) => tracing::warn!(%error, "failed to remove expired records from the ledger: retry in an hour"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_went_ahead_leaps() {
        let began = ClockReadings::read_clocks();
        let base = Duration::from_secs(2_000_000_000);
        let hour = 3600;
        for (name, world, ours, wanted) in [
            ("both agree", hour, hour, None),
            ("no time at all", 0, 0, None),
            ("a little ahead", hour + 600, hour, None),
            ("a second more than a little", hour + 601, hour, Some(601)),
            ("a year ahead", hour + 31_536_000, hour, Some(31_536_000)),
            ("a late round of both", 10 * hour, 10 * hour, None),
            ("behind", hour, 10 * hour, None),
            ("set back", -31_536_000, hour, None),
        ] {
            let ours = began.monotonic + Duration::from_secs(u64::try_from(ours).unwrap());
            let world = Duration::from_secs(2_000_000_000_u64.saturating_add_signed(world));
            let before = ClockReadings { system: base, ..began };
            let found = clock_leap(
                before,
                ClockReadings {
                    system: world,
                    monotonic: ours,
                },
            );
            assert_eq!(found, wanted.map(Duration::from_secs), "{name}");
        }
    }

    /// The new time is accepted once it has held for a round, whether it was right or is corrected again.
    #[test]
    fn the_round_after_a_leap_is_measured_from_the_leap() {
        let at = |world: u64, ours: u64, began: ClockReadings| ClockReadings {
            system: Duration::from_secs(world),
            monotonic: began.monotonic + Duration::from_secs(ours),
        };
        let began = ClockReadings::read_clocks();
        let year = 31_536_000;
        let rounds = |worlds: [u64; 4]| {
            let rounds: Vec<ClockReadings> = (0..).zip(worlds).map(|(n, world)| at(world, n * 3600, began)).collect();
            let leaps = rounds.windows(2).map(|pair| clock_leap(pair[0], pair[1]).is_some());
            leaps.collect::<Vec<bool>>()
        };
        assert_eq!(rounds([0, year, year + 3600, year + 7200]), [true, false, false]);
        assert_eq!(rounds([0, year, 7200, 10_800]), [true, false, false]);
    }
}
