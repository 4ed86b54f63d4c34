//! The times at which a source is asked.

use std::time::Duration;

/// Default refresh interval of a credential without an expiry.
pub const TOKEN_REFRESH: Duration = Duration::from_secs(45 * 60);
/// Remaining life with which a credential is refreshed, unless a fifth of its life is longer.
const LEAD_MIN: Duration = Duration::from_secs(5 * 60);
/// Shortest time between two runs of a source.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Longest time between two runs of a source.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Delay after the first failure in a row, doubled after each further one.
const FAILURE_FIRST: Duration = Duration::from_secs(5);
const FAILURE_MAX: Duration = Duration::from_secs(5 * 60);

/// The failures in a row of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefreshClock {
    failures: u32,
}

impl RefreshClock {
    /// Returns the delay to the refresh of a credential that lives for `life` from now. `life` is `None` for a
    /// credential without an end.
    ///
    /// That is at 80 % of its life, or 5 minutes before its end, whichever is earlier. The second holds only for lives
    /// of more than 10 minutes.
    pub fn delay_for_life(life: Option<Duration>, interval: Duration) -> Duration {
        let Some(life) = life else { return interval };
        let lead = (life / 5).max(LEAD_MIN.min(life / 2));
        // Limited, since a source may name an end that no clock reaches.
        life.saturating_sub(lead).clamp(INTERVAL_MIN, INTERVAL_MAX)
    }

    /// Counts a success, and returns the delay to the next run.
    pub fn record_success(&mut self, life: Option<Duration>, interval: Duration) -> Duration {
        self.failures = 0;
        Self::delay_for_life(life, interval)
    }

    /// Counts a failure, and returns the delay to the next run.
    pub fn record_failure(&mut self) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        FAILURE_FIRST.saturating_mul(doubled).min(FAILURE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_refreshed_ahead_of_its_end() {
        let interval = Duration::from_secs(2700);
        for (life, wanted) in [
            (None, 2700),
            (Some(0), 1),
            (Some(1), 1),
            (Some(10), 5),
            (Some(240), 120),
            (Some(600), 300),
            (Some(900), 600),
            (Some(1500), 1200),
            (Some(3600), 2880),
            (Some(43_200), 34_560),
            (Some(172_800), 86_400),
            (Some(u64::MAX), 86_400),
        ] {
            let life = life.map(Duration::from_secs);
            let delay = RefreshClock::default().record_success(life, interval);
            assert_eq!(delay.as_secs(), wanted, "{life:?}");
        }
    }

    #[test]
    fn failures_in_a_row_are_spaced_out_until_a_success() {
        let mut clock = RefreshClock::default();
        let delays: Vec<u64> = (0..9).map(|_| clock.record_failure().as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        for _ in 0..100 {
            assert_eq!(clock.record_failure(), FAILURE_MAX);
        }
        clock.record_success(None, TOKEN_REFRESH);
        assert_eq!(clock.record_failure(), FAILURE_FIRST);
    }
}
