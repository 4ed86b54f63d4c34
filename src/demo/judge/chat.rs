//! Chat Completions: behind a message with calls comes an unbroken run of exactly its tool messages.

use std::collections::HashSet;

use serde_json::Value;

use super::{Verdict, list, text};

/// The longest id.
const ID_MAX: usize = 40;

pub(super) fn judge(body: &Value) -> Verdict {
    let messages: Vec<(usize, &Value)> = list(body, "messages").iter().enumerate().collect();
    if messages.is_empty() {
        return Err(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
                .to_owned(),
        );
    }
    let mut rest = messages.as_slice();
    while let Some((&(index, message), behind)) = rest.split_first() {
        rest = behind;
        match text(message, "role") {
            "tool" => return Err(stray(message)),
            "assistant" => {}
            "system" | "developer" | "user" | "function" => continue,
            other => return Err(format!("Invalid value: '{other}' for messages[{index}].role.")),
        }
        let says = |key: &str| message.get(key).is_some_and(|value| !value.is_null());
        if !["content", "tool_calls", "function_call", "refusal", "audio"]
            .iter()
            .any(|key| says(key))
        {
            return Err("Invalid value for 'content': expected a string, got null.".to_owned());
        }
        let Some(calls) = message.get("tool_calls").and_then(Value::as_array) else {
            continue;
        };
        if calls.is_empty() {
            return Err(format!(
                "Invalid 'messages[{index}].tool_calls': empty array. Expected an array with minimum length 1, but \
                 got an empty array instead."
            ));
        }
        // A legacy function message is as if it were not there.
        let run = |(_, message): &&(usize, &Value)| ["tool", "function"].contains(&text(message, "role"));
        let (tools, after) = rest.split_at(rest.iter().take_while(run).count());
        answered(index, calls, tools)?;
        rest = after;
    }
    Ok(())
}

fn stray(message: &Value) -> String {
    if text(message, "tool_call_id").is_empty() {
        return "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.".to_owned();
    }
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        .to_owned()
}

fn answered(index: usize, calls: &[Value], tools: &[(usize, &Value)]) -> Verdict {
    let mut open: Vec<&str> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let id = text(call, "id");
        if id.is_empty() {
            return Err(format!(
                "Missing required parameter: 'messages[{index}].tool_calls[{at}].id'."
            ));
        }
        if id.len() > ID_MAX {
            return Err(format!(
                "Invalid 'messages[{index}].tool_calls[{at}].id': string too long. Expected a string with maximum \
                 length {ID_MAX}, but got a \
                 string with length {} instead.",
                id.len()
            ));
        }
        if open.contains(&id) {
            return Err(format!(
                "Duplicate value for 'tool_call_id' of {id} in message[{index}]"
            ));
        }
        open.push(id);
    }
    let mut done = HashSet::new();
    let mut stranger = None;
    for (at, tool) in tools.iter().filter(|(_, tool)| text(tool, "role") == "tool") {
        let id = text(tool, "tool_call_id");
        if id.is_empty() {
            return Err(stray(tool));
        } else if let Some(place) = open.iter().position(|open| *open == id) {
            done.insert(open.remove(place));
        } else if done.contains(id) {
            return Err(format!("Duplicate value for 'tool_call_id' of {id} in message[{at}]"));
        } else {
            stranger.get_or_insert(id);
        }
    }
    if !open.is_empty() {
        return Err(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
             'tool_call_id'. The following \
             tool_call_ids did not have response messages: {}",
            open.join(", ")
        ));
    }
    stranger.map_or(Ok(()), |id| {
        Err(format!(
            "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."
        ))
    })
}
