//! Calls and results as exchanges know them.

use std::fmt;

use super::read_result::ReadResult;
use crate::session::{LaneId, SessionStrength};

/// A tool call as an exchange saw it, to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedCall {
    /// The lane in which the exchange saw the call.
    pub lane: Option<LaneId>,
    /// The hash of the session id. `None` if the client named no session.
    pub session: Option<[u8; 32]>,
    /// The session id, for its owner to read.
    pub session_label: Option<Box<str>>,
    /// The reliability of the session id.
    pub strength: SessionStrength,
    /// The call id.
    pub id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// The hash of the canonical input. `None` if the input is not known yet.
    pub input: Option<[u8; 32]>,
    /// The digest of the input by which its intent is named. `None` if the input is not known yet.
    pub intent_input: Option<[u8; 32]>,
    /// The hash of the upstream and the client program. `None` if no result is carried over.
    pub origin: Option<[u8; 32]>,
    /// `true` if an answer emitted the call, `false` if a request showed it. Only an emitted call is sure to be new.
    pub is_emitted: bool,
}

/// The posted result that a lookup found for a call.
#[derive(Clone, PartialEq, Eq)]
pub struct FoundResult {
    /// The call id, exactly as it was recorded.
    pub id: Vec<u8>,
    /// The content. Invariant: one valid JSON value.
    pub content: String,
    /// `true` if the tool reported an error.
    pub failed: bool,
    /// The result as a request marks it.
    pub read: ReadResult,
}

impl fmt::Debug for FoundResult {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FoundResult({} bytes, failed {})", self.content.len(), self.failed)
    }
}
