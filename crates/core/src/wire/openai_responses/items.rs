//! A table of the kinds of items that pair: call, result, and the key of the id in each (openai-openapi, 2026-11).

use self::OutputForm::{Patch, Search, Shell, Text, Unwritable};
use crate::conversation::{
    CallFamily,
    WithoutResult::{self, Legal, Refused, Unanswerable},
};

/// The form of the output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputForm {
    /// An `output` that is a string or a list of content parts: functions, custom tools, local shells.
    Text,
    /// An `output` that is a list of `{stdout, stderr, outcome}`.
    Shell,
    /// A `status`, and an `output` that is a string.
    Patch,
    /// A `tools` list of definitions.
    Search,
    /// A form that the proxy cannot write for the client, with the provider's reaction to a missing result.
    Unwritable(WithoutResult),
}

impl OutputForm {
    /// Returns the provider's reaction to a missing result.
    pub(super) const fn without_result(self) -> WithoutResult {
        match self {
            Unwritable(reaction) => reaction,
            _ => Refused,
        }
    }
}

/// A kind of call, and of the result that answers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallKind {
    /// The item's `type`.
    item: &'static str,
    /// The `type` of its result, as the providers' own clients send it.
    pub(super) result: &'static str,
    /// The family of results that answer it.
    pub(super) family: CallFamily,
    pub(super) form: OutputForm,
}

/// A kind of result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultKind {
    /// The member that names the call.
    pub(super) id_key: &'static str,
    pub(super) family: CallFamily,
}

/// The family of functions and local shells. It shares its group with custom tools, whose results are texts too.
const FUNCTION: CallFamily = family(0, 0);
/// The family of custom tools.
const CUSTOM_TOOL: CallFamily = family(0, 1);

/// The family of a local shell's result whose call is not known.
///
/// Only local shell calls take both results of this form and results of functions.
const UNPAIRED_SHELL_OUTPUT: CallFamily = family(7, 0);
/// The family of a local shell's result whose call is known.
pub(super) const PAIRED_SHELL_OUTPUT: CallFamily = FUNCTION;

/// The types that `DeepSeek` reads. It skips all others (deepseek-recipe 0.2.0).
pub(super) const DEEPSEEK_TYPES: [&str; 9] = [
    "message",
    "reasoning",
    "web_search_call",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "tool_search_call",
    "tool_search_output",
];

/// The types of items that pair with nothing.
const OTHER_TYPES: [&str; 13] = [
    "code_interpreter_call",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
    "file_search_call",
    "image_generation_call",
    "item_reference",
    "local_shell_call_output",
    "mcp_call",
    "mcp_list_tools",
    "message",
    "reasoning",
    "web_search_call",
];

const fn family(group: u8, kind: u8) -> CallFamily {
    CallFamily { group, kind }
}

const fn call_row([item, result]: [&'static str; 2], family: CallFamily, form: OutputForm) -> CallKind {
    CallKind {
        item,
        result,
        family,
        form,
    }
}

/// Calls with results of their own. Hosted tools contain their results and pair with nothing.
const CALL_KINDS: &[CallKind] = &[
    call_row(["function_call", "function_call_output"], FUNCTION, Text),
    call_row(["custom_tool_call", "custom_tool_call_output"], CUSTOM_TOOL, Text),
    // The specification has `local_shell_call_output {id}`, but codex answers with the output of a function.
    call_row(["local_shell_call", "function_call_output"], FUNCTION, Text),
    call_row(["shell_call", "shell_call_output"], family(1, 0), Shell),
    call_row(["apply_patch_call", "apply_patch_call_output"], family(2, 0), Patch),
    // Its result is a screenshot, which the proxy cannot make up.
    call_row(
        ["computer_call", "computer_call_output"],
        family(3, 0),
        Unwritable(Unanswerable),
    ),
    call_row(["tool_search_call", "tool_search_output"], family(4, 0), Search),
    // The provider runs it, and may leave it open.
    call_row(["program", "program_output"], family(6, 0), Unwritable(Legal)),
    // A decision of the user, which the proxy must not make. No known error shows that the provider requires one.
    call_row(
        ["mcp_approval_request", "mcp_approval_response"],
        family(5, 0),
        Unwritable(Legal),
    ),
];

/// Returns `true` for the type of an item of a history.
pub(in crate::wire) fn is_item_type(item: &[u8]) -> bool {
    let is_other = OTHER_TYPES.iter().any(|kind| kind.as_bytes() == item);
    is_other || call_kind(item).is_some() || result_kind(item).is_some()
}

/// Returns the kind of call whose items have the type `item`.
pub(super) fn call_kind(item: &[u8]) -> Option<&'static CallKind> {
    CALL_KINDS.iter().find(|kind| kind.item.as_bytes() == item)
}

/// Returns the kind of result whose items have the type `item`.
pub(super) fn result_kind(item: &[u8]) -> Option<ResultKind> {
    let answered = CALL_KINDS.iter().find(|kind| kind.result.as_bytes() == item);
    // Only the result of a local shell has a type that no call names.
    let shell = (item == b"local_shell_call_output").then_some(UNPAIRED_SHELL_OUTPUT);
    let id_key = match item {
        b"local_shell_call_output" => "id",
        b"mcp_approval_response" => "approval_request_id",
        _ => "call_id",
    };
    let family = answered.map(|kind| kind.family).or(shell)?;
    Some(ResultKind { id_key, family })
}
