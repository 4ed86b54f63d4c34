//! Requests about cancels: the owner of a call wants it undone, and its service reports that it was, or will not be.

use std::time::Duration;

use super::{Cancels, evidence};
use crate::{
    auth::Caller,
    clock,
    late::{
        LateError,
        matching::{self, NamedCall},
        named_calls::MatchedCall,
        records::{LeaveReason, OutgoingRecord, Purpose, RecordedCall, RecordedCallState, call_names},
    },
    ledger::{CommitStep, Moment, ROWS_MAX, Record, RecordKey, retry_conflicts, update_records},
    repair::Tier,
    table::RecordValue,
};

/// The outcome of a request about a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The call is in this state.
    State(RecordedCallState),
    /// The call has a result, or its client has answered it.
    Ended,
    /// The effect of the tool cannot be undone, or nobody can be asked to.
    NotUndoable,
    /// The id does not identify one call.
    Ambiguous,
    /// No such call is recorded.
    Unknown,
}

impl Cancels {
    /// Asks the service of the caller's call to undo it. The cancel is stored on return.
    pub async fn request(&self, caller: Caller, id: &[u8]) -> Result<CancelOutcome, LateError> {
        // The call may have come with an answer a moment ago.
        self.0.parts.await_call(id).await;
        let now = clock::unix_time();
        let index = call_names::call_index(id);
        let mut own = self.0.parts.calls.find(index, ROWS_MAX, now).await?;
        own.retain(|call| call.record.key.owner() == caller.principal());
        let mut calls = matching::calls_of_id(own, id, |call| &call.value.id);
        let Some(call) = calls.pop() else {
            return Ok(CancelOutcome::Unknown);
        };
        if !calls.is_empty() {
            return Ok(CancelOutcome::Ambiguous);
        }
        self.request_of_call(call.record.key).await
    }

    /// Stores the message that asks for a cancel, or lets that of an earlier evidence be sent at once.
    ///
    /// A message that the owner asked for before stays as it is: one cancel is one message.
    async fn request_of_call(&self, key: RecordKey) -> Result<CancelOutcome, LateError> {
        let message_key = evidence::cancel_key(&key);
        // Read together: between two reads the message could be sent and answered.
        let requested: Result<_, LateError> =
            update_records(&*self.0.parts.ledger, [key, message_key], |[call, stored], now| {
                let Some(call) = call.and_then(|record| RecordedCall::decode(&record.value)) else {
                    return (Vec::new(), Err(CancelOutcome::Unknown));
                };
                if let Some(answer) = self.outcome_without_request(&call) {
                    return (Vec::new(), Err(answer));
                }
                let step = self.request_step((key, &call), (message_key, stored.as_ref()), now);
                let is_new = step.is_some();
                (step.into_iter().collect(), Ok(is_new))
            })
            .await;
        match requested? {
            Err(answer) => return Ok(answer),
            Ok(true) => self.0.outbox.due().schedule(message_key, Duration::ZERO),
            Ok(false) => {}
        }
        self.lock_watch().make_final(&key, clock::now());
        Ok(CancelOutcome::State(RecordedCallState::CancelRequested))
    }

    /// Builds the step that stores the message. `None` if the one that is stored stays.
    fn request_step(
        &self,
        (key, call): (RecordKey, &RecordedCall),
        (message_key, stored): (RecordKey, Option<&Record>),
        now: Moment,
    ) -> Option<CommitStep> {
        let requested = || OutgoingRecord {
            give_up_at: call.deadline.max(now),
            ..self.cancel_message(&key, call.lane, LeaveReason::Requested, now)
        };
        let is_sent = call.state == RecordedCallState::CancelRequested;
        let known = stored.and_then(|record| OutgoingRecord::decode(&record.value));
        match (stored, known) {
            (Some(record), Some(message)) if message.is_dead => {
                Some(self.0.parts.messages.replace_step(record, &requested()))
            }
            // It has its own tries and its own end.
            (_, Some(message)) if is_sent || is_requested(&message) => None,
            (Some(record), Some(message)) => {
                let at_once = OutgoingRecord {
                    made_at: message.made_at,
                    ..requested()
                };
                Some(self.0.parts.messages.replace_step(record, &at_once))
            }
            // The service has accepted it, and will report.
            _ if is_sent => None,
            // It cannot be decoded, so nobody would ever send it.
            (Some(record), None) => Some(self.0.parts.messages.replace_step(record, &requested())),
            (None, _) => Some(self.0.parts.messages.insert_step(message_key, &requested(), now)),
        }
    }
}

fn is_requested(message: &OutgoingRecord) -> bool {
    let Purpose::Cancel { reason, .. } = message.purpose else {
        return false;
    };
    reason == LeaveReason::Requested
}

impl Cancels {
    /// Returns the answer for a call that needs no cancel, or can have none. `None` if its service is to be asked.
    fn outcome_without_request(&self, call: &RecordedCall) -> Option<CancelOutcome> {
        let is_undoable = self.0.parts.settings.tool_settings(&call.tool).cancel_url.is_some();
        match call.state {
            _ if call.tier != Tier::Revertible || !is_undoable => Some(CancelOutcome::NotUndoable),
            RecordedCallState::Cancelled => Some(CancelOutcome::State(call.state)),
            _ if !matching::is_running(call) => Some(CancelOutcome::Ended),
            RecordedCallState::CancelRefused => Some(CancelOutcome::State(call.state)),
            _ => None,
        }
    }

    /// Notes the report of a service: a call was undone, or with `is_refused` it will not be.
    pub async fn confirm(&self, named: &NamedCall<'_>, is_refused: bool) -> Result<CancelOutcome, LateError> {
        self.0.parts.await_call(named.call_id).await;
        retry_conflicts(|| self.try_confirm(named, is_refused)).await
    }

    /// Notes the end of a cancel. Returns `None` if another writer changed its call first.
    async fn try_confirm(&self, named: &NamedCall<'_>, is_refused: bool) -> Result<Option<CancelOutcome>, LateError> {
        let now = clock::unix_time();
        let (record, call): (Record, RecordedCall) = match self.0.parts.find_call(named, None, now).await? {
            MatchedCall::None => return Ok(Some(CancelOutcome::Unknown)),
            MatchedCall::Several => return Ok(Some(CancelOutcome::Ambiguous)),
            MatchedCall::One(found) => (found.record, found.value),
        };
        if call.tier != Tier::Revertible {
            return Ok(Some(CancelOutcome::NotUndoable));
        }
        let wanted = if is_refused {
            RecordedCallState::CancelRefused
        } else {
            RecordedCallState::Cancelled
        };
        if call.state == wanted {
            return Ok(Some(CancelOutcome::State(wanted)));
        }
        if !matching::is_running(&call) {
            return Ok(Some(CancelOutcome::Ended));
        }
        let mut steps = self.end_steps(&record, call, is_refused, now).await?;
        let message = evidence::cancel_key(&record.key);
        let waiting = self.0.parts.read_record(message, now).await?;
        steps.extend(waiting.map(|record| record.remove_step()));
        if self.0.parts.commit(steps, now).await? {
            self.0.outbox.due().remove(&message);
            self.lock_watch().remove_call(&record.key);
            self.count_end(is_refused);
            return Ok(Some(CancelOutcome::State(wanted)));
        }
        Ok(None)
    }
}
