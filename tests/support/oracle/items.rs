//! The oracle for one item of a Responses `input`.

use std::collections::HashMap;

use antiphon_core::wire::Dialect;

use super::{Base, Seen, last, members, string, text};

/// Local shell calls: item id to call id.
pub(super) type Shells = HashMap<Vec<u8>, Vec<u8>>;

/// Types of client calls.
const CALLS: [&str; 8] = [
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
    "tool_search_call",
    "program",
];
/// Types of outputs.
const OUTPUTS: [&str; 7] = [
    "function_call_output",
    "custom_tool_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "computer_call_output",
    "tool_search_output",
    "program_output",
];

/// Types with a variant in deepseek-recipe 0.2.0.
const READ_BY_DEEPSEEK: [&str; 8] = [
    "reasoning",
    "web_search_call",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "tool_search_call",
    "tool_search_output",
];

pub(super) fn item<'a>(base: &Base<'a>, item: &'a [u8], dialect: Dialect, shells: &mut Shells) -> Option<Seen> {
    let fields = members(item)?;
    let value = |name: &str| string(last(&fields, name));
    let typed = last(&fields, "type").is_some_and(|kind| kind.first() == Some(&b'"'));
    let kind = text(&value("type"));
    let span = base.span(item);
    let seen = |role, kind, id: Vec<u8>| Some((span, role, "opaque", vec![(span, kind, text(&id))]));
    if kind == "item_reference" || (!typed && value("role").is_empty() && !value("id").is_empty()) {
        return seen("assistant", "other", Vec::new());
    }
    if !typed || kind == "message" {
        let role = match &*value("role") {
            b"user" => "user",
            b"assistant" => "assistant",
            _ => "system",
        };
        return seen(role, "other", Vec::new());
    }
    if dialect == Dialect::DeepSeek && !READ_BY_DEEPSEEK.contains(&kind.as_str()) {
        return Some((span, "assistant", "opaque", Vec::new()));
    }
    let nobody = last(&fields, "call_id").is_some_and(|id| id.first() == Some(&b'n'));
    if kind.starts_with("tool_search") && (nobody || value("execution") == b"server") {
        return seen("assistant", "other", Vec::new());
    }
    let (id, call_id) = (value("id"), value("call_id"));
    match kind.as_str() {
        "mcp_approval_request" => seen("assistant", "call", id),
        "mcp_approval_response" => seen("tool", "result", value("approval_request_id")),
        "local_shell_call" => {
            let own = if call_id.is_empty() { id.clone() } else { call_id };
            shells.insert(id, own.clone());
            shells.insert(own.clone(), own.clone());
            seen("assistant", "call", own)
        }
        "local_shell_call_output" => {
            let own = if call_id.is_empty() { id } else { call_id };
            let named = shells.get(&own).cloned();
            seen("tool", "result", named.unwrap_or(own))
        }
        "reasoning" => seen("assistant", "thinking", Vec::new()),
        "compaction" => seen("system", "compaction", Vec::new()),
        known if CALLS.contains(&known) => seen("assistant", "call", call_id),
        known if OUTPUTS.contains(&known) => seen("tool", "result", call_id),
        _ => seen("assistant", "other", Vec::new()),
    }
}

/// Steps of Gemini's Interactions that are no items of Responses, without the `_call` and `_result` after most.
const STEPS: [&str; 8] = [
    "code_execution",
    "google_maps",
    "google_search",
    "mcp_server_tool",
    "processing",
    "retrieval",
    "url_context",
    "function",
];

/// Returns `true` if a body is one of Gemini's Interactions: some mark of theirs, and none of Responses.
pub(super) fn are_interactions(top: &[(Vec<u8>, &[u8])], histories: &[&[u8]]) -> bool {
    let has_key = |names: &[&str]| top.iter().any(|(key, _)| names.contains(&text(key).as_str()));
    let mut ours = has_key(&["previous_interaction_id"]);
    let mut theirs = has_key(&["previous_response_id", "conversation", "instructions"]);
    for item in histories.iter().filter_map(|list| super::elements(list)).flatten() {
        let Some(fields) = members(item) else { continue };
        let value = |name: &str| text(&string(last(&fields, name)));
        let kind = value("type");
        let step = |end: &str| kind.strip_suffix(end).is_some_and(|lead| STEPS.contains(&lead));
        ours |= match kind.as_str() {
            "" => value("role") == "model",
            "function_call" => false,
            "thought" | "user_input" | "model_output" | "file_search_result" | "tool_search_result" => true,
            _ => step("_call") || step("_result"),
        };
        theirs |= match kind.as_str() {
            "function_call" => last(&fields, "call_id").is_some(),
            "message" | "reasoning" | "item_reference" | "compaction" => true,
            _ => kind.ends_with("_output") && kind != "model_output",
        };
    }
    ours && !theirs
}
