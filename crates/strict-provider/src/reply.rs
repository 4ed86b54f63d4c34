//! The next move of the scripted model.

use serde_json::Value;

/// The model's answer to the next accepted request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A text.
    Text(String),
    /// One or more tool calls.
    Calls(Vec<ToolCall>),
    /// Calls of a code execution that waits for them, in this container. Messages only: elsewhere they are plain calls.
    ProgramCalls(String, Vec<ToolCall>),
    /// A search at the provider that never ends, with pings meanwhile. Messages only.
    EndlessSearch,
    /// No answer, not even a response head.
    Silence,
    /// An error with this status and body.
    Status(u16, Value),
}

impl Reply {
    /// Returns a reply with one tool call.
    pub fn call(id: &str, name: &str, input: Value) -> Self {
        Self::Calls(vec![ToolCall::new(id, name, input)])
    }

    /// Returns the text of the reply.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the container of the reply's code execution.
    pub(crate) fn container(&self) -> Option<&str> {
        match self {
            Self::ProgramCalls(container, _) => Some(container),
            _ => None,
        }
    }

    /// Returns the tool calls of the reply.
    pub(crate) fn calls(&self) -> &[ToolCall] {
        match self {
            Self::Calls(calls) | Self::ProgramCalls(_, calls) => calls,
            _ => &[],
        }
    }
}

/// One tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Its arguments.
    pub input: Value,
}

impl ToolCall {
    /// Returns a call.
    pub fn new(id: &str, name: &str, input: Value) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            input,
        }
    }
}
