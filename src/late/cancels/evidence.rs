//! Evidence that a lane was left, and signs that it was not: both are stored in the background.

use std::{sync::Arc, time::Duration};

use memchr::memmem;
use tokio::time::Instant;

use super::{
    Cancels, CancelsState,
    lane_watch::{LeftCall, WatchedCall},
};
use crate::{
    auth::{Caller, Principal},
    clock,
    digest::digest_of,
    late::{
        LateError, matching,
        records::{LeaveReason, OutgoingRecord, Purpose, RecordedCall, RecordedCallState},
        update::LateUpdate,
    },
    ledger::{CommitStep, Moment, RecordKey, RecordKind, RecordName, update_records},
    repair::{Tier, id_letters, is_strong},
    session::{CallEvidence, LaneId},
    table::{RecordValue, Stored},
    writer::Subject,
};

impl Cancels {
    /// Returns `true` if the lane has a watched call, or may have one of an earlier process.
    pub fn watches(&self, lane: LaneId) -> bool {
        self.0.parts.has_cancels && self.lock_watch().contains(lane.as_bytes())
    }

    /// Watches a recorded call if evidence may cancel it: its tool has a `cancel_url`, and no other lane uses its id.
    pub(super) fn watch_call(&self, key: RecordKey, call: &RecordedCall) {
        let is_undoable =
            call.tier == Tier::Revertible && self.0.parts.settings.tool_settings(&call.tool).cancel_url.is_some();
        // A reusable id is in other requests, too: it tells nothing of its call.
        let Some(lane) = call.lane.filter(|_| is_undoable && is_strong(&call.id, &call.tool)) else {
            return;
        };
        let now = clock::now();
        let watched = WatchedCall {
            key,
            id: call.id.clone(),
            alive_at: now,
            pending: None,
        };
        let mut watch = self.lock_watch();
        watch.add_call(lane, call.session, watched, now);
        drop(watch);
        // The silence of a new lane ends before that of the others, perhaps.
        self.0.outbox.due().wake();
    }

    /// Notes a request of a lane, without waiting. `judge` returns what it proves about the call with an id, and gets a
    /// search for that id in `body`. `may_go_on` is `true` if it may go on with the conversation of a call that only
    /// another process knows.
    pub fn note_request(
        &self,
        (caller, lane): (Caller, LaneId),
        body: &[u8],
        may_go_on: bool,
        judge: impl Fn(&[u8], &dyn Fn() -> bool) -> CallEvidence,
    ) {
        if !self.watches(lane) {
            // Another process may watch the lane, and sees nothing of this request.
            if self.0.parts.has_cancels && !self.0.parts.ledger.is_exclusive() && caller.is_authenticated() && may_go_on
            {
                self.queue_update(StoreSign {
                    principal: caller.principal(),
                    lane,
                    at: clock::unix_time(),
                });
            }
            return;
        }
        let at = clock::unix_time();
        let contains = |id: &[u8]| memmem::find(body, id).is_some();
        let judge = |call: &WatchedCall| {
            // Some clients strip other characters from ids.
            let is_shown = || contains(&call.id) || contains(&id_letters(&call.id));
            judge(&call.id, &is_shown)
        };
        let times = (clock::now(), at);
        let heard = self.lock_watch().hear(lane.as_bytes(), judge, may_go_on, times);
        for key in heard.revoked {
            self.revoke(&key);
        }
        self.store_left(heard.left);
        if heard.is_alive {
            // Another process may be about to send a cancel.
            self.queue_update(StoreSign {
                principal: caller.principal(),
                lane,
                at,
            });
        }
    }

    /// Notes that the client left a stream of a lane, which brought the calls with these ids. Does not wait.
    pub fn note_dropped_stream(&self, lane: LaneId, is_of_stream: impl Fn(&[u8]) -> bool) {
        let left = self
            .lock_watch()
            .drop_stream(lane.as_bytes(), is_of_stream, clock::now());
        self.store_left(left);
    }

    /// Notes that the client closed a session, by its hash.
    pub(super) fn note_closed(&self, session: &[u8; 32]) {
        let left = self.lock_watch().close_session(session, clock::now());
        self.store_left(left);
    }

