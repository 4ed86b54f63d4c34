//! A table of the kinds of items that pair: call, result, and the key of the id in each (openai-openapi, 2026-11).

use crate::conversation::{CallFamily, WithoutResult};

/// The form of the output of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An `output` that is a string or a list of content parts: functions, custom tools, local shells.
    Text,
    /// An `output` that is a list of `{stdout, stderr, outcome}`.
    Shell,
    /// A `status`, and an `output` that is a string.
    Patch,
    /// A `tools` list of definitions.
    Search,
    /// A form that the proxy cannot write for the client.
    Nothing,
}

/// A kind of call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallKind {
    /// The item's `type`.
    pub(super) item: &'static str,
    /// The `type` of its result, as the providers' own clients send it.
    pub(super) result: &'static str,
    /// The family of results that answer it.
    pub(super) family: CallFamily,
    /// The provider's reaction to a missing result.
    pub(super) open: WithoutResult,
    pub(super) form: Form,
}

/// A kind of result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultKind {
    /// The item's `type`.
    pub(super) item: &'static str,
    /// The member that names the call.
    pub(super) names: &'static str,
    pub(super) family: CallFamily,
}

/// The group of calls whose results are texts.
const TEXTS: u8 = 0;

/// The family of a local shell's result whose call is not known.
///
/// Only local shell calls take both results of this form and results of functions.
const LOCAL_SHELL: CallFamily = family(7, 0);
/// The family of a local shell's result whose call is known.
pub(super) const OF_LOCAL_SHELL: CallFamily = family(TEXTS, 0);

/// The types that `DeepSeek` reads. It skips all others (deepseek-recipe 0.2.0).
pub(super) const DEEPSEEK: [&str; 9] = [
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

const fn family(group: u8, kind: u8) -> CallFamily {
    CallFamily { group, kind }
}

const fn call(
    item: &'static str,
    result: &'static str,
    family: CallFamily,
    open: WithoutResult,
    form: Form,
) -> CallKind {
    CallKind {
        item,
        result,
        family,
        open,
        form,
    }
}

const fn result(item: &'static str, names: &'static str, family: CallFamily) -> ResultKind {
    ResultKind { item, names, family }
}

/// Calls with results of their own. Hosted tools contain their results and pair with nothing.
pub(super) const CALLS: &[CallKind] = &[
    call(
        "function_call",
        "function_call_output",
        family(TEXTS, 0),
        WithoutResult::Refused,
        Form::Text,
    ),
    call(
        "custom_tool_call",
        "custom_tool_call_output",
        family(TEXTS, 1),
        WithoutResult::Refused,
        Form::Text,
    ),
    // The specification has `local_shell_call_output {id}`, but codex answers with the output of a function.
    call(
        "local_shell_call",
        "function_call_output",
        family(TEXTS, 0),
        WithoutResult::Refused,
        Form::Text,
    ),
    call(
        "shell_call",
        "shell_call_output",
        family(1, 0),
        WithoutResult::Refused,
        Form::Shell,
    ),
    call(
        "apply_patch_call",
        "apply_patch_call_output",
        family(2, 0),
        WithoutResult::Refused,
        Form::Patch,
    ),
    // Its result is a screenshot, which the proxy cannot make up.
    call(
        "computer_call",
        "computer_call_output",
        family(3, 0),
        WithoutResult::Unanswerable,
        Form::Nothing,
    ),
    call(
        "tool_search_call",
        "tool_search_output",
        family(4, 0),
        WithoutResult::Refused,
        Form::Search,
    ),
    // The provider runs it, and may leave it open.
    call(
        "program",
        "program_output",
        family(6, 0),
        WithoutResult::Legal,
        Form::Nothing,
    ),
    // A decision of the user, which the proxy must not make. No known error shows that the provider requires one.
    call(
        "mcp_approval_request",
        "mcp_approval_response",
        family(5, 0),
        WithoutResult::Legal,
        Form::Nothing,
    ),
];

/// Results of calls.
pub(super) const RESULTS: &[ResultKind] = &[
    result("function_call_output", "call_id", family(TEXTS, 0)),
    result("custom_tool_call_output", "call_id", family(TEXTS, 1)),
    result("local_shell_call_output", "id", LOCAL_SHELL),
    result("shell_call_output", "call_id", family(1, 0)),
    result("apply_patch_call_output", "call_id", family(2, 0)),
    result("computer_call_output", "call_id", family(3, 0)),
    result("tool_search_output", "call_id", family(4, 0)),
    result("program_output", "call_id", family(6, 0)),
    result("mcp_approval_response", "approval_request_id", family(5, 0)),
];

/// Returns the kind of call whose items have the type `item`.
pub(super) fn call_kind(item: &[u8]) -> Option<&'static CallKind> {
    CALLS.iter().find(|kind| kind.item.as_bytes() == item)
}

/// Returns the kind of result whose items have the type `item`.
pub(super) fn result_kind(item: &[u8]) -> Option<&'static ResultKind> {
    RESULTS.iter().find(|kind| kind.item.as_bytes() == item)
}
