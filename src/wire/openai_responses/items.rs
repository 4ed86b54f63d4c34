//! A table of the kinds of items that pair: call, result, and the key of the id in each (openai-openapi, 2026-11).

use crate::conversation::{CallFamily, WithoutResult};

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
    /// A form that the proxy cannot write for the client.
    Unwritable,
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
    pub(super) without_result: WithoutResult,
    pub(super) form: OutputForm,
}

/// A kind of result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultKind {
    /// The item's `type`.
    pub(super) item: &'static str,
    /// The member that names the call.
    pub(super) id_key: &'static str,
    pub(super) family: CallFamily,
}

/// The group of calls whose results are texts.
const TEXT_GROUP: u8 = 0;

/// The family of a local shell's result whose call is not known.
///
/// Only local shell calls take both results of this form and results of functions.
const UNPAIRED_SHELL_OUTPUT: CallFamily = family(7, 0);
/// The family of a local shell's result whose call is known.
pub(super) const PAIRED_SHELL_OUTPUT: CallFamily = family(TEXT_GROUP, 0);

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

const fn family(group: u8, kind: u8) -> CallFamily {
    CallFamily { group, kind }
}

const fn call_row(
    item: &'static str,
    result: &'static str,
    family: CallFamily,
    open: WithoutResult,
    form: OutputForm,
) -> CallKind {
    CallKind {
        item,
        result,
        family,
        without_result: open,
        form,
    }
}

const fn result_row(item: &'static str, names: &'static str, family: CallFamily) -> ResultKind {
    ResultKind {
        item,
        id_key: names,
        family,
    }
}

/// Calls with results of their own. Hosted tools contain their results and pair with nothing.
pub(super) const CALL_KINDS: &[CallKind] = &[
    call_row(
        "function_call",
        "function_call_output",
        family(TEXT_GROUP, 0),
        WithoutResult::Refused,
        OutputForm::Text,
    ),
    call_row(
        "custom_tool_call",
        "custom_tool_call_output",
        family(TEXT_GROUP, 1),
        WithoutResult::Refused,
        OutputForm::Text,
    ),
    // The specification has `local_shell_call_output {id}`, but codex answers with the output of a function.
    call_row(
        "local_shell_call",
        "function_call_output",
        family(TEXT_GROUP, 0),
        WithoutResult::Refused,
        OutputForm::Text,
    ),
    call_row(
        "shell_call",
        "shell_call_output",
        family(1, 0),
        WithoutResult::Refused,
        OutputForm::Shell,
    ),
    call_row(
        "apply_patch_call",
        "apply_patch_call_output",
        family(2, 0),
        WithoutResult::Refused,
        OutputForm::Patch,
    ),
    // Its result is a screenshot, which the proxy cannot make up.
    call_row(
        "computer_call",
        "computer_call_output",
        family(3, 0),
        WithoutResult::Unanswerable,
        OutputForm::Unwritable,
    ),
    call_row(
        "tool_search_call",
        "tool_search_output",
        family(4, 0),
        WithoutResult::Refused,
        OutputForm::Search,
    ),
    // The provider runs it, and may leave it open.
    call_row(
        "program",
        "program_output",
        family(6, 0),
        WithoutResult::Legal,
        OutputForm::Unwritable,
    ),
    // A decision of the user, which the proxy must not make. No known error shows that the provider requires one.
    call_row(
        "mcp_approval_request",
        "mcp_approval_response",
        family(5, 0),
        WithoutResult::Legal,
        OutputForm::Unwritable,
    ),
];

/// Results of calls.
pub(super) const RESULT_KINDS: &[ResultKind] = &[
    result_row("function_call_output", "call_id", family(TEXT_GROUP, 0)),
    result_row("custom_tool_call_output", "call_id", family(TEXT_GROUP, 1)),
    result_row("local_shell_call_output", "id", UNPAIRED_SHELL_OUTPUT),
    result_row("shell_call_output", "call_id", family(1, 0)),
    result_row("apply_patch_call_output", "call_id", family(2, 0)),
    result_row("computer_call_output", "call_id", family(3, 0)),
    result_row("tool_search_output", "call_id", family(4, 0)),
    result_row("program_output", "call_id", family(6, 0)),
    result_row("mcp_approval_response", "approval_request_id", family(5, 0)),
];

/// Returns the kind of call whose items have the type `item`.
pub(super) fn call_kind(item: &[u8]) -> Option<&'static CallKind> {
    CALL_KINDS.iter().find(|kind| kind.item.as_bytes() == item)
}

/// Returns the kind of result whose items have the type `item`.
pub(super) fn result_kind(item: &[u8]) -> Option<&'static ResultKind> {
    RESULT_KINDS.iter().find(|kind| kind.item.as_bytes() == item)
}
