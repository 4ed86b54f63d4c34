//! The headers by which clients name a session and an agent, or describe the request. One pass reads all of them.
//!
//! A look-up in the header map hashes the name. A request has few headers, so passing them once costs less.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use http::{HeaderMap, HeaderValue};

use super::{SessionSource, labels::parse_label};

/// The headers of one request that this room reads. A missing header, or an invalid label, is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientHeaders<'h> {
    antiphon_session: Option<&'h str>,
    claude_session: Option<&'h str>,
    codex_session: Option<&'h str>,
    older_codex_session: Option<&'h str>,
    thread_id: Option<&'h str>,
    conversation_id: Option<&'h str>,
    opencode_session: Option<&'h str>,
    session_affinity: Option<&'h str>,
    claude_agent: Option<&'h str>,
    subagent: Option<&'h str>,
    /// The headers that describe the request.
    pub(super) hints: HintHeaders<'h>,
}

/// The headers that describe a request. Of a repeated header the first value counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HintHeaders<'h> {
    /// `x-claude-code-compaction`.
    pub(super) compaction: Option<&'h str>,
    /// `x-claude-code-request-class`.
    pub(super) request_class: Option<&'h str>,
    /// `x-openai-subagent`.
    pub(super) subagent: Option<&'h str>,
    /// `x-claude-code-context-compacted`.
    pub(super) compacted: Option<&'h str>,
    /// `x-stainless-retry-count`.
    pub(super) retry_count: Option<&'h str>,
    /// `x-stainless-read-timeout`.
    pub(super) read_timeout: Option<&'h str>,
    /// `x-stainless-timeout`.
    pub(super) timeout: Option<&'h str>,
    /// `x-codex-turn-state`.
    pub(super) turn_state: Option<&'h str>,
}

impl<'h> ClientHeaders<'h> {
    /// Reads the headers of a request.
    pub fn read(headers: &'h HeaderMap) -> Self {
        let mut read = Self::default();
        for (name, value) in headers {
            read.read_label(name.as_str(), value);
            read.hints.read_hint(name.as_str(), value);
        }
        read
    }

    /// Reads one header if it is a label. Of a repeated header the first valid value counts.
    fn read_label(&mut self, name: &str, value: &'h HeaderValue) {
        let slot = match name {
            "x-antiphon-session" => &mut self.antiphon_session,
            "x-claude-code-session-id" => &mut self.claude_session,
            "session-id" => &mut self.codex_session,
            // Of codex up to 0.57, and of pi.
            "session_id" => &mut self.older_codex_session,
            "thread-id" => &mut self.thread_id,
            "conversation_id" => &mut self.conversation_id,
            "x-session-id" => &mut self.opencode_session,
            "x-session-affinity" => &mut self.session_affinity,
            "x-claude-code-agent-id" => &mut self.claude_agent,
            "x-openai-subagent" => &mut self.subagent,
            _ => return,
        };
        *slot = slot.or_else(|| parse_label(value.as_bytes()));
    }

    /// Returns the session by a header that takes precedence over the body.
    pub(super) fn first_session(&self) -> Option<(&'h str, SessionSource)> {
        let antiphon = self.antiphon_session.map(|name| (name, SessionSource::Antiphon));
        antiphon.or_else(|| self.claude_session.map(|name| (name, SessionSource::ClaudeCode)))
    }

    /// Returns the session by a header that counts only if `metadata.user_id` names none.
    pub(super) fn fallback_session(&self) -> Option<&'h str> {
        self.codex_session
            .or(self.older_codex_session)
            .or(self.thread_id)
            .or(self.conversation_id)
            .or(self.opencode_session)
            .or(self.session_affinity)
    }

    /// Returns the agent within the session. `None` for the main agent.
    ///
    /// A codex thread beside another session belongs to a subagent. A compaction belongs to its own thread.
    pub(super) fn agent_label(&self) -> Option<&'h str> {
        let session = self.codex_session.or(self.older_codex_session);
        let thread = || {
            self.thread_id
                .filter(|thread| session.is_some_and(|session| session != *thread))
        };
        let kind = || self.subagent.filter(|kind| *kind != super::client_hints::COMPACT);
        self.claude_agent.or_else(thread).or_else(kind)
    }
}

impl<'h> HintHeaders<'h> {
    /// Reads one header if it is a hint. Of a repeated header the first value counts.
    fn read_hint(&mut self, name: &str, value: &'h HeaderValue) {
        let slot = match name {
            "x-claude-code-compaction" => &mut self.compaction,
            "x-claude-code-request-class" => &mut self.request_class,
            "x-openai-subagent" => &mut self.subagent,
            "x-claude-code-context-compacted" => &mut self.compacted,
            "x-stainless-retry-count" => &mut self.retry_count,
            "x-stainless-read-timeout" => &mut self.read_timeout,
            "x-stainless-timeout" => &mut self.timeout,
            "x-codex-turn-state" => &mut self.turn_state,
            _ => return,
        };
        // A value that is no text counts too: it is the first, and says nothing.
        if slot.is_none() {
            *slot = Some(value.to_str().unwrap_or_default().trim());
        }
    }
}
