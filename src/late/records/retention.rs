//! The time for which records of calls and their results are stored.

use std::time::Duration;

use super::RecordedCall;
use crate::{ledger::Moment, repair::Tier};

/// Time that a record outlives its call, so that a result that comes too late gets "expired" and not "unknown".
pub(in crate::late) const RETENTION_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// Factor on the retention of calls whose effect cannot be undone: their results must reach the conversation.
const ONE_WAY_FACTOR: u32 = 4;

/// Returns the time until which the record of a call is stored. `ttl` is that of the ledger.
pub(in crate::late) fn retained_until(call: &RecordedCall, ttl: Duration) -> Moment {
    let factor = if call.tier == Tier::OneWay { ONE_WAY_FACTOR } else { 1 };
    let since = call.posted.as_ref().map_or(call.opened_at, |posted| posted.posted_at);
    // Heartbeats may have extended the call beyond its usual retention.
    (since + ttl * factor).max(call.expires_at) + RETENTION_GRACE
}

/// Returns the time until which any result of a call that was recorded before `now` may wait.
pub(in crate::late) fn longest_retention(now: Moment, ttl: Duration) -> Moment {
    now + ttl * ONE_WAY_FACTOR + RETENTION_GRACE
}