    /// Finds calls that have been silent for too long, and schedules their cancels. Returns the next time to look.
    pub(in crate::late) fn note_silence(&self) -> Option<Instant> {
        let limit = self.0.parts.settings.detach_after;
        let mut watch = self.lock_watch();
        let left = watch.find_silent(limit, clock::now());
        let next = watch.next_silence(limit);
        drop(watch);
        self.store_left(left);
        next
    }

    /// Watches the lane of a cancel that an earlier process has stored, so that a request can revoke it. Returns the grace.
    pub(in crate::late) async fn watch_again(
        &self,
        key: &RecordKey,
        message: &OutgoingRecord,
    ) -> Result<Option<Duration>, LateError> {
        let Purpose::Cancel {
            call: name,
            lane: Some(lane),
            reason,
            ..
        } = message.purpose
        else {
            return Ok(None);
        };
        // What an owner asked for is final, and so is a cancel that was sent before.
        if reason == LeaveReason::Requested || message.tries > 0 {
            return Ok(None);
        }
        let call_key = RecordedCall::key(key.owner(), name);
        if let Some(call) = self.0.parts.calls.read(call_key, clock::unix_time()).await? {
            let (call, now) = (call.value, clock::now());
            // One that was sent before is not revoked any more.
            let was_sent = call.state == RecordedCallState::CancelRequested;
            let mut watch = self.lock_watch();
            let is_revoked = !was_sent && watch.is_heard_early(&lane);
            let watched = WatchedCall {
                key: call_key,
                id: call.id,
                alive_at: now,
                pending: match (was_sent, is_revoked) {
                    (true, _) => Some((LeaveReason::Requested, now)),
                    (false, true) => None,
                    (false, false) => Some((reason, now)),
                },
            };
            watch.add_call(lane, call.session, watched, now);
            drop(watch);
            if is_revoked {
                self.revoke(&call_key);
            }
        }
        Ok(Some(self.0.parts.settings.cancel_grace))
    }

    /// Watches the calls that an earlier process has recorded. Their silence counts from now on.
    pub(in crate::late) async fn watch_recorded(&self) -> Result<(), LateError> {
        if !self.0.parts.has_cancels {
            return Ok(());
        }
        let now = clock::unix_time();
        let watch = |stored: Stored<RecordedCall>| {
            let call = &stored.value;
            // A service that was asked before reports by itself.
            if call.state == RecordedCallState::Open && matching::is_running(call) && now < call.deadline {
                self.watch_call(stored.record.key, call);
            }
        };
        Ok(self.0.parts.calls.read_everyone(now, watch).await?)
    }

    /// Queues the removal of a call's cancel: its lane is alive.
    fn revoke(&self, call: &RecordKey) {
        self.queue_update(CancelChange {
            key: cancel_key(call),
            message: None,
        });
        self.0.parts.telemetry.record_late_event("cancel_revoked");
    }

    /// Queues the cancels of calls whose lane was left.
    fn store_left(&self, left: Vec<LeftCall>) {
        let now = clock::unix_time();
        for left in left {
            let mut message = self.cancel_message(&left.key, Some(left.lane), left.reason, now);
            // Made now, so that no request before counts as a sign of life, and due at the end of the grace.
            let since = clock::now().saturating_duration_since(left.left_at);
            message.due_at = message.due_at.saturating_sub(since);
            self.queue_update(CancelChange {
                key: cancel_key(&left.key),
                message: Some(message),
            });
        }
    }
}

/// The storing or the removal of a cancel that evidence demands or revokes.
struct CancelChange {
    key: RecordKey,
    /// The cancel. `None` removes it.
    message: Option<OutgoingRecord>,
}

impl LateUpdate for CancelChange {
    type Feature = CancelsState;

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_name(self.key.name)]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Outgoing, 1)
    }

    fn is_repeated(&self) -> bool {
        false
    }

    async fn apply(&self, cancels: Arc<CancelsState>) -> Result<bool, LateError> {
        let cancels = Cancels(cancels);
        match &self.message {
            Some(message) => cancels.store_cancel(self.key, message).await,
            None => cancels.remove_cancel(self.key).await,
        }
    }
}

