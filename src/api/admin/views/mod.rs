//! The JSON answers of `/admin/v1`: labels, counts, times and structure; never content or keys. Session names are only
//! in the list of late results.

mod caller_names;
pub(super) mod failures;
pub(super) mod intents;
pub(super) mod late;
pub(super) mod late_results;
pub(super) mod messages;
pub(super) mod profiles;
pub(super) mod repairs;
pub(super) mod series;
pub(super) mod sessions;
pub(super) mod status;
pub(super) mod stuck_sessions;
pub(super) mod taught;
pub(super) mod usage;

use std::time::{Duration, Instant};

use crate::clock::{self, rfc3339_date};

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
            since_1970: clock::system_time(),
        }
    }

    /// Returns an instant as a date.
    fn to_date(self, at: Instant) -> String {
        // An instant may be before or after now, and durations cannot be negative: one of the two is zero.
        let ahead = at.saturating_duration_since(self.now);
        let after = self.now.saturating_duration_since(at);
        rfc3339_date((self.since_1970 + ahead).saturating_sub(after))
    }
}
