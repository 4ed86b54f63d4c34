//! A cancel that is due: judged once more, sent, and answered.

use serde_json::json;

use super::{Cancels, evidence::read_sign};
use crate::{
    auth::{Owner, Principal},
    clock::{self, rfc3339_date},
    late::{
        LateError,
        changes::LateChange,
        matching,
        records::{
            IntentId, IntentRecord, IntentState, LeaveReason, OutgoingRecord, Purpose, RecordedCall, RecordedCallState,
        },
    },
    ledger::{CommitStep, Moment, Record, RecordKey, RecordKind},
    session::CallEvidence,
    table::{RecordValue, Stored},
};

/// The type of the message.
const MESSAGE_TYPE: &str = "ledger.intent.cancel";

/// A cancel that is ready to be sent.
pub(in crate::late) struct PreparedCancel {
    /// The tool, whose settings have the URL.
    pub(in crate::late) tool: Vec<u8>,
    /// The account whose services may answer for the tool.
    pub(in crate::late) account: Principal,
    /// The body.
    pub(in crate::late) body: String,
}

/// The answer of a service to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::late) enum CancelReply {
    /// The effect was undone.
    Cancelled,
    /// The effect will not be undone.
    Refused,
    /// The service has the message, and will report.
    Accepted,
}

impl CancelReply {
    /// Reads the body of a success. Anything but a clear word means that the service will report. The name of the state
    /// counts as the word `refused`.
    pub(in crate::late) fn read(body: &[u8]) -> Self {
        let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        match answer["state"].as_str() {
            Some("cancelled") => Self::Cancelled,
            Some("refused" | "cancel_refused") => Self::Refused,
            _ => Self::Accepted,
        }
    }
}

impl Cancels {
    /// Judges a cancel that is due, and notes that it was requested. Returns `None` if it is not to be sent.
    pub(in crate::late) async fn prepare(
        &self,
        record: &Record,
        message: &OutgoingRecord,
        now: Moment,
    ) -> Result<Option<PreparedCancel>, LateError> {
        let Purpose::Cancel { call, lane, reason } = message.purpose else {
            return Ok(None);
        };
        let principal = record.key.owner();
        let call_key = RecordedCall::key(principal, call);
        let found = match self
            .find_due_call(call_key, lane, (reason, message.made_at), now)
            .await?
        {
            DueCall::Found(found) => found,
            DueCall::Revoked => return Ok(None),
            DueCall::Ended => {
                self.0.parts.ledger.commit(vec![record.remove_step()], now).await?;
                return Ok(None);
            }
            DueCall::Alive(lane) => {
                self.0.parts.ledger.commit(vec![record.remove_step()], now).await?;
                // Its silence counts anew.
                let mut watch = self.lock_watch();
                let times = (clock::now(), message.made_at);
                drop(watch.hear(&lane, |_| CallEvidence::GoesOn, true, times));
                drop(watch);
                self.0.parts.telemetry.record_late_event("cancel_revoked");
                return Ok(None);
            }
        };
        let intent = self.read_intent(principal, call, &found.value, now).await?;
        let prepared = PreparedCancel {
            account: Principal::from_bytes(found.value.account),
            tool: found.value.tool.clone(),
            body: self.message_body(principal, &found.value, intent.as_ref(), (reason, message.made_at)),
        };
        if found.value.state != RecordedCallState::CancelRequested {
            self.note_requested((record, message), *found, intent, now).await?;
        }
        Ok(Some(prepared))
    }
}

/// The call of a cancel that is due.
enum DueCall {
    /// It still waits for a result, and its lane was left.
    Found(Box<Stored<RecordedCall>>),
    /// A request has revoked the cancel: the removal of the message is on its way.
    Revoked,
    /// Another process has seen a request of its lane, or a heartbeat of its tool.
    Alive([u8; 32]),
    /// It is no longer open: it has a result, was undone, or its tool refuses to undo it.
    Ended,
}

