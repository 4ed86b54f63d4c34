//! The rows of `src/refusals/rows.toml` with their examples, and texts that are about something else.

use std::sync::LazyLock;

use antiphon_core::wire::{RefusalKind, RefusalTable, RefusalTexts};
use serde::Deserialize;

const FILE: &str = include_str!("../../src/refusals/rows.toml");

/// A row, with what only tests and documents read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentedRow {
    pub name: String,
    pub fault: String,
    pub text: Vec<String>,
    #[serde(default)]
    pub then: Vec<String>,
    pub seen: String,
    #[serde(default)]
    pub example: Vec<RowExample>,
    #[serde(default)]
    pub heading: Vec<RowHeading>,
    #[serde(default = "bad_request")]
    pub status: Vec<u16>,
    pub mend: Option<String>,
    pub fits: Option<String>,
    pub learn: Option<String>,
    #[serde(default)]
    pub note: bool,
    pub repair: Option<RowRepair>,
}

fn bad_request() -> Vec<u16> {
    vec![400]
}

/// A history that a server refuses in the words of the row, and what is sent after that.
#[derive(Debug, Deserialize)]
pub struct RowRepair {
    /// The format and dialect of the server.
    pub wire: String,
    /// The condition of [`strict_provider::refusal_rule::RefusalCondition`].
    pub refused_if: String,
    pub before: String,
    pub after: String,
}

/// A message as a provider sent it.
#[derive(Clone, Debug, Deserialize)]
pub struct RowExample {
    pub text: String,
    #[serde(default)]
    pub ids: Vec<String>,
    /// The numbers that are read from the text of an overflow.
    #[serde(default)]
    pub tokens: ExampleTokens,
}

/// Numbers of tokens in an example.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExampleTokens {
    pub limit: Option<u64>,
    pub prompt: Option<u64>,
    pub output: Option<u64>,
    pub total: Option<u64>,
}

/// A heading of `docs/errors.md`, with what is said about it.
#[derive(Debug, Deserialize)]
pub struct RowHeading {
    pub text: String,
    pub about: String,
}

/// The compiled rows.
pub static TABLE: LazyLock<RefusalTable> = LazyLock::new(|| {
    let texts: RefusalTexts = toml::from_str(FILE).expect("rows");
    RefusalTable::compile(&texts).expect("rows without a fault")
});

/// The rows, as the file has them.
pub static ROWS: LazyLock<Vec<DocumentedRow>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct DocumentedRows {
        row: Vec<DocumentedRow>,
    }
    toml::from_str::<DocumentedRows>(FILE).expect("rows").row
});

/// A message, and what is read from it.
#[derive(Debug)]
pub struct KnownRefusal {
    pub row: &'static str,
    pub text: String,
    pub kind: RefusalKind,
    /// `None` if the ids are not known: the text is a heading.
    pub ids: Option<String>,
}

/// Every example, and every heading with numbers in place of its gaps.
pub static REFUSALS: LazyLock<Vec<KnownRefusal>> = LazyLock::new(|| {
    let of_row = |row: &'static DocumentedRow| {
        let kind = RefusalKind::from_label(&row.fault).expect("a fault");
        let examples = row.example.iter().map(move |example| KnownRefusal {
            row: &row.name,
            text: example.text.clone(),
            kind,
            ids: Some(example.ids.join(" ")),
        });
        let headings = row.heading.iter().map(move |heading| KnownRefusal {
            row: &row.name,
            text: heading.text.replace('…', "1"),
            kind,
            ids: None,
        });
        examples.chain(headings)
    };
    ROWS.iter().flat_map(of_row).collect()
});

/// Refusals of other matters, and texts that only contain a phrase.
pub const OTHERS: &[&str] = &[
    "",
    "Number of request tokens has exceeded your per-minute rate limit",
    "messages.0: `tool_use` blocks can only be in `assistant` messages",
    "messages.0: `tool_result` blocks can only be in `user` messages",
    "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    "Requests which include `tool_use` or `tool_result` blocks must define tools.",
    "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"user\" roles in a row",
    "messages.1: all messages must have non-empty content except for the optional final assistant message",
    "messages: text content blocks must be non-empty",
    "messages.5.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. \
     These blocks must remain as they were in the original response.",
    "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`.",
    "messages.1.content.0: Invalid `source` in `image` block",
    "Invalid 'messages[2].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array \
     instead.",
    "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string \
     with length 1721 instead.",
    "Invalid value for 'content': expected a string, got null.",
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
    "Please ensure that the number of function response parts is equal to the number of function call parts of the \
     function call turn.",
    "Please ensure that multiturn requests alternate between user and model.",
    "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    "The text field in the ContentBlock object at messages.15.content.0 is blank.",
    "The content field at messages.1.content.0.toolResult cannot be empty when status value is error.",
    "A conversation must start with a user message. Try again with a conversation that starts with a user message.",
    "Not the same number of function calls and responses",
    "Tool call id was 2968-LWy3uasib but must be a-z, A-Z, 0-9, with a length of 9.",
    "Expected last role User or Tool (or Assistant with prefix) for serving but got assistant",
    "Invalid assistant message: content or tool_calls must be set",
    "'messages.2' : for 'role:tool' the following must be satisfied[('messages.2.tool_call_id' : property 'tool_call_id' \
     is missing)]",
    "Only messages of role 'user' can have a name.",
    "Tool call IDs should be alphanumeric strings with length 9!",
    // Members that are no part of a history, and places that only look like one.
    "tools.0.custom.defer_loading: Extra inputs are not permitted",
    "system.1.cache_control.ephemeral.scope: Extra inputs are not permitted",
    "thinking.adaptive.effort: Extra inputs are not permitted",
    "Invalid JSON payload received. Unknown name \"optional\" at 'tools[0].function_declarations[0]': Cannot find field.",
    "messages.0.zz.x: Extra inputs are not permitted",
    "messages.0.content.0.tool_use.a b: Extra inputs are not permitted",
    "Unknown parameter: 'tools[0].namespace'.",
    "Unknown parameter: 'input[0].'.",
    // Echoed text of a client.
    "Your text was blocked: No tool output found for function call call_1.",
    "messages.0.content.0.text: Input should be shorter, got 'No tool output found for function call call_1.'",
    "The prompt \"`tool_use` ids must be unique\" violates our policy",
    "blocked\nNo tool output found for function call call_1.",
];
