//! Responses. Every call of the input has an output of the right kind, by id, over the whole input.

mod deepseek;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

pub(super) use deepseek::judge as deepseek;

use super::{Refusal, Verdict, contents, refuse, refuse_plainly};

/// A kind of call, the kinds of outputs that answer it, and the provider's words for both.
struct Kind {
    call: &'static str,
    outputs: &'static [&'static str],
    called: &'static str,
}

/// Calls that a client answers. Hosted tools contain their result, and a program may wait without a limit.
const KINDS: [Kind; 7] = [
    Kind {
        call: "function_call",
        outputs: &["function_call_output"],
        called: "function call",
    },
    Kind {
        call: "custom_tool_call",
        outputs: &["custom_tool_call_output"],
        called: "custom tool call",
    },
    // The specification has its own kind of output, but codex sends a function output.
    Kind {
        call: "local_shell_call",
        outputs: &["local_shell_call_output", "function_call_output"],
        called: "local shell call",
    },
    Kind {
        call: "shell_call",
        outputs: &["shell_call_output"],
        called: "shell call",
    },
    Kind {
        call: "apply_patch_call",
        outputs: &["apply_patch_call_output"],
        called: "apply patch call",
    },
    Kind {
        call: "computer_call",
        outputs: &["computer_call_output"],
        called: "computer call",
    },
    Kind {
        call: "tool_search_call",
        outputs: &["tool_search_output"],
        called: "tool search call",
    },
];

/// Every kind of output, and its name in the provider's words.
const OUTPUTS: [(&str, &str); 8] = [
    ("function_call_output", "function call output"),
    ("custom_tool_call_output", "custom tool call output"),
    ("local_shell_call_output", "local shell call output"),
    ("shell_call_output", "shell call output"),
    ("apply_patch_call_output", "apply patch call output"),
    ("computer_call_output", "computer call output"),
    ("tool_search_output", "tool search output"),
    ("program_output", "program output"),
];

/// Id prefixes by kind of item.
const MARKS: [(&str, &str); 3] = [("function_call", "fc"), ("message", "msg"), ("reasoning", "rs")];

/// Kinds of items that stand for history at the server.
const HELD: [&str; 2] = ["item_reference", "compaction"];

/// Largest length of a `call_id` at `OpenAI`.
const ID_MAX: usize = 64;

/// The demands in which servers of the format differ.
struct Demands {
    /// Largest length of a `call_id`.
    id_max: usize,
    /// `true` if no two calls of one model turn may share an id, and its output.
    unique_calls: bool,
    /// `true` if every output must name a call. Otherwise that of a function may name its tool alone.
    named_calls: bool,
    /// `true` if names must not be empty, and if the assistant's texts must have the type `output_text`.
    own_schema: bool,
}

/// An item and its place.
#[derive(Clone, Copy)]
struct Item<'a> {
    index: usize,
    kind: &'a str,
    value: &'a Value,
}

impl<'a> Item<'a> {
    fn str(&self, key: &str) -> Option<&'a str> {
        self.value.get(key).and_then(Value::as_str)
    }

    /// Returns the name of an output in the provider's words. `None` for any other item.
    fn output(&self) -> Option<&'static str> {
        let known = OUTPUTS.iter().find(|(kind, _)| *kind == self.kind);
        known.map(|(_, words)| *words)
    }

    fn call(&self) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.call == self.kind)
    }

    /// Returns the id that pairs. An output of a local shell may carry it as `id`.
    fn pairs(&self) -> Option<&'a str> {
        let own = self.str("call_id");
        own.or_else(|| {
            (self.kind == "local_shell_call_output")
                .then(|| self.str("id"))
                .flatten()
        })
    }

    /// Reports whether it is an output that names its tool and no call: <https://github.com/openai/codex/issues/45914>.
    fn is_standalone(&self) -> bool {
        let is_named = self.str("name").is_some() && self.value.get("call_id").is_none();
        self.kind == "function_call_output" && is_named
    }

    /// Reports whether the server itself runs the search, so that no client answers it.
    fn is_hosted(&self) -> bool {
        let search = matches!(self.kind, "tool_search_call" | "tool_search_output");
        search && (self.str("execution") == Some("server") || self.pairs().is_none())
    }

    /// Reports whether only a model writes this item, so that it may follow the model's reasoning.
    fn by_model(&self) -> bool {
        match self.kind {
            "message" => self.str("role") == Some("assistant"),
            kind => self.output().is_none() && !matches!(kind, "mcp_approval_response" | "compaction_trigger"),
        }
    }
}

