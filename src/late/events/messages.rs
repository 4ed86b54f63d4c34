//! An event that is due: judged once more, and written as a message.

use serde_json::{Value, json};

use super::Events;
use crate::{
    auth::Principal,
    clock::rfc3339_date,
    late::{
        LateError, matching,
        parts::LateParts,
        records::{EventKind, EventSubject, IntentId, IntentRecord, IntentState, RecordedCall, intent_rules},
        webhook::Webhook,
    },
    ledger::Moment,
    table::RecordValue,
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

impl Events {
    /// Judges an event of a principal.
    pub(in crate::late) async fn judge(
        &self,
        principal: Principal,
        webhook: &Webhook,
        (kind, subject, made_at): (EventKind, EventSubject, Moment),
        now: Moment,
    ) -> Result<JudgedEvent, LateError> {
        let (data, account, happened_at) = match subject {
            EventSubject::Call(name) => {
                let Some(call) = self.parts.calls.read(RecordedCall::key(principal, name), now).await? else {
                    return Ok(JudgedEvent::Untrue);
                };
                let call = call.value;
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
                    self.parts.posted_content(principal, name, now).await?
                } else {
                    None
                };
                let happened_at = match (kind, &call.posted) {
                    (EventKind::Expired, _) => call.deadline,
                    (EventKind::Settled, Some(posted)) => posted.posted_at,
                    _ => made_at,
                };
                let data = with_content(&of_call(&self.parts, principal, &call), content);
                (data, call.account, happened_at)
            }
            EventSubject::Intent(name) => {
                let key = IntentRecord::key(principal, name);
                let Some(stored) = self.parts.intents.read(key, now).await? else {
                    return Ok(JudgedEvent::Untrue);
                };
                match intent_rules::state_at(&stored.value, now) {
                    IntentState::Unknown => {}
                    state if state.is_in_flight() => return Ok(JudgedEvent::Later(stored.value.run.lease_until)),
                    _ => return Ok(JudgedEvent::Untrue),
                }
                let data = json!({
                    "intent": IntentId::of_key(&key).to_string(),
                    "owner": self.parts.owner_of(principal).to_string(),
                    "tool": String::from_utf8_lossy(&stored.value.tool),
                    "service": stored.value.run.service,
                    "since": rfc3339_date(stored.value.run.claimed_at),
                });
                (data.to_string(), stored.value.account, stored.value.run.lease_until)
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
fn of_call(parts: &LateParts, principal: Principal, call: &RecordedCall) -> Value {
    let posted = call.posted.as_ref();
    json!({
        "call_id": String::from_utf8_lossy(&call.id),
        "owner": parts.owner_of(principal).to_string(),
        "tool": String::from_utf8_lossy(&call.tool),
        "session": call.session_label,
        "state": call.state.label(),
        "opened_at": rfc3339_date(call.opened_at),
        "settled_at": posted.map(|posted| rfc3339_date(posted.posted_at)),
        "is_error": posted.map(|posted| posted.failed),
        "bytes": posted.map(|posted| posted.content.byte_len()),
    })
}
