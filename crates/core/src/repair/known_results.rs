//! Results of a body's calls that come from outside the body. A plan reads and returns them as plain data.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use crate::repair::{call_key::CallKey, texts::Placeholder};

/// A result that stays with its call: every later request contains it in the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinnedResult {
    /// A placeholder.
    Placeholder(Placeholder),
    /// A real result.
    Result(RealResult),
}

/// A real result in the form in which it is stored, without `cache_control`.
#[derive(Clone, PartialEq, Eq)]
pub enum RealResult {
    /// Content of any shape that a tool service posted. It is adapted to each body. Invariant: one valid JSON value.
    Content {
        /// The content as JSON.
        content: String,
        /// `true` if the tool reported an error.
        failed: bool,
    },
    /// A result block of the same format, stored and inserted byte for byte. Invariant: a JSON object.
    Block(String),
}

impl RealResult {
    /// Returns its length in bytes.
    pub const fn byte_len(&self) -> usize {
        match self {
            Self::Content { content: text, .. } | Self::Block(text) => text.len(),
        }
    }
}

impl fmt::Debug for RealResult {
    // Content never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { content, failed } => write!(f, "Content({} bytes, failed: {failed})", content.len()),
            Self::Block(block) => write!(f, "Block({} bytes)", block.len()),
        }
    }
}

/// Everything known about the calls of one body beyond the body itself, for one caller.
///
/// Under one policy, the same body with the same known results gives the same bytes.
#[derive(Clone, Debug, Default)]
pub struct KnownResults {
    /// Results that earlier requests gave to open calls.
    pub pinned: HashMap<CallKey, PinnedResult>,
    /// Real results of open calls that no request has answered yet.
    pub results: HashMap<CallKey, RealResult>,
    /// Placeholders that replace a result which the client has put in its place since. Thinking is bound to them.
    pub overrides: HashMap<CallKey, Placeholder>,
}

/// A result that a plan gives to a call for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The call.
    pub call: CallKey,
    /// Its result.
    pub result: PinnedResult,
    /// `true` if the key is unique among all calls of its caller.
    pub is_unique: bool,
}

/// Calls that exist only in provider-side state to which the body refers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteCalls {
    /// Ids of calls that the body must answer first, in the order of their placeholders.
    pub due: Vec<String>,
    /// Ids of calls that an earlier request has answered.
    pub answered: HashSet<Vec<u8>>,
}

/// References from a body into provider-side state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteReferences {
    /// Id of the response that the body continues from (`previous_response_id`, `thread`). `None` if it names none.
    pub origin: Option<Vec<u8>>,
    /// Ids of all results in the body.
    pub results: Vec<Vec<u8>>,
}

/// Remote calls that a plan answers with placeholders because the provider named them in a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteResults {
    /// Id of the response that left them open. `None` if the body names none.
    pub origin: Option<Vec<u8>>,
    /// Ids of the calls.
    pub calls: Vec<String>,
}
