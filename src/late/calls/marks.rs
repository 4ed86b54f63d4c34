//! Changes of the state of a recorded call: answered by its client, delivered, withheld or acknowledged.

use std::sync::Arc;

use super::{Calls, CallsState};
use crate::{
    auth::{Caller, Principal},
    clock,
    late::{
        LateError,
        changes::LateChange,
        matching,
        records::{CallQuery, RecordedCall, RecordedCallState, delivery_value},
        update::{LateUpdate, call_subject},
    },
    ledger::{CommitStep, RecordKey, RecordKind, RecordName, update_records},
    repair::contains_result,
    session::LaneId,
    table::{RecordValue, Stored},
    telemetry::dashboard::LateCallLabel,
    writer::Subject,
};

/// A change of a call's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallMark {
    Delivered,
    Acknowledged,
    /// A provider has refused its posted result.
    Withheld,
}

/// The marking of a recorded call.
struct MarkCall {
    principal: Principal,
    name: RecordName,
    mark: CallMark,
}

impl LateUpdate for MarkCall {
    type Feature = CallsState;

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_name(self.name)]
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        match self.mark {
            CallMark::Delivered | CallMark::Acknowledged => (RecordKind::Delivery, 1),
            CallMark::Withheld => (RecordKind::Call, 1),
        }
    }

    fn is_repeated(&self) -> bool {
        self.mark != CallMark::Withheld
    }

    async fn apply(&self, calls: Arc<CallsState>) -> Result<bool, LateError> {
        let calls = Calls(calls);
        match self.mark {
            CallMark::Delivered => calls.mark_delivered(self.principal, self.name).await,
            CallMark::Acknowledged => {
                let acked = calls.mark_acknowledged(self.principal, self.name).await?;
                Ok(acked.is_some_and(|(_, is_written)| is_written))
            }
            CallMark::Withheld => calls.mark_withheld(self.principal, self.name).await,
        }
    }
}

/// The marking of a call as answered by its client.
struct MarkAnswered {
    principal: Principal,
    /// The names under which it may be recorded, the most exact one first.
    names: Vec<RecordName>,
    call: CallQuery,
    /// The content of the answer, as JSON. Needed only if a posted result waits.
    content: Option<String>,
}

impl LateUpdate for MarkAnswered {
    type Feature = CallsState;

    fn subjects(&self) -> Vec<Subject> {
        let names = self.names.iter().copied().map(Subject::of_name);
        names.chain([call_subject(&self.call.id)]).collect()
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Call, 1)
    }

    fn text_bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, String::len);
        size_of_val(&*self.names) + self.call.id.len() + self.call.tool.len() + content
    }

    fn is_repeated(&self) -> bool {
        true
    }

    async fn apply(&self, calls: Arc<CallsState>) -> Result<bool, LateError> {
        let calls = Calls(calls);
        calls.mark_answered(self).await
    }
}

impl Calls {
    /// Queues a note that the caller received the results of these calls. Does not wait.
    pub fn note_delivered(&self, caller: Caller, calls: impl IntoIterator<Item = RecordName>) {
        self.queue_marks(caller, calls, CallMark::Delivered);
    }

    /// Queues a note that the caller's history contains these results. Does not wait.
    pub fn note_acknowledged(&self, caller: Caller, calls: impl IntoIterator<Item = RecordName>) {
        let principal = caller.principal();
        let calls = calls.into_iter();
        // Every later request shows the same results: one that is no longer pending was acknowledged before.
        let pending = calls.filter(|name| self.0.posted.is_waiting(principal, name));
        self.queue_marks(caller, pending, CallMark::Acknowledged);
    }

    /// Queues a note that a provider refused these results: no request gets them until they are corrected. Does not wait.
    pub fn note_withheld(&self, caller: Caller, calls: impl IntoIterator<Item = RecordName>) {
        self.queue_marks(caller, calls, CallMark::Withheld);
    }

    fn queue_marks(&self, caller: Caller, calls: impl IntoIterator<Item = RecordName>, mark: CallMark) {
        for name in calls {
            self.queue_update(MarkCall {
                principal: caller.principal(),
                name,
                mark,
            });
        }
    }

    /// Queues a note that the client itself brought an answer of this tool's call. Does not wait.
    ///
    /// A posted result goes on waiting, unless `content` contains it: the content of the answer as JSON.
    pub fn note_client_result(&self, caller: Caller, lane: Option<LaneId>, call: CallQuery, content: Option<String>) {
        if self.0.parts.is_served(caller, &call.tool) {
            self.queue_update(MarkAnswered {
                principal: caller.principal(),
                names: Self::call_names(lane, &call),
                call,
                content,
            });
        }
    }

    /// Notes that a client's own result, by its hash, contains the posted result of its call. Does not wait.
    pub fn note_contained(&self, caller: Caller, call: RecordName, answer: u64) {
        self.0.posted.note_contained(caller.principal(), call, answer);
        self.note_delivered(caller, [call]);
    }

    /// Marks a posted result as acknowledged by the caller. Returns `false` if the caller has no such result.
    pub async fn ack_result(&self, caller: Caller, call: RecordName) -> Result<bool, LateError> {
        let acked = self.mark_acknowledged(caller.principal(), call).await?;
        Ok(acked.is_some_and(|(call, _)| call.state == RecordedCallState::Acked))
    }