/// Returns the items. An input string has none.
fn read_items(body: &Value) -> Result<Vec<Item<'_>>, Refusal> {
    match body.get("input") {
        Some(Value::String(_)) | None => Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().enumerate().map(read_item).collect(),
        Some(_) => Err(refusal(
            "Invalid type for 'input': expected one of an array of objects or string.".into(),
        )),
    }
}

/// Reads an item. Without a type it is a message, or a reference if it has only an id.
fn read_item((index, value): (usize, &Value)) -> Result<Item<'_>, Refusal> {
    let kind = match value.get("type").and_then(Value::as_str) {
        Some(kind) => kind,
        None if value.get("role").is_some() => "message",
        None if value.get("id").is_some() => "item_reference",
        None => return Err(refusal(format!("Missing required parameter: 'input[{index}].type'."))),
    };
    Ok(Item { index, kind, value })
}

fn refusal(message: String) -> Refusal {
    Refusal::plain(message)
}

/// Reports whether the body names state at the server.
fn is_stateful(body: &Value) -> bool {
    ["previous_response_id", "conversation"]
        .iter()
        .any(|key| body.get(key).is_some_and(|value| !value.is_null()))
}

/// Judges as `OpenAI` does.
pub(super) fn judge(body: &Value) -> Verdict {
    open_ai(
        body,
        &Demands {
            id_max: ID_MAX,
            unique_calls: false,
            named_calls: false,
            own_schema: true,
        },
    )
}

/// Judges as other servers do: no limit on ids, and none twice in a turn
/// (<https://github.com/earendil-works/pi/issues/9057>).
pub(super) fn compatible(body: &Value) -> Verdict {
    open_ai(
        body,
        &Demands {
            id_max: usize::MAX,
            unique_calls: true,
            named_calls: true,
            own_schema: false,
        },
    )
}

fn open_ai(body: &Value, demands: &Demands) -> Verdict {
    let items = read_items(body)?;
    let stateful = is_stateful(body);
    let says = matches!(body.get("input"), Some(Value::String(_))) || !items.is_empty();
    if !says && !stateful && body.get("prompt").is_none_or(Value::is_null) {
        return refuse_plainly(
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided.",
        );
    }
    for item in &items {
        check_item(item, demands)?;
    }
    check_item_ids(&items)?;
    if demands.unique_calls {
        check_call_ids(&items)?;
    }
    check_pairs(&items, stateful || items.iter().any(|item| HELD.contains(&item.kind)))?;
    check_reasoning(&items)
}

/// Checks an item by itself.
fn check_item(item: &Item<'_>, demands: &Demands) -> Verdict {
    let (index, id_max) = (item.index, demands.id_max);
    if item.kind == "message" && !matches!(item.str("role"), Some("user" | "assistant" | "system" | "developer")) {
        let role = item.str("role").unwrap_or_default();
        return refuse_plainly(format!(
            "Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
        ));
    }
    if let (Some((_, mark)), Some(id)) = (MARKS.iter().find(|(kind, _)| *kind == item.kind), item.str("id"))
        && !id.starts_with(mark)
    {
        let words = format!("Invalid 'input[{index}].id': '{id}'. Expected an ID that begins with '{mark}'.");
        return refuse(words, [id]);
    }
    if demands.own_schema {
        check_parts(item)?;
    }
    if (item.call().is_none() && item.output().is_none()) || item.is_hosted() {
        return Ok(());
    }
    check_call(item, demands)?;
    match item.pairs() {
        None if item.is_standalone() && !demands.named_calls => check_output(item),
        None if item.is_standalone() => {
            refuse_plainly("Invalid Value: 'input.call_id'. Function call output requires call_id.")
        }
        None => refuse_plainly(format!("Missing required parameter: 'input[{index}].call_id'.")),
        Some("") => refuse_plainly(format!(
            "Invalid 'input[{index}].call_id': empty string. Expected a string with minimum length 1, but got an \
             empty string instead."
        )),
        Some(id) if id.chars().count() > id_max => {
            let words = format!(
                "Invalid 'input[{index}].call_id': string too long. Expected a string with maximum length {id_max}, \
                 but got a string with length {} instead.",
                id.chars().count()
            );
            refuse(words, [id])
        }
        Some(_) => check_output(item),
    }
}

