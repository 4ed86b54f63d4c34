//! Requests of tool services: a posted result, its withdrawal, and a heartbeat of a call that still runs.

use super::{
    Calls,
    settling::{Post, PostOutcome, SettleOutcome},
};
use crate::{
    clock,
    late::{
        LateError,
        changes::LateChange,
        matching::{self, NamedCall},
        named_calls::MatchedCall,
        records::{PostedResult, RecordedCallState},
    },
    ledger::{Moment, Record, RecordKind, retry_conflicts},
    repair::is_strong,
    telemetry::dashboard::LateCallLabel,
};

/// The outcome of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// The call waits longer.
    Extended {
        /// The new deadline.
        deadline: Moment,
    },
    /// The call no longer waits for a result.
    Terminal,
    /// The call had expired.
    Expired,
    /// The id does not identify one call.
    Ambiguous,
    /// No such call is recorded.
    Unknown,
}

/// The wishes of a service for a result that it posts.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostTerms<'s> {
    /// The digest of the stored result that this one corrects, as long as no request contains that. `None` for a first
    /// result.
    pub replaces: Option<[u8; 32]>,
    /// `true` if the result is restored in the place of its call, and never appended.
    pub only_if_missing: bool,
    /// The program whose result it is, in printable characters. `None` if the service does not say.
    pub source: Option<&'s str>,
}

impl Calls {
    /// Stores a result that a tool service posts for a call, or parks it until the call is recorded. It is durable on
    /// return, where the ledger is.
    pub async fn post_result(
        &self,
        named: &NamedCall<'_>,
        content: String,
        failed: bool,
        terms: PostTerms<'_>,
    ) -> Result<PostOutcome, LateError> {
        self.0.parts.await_call(named.call_id).await;
        let posted = PostedResult {
            only_if_missing: terms.only_if_missing,
            ..PostedResult::new(content, failed, &named.service.name, clock::unix_time())
        };
        let post = Post {
            replaces: terms.replaces,
            source: terms.source,
            ..Post::of_result(&posted)
        };
        match self.settle_named(named, post).await? {
            SettleOutcome::Done(outcome) => return Ok(outcome),
            // Only a stored result can be corrected. A parked one is in no request, and goes on waiting.
            SettleOutcome::NotRecorded | SettleOutcome::TooEarly(_) if terms.replaces.is_some() => {
                return Ok(PostOutcome::Unknown);
            }
            SettleOutcome::NotRecorded | SettleOutcome::TooEarly(_) => {}
        }
        // A result with a reusable id would go to the next call with that id, which may be an unrelated one.
        if is_strong(named.call_id, b"") {
            self.park_result(named, posted, terms.source).await
        } else {
            Ok(PostOutcome::Unknown)
        }
    }
}

/// The outcome of withdrawing a posted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawOutcome {
    /// The call waits for a result again.
    Withdrawn,
    /// A request contains the result already, or the call has none.
    Refused,
    /// The id does not identify one call.
    Ambiguous,
    /// No such call is recorded.
    Unknown,
}

impl Calls {
    /// Withdraws a posted result that no request contains yet: the call waits again.
    pub async fn withdraw_result(&self, named: &NamedCall<'_>) -> Result<WithdrawOutcome, LateError> {
        self.0.parts.await_call(named.call_id).await;
        retry_conflicts(|| self.try_withdraw(named)).await
    }

    /// Withdraws a posted result that no request contains yet. Returns `None` if another writer changed its call first.
    async fn try_withdraw(&self, named: &NamedCall<'_>) -> Result<Option<WithdrawOutcome>, LateError> {
        let now = clock::unix_time();
        let (record, mut call) = match self.0.parts.find_call(named, None, now).await? {
            MatchedCall::None => return Ok(Some(WithdrawOutcome::Unknown)),
            MatchedCall::Several => return Ok(Some(WithdrawOutcome::Ambiguous)),
            MatchedCall::One(found) => (found.record, found.value),
        };
        let is_settled = call.posted.is_some() && call.state == RecordedCallState::Settled;
        if !is_settled || self.is_in_request(&record, &call) {
            return Ok(Some(WithdrawOutcome::Refused));
        }
        call.state = RecordedCallState::Open;
        (call.posted, call.is_withheld, call.is_in_request) = (None, false, false);
        let mut steps = vec![self.0.parts.calls.replace_step(&record, &call)];
        let change = LateChange::Withdrawn(record.key, &call);
        steps.extend(self.0.participants.join(change, now).await?.steps);
        let related = [RecordKind::Delivery, RecordKind::ResultContent].map(|kind| record.key.with_kind(kind));
        let existing = self.0.parts.ledger.read(related.to_vec(), now).await?;
        steps.extend(existing.iter().flatten().map(Record::remove_step));
        if self.0.parts.commit(steps, now).await? {
            let principal = record.key.owner();
            self.0.posted.forget(principal, record.key.name, record.expires_at);
            let label = LateCallLabel::new(&call.id, Some(&call.tool));
            self.0.parts.telemetry.record_late_event_of("withdrawn", label);
            self.0.participants.note(change, now);
            return Ok(Some(WithdrawOutcome::Withdrawn));
        }
        Ok(None)
    }

    /// Extends the deadline of a call on which its service still works.
    pub async fn extend_deadline(&self, named: &NamedCall<'_>) -> Result<HeartbeatOutcome, LateError> {
        self.0.parts.await_call(named.call_id).await;
        retry_conflicts(|| self.try_extend(named)).await
    }

    /// Extends the deadline of a call on which its service still works. Returns `None` if another writer changed it first.
    async fn try_extend(&self, named: &NamedCall<'_>) -> Result<Option<HeartbeatOutcome>, LateError> {
        let now = clock::unix_time();
        let (record, mut call) = match self.0.parts.find_call(named, None, now).await? {
            MatchedCall::None => return Ok(Some(HeartbeatOutcome::Unknown)),
            MatchedCall::Several => return Ok(Some(HeartbeatOutcome::Ambiguous)),
            MatchedCall::One(found) => (found.record, found.value),
        };
        if matching::is_terminal(&call) {
            return Ok(Some(HeartbeatOutcome::Terminal));
        }
        if call.expires_at <= now {
            return Ok(Some(HeartbeatOutcome::Expired));
        }
        matching::extend_call(self.0.parts.run_limit(&call.tool), &mut call, now);
        let deadline = call.deadline;
        let steps = vec![self.0.parts.calls.replace_step(&record, &call)];
        if self.0.parts.commit(steps, now).await? {
            self.0.participants.note(LateChange::Heartbeat(record.key), now);
            return Ok(Some(HeartbeatOutcome::Extended { deadline }));
        }
        Ok(None)
    }
}
