//! The route of one request: where it goes, and what its path asks for.

use http::uri::PathAndQuery;

use super::{Kind, Upstream, endpoint};
use crate::wire::{Format, Wire};

/// Where one request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// The upstream.
    pub upstream: &'a Upstream,
    /// Path and query to ask there.
    pub target: PathAndQuery,
    /// The format of its history; none for a path that carries none.
    pub wire: Option<Wire>,
    /// `true` if a model answers the request.
    ///
    /// Lists, files, counts and administration have permissions and limits of their own. Their answers say nothing
    /// about a credential elsewhere.
    pub asks_model: bool,
}

impl Route<'_> {
    /// The model that the path names, still percent-encoded.
    pub fn model(&self) -> Option<&str> {
        endpoint::model_of(self.target.path())
    }

    /// Whether the history is to be answered: not counted, compacted, stored, or one of many.
    pub fn asks_for_a_turn(&self) -> bool {
        endpoint::asks_for_a_turn(self.target.path())
    }

    /// Whether the path asks for a stream.
    pub fn is_stream(&self) -> bool {
        endpoint::is_stream(self.target.path())
    }

    /// Whether the head of a stream comes at once. So it is with the authors of Messages and Responses; other servers of
    /// these formats read the whole prompt first.
    pub fn begins_at_once(&self) -> bool {
        let format = self.wire.map(|wire| wire.format);
        let at_once = matches!(format, Some(Format::Anthropic | Format::OpenAiResponses));
        matches!(self.upstream.kind, Kind::Anthropic | Kind::OpenAi) && at_once
    }
}
