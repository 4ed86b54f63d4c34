//! The kinds of items that pair, as a table: call, result, and what each calls its id (openai-openapi, 2026-11).

use crate::conversation::{CallFamily, WithoutResult};

/// How the result of a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `output` is a string or a list of content parts: functions, custom tools, local shells.
    Text,
    /// `output` is a list of `{stdout, stderr, outcome}`.
    Shell,
    /// `status`, and `output` as a string.
    Patch,
    /// `tools` is a list of definitions.
    Search,
    /// Nothing that could be written in the client's place.
    Nothing,
}

/// A kind of call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallKind {
    /// The item's `type`.
    pub(super) item: &'static str,
    /// The `type` of its result, as the providers' own clients send it.
    pub(super) result: &'static str,
    pub(super) family: CallFamily,
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

const TEXTS: u8 = 0;

/// Results of local shells, until the call is known: only such a call takes both this form and a function's.
const LOCAL_SHELL: CallFamily = family(7, 0);
/// A result of a local shell whose call is known.
pub(super) const OF_LOCAL_SHELL: CallFamily = family(TEXTS, 0);

/// Types that `DeepSeek` reads; it passes over all others (deepseek-recipe 0.2.0).
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

/// Calls with results of their own. Hosted tools hold their results inside and pair with nothing.
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
    // The specification has `local_shell_call_output {id}`; codex answers with the output of a function.
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
    // Its result is a screenshot.
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
    // A decision of the user's: no text says that the provider insists on one, and nobody may decide in their place.
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

/// The kind of call whose items are of type `item`.
pub(super) fn call_kind(item: &[u8]) -> Option<&'static CallKind> {
    CALLS.iter().find(|kind| kind.item.as_bytes() == item)
}

/// The kind of result whose items are of type `item`.
pub(super) fn result_kind(item: &[u8]) -> Option<&'static ResultKind> {
    RESULTS.iter().find(|kind| kind.item.as_bytes() == item)
}
