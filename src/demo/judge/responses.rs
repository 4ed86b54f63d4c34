//! Responses: an output for every call of the input, by id, over all of it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Verdict, list, text};

/// A kind of call, the kinds of items that answer it, and the provider's word for it.
type Kind = (&'static str, &'static [&'static str], &'static str);

const KINDS: [Kind; 7] = [
    ("function_call", &["function_call_output"], "function call"),
    ("custom_tool_call", &["custom_tool_call_output"], "custom tool call"),
    (
        "local_shell_call",
        &["local_shell_call_output", "function_call_output"],
        "local shell call",
    ),
    ("shell_call", &["shell_call_output"], "shell call"),
    ("apply_patch_call", &["apply_patch_call_output"], "apply patch call"),
    ("computer_call", &["computer_call_output"], "computer call"),
    ("tool_search_call", &["tool_search_output"], "tool search call"),
];

/// Behind these, part of the history stands at the provider.
const HELD: [&str; 2] = ["item_reference", "compaction"];

/// The longest `call_id`.
const ID_MAX: usize = 64;

pub(super) fn judge(body: &Value) -> Verdict {
    let items = list(body, "input");
    let names = |key: &str| body.get(key).is_some_and(|value| !value.is_null());
    let stateful = names("previous_response_id") || names("conversation");
    if items.is_empty() && text(body, "input").is_empty() && !stateful && !names("prompt") {
        return Err(
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided.".to_owned(),
        );
    }
    once_each(items)?;
    paired(items, stateful || items.iter().any(|item| HELD.contains(&kind(item))))
}

/// Ids of calls are there and short enough; none stands twice in one turn of the model, nor the id of an item in the
/// input.
fn once_each(items: &[Value]) -> Verdict {
    let (mut own, mut turn) = (HashSet::new(), HashSet::new());
    for (index, item) in items.iter().enumerate() {
        let kind = kind(item);
        if !is_output(item) && kind != "item_reference" && !text(item, "id").is_empty() && !own.insert(text(item, "id"))
        {
            let id = text(item, "id");
            return Err(format!(
                "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
            ));
        }
        if is_output(item) || (kind == "message" && text(item, "role") != "assistant") {
            turn.clear();
        }
        if call(item).is_none() && !is_output(item) {
            continue;
        }
        let id = answers(item);
        if id.is_empty() {
            return Err(format!("Missing required parameter: 'input[{index}].call_id'."));
        }
        let length = id.chars().count();
        if length > ID_MAX {
            return Err(format!(
                "Invalid 'input[{index}].call_id': string too long. Expected a string with maximum length {ID_MAX}, \
                 but got a string with \
                 length {length} instead."
            ));
        }
        if call(item).is_some() && !turn.insert(id) {
            return Err(format!("Duplicate 'call_id': {id}."));
        }
    }
    Ok(())
}

/// Each call has an output of a kind of its own, and each output a call, unless that may stand at the provider.
fn paired(items: &[Value], held: bool) -> Verdict {
    let mut left: HashMap<&str, Vec<(usize, &str)>> = HashMap::new();
    for (index, item) in items.iter().enumerate().filter(|(_, item)| is_output(item)) {
        left.entry(answers(item)).or_default().push((index, kind(item)));
    }
    let mut done = HashSet::new();
    for item in items {
        let Some((_, kinds, word)) = call(item) else { continue };
        let id = text(item, "call_id");
        let found = left.get_mut(id).and_then(|own| {
            let at = own.iter().position(|(_, kind)| kinds.contains(kind))?;
            Some(own.remove(at))
        });
        let Some((_, kind)) = found else {
            return Err(format!("No tool output found for {word} {id}."));
        };
        done.insert((id, kind));
    }
    let of = |(id, own): (_, Vec<(usize, _)>)| own.into_iter().map(move |(index, kind)| (index, kind, id));
    let mut strays: Vec<(usize, &str, &str)> = left.into_iter().flat_map(of).collect();
    strays.sort_unstable();
    for (_, kind, id) in strays {
        if !done.insert((id, kind)) {
            return Err(format!("Duplicate tool output for call_id: {id}."));
        }
        if !held {
            let word = kind.replace('_', " ");
            return Err(format!("No tool call found for {word} with call_id {id}."));
        }
    }
    Ok(())
}

fn kind(item: &Value) -> &str {
    match item.get("type").and_then(Value::as_str) {
        Some(kind) => kind,
        None if item.get("role").is_none() => "item_reference",
        None => "message",
    }
}

/// What a client is to answer. The provider searches for tools by itself, unless it says otherwise.
fn call(item: &Value) -> Option<&'static Kind> {
    KINDS.iter().find(|(call, ..)| *call == kind(item) && !is_hosted(item))
}

fn is_output(item: &Value) -> bool {
    KINDS.iter().any(|(_, kinds, _)| kinds.contains(&kind(item))) && !is_hosted(item)
}

fn is_hosted(item: &Value) -> bool {
    let search = ["tool_search_call", "tool_search_output"].contains(&kind(item));
    search && (text(item, "execution") == "server" || text(item, "call_id").is_empty())
}

/// The call that an item is or names; a local shell's output may name it as its own id.
fn answers(item: &Value) -> &str {
    match text(item, "call_id") {
        "" if kind(item) == "local_shell_call_output" => text(item, "id"),
        id => id,
    }
}
