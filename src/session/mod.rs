//! The identification of the session, the agent within it, and the lane of both for one principal.
//!
//! A session id is a label that the client chose, and never a credential. Every lookup by it also needs the principal.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod body_user;
mod client_headers;
mod client_hints;
mod history_hash;
mod labels;
mod turn_mark;

use std::fmt;

use crate::{
    auth::{Caller, Principal},
    conversation::{BodyField, Outline},
    digest::{Digest, HashTexts as _},
    digest_cache::OneDigest,
    splice::Span,
    wire::{
        Format,
        json::{Json, JsonKind},
    },
};

pub use body_user::body_user;
pub use client_headers::ClientHeaders;
pub use client_hints::{ClientHints, is_token_count, read_client_hints};
pub use history_hash::first_text;
pub use labels::LABEL_BYTES_MAX;
pub use turn_mark::{CallEvidence, TurnMark, continues_by_id};

/// Bytes of a lane's hash that its short name writes, in two hex digits each.
const SHORT_BYTES: usize = 6;

/// The parts of a request that identify its session.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest<'r> {
    /// The caller.
    pub caller: &'r Caller,
    /// The format of the body.
    pub format: Format,
    /// The headers.
    pub headers: ClientHeaders<'r>,
    /// The body, or empty if none was read.
    pub body: &'r [u8],
    /// The outline of the body.
    pub outline: &'r Outline,
    /// The span of the user's first text. `None` if there is none.
    pub first_text: Option<Span>,
    /// The model, if the path names it.
    pub path_model: Option<&'r str>,
}

/// The reliability of a session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionStrength {
    /// Guessed: conversations with the same beginning share the id.
    Weak,
    /// Certain: the client or the provider names the conversation.
    Strong,
}

/// The source of a session id, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionSource {
    /// `x-antiphon-session`.
    Antiphon,
    /// `x-claude-code-session-id`.
    ClaudeCode,
    /// The session in `metadata.user_id`.
    UserId,
    /// The header of another client.
    Header,
    /// `conversation`.
    Conversation,
    /// The provider's answer that the request continues from.
    Answer,
    /// Calls in the history. No code returns this source today.
    Calls,
    /// `prompt_cache_key`.
    CacheKey,
    /// The beginning of the history.
    History,
}

impl SessionSource {
    /// Returns `true` if the next request of the session may name nothing but the answer that it continues from.
    pub const fn is_looked_up(self) -> bool {
        !matches!(self, Self::Antiphon | Self::ClaudeCode | Self::UserId | Self::Header)
    }

    /// Returns the name in logs and on the admin page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Antiphon => "antiphon",
            Self::ClaudeCode => "claude_code",
            Self::UserId => "user_id",
            Self::Header => "header",
            Self::Conversation => "conversation",
            Self::Answer => "answer",
            Self::Calls => "calls",
            Self::CacheKey => "cache_key",
            Self::History => "history",
        }
    }

    /// Returns the reliability of this source.
    pub const fn strength(self) -> SessionStrength {
        match self {
            Self::History => SessionStrength::Weak,
            _ => SessionStrength::Strong,
        }
    }
}

/// A session of one principal. `Debug` does not print its name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionId {
    name: Box<[u8]>,
    source: SessionSource,
}

impl SessionId {
    fn new(name: impl Into<Box<[u8]>>, source: SessionSource) -> Self {
        Self {
            name: name.into(),
            source,
        }
    }

    /// Returns the source of the name.
    pub const fn source(&self) -> SessionSource {
        self.source
    }

    /// Returns the reliability of the name.
    pub const fn strength(&self) -> SessionStrength {
        self.source.strength()
    }