/// Checks the types of the assistant's parts: <https://github.com/jeremychone/rust-genai/pull/119>, 2026-01.
///
/// Only `OpenAI` is known to refuse `input_text`. Servers with its SDK's types take it, and refuse `output_text` without
/// `id` and `status`: <https://github.com/openai/codex/issues/12669>, 2026-02.
fn check_parts(item: &Item<'_>) -> Verdict {
    let mut parts = item
        .value
        .get("content")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let is_model = item.kind == "message" && item.str("role") == Some("assistant");
    if is_model && parts.any(|part| part["type"] == "input_text") {
        return refuse_plainly("Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.");
    }
    Ok(())
}

/// Checks the name of a function's call, and the arguments of a search.
///
/// <https://github.com/farion1231/cc-switch/issues/3532>, 2026-06, <https://github.com/farion1231/cc-switch/issues/4578>,
/// 2026-06, <https://github.com/farion1231/cc-switch/issues/5062>, 2026-07.
fn check_call(item: &Item<'_>, demands: &Demands) -> Verdict {
    let index = item.index;
    let words = match (item.kind, item.value.get("name"), item.value.get("arguments")) {
        ("function_call", None | Some(Value::Null), _) => format!("Missing required parameter: 'input[{index}].name'."),
        ("function_call", Some(Value::String(name)), _) if name.is_empty() && demands.own_schema => format!(
            "Invalid 'input[{index}].name': empty string. Expected a string with minimum length 1, but got an empty \
             string instead."
        ),
        ("tool_search_call", _, Some(Value::String(_))) => {
            format!("Invalid type for 'input[{index}].arguments': expected an object, but got a string instead.")
        }
        _ => return Ok(()),
    };
    refuse(words, item.pairs())
}

/// Checks the members of an output.
fn check_output(item: &Item<'_>) -> Verdict {
    let (index, output) = (item.index, item.value.get("output"));
    let wrong = |key: &str| refuse_plainly(format!("Missing required parameter: 'input[{index}].{key}'."));
    let told = |part: &Value| {
        ["stdout", "stderr", "outcome"]
            .iter()
            .all(|key| part.get(key).is_some())
    };
    if let ("function_call_output" | "custom_tool_call_output", Some(output)) = (item.kind, output)
        && let Err(words) = contents::responses(output)
    {
        let id = item.pairs().unwrap_or_default();
        return refuse(format!("Invalid 'input[{index}].output': {words}"), [id]);
    }
    match (item.kind, output) {
        (
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output",
            Some(Value::String(_) | Value::Array(_)),
        )
        | ("computer_call_output", Some(Value::Object(_))) => Ok(()),
        ("shell_call_output", Some(Value::Array(parts))) if parts.iter().all(told) => Ok(()),
        ("apply_patch_call_output", _) => match item.str("status") {
            Some("completed" | "failed") => Ok(()),
            _ => wrong("status"),
        },
        ("tool_search_output", _) if item.value.get("tools").is_none_or(|tools| !tools.is_array()) => wrong("tools"),
        (
            "function_call_output"
            | "custom_tool_call_output"
            | "local_shell_call_output"
            | "shell_call_output"
            | "computer_call_output",
            _,
        ) => wrong("output"),
        _ => Ok(()),
    }
}

