//! Carry-over: a result whose conversation was left goes into the next conversation of the same person, once.
//!
//! The next conversation reserves a result before its request is sent. Once its second request shows the result, that
//! counts as received. Until then the reservation ends after `detach_after`, and another conversation may take its place.

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::Calls;
use crate::{
    auth::{Caller, Principal},
    clock,
    late::{
        LateError,
        records::{NamedCallRecord, RecordedCall},
    },
    ledger::{CommitStep, RecordKey, RecordKind, RecordName, Unread, retry_conflicts},
    session::LaneId,
};

/// The most waiting results that one new conversation looks at, the newest first.
const LOOKED_AT_MAX: usize = 256;

/// The results that new conversations get.
pub struct CarryOver(Calls);

impl CarryOver {
    pub(in crate::late) fn new(calls: &Calls) -> Self {
        Self(calls.clone())
    }

    /// Returns `true` if results of some tool are carried over.
    pub fn is_used(&self) -> bool {
        self.0.0.parts.has_carry_over
    }

    /// Returns the results of the caller whose conversations were left, the oldest first: those of tools that carry
    /// over, and whose `origin` (upstream and client program) is that of the new conversation. Without contents.
    pub async fn find_left(
        &self,
        caller: Caller,
        lane: LaneId,
        origin: &[u8; 32],
        by: Instant,
    ) -> Result<Vec<NamedCallRecord>, Unread> {
        let calls = &self.0;
        let names = calls.0.posted.newest_waiting(caller.principal(), LOOKED_AT_MAX);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut results = calls.read_posted(caller, &names, by).await?;
        results.retain(|(_, call)| {
            call.origin.as_ref() == Some(origin)
                && call.lane.as_ref() != Some(lane.as_bytes())
                && calls.0.parts.reaches_next(caller.principal(), call)
                && calls.is_due(call)
        });
        Ok(results)
    }

    /// Reserves results for a conversation. Returns those that were free, or that it has reserved before.
    pub async fn reserve(
        &self,
        caller: Caller,
        lane: LaneId,
        names: &[RecordName],
        by: Instant,
    ) -> Result<Vec<RecordName>, Unread> {
        let reserved = timeout_at(by, self.0.try_reserve(caller.principal(), lane, names)).await;
        let unread = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "failed to reserve results for a new conversation: they wait for the next one");
            Unread
        };
        match reserved {
            Ok(reserved) => reserved.map_err(|error| unread(&error)),
            Err(elapsed) => Err(unread(&elapsed)),
        }
    }
}

impl Calls {
    /// Returns `true` if a result is due for another conversation: its own was left as far as this process knows, or has not
    /// asked for it in time.
    fn is_due(&self, call: &RecordedCall) -> bool {
        let is_late = call.posted.as_ref().is_some_and(|posted| !posted.attached);
        let posted_at = call.posted.as_ref().map(|posted| posted.posted_at);
        let last = call.heartbeat_at.max(posted_at.unwrap_or_default());
        is_late || self.was_left(call) || clock::unix_time() >= last + self.0.parts.settings.detach_after
    }

    async fn try_reserve(
        &self,
        principal: Principal,
        lane: LaneId,
        names: &[RecordName],
    ) -> Result<Vec<RecordName>, LateError> {
        let keys: Vec<RecordKey> = names
            .iter()
            .map(|name| RecordKey::new(RecordKind::Reservation, principal, *name))
            .collect();
        retry_conflicts(|| async {
            let now = clock::unix_time();
            let stored = self.0.parts.ledger.read(keys.clone(), now).await?;
            let is_free = |at: usize| stored.get(at).is_none_or(Option::is_none);
            let is_own = |at: usize| {
                let record = stored.get(at).and_then(Option::as_ref);
                record.is_some_and(|record| record.value == lane.as_bytes()[..])
            };
            let until = now + self.0.parts.settings.detach_after;
            let free = (0..).zip(&keys).filter(|(at, _)| is_free(*at));
            let steps: Vec<CommitStep> = free
                .map(|(_, key)| CommitStep::insert_record(*key, Bytes::copy_from_slice(lane.as_bytes()), until))
                .collect();
            let is_done = steps.is_empty() || self.0.parts.commit(steps, now).await?;
            let own = (0..).zip(names).filter(|(at, _)| is_free(*at) || is_own(*at));
            Ok(is_done.then(|| own.map(|(_, name)| *name).collect()))
        })
        .await
    }
}