    /// Returns the name as text.
    pub fn label(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Returns the [`session_hash`] of its name.
    pub fn hash(&self, caller: &Caller) -> [u8; 32] {
        session_hash(caller.principal(), &self.name)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionId")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Returns the hash by which records and services refer to a session: it reveals neither principal nor name.
pub fn session_hash(principal: Principal, name: &[u8]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_keyed(principal.as_bytes());
    hash.update(b"session");
    hash.update(name);
    hash.finalize().into()
}

/// The id of a lane: a hash of principal, format, session and agent that reveals none of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId([u8; 32]);

impl OneDigest for LaneId {
    fn digest(&self) -> [u8; 32] {
        self.0
    }

    fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl LaneId {
    /// Returns the lane of an agent, or the main lane if `agent` is `None`.
    pub fn new(caller: &Caller, format: Format, session: &SessionId, agent: Option<&str>) -> Self {
        let mut hash = Digest::new_unkeyed();
        hash.update(caller.principal_bytes());
        // Sources that give the same name mean the same session, but a guess must never match a name that was chosen.
        let guessed = session.strength() == SessionStrength::Weak;
        // Tagged, so that an agent with the label `main` is not in the main lane.
        let agent = agent.map_or([b"main", &b""[..]], |agent| [b"agent", agent.as_bytes()]);
        for part in [format.label().as_bytes(), &[u8::from(guessed)], &session.name]
            .into_iter()
            .chain(agent)
        {
            hash.add_text(part);
        }
        Self(hash.finish())
    }

    /// Returns the main lanes of the session with this name, one for each format.
    pub fn main_lanes(caller: &Caller, session: &str) -> [Self; Format::ALL.len()] {
        // All certain sources give the same lane, so any of them will do.
        let session = SessionId::new(session.as_bytes(), SessionSource::Antiphon);
        Format::ALL.map(|format| Self::new(caller, format, &session, None))
    }

    /// Returns the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the first 12 hex digits of the hash, for logs and the admin page.
    pub fn short_hash(self) -> String {
        let mut short = String::with_capacity(SHORT_BYTES * 2);
        for byte in self.0.iter().take(SHORT_BYTES) {
            for half in [byte >> 4, byte & 0xf] {
                short.push(char::from_digit(half.into(), 16).unwrap_or_default());
            }
        }
        short
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneId({})", self.short_hash())
    }
}

/// The lane of a request, with the source that identified it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    /// The id.
    pub id: LaneId,
    /// The source of its session id.
    pub source: SessionSource,
    /// The reliability of its session id.
    pub strength: SessionStrength,
}

impl Lane {
    /// Returns the id. `None` if the lane is only guessed.
    pub fn certain_id(self) -> Option<LaneId> {
        (self.strength == SessionStrength::Strong).then_some(self.id)
    }
}

/// Returns the lane of a request. `None` if nothing identifies it.
///
/// The sources are tried in the order of [`SessionSource`]. `lane_of_answer` returns the lane of the caller that
/// received the answer with an id.
pub fn find_lane(
    request: &SessionRequest<'_>,
    lane_of_answer: impl FnOnce(&Caller, &str) -> Option<Lane>,
) -> Option<Lane> {
    let of = |session: SessionId| request.lane_of_session(&session);
    request
        .named_session()
        .map(of)
        .or_else(|| {
            let id = request.previous_answer_id()?;
            let lane = lane_of_answer(request.caller, &id)?;
            // Only the source is new: a lane that was guessed at first stays a guess.
            let source = SessionSource::Answer;
            Some(Lane { source, ..lane })
        })
        .or_else(|| {
            request
                .field_session(BodyField::PromptCacheKey, SessionSource::CacheKey)
                .map(of)
        })
        .or_else(|| request.guessed_session().map(of))
}

impl SessionRequest<'_> {
    /// Returns the session that the client names.
    pub fn named_session(&self) -> Option<SessionId> {
        let of_header = |(name, source): (&str, _)| SessionId::new(name.as_bytes(), source);
        let fallback = || {
            let name = self.headers.fallback_session()?;
            Some(of_header((name, SessionSource::Header)))
        };
        self.headers
            .first_session()
            .map(of_header)
            .or_else(|| self.user_id_session())
            .or_else(fallback)
            .or_else(|| self.conversation_session())
    }

    /// Returns the agent within the session. `None` for the main agent.
    pub fn agent_label(&self) -> Option<&str> {
        self.headers.agent_label()
    }

    fn lane_of_session(&self, session: &SessionId) -> Lane {
        Lane {
            id: LaneId::new(self.caller, self.format, session, self.agent_label()),
            source: session.source,
            strength: session.strength(),
        }
    }

    fn user_id_session(&self) -> Option<SessionId> {
        let json = Json::new(self.body);
        let user = json.member(self.outline.field(BodyField::Metadata)?, "user_id")?;
        if user.len() > labels::USER_ID_BYTES_MAX {
            return None;
        }
        labels::user_id_session(&json.decode_string(user))
            .map(|name| SessionId::new(name.into_bytes(), SessionSource::UserId))
    }

    /// Returns the session in `conversation`, which is an id or an object with one.
    fn conversation_session(&self) -> Option<SessionId> {
        let json = Json::new(self.body);
        let span = self.outline.field(BodyField::Conversation)?;
        let id = match json.kind(span) {
            JsonKind::Object => json.member(span, "id")?,
            _ => span,
        };
        let name = labels::string_label(json, id)?;
        Some(SessionId::new(name.into_bytes(), SessionSource::Conversation))
    }

    /// Returns the id of the provider's answer that the request continues from.
    fn previous_answer_id(&self) -> Option<String> {
        let json = Json::new(self.body);
        let thread = |span| json.member(span, "previous_message_id");
        let span = self.outline.field(BodyField::PreviousResponse);
        labels::string_label(
            json,
            span.or_else(|| self.outline.field(BodyField::Thread).and_then(thread))?,
        )
    }

    fn field_session(&self, field: BodyField, source: SessionSource) -> Option<SessionId> {
        let name = labels::string_label(Json::new(self.body), self.outline.field(field)?)?;
        Some(SessionId::new(name.into_bytes(), source))
    }

    fn guessed_session(&self) -> Option<SessionId> {
        history_hash::history_hash(self).map(|hash| SessionId::new(hash, SessionSource::History))
    }
}