impl Cancels {
    /// Finds the call of a cancel. Signs of life after its evidence keep it, unless its owner asked for the cancel.
    async fn find_due_call(
        &self,
        call_key: RecordKey,
        lane: Option<[u8; 32]>,
        (reason, evidence_at): (LeaveReason, Moment),
        now: Moment,
    ) -> Result<DueCall, LateError> {
        let sign_key = lane.map(|lane| RecordKey::new(RecordKind::LaneSign, call_key.owner(), lane));
        let keys = [Some(call_key), sign_key].into_iter().flatten().collect();
        let mut records = self.0.parts.ledger.read(keys, now).await?.into_iter();
        let (found, sign) = (records.next().flatten(), records.next().flatten());
        let found = found.and_then(Stored::<RecordedCall>::from_record);
        let is_open =
            |call: &RecordedCall| matching::is_running(call) && call.state != RecordedCallState::CancelRefused;
        let Some(found) = found.filter(|call| is_open(&call.value)) else {
            return Ok(DueCall::Ended);
        };
        // Nothing revokes a cancel that was sent, or that the owner asked for.
        if let Some(lane) = lane
            && reason != LeaveReason::Requested
            && found.value.state != RecordedCallState::CancelRequested
        {
            let watch = self.lock_watch();
            let is_revoked = watch.contains(&lane) && watch.pending_reason(&lane, &call_key).is_none();
            let own_sign = watch.own_sign(&lane);
            drop(watch);
            if self.0.parts.ledger.is_exclusive() {
                if is_revoked {
                    return Ok(DueCall::Revoked);
                }
            } else if own_sign > evidence_at && is_revoked {
                // Another process may have stored the evidence, and may be dead: this one removes the cancel.
                return Ok(DueCall::Alive(lane));
            }
            let judged_until = evidence_at.max(own_sign);
            let heard_at = sign.and_then(|sign| read_sign(&sign.value));
            // Of the requests and heartbeats at other processes this one has seen none.
            let last = heard_at.max(Some(found.value.heartbeat_at)).unwrap_or_default();
            let is_silent = last.saturating_add(self.0.parts.settings.detach_after) <= now;
            let is_heard_elsewhere = reason == LeaveReason::Silent && !self.0.parts.ledger.is_exclusive() && !is_silent;
            if is_heard_elsewhere || heard_at.is_some_and(|heard_at| heard_at > judged_until) {
                return Ok(DueCall::Alive(lane));
            }
        }
        Ok(DueCall::Found(Box::new(found)))
    }

    /// Notes that a cancel was requested, before it is sent: from now on no request revokes it.
    async fn note_requested(
        &self,
        (record, message): (&Record, &OutgoingRecord),
        Stored {
            record: call_record,
            value: mut call,
        }: Stored<RecordedCall>,
        intent: Option<Stored<IntentRecord>>,
        now: Moment,
    ) -> Result<(), LateError> {
        call.state = RecordedCallState::CancelRequested;
        let mut steps = vec![self.0.parts.calls.replace_step(&call_record, &call)];
        if let Some(intent) = intent.filter(|intent| intent.value.state == IntentState::Claimed) {
            let asked = IntentRecord {
                state: IntentState::CancelRequested,
                ..intent.value
            };
            steps.push(self.0.parts.intents.replace_step(&intent.record, &asked));
        }
        let message = OutgoingRecord {
            give_up_at: call.deadline.max(now),
            ..message.clone()
        };
        steps.push(self.0.parts.messages.replace_step(record, &message));
        let change = LateChange::CancelRequested(call_record.key, &call);
        steps.extend(self.0.participants.join(change, now).await?.steps);
        if !self.0.parts.commit(steps, now).await? {
            return Err(LateError::Busy);
        }
        self.lock_watch().make_final(&call_record.key, clock::now());
        self.0.participants.note(change, now);
        self.0.parts.telemetry.record_late_event("cancel_requested");
        Ok(())
    }

