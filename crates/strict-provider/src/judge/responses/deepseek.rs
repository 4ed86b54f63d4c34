//! Responses as DeepSeek's endpoint reads it: in order, item by item.

use std::collections::HashSet;

use serde_json::Value;

use super::{Verdict, read_items, refuse, refuse_plainly};

/// Judges a body: all outputs come before the next item that is not a call, and ids are unique in the whole input. Any
/// kind of output answers any call, and unknown kinds are ignored.
pub(crate) fn judge(body: &Value) -> Verdict {
    let items = read_items(body)?;
    let instructed = body
        .get("instructions")
        .and_then(Value::as_str)
        .is_some_and(|words| !words.is_empty());
    match body.get("input") {
        Some(Value::Array(list)) if list.is_empty() => return refuse_plainly("Input items array must not be empty"),
        None | Some(Value::Null) if !instructed => {
            return refuse_plainly("Either input or instructions must be provided");
        }
        _ => {}
    }
    let mut open: Vec<&str> = Vec::new();
    let mut done: HashSet<&str> = HashSet::new();
    for item in &items {
        let index = item.index;
        let calls = matches!(item.kind, "function_call" | "custom_tool_call" | "tool_search_call");
        let answers = matches!(
            item.kind,
            "function_call_output" | "custom_tool_call_output" | "tool_search_output"
        );
        if !calls && !answers {
            if matches!(item.kind, "message" | "reasoning" | "web_search_call") {
                check_open_calls(&open)?;
            }
            continue;
        }
        match (item.kind, item.value.get("name"), item.value.get("arguments")) {
            ("function_call", None | Some(Value::Null), _) => return refuse_plainly("missing field `name`"),
            ("tool_search_call", _, Some(Value::String(text))) => {
                return refuse_plainly(format!("invalid type: string {text:?}, expected a map"));
            }
            _ => {}
        }
        match item.pairs() {
            _ if item.kind == "function_call_output" && item.value.get("output").is_none() => {
                return refuse_plainly("missing field `output`");
            }
            // An output without an id answers no call.
            None if item.kind == "function_call_output" => check_open_calls(&open)?,
            None => return refuse_plainly("missing field `call_id`"),
            Some("") => {
                return refuse_plainly(format!(
                    "Invalid 'input[{index}].call_id': empty string. Expected a string with minimum length 1, but \
                     got an empty string instead."
                ));
            }
            Some(id) if calls => {
                if open.contains(&id) || done.contains(id) {
                    return refuse(format!("Duplicate 'call_id': {id}."), [id]);
                }
                open.push(id);
            }
            Some(id) => match open.iter().position(|open| *open == id) {
                Some(at) => drop(done.insert(open.remove(at))),
                None if done.contains(id) => {
                    return refuse(format!("Duplicate tool output for call_id: {id}."), [id]);
                }
                None => {
                    return refuse(format!("No tool call found for tool output with call_id {id}."), [id]);
                }
            },
        }
    }
    check_open_calls(&open)
}

fn check_open_calls(open: &[&str]) -> Verdict {
    match open.first() {
        Some(id) => refuse(format!("No tool output found for tool call {id}."), [*id]),
        None => Ok(()),
    }
}
