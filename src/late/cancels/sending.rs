//! A cancel that is due: judged once more, sent, and answered.

use serde_json::json;

use super::evidence::read_sign;
use crate::{
    auth::{Caller, Owner, Principal},
    clock::rfc3339_date,
    late::{
        LateError, LateStore,
        event_kind::{EventKind, EventSubject},
        events::Notices,
        intents::{self, records::IntentRecord, storing},
        leave_reason::LeaveReason,
        matching,
        outbox::{OutgoingRecord, Purpose, remove_step, replace_step},
        records::{RecordedCall, RecordedCallState},
    },
    ledger::{CommitOutcome, CommitStep, Moment, Record, RecordKey, RecordKind},
};

/// The type of the message.
const EVENT: &str = "ledger.intent.cancel";

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
    /// Reads the body of a success. Anything but a clear word means that the service will report.
    pub(in crate::late) fn read(body: &[u8]) -> Self {
        let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        match answer["state"].as_str() {
            Some("cancelled") => Self::Cancelled,
            Some("refused" | "cancel_refused") => Self::Refused,
            _ => Self::Accepted,
        }
    }
}

/// Judges a cancel that is due, and notes that it was requested. Returns `None` if it is not to be sent.
pub(in crate::late) async fn prepare(
    late: &LateStore,
    record: &Record,
    message: &OutgoingRecord,
    now: Moment,
) -> Result<Option<PreparedCancel>, LateError> {
    let Purpose::Cancel {
        call: name,
        lane,
        reason,
    } = message.purpose
    else {
        return Ok(None);
    };
    let principal = Principal::from_bytes(record.key.principal);
    let call_key = RecordKey::new(RecordKind::Call, principal, name);
    let mut judged_until = message.made_at;
    if let Some(lane) = lane {
        let watch = late.0.watched_lanes.lock();
        // A request has revoked it: the removal of the record is on its way.
        let is_revoked = watch.contains(&lane) && watch.pending_reason(&lane, &call_key).is_none();
        if is_revoked {
            return Ok(None);
        }
        judged_until = judged_until.max(watch.own_sign(&lane));
    }
    let sign_key = lane.map(|lane| RecordKey::new(RecordKind::LaneSign, principal, lane));
    let keys = [Some(call_key), sign_key].into_iter().flatten().collect();
    let mut records = late.0.ledger.read(keys, now).await?.into_iter();
    let (found, sign) = (records.next().flatten(), records.next().flatten());
    let heard_at = sign.and_then(|sign| read_sign(&sign.value));
    let is_alive = reason != LeaveReason::Requested && heard_at.is_some_and(|at| at > judged_until);
    let found = found.and_then(|record| {
        let call = RecordedCall::decode(&record.value)?;
        Some((record, call))
    });
    let Some((call_record, mut call)) = found.filter(|(_, call)| matching::is_running(call) && !is_alive) else {
        late.0.ledger.commit(vec![remove_step(record)], now).await?;
        late.0.telemetry.record_late_event("cancel_revoked");
        return Ok(None);
    };
    if call.state == RecordedCallState::CancelRefused {
        late.0.ledger.commit(vec![remove_step(record)], now).await?;
        return Ok(None);
    }
    let intent = read_intent(late, principal, name, &call, now).await?;
    let body = message_body(late, principal, &call, intent.as_ref(), reason, now);
    let is_first = call.state != RecordedCallState::CancelRequested;
    if is_first {
        call.state = RecordedCallState::CancelRequested;
        let mut steps = vec![late.replace_step(&call_record, &call)];
        if let Some(intent) = intent.filter(|intent| intent.intent.state == intents::IntentState::Claimed) {
            let asked = IntentRecord {
                state: intents::IntentState::CancelRequested,
                ..intent.intent.clone()
            };
            steps.push(intent.replace_step(&asked));
        }
        let message = OutgoingRecord {
            give_up_at: call.deadline.max(now),
            ..message.clone()
        };
        steps.push(replace_step(record, &message));
        let owner = (principal, Principal::from_bytes(call.account));
        let notices = Notices::of_change(late, owner, EventKind::Cancel, EventSubject::Call(name), (now, now));
        steps.extend(notices.steps());
        if late.0.ledger.commit(steps, now).await? != CommitOutcome::Done {
            return Err(LateError::Busy);
        }
        notices.schedule(late, now);
        late.0.telemetry.record_late_event("cancel_requested");
    }
    Ok(Some(PreparedCancel {
        account: Principal::from_bytes(call.account),
        tool: call.tool,
        body,
    }))
}

