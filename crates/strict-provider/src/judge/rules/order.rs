//! Servers whose chat template has no user message right behind a tool message.

use serde_json::Value;

use super::{BridgeWords, history_calls::text};
use crate::judge::{Refusal, Verdict};

/// Refuses a user message right behind a tool message. An assistant message between both satisfies the template.
pub(super) fn check_bridges(words: BridgeWords, request: &Value) -> Verdict {
    let list = request
        .get("messages")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let is_bare = |pair: &&[Value]| text(pair[0].get("role")) == "tool" && text(pair[1].get("role")) == "user";
    let Some(pair) = list.windows(2).find(is_bare) else {
        return Ok(());
    };
    let refused = Refusal::new(
        "Unexpected role 'user' after role 'tool'".to_owned(),
        [text(pair[0].get("tool_call_id"))],
    );
    Err(match words {
        BridgeWords::Plain => Refusal {
            kind: Some("BadRequestError"),
            ..refused
        },
        BridgeWords::Code3230 => Refusal {
            kind: Some("invalid_request_message_order"),
            code: Some("3230"),
            ..refused
        },
    })
}
