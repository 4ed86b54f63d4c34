//! The route of one request: its target, and the kind of request that its path implies.

use http::uri::PathAndQuery;

use super::{ModelOperation, ProviderKind, ServerHash, Upstream, endpoint, kind::is_author_host, template};
use crate::wire::{Format, Wire};

/// The target of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// The upstream.
    pub upstream: &'a Upstream,
    /// The hash of the upstream's server.
    pub server: ServerHash,
    /// Path and query of the request to the provider.
    pub target: PathAndQuery,
    /// The format and dialect of the history; `None` for a path without one.
    pub wire: Option<Wire>,
    /// `true` if a model answers the request.
    ///
    /// Lists, files, counts and administration have their own permissions and limits. Their answers prove nothing about
    /// a credential on other paths.
    pub asks_model: bool,
    /// `true` for a POST that creates something else than an answer: a batch, a file, an item of a conversation, a job.
    ///
    /// Sent twice, it may exist twice, and cost twice.
    pub creates_object: bool,
}

impl Route<'_> {
    /// Returns the model in the path, still percent-encoded.
    pub fn model_name(&self) -> Option<&str> {
        endpoint::model_of(self.target.path())
    }

    /// Returns the path as a template, without any word of the client, and the operation of a POST to it.
    pub fn path_template(&self) -> Option<(&'static str, Option<ModelOperation>)> {
        template::find_template(self.target.path())
    }

    /// Returns `true` if the request asks for the next turn, and not a count, a compaction, storage or a batch.
    pub fn asks_for_turn(&self) -> bool {
        endpoint::asks_for_turn(self.target.path())
    }

    /// Returns the format of the history if another vendor's server than the format's author reads it. `None`
    /// otherwise.
    pub fn foreign_format(&self) -> Option<Format> {
        let format = self.wire?.format;
        (!is_author_host(self.upstream.authority.host(), format)).then_some(format)
    }

    /// Returns `true` if the path requests a stream.
    pub fn is_stream(&self) -> bool {
        endpoint::is_stream(self.target.path())
    }

    /// Returns `true` if the head of a stream comes at once. Anthropic and OpenAI do so for Messages and Responses.
    /// Other servers of these formats read the whole prompt first.
    pub fn sends_head_at_once(&self) -> bool {
        let at_once = self.wire.is_some_and(|wire| wire.format.sends_head_at_once());
        matches!(self.upstream.kind, ProviderKind::Anthropic | ProviderKind::OpenAi) && at_once
    }
}