/// Notes the answer of a service, and removes the message.
pub(in crate::late) async fn note_reply(
    late: &LateStore,
    record: &Record,
    call: [u8; 32],
    reply: CancelReply,
    now: Moment,
) -> Result<bool, LateError> {
    let principal = Principal::from_bytes(record.key.principal);
    let call_key = RecordKey::new(RecordKind::Call, principal, call);
    let mut steps = vec![remove_step(record)];
    if reply != CancelReply::Accepted {
        let found = late
            .0
            .ledger
            .read(vec![call_key], now)
            .await?
            .into_iter()
            .flatten()
            .next();
        let found = found.and_then(|record| {
            let call = RecordedCall::decode(&record.value)?;
            Some((record, call))
        });
        // A result that came meanwhile is the truth.
        if let Some((record, call)) = found.filter(|(_, call)| matching::is_running(call)) {
            steps.extend(end_steps(late, &record, call, reply == CancelReply::Refused, now).await?);
        }
    }
    if late.0.ledger.commit(steps, now).await? != CommitOutcome::Done {
        return Ok(false);
    }
    if reply != CancelReply::Accepted {
        late.0.watched_lanes.remove_call(&call_key);
        count_end(late, reply == CancelReply::Refused);
    }
    Ok(true)
}

/// Returns the steps that end a call as cancelled, or note that its tool goes on, with those of its intent.
pub(super) async fn end_steps(
    late: &LateStore,
    record: &Record,
    mut call: RecordedCall,
    is_refused: bool,
    now: Moment,
) -> Result<Vec<CommitStep>, LateError> {
    let principal = Principal::from_bytes(record.key.principal);
    let intent = read_intent(late, principal, record.key.name, &call, now).await?;
    let (state, intent_state) = if is_refused {
        (RecordedCallState::CancelRefused, intents::IntentState::CancelRefused)
    } else {
        (RecordedCallState::Cancelled, intents::IntentState::Cancelled)
    };
    call.state = state;
    let mut steps = vec![late.replace_step(record, &call)];
    if let Some(intent) = intent.filter(|intent| intent.intent.state.is_in_flight()) {
        let ended = IntentRecord {
            state: intent_state,
            ..intent.intent.clone()
        };
        steps.push(intent.replace_step(&ended));
    }
    Ok(steps)
}

/// Counts the end of a cancel.
pub(super) fn count_end(late: &LateStore, is_refused: bool) {
    let event = if is_refused { "cancel_refused" } else { "undone" };
    late.0.telemetry.record_late_event(event);
}

/// Reads the intent that is claimed for a call.
async fn read_intent(
    late: &LateStore,
    principal: Principal,
    name: [u8; 32],
    call: &RecordedCall,
    now: Moment,
) -> Result<Option<storing::StoredIntent>, LateError> {
    let Some(intent) = intents::intent_of_call(late, principal, name, call) else {
        return Ok(None);
    };
    let key = storing::intent_key(*principal.as_bytes(), intent);
    let stored = storing::read_intent(late, key, now).await?;
    Ok(stored.filter(|stored| stored.intent.run.call == Some(name)))
}

/// Returns the body: ids, and nothing of the conversation.
fn message_body(
    late: &LateStore,
    principal: Principal,
    call: &RecordedCall,
    intent: Option<&storing::StoredIntent>,
    reason: LeaveReason,
    now: Moment,
) -> String {
    let owner: Owner = late.owner_of(Caller::of_account(principal));
    json!({
        "type": EVENT,
        "timestamp": rfc3339_date(now),
        "data": {
            "call_id": String::from_utf8_lossy(&call.id),
            "owner": owner.to_string(),
            "tool": String::from_utf8_lossy(&call.tool),
            "session": call.session_label,
            "intent": intent.map(|intent| intent.id().to_string()),
            "reason": reason.label(),
            "opened_at": rfc3339_date(call.opened_at),
        }
    })
    .to_string()
}