/// Checks that the items' own ids are unique.
fn check_item_ids(items: &[Item<'_>]) -> Verdict {
    let mut seen = HashSet::new();
    // A local shell output may carry its call's id there, and a reference another item's id.
    let own = |item: &&Item<'_>| item.output().is_none() && item.kind != "item_reference";
    for id in items.iter().filter(own).filter_map(|item| item.str("id")) {
        if !seen.insert(id) {
            let words =
                format!("Duplicate item found with id {id}. Remove duplicate items from your input and try again.");
            return refuse(words, [id]);
        }
    }
    Ok(())
}

/// Checks that no two calls of one model turn share an id. A turn is everything that the model writes without text in
/// between.
fn check_call_ids(items: &[Item<'_>]) -> Verdict {
    let mut seen = HashSet::new();
    for item in items {
        if !item.by_model() {
            seen.clear();
        }
        if item.call().is_some()
            && let Some(id) = item.pairs().filter(|_| !item.is_hosted())
            && !seen.insert(id)
        {
            return refuse(format!("Duplicate 'call_id': {id}."), [id]);
        }
    }
    Ok(())
}

/// Checks that each id has an output of the right kind for each of its calls, over the whole input and in any order.
/// Calls of one run may share one. Further outputs are legal: Codex sends them for the progress of a call
/// (<https://github.com/openai/codex/issues/41820>). With state at the server, an output without its call is legal. A
/// call without its output never is.
fn check_pairs(items: &[Item<'_>], held: bool) -> Verdict {
    let mut left: HashMap<&str, Vec<&Item<'_>>> = HashMap::new();
    let is_output = |item: &&Item<'_>| item.output().is_some() && !item.is_hosted() && !item.is_standalone();
    for item in items.iter().filter(is_output) {
        left.entry(item.pairs().unwrap_or_default()).or_default().push(item);
    }
    let mut answered = HashSet::new();
    let mut open = Vec::new();
    let mut run: HashSet<&str> = HashSet::new();
    for item in items.iter().filter(|item| !item.is_hosted()) {
        let id = item.pairs().unwrap_or_default();
        if item.call().is_none() {
            run.clear();
        }
        let outputs = left.get_mut(id);
        if item.kind == "program" {
            // It may wait for the outputs of its own calls.
            if let Some(outputs) = outputs {
                outputs.retain(|output| output.kind != "program_output");
            }
            continue;
        }
        let Some(kind) = item.call() else { continue };
        let own = outputs.and_then(|outputs| {
            let at = outputs.iter().position(|output| kind.outputs.contains(&output.kind))?;
            Some(outputs.remove(at).kind)
        });
        let is_shared = !run.insert(id);
        match own {
            Some(output) => drop(answered.insert((id, output))),
            None if is_shared => {}
            None => open.push((kind.called, id)),
        }
    }
    let mut strays: Vec<&Item<'_>> = left.into_values().flatten().collect();
    strays.sort_by_key(|item| item.index);
    for item in strays {
        let id = item.pairs().unwrap_or_default();
        if !answered.contains(&(id, item.kind)) && !held {
            let words = item.output().unwrap_or_default();
            return refuse(format!("No tool call found for {words} with call_id {id}."), [id]);
        }
    }
    match open.first() {
        Some((called, id)) => refuse(format!("No tool output found for {called} {id}."), [*id]),
        None => Ok(()),
    }
}

/// Checks that a reasoning item with an id is followed by the model's text or call.
fn check_reasoning(items: &[Item<'_>]) -> Verdict {
    for (at, item) in items.iter().enumerate() {
        let Some(id) = item.str("id").filter(|_| item.kind == "reasoning") else {
            continue;
        };
        if !items.get(at + 1).is_some_and(Item::by_model) {
            let words = format!("Item '{id}' of type 'reasoning' was provided without its required following item.");
            return refuse(words, [id]);
        }
    }
    Ok(())
}
