//! The JSON answers of `/admin/v1`: labels, counts, times and structure; never content or keys. Session names are only
//! in the list of late results.

mod caller_names;
pub(super) mod failures;
pub(super) mod intents;
pub(super) mod late;
pub(super) mod late_results;
pub(super) mod profiles;
pub(super) mod repairs;
pub(super) mod series;
pub(super) mod sessions;
pub(super) mod status;
pub(super) mod usage;

use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::clock;

/// Returns a time since 1970 as RFC 3339 in UTC.
pub(super) fn rfc3339_date(since_1970: Duration) -> String {
    // RFC 3339 has four digits for the year: 9999-12-31T23:59:59 is the last time that can be written.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since_1970.min(LAST)).to_string()
}

/// A pair of the same moment on both clocks, to convert instants to dates.
#[derive(Clone, Copy, Debug)]
pub(super) struct DateConverter {
    now: Instant,
    since_1970: Duration,
}

impl DateConverter {
    /// Reads both clocks.
    pub(super) fn at_present() -> Self {
        Self {
            now: clock::std_now(),
            since_1970: clock::unix_time(),
        }
    }

    /// Returns an instant as a date.
    fn to_date(self, at: Instant) -> String {
        // An instant may be before or after now, and durations cannot be negative: one of the two is zero.
        let ahead = at.saturating_duration_since(self.now);
        let behind = self.now.saturating_duration_since(at);
        rfc3339_date((self.since_1970 + ahead).saturating_sub(behind))
    }
}
