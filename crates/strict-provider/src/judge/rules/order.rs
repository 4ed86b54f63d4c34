//! Servers that demand an order or a number: no user message right behind a tool message, at least one user message,
//! or one output for each call.

use std::collections::HashSet;

use serde_json::Value;

use super::{BridgeWords, NoUserWords, history_calls::text};
use crate::judge::{Refusal, Verdict};

/// Refuses a user message right behind a tool message. An assistant message between both satisfies the template.
pub(super) fn check_bridges(words: BridgeWords, request: &Value) -> Verdict {
    let list = messages(request);
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

/// Refuses a history without a user message.
pub(super) fn check_users(words: NoUserWords, request: &Value) -> Verdict {
    let list = messages(request);
    if list.is_empty() || list.iter().any(|message| text(message.get("role")) == "user") {
        return Ok(());
    }
    let none: [&str; 0] = [];
    Err(match words {
        NoUserWords::LmStudio => Refusal::new(
            "Error rendering prompt with jinja template: \"No user query found in messages.\".\n\nThis is usually an \
             issue with the model's prompt template."
                .to_owned(),
            none,
        ),
        NoUserWords::Glm => Refusal {
            code: Some("1214"),
            ..Refusal::new(
                "The messages parameter is illegal. Please check the documentation.".to_owned(),
                none,
            )
        },
    })
}

fn messages(request: &Value) -> &[Value] {
    let list = request.get("messages").and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Refuses the second output of a call: <https://github.com/NousResearch/hermes-agent/issues/102629>, 2026-09.
pub(super) fn check_outputs(request: &Value) -> Verdict {
    let items = request.get("input").and_then(Value::as_array).into_iter().flatten();
    let outputs = items.filter(|item| text(item.get("type")).ends_with("call_output"));
    let mut seen = HashSet::new();
    for id in outputs
        .map(|item| text(item.get("call_id")))
        .filter(|id| !id.is_empty())
    {
        if !seen.insert(id) {
            let words = format!(
                "Error from provider (Console): Upstream request failed: [invalid_request_error] Duplicate \
                 function_call_output for call_id '{id}'. Each function_call must have exactly one matching \
                 function_call_output"
            );
            return Err(Refusal::new(words, [id]));
        }
    }
    Ok(())
}