impl Cancels {
    /// Stores the cancel that evidence demands, unless the owner asked for one, or the service was asked before.
    async fn store_cancel(&self, key: RecordKey, message: &OutgoingRecord) -> Result<bool, LateError> {
        if self.is_final(key, &message.purpose).await? {
            return Ok(false);
        }
        self.0.outbox.store_message(key, message).await.map(|()| true)
    }

    /// Removes the cancel that a request revokes, unless the owner asked for it, or the service was asked before.
    async fn remove_cancel(&self, key: RecordKey) -> Result<bool, LateError> {
        let Some(message) = self.0.parts.messages.read(key, clock::unix_time()).await? else {
            return Ok(false);
        };
        if self.is_final(key, &message.value.purpose).await? {
            return Ok(false);
        }
        self.0.outbox.remove_message(key).await
    }

    /// Returns `true` if no evidence and no request changes the cancel of a call any more.
    async fn is_final(&self, key: RecordKey, purpose: &Purpose) -> Result<bool, LateError> {
        let Purpose::Cancel { call, .. } = *purpose else {
            return Ok(false);
        };
        let call_key = RecordedCall::key(key.owner(), call);
        let call = self.0.parts.calls.read(call_key, clock::unix_time()).await?;
        if call.is_some_and(|call| call.value.state == RecordedCallState::CancelRequested) {
            return Ok(true);
        }
        let stored = self.0.parts.messages.read(key, clock::unix_time()).await?;
        let stored = stored.map(|stored| stored.value.purpose);
        Ok(matches!(
            stored,
            Some(Purpose::Cancel {
                reason: LeaveReason::Requested,
                ..
            })
        ))
    }

    /// Returns the message that asks for a cancel, as of `now`.
    pub(super) fn cancel_message(
        &self,
        call: &RecordKey,
        lane: Option<[u8; 32]>,
        reason: LeaveReason,
        now: Moment,
    ) -> OutgoingRecord {
        let grace = if reason == LeaveReason::Requested {
            Duration::ZERO
        } else {
            self.0.parts.settings.cancel_grace
        };
        OutgoingRecord {
            purpose: Purpose::Cancel {
                call: call.name,
                lane,
                reason,
            },
            made_at: now,
            due_at: now.saturating_add(grace),
            // Replaced by the deadline of the call when it is first sent: evidence does not know it.
            give_up_at: now.saturating_add(self.0.parts.settings.ttl),
            tries: 0,
            is_dead: false,
        }
    }
}

/// Returns the key of the message about a call.
pub(super) fn cancel_key(call: &RecordKey) -> RecordKey {
    let name: RecordName = digest_of([&b"cancel"[..], &call.name]);
    OutgoingRecord::key(call.owner(), name)
}

/// The storing of the time of a lane's last request. An earlier one never replaces a later one.
struct StoreSign {
    principal: Principal,
    lane: LaneId,
    at: Moment,
}

impl LateUpdate for StoreSign {
    type Feature = CancelsState;

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_name(*self.lane.as_bytes())]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::LaneSign, 1)
    }

    fn is_repeated(&self) -> bool {
        true
    }

    async fn apply(&self, cancels: Arc<CancelsState>) -> Result<bool, LateError> {
        let key = RecordKey::new(RecordKind::LaneSign, self.principal, *self.lane.as_bytes());
        let expires_at = self.at.saturating_add(cancels.parts.settings.ttl);
        update_records(&*cancels.parts.ledger, [key], |[stored], _| {
            let known = stored.as_ref().and_then(|record| read_sign(&record.value));
            let step = (known < Some(self.at)).then(|| {
                let value = bytes::Bytes::copy_from_slice(&self.at.as_nanos().to_le_bytes());
                CommitStep::put_record(key, stored.as_ref(), value, expires_at)
            });
            let has_step = step.is_some();
            (step.into_iter().collect(), has_step)
        })
        .await
    }
}

/// Reads the time of a lane's last request.
pub(super) fn read_sign(value: &[u8]) -> Option<Moment> {
    let nanos = u128::from_le_bytes(value.try_into().ok()?);
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let rest = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Moment::new(seconds, rest))
}