    /// Marks a posted result as acknowledged. Returns the call, and `true` if it was written. `None` if the principal has no
    /// such call.
    async fn mark_acknowledged(
        &self,
        principal: Principal,
        name: RecordName,
    ) -> Result<Option<(RecordedCall, bool)>, LateError> {
        let acked = self.change_call(principal, name, |call| {
            let waits = call.posted.is_some() && call.state != RecordedCallState::Acked;
            waits.then(|| call.state = RecordedCallState::Acked).is_some()
        });
        let acked = acked.await?;
        // A repeated acknowledgement succeeds too, but is counted once.
        if let Some((call, true)) = &acked {
            let label = LateCallLabel::new(&call.id, Some(&call.tool));
            self.0.parts.telemetry.record_late_event_of("acked", label);
        }
        Ok(acked)
    }

    /// Marks a call as delivered, because its client has brought an answer. A posted result that this answer does not
    /// contain goes on waiting.
    async fn mark_answered(&self, answered: &MarkAnswered) -> Result<bool, LateError> {
        let (principal, wanted) = (answered.principal, &answered.call);
        let content = answered.content.as_deref();
        for name in &answered.names {
            let answered = self.change_call(principal, *name, |call| {
                let is_open = call.state.is_open();
                let is_it = matching::is_call_of_body(call, wanted);
                (is_open && is_it)
                    .then(|| call.state = RecordedCallState::Delivered)
                    .is_some()
            });
            let Some((call, is_written)) = answered
                .await?
                .filter(|(call, _)| matching::is_call_of_body(call, wanted))
            else {
                continue;
            };
            let change = LateChange::Answered(RecordedCall::key(principal, *name), &call);
            self.0.participants.note(change, clock::unix_time());
            // The client has brought an answer, so that nothing is missing.
            if call.state == RecordedCallState::Settled && call.is_only_restored() {
                return self.mark_delivered(principal, *name).await;
            }
            if let Some(content) = content.filter(|_| call.state == RecordedCallState::Settled)
                && self
                    .0
                    .parts
                    .posted_content(principal, *name, clock::unix_time())
                    .await?
                    .is_some_and(|posted| contains_result(content, &posted))
            {
                return self.mark_delivered(principal, *name).await;
            }
            return Ok(is_written);
        }
        Ok(false)
    }

    /// Marks a posted result as refused by a provider.
    async fn mark_withheld(&self, principal: Principal, name: RecordName) -> Result<bool, LateError> {
        let withheld = self.change_call(principal, name, |call| {
            let is_put_in = call.posted.is_some() && !call.is_withheld;
            is_put_in.then(|| call.is_withheld = true).is_some()
        });
        let withheld = withheld.await?;
        if let Some((call, true)) = &withheld {
            let label = LateCallLabel::new(&call.id, Some(&call.tool));
            self.0.parts.telemetry.record_late_event_of("withheld", label);
            tracing::warn!("a provider refused a posted result: no request gets it until its service corrects it");
        }
        Ok(withheld.is_some_and(|(_, is_written)| is_written))
    }

    /// Marks a call as delivered, and records the time since its result was posted.
    async fn mark_delivered(&self, principal: Principal, name: RecordName) -> Result<bool, LateError> {
        let delivered = self.change_call(principal, name, |call| {
            // An acknowledged call stays acknowledged: the client has more than received it.
            let open = call.state.is_open() || call.state == RecordedCallState::Settled;
            open.then(|| call.state = RecordedCallState::Delivered).is_some()
        });
        let delivered = delivered.await?;
        if let Some((call, true)) = &delivered
            && let Some(posted) = &call.posted
        {
            let age = clock::unix_time().saturating_sub(posted.posted_at);
            let label = LateCallLabel::new(&call.id, Some(&call.tool));
            self.0.parts.telemetry.record_late_delivery(age, Some(label));
        }
        Ok(delivered.is_some_and(|(_, is_written)| is_written))
    }

    /// Applies `change` to a recorded call, and writes it if `change` returns `true`.
    ///
    /// Returns the call, and `true` if it was written. Returns `None` if there is no such call.
    async fn change_call(
        &self,
        principal: Principal,
        name: RecordName,
        change: impl Fn(&mut RecordedCall) -> bool,
    ) -> Result<Option<(RecordedCall, bool)>, LateError> {
        let keys = [RecordKind::Call, RecordKind::Delivery].map(|kind| RecordKey::new(kind, principal, name));
        let changed = update_records(&*self.0.parts.ledger, keys, |[record, waiting], _| {
            let Some(Stored {
                record,
                value: mut call,
            }) = record.and_then(Stored::<RecordedCall>::from_record)
            else {
                return (Vec::new(), None);
            };
            if !change(&mut call) {
                return (Vec::new(), Some((call, None)));
            }
            let mut steps = vec![self.0.parts.calls.replace_step(&record, &call)];
            let waits = call.state == RecordedCallState::Settled;
            // The delivery goes in the same commit: a crash must not leave an acknowledged result that still waits.
            // It stays as received: another branch of the conversation may still lack the result.
            steps.extend(waiting.filter(|_| !waits).map(|record| CommitStep::Replace {
                key: record.key,
                version: record.version,
                value: delivery_value::RECEIVED,
                expires_at: record.expires_at,
            }));
            (steps, Some((call, Some(record.expires_at))))
        });
        let changed: Result<_, LateError> = changed.await;
        Ok(changed?.map(|(call, written_until)| {
            if let Some(until) = written_until
                && call.state != RecordedCallState::Settled
                && call.posted.is_some()
                // A row in memory is a result that some branch may lack.
                && call.may_be_pushed()
            {
                self.0.posted.mark_received(principal, name, until);
            }
            (call, written_until.is_some())
        }))
    }
}
