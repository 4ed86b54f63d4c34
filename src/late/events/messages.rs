//! An event that is due: judged once more, and written as a message.

use serde_json::{Value, json};

use crate::{
    auth::{Caller, Principal},
    clock::rfc3339_date,
    late::{
        LateError, LateStore,
        event_kind::{EventKind, EventSubject},
        intents::{IntentId, IntentState, rules, storing},
        matching,
        records::RecordedCall,
        webhook::Webhook,
    },
    ledger::{Moment, Record, RecordKey, RecordKind},
};

/// The judgement on an event that is due.
pub(in crate::late) enum JudgedEvent {
    /// It is true: this is its body.
    True(String),
    /// It may become true at this time.
    Later(Moment),
    /// It is not true, its record is gone, or the webhook gets no events of its caller any more.
    Untrue,
}

/// Judges an event of a principal.
pub(in crate::late) async fn judge(
    late: &LateStore,
    principal: Principal,
    webhook: &Webhook,
    (kind, subject, made_at): (EventKind, EventSubject, Moment),
    now: Moment,
) -> Result<JudgedEvent, LateError> {
    let (data, account, happened_at) = match subject {
        EventSubject::Call(name) => {
            let key = RecordKey::new(RecordKind::Call, principal, name);
            let Some(call) = read_call(late, key, now).await? else {
                return Ok(JudgedEvent::Untrue);
            };
            if kind == EventKind::Expired {
                if !matching::is_running(&call) {
                    return Ok(JudgedEvent::Untrue);
                }
                // A heartbeat has extended it.
                if call.deadline > now {
                    return Ok(JudgedEvent::Later(call.deadline));
                }
            }
            let content = if webhook.has_content && kind == EventKind::Settled {
                late.posted_content(principal, name, now).await?
            } else {
                None
            };
            let happened_at = match (kind, &call.posted) {
                (EventKind::Expired, _) => call.deadline,
                (EventKind::Settled, Some(posted)) => posted.posted_at,
                _ => made_at,
            };
            let data = with_content(&of_call(late, principal, &call), content);
            (data, call.account, happened_at)
        }
        EventSubject::Intent(name) => {
            let stored = storing::read_intent(late, storing::intent_key(*principal.as_bytes(), name), now).await?;
            let Some(stored) = stored else {
                return Ok(JudgedEvent::Untrue);
            };
            match rules::state_at(&stored.intent, now) {
                IntentState::Unknown => {}
                state if state.is_in_flight() => return Ok(JudgedEvent::Later(stored.intent.run.lease_until)),
                _ => return Ok(JudgedEvent::Untrue),
            }
            let data = json!({
                "intent": IntentId::of_record(principal.as_bytes(), &name).to_string(),
                "owner": late.owner_of(Caller::of_account(principal)).to_string(),
                "tool": String::from_utf8_lossy(&stored.intent.tool),
                "service": stored.intent.run.service,
                "since": rfc3339_date(stored.intent.run.claimed_at),
            });
            (data.to_string(), stored.intent.account, stored.intent.run.lease_until)
        }
    };
    // The configuration may have changed since the event was stored.
    if !webhook.reaches(Principal::from_bytes(account)) {
        return Ok(JudgedEvent::Untrue);
    }
    let timestamp = rfc3339_date(happened_at);
    let body = format!(
        r#"{{"type":"{}","timestamp":"{timestamp}","data":{data}}}"#,
        kind.label()
    );
    Ok(JudgedEvent::True(body))
}

/// Adds a content to an object, in its own bytes.
fn with_content(object: &Value, content: Option<String>) -> String {
    let mut text = object.to_string();
    if let Some(content) = content {
        // The brace at the end of the object.
        text.pop();
        text = format!("{text},\"content\":{content}}}");
    }
    text
}

/// Returns what a message says of a call, without its content.
fn of_call(late: &LateStore, principal: Principal, call: &RecordedCall) -> Value {
    let posted = call.posted.as_ref();
    json!({
        "call_id": String::from_utf8_lossy(&call.id),
        "owner": late.owner_of(Caller::of_account(principal)).to_string(),
        "tool": String::from_utf8_lossy(&call.tool),
        "session": call.session_label,
        "state": call.state.label(),
        "opened_at": rfc3339_date(call.opened_at),
        "settled_at": posted.map(|posted| rfc3339_date(posted.posted_at)),
        "is_error": posted.map(|posted| posted.failed),
        "bytes": posted.map(|posted| posted.content.byte_len()),
    })
}

async fn read_call(late: &LateStore, key: RecordKey, now: Moment) -> Result<Option<RecordedCall>, LateError> {
    let record: Option<Record> = late
        .0
        .parts
        .ledger
        .read(vec![key], now)
        .await?
        .into_iter()
        .flatten()
        .next();
    Ok(record.and_then(|record| RecordedCall::decode(&record.value)))
}