    /// Notes the answer of a service, and removes the message.
    pub(in crate::late) async fn note_reply(
        &self,
        record: &Record,
        call: [u8; 32],
        reply: CancelReply,
        now: Moment,
    ) -> Result<bool, LateError> {
        let principal = record.key.owner();
        let call_key = RecordedCall::key(principal, call);
        let mut steps = vec![record.remove_step()];
        let mut is_end = false;
        if reply != CancelReply::Accepted {
            let found = self.0.parts.calls.read(call_key, now).await?;
            // A result that came meanwhile wins.
            if let Some(found) = found.filter(|call| matching::is_running(&call.value)) {
                is_end = true;
                steps.extend(
                    self.end_steps(&found.record, found.value, reply == CancelReply::Refused, now)
                        .await?,
                );
            }
        }
        if !self.0.parts.commit(steps, now).await? {
            return Ok(false);
        }
        if reply != CancelReply::Accepted {
            self.lock_watch().remove_call(&call_key);
        }
        if is_end {
            self.count_end(reply == CancelReply::Refused);
        }
        Ok(true)
    }

    /// Returns the steps that end a call as cancelled, or note that its tool goes on, with those of its intent.
    pub(super) async fn end_steps(
        &self,
        record: &Record,
        mut call: RecordedCall,
        is_refused: bool,
        now: Moment,
    ) -> Result<Vec<CommitStep>, LateError> {
        let principal = record.key.owner();
        let intent = self.read_intent(principal, record.key.name, &call, now).await?;
        let (state, intent_state) = if is_refused {
            (RecordedCallState::CancelRefused, IntentState::CancelRefused)
        } else {
            (RecordedCallState::Cancelled, IntentState::Cancelled)
        };
        call.state = state;
        let mut steps = vec![self.0.parts.calls.replace_step(record, &call)];
        if let Some(intent) = intent.filter(|intent| intent.value.state.is_in_flight()) {
            let ended = IntentRecord {
                state: intent_state,
                ..intent.value
            };
            steps.push(self.0.parts.intents.replace_step(&intent.record, &ended));
        }
        Ok(steps)
    }

    /// Counts the end of a cancel.
    pub(super) fn count_end(&self, is_refused: bool) {
        let event = if is_refused { "cancel_refused" } else { "undone" };
        self.0.parts.telemetry.record_late_event(event);
    }

    /// Reads the intent that is claimed for a call.
    async fn read_intent(
        &self,
        principal: Principal,
        name: [u8; 32],
        call: &RecordedCall,
        now: Moment,
    ) -> Result<Option<Stored<IntentRecord>>, LateError> {
        let Some(intent) = self.0.parts.intent_of_call(principal, name, call) else {
            return Ok(None);
        };
        let key = IntentRecord::key(principal, intent);
        let stored = self.0.parts.intents.read(key, now).await?;
        Ok(stored.filter(|stored| stored.value.run.call == Some(name)))
    }

    /// Returns the body: ids, and nothing of the conversation.
    fn message_body(
        &self,
        principal: Principal,
        call: &RecordedCall,
        intent: Option<&Stored<IntentRecord>>,
        (reason, made_at): (LeaveReason, Moment),
    ) -> String {
        let owner: Owner = self.0.parts.owner_of(principal);
        json!({
            "type": MESSAGE_TYPE,
            "timestamp": rfc3339_date(made_at),
            "data": {
                "call_id": String::from_utf8_lossy(&call.id),
                "owner": owner.to_string(),
                "tool": String::from_utf8_lossy(&call.tool),
                "session": call.session_label,
                "intent": intent.map(|intent| IntentId::of_key(&intent.record.key).to_string()),
                "reason": reason.label(),
                "opened_at": rfc3339_date(call.opened_at),
            }
        })
        .to_string()
    }
}
