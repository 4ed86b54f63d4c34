//! What `/admin/v1` shows, as JSON. Labels, counts, times and structure; never content, a key or a session's name.

pub(super) mod late;
pub(super) mod profiles;
pub(super) mod repairs;
pub(super) mod series;
pub(super) mod sessions;
pub(super) mod status;

use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::clock;

/// A time since 1970, as RFC 3339 in UTC.
pub(super) fn date(since_1970: Duration) -> String {
    // Years behind 9999 cannot be written.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since_1970.min(LAST)).to_string()
}

/// Instants as dates.
pub(super) struct Dates {
    now: Instant,
    since_1970: Duration,
}

impl Dates {
    fn present() -> Self {
        Self {
            now: clock::instant(),
            since_1970: clock::since_1970(),
        }
    }

    fn show(&self, at: Instant) -> String {
        let ahead = at.saturating_duration_since(self.now);
        let behind = self.now.saturating_duration_since(at);
        date((self.since_1970 + ahead).saturating_sub(behind))
    }

    fn left(&self, until: Instant) -> u64 {
        until.saturating_duration_since(self.now).as_secs()
    }
}
