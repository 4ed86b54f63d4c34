//! Who is speaking: the session, the agent within it, and the lane that both make up for one principal.
//!
//! A session id is a label that a client chose, never a credential: nothing is found by it without the principal.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod labels;
mod marks;
mod user;
mod weak;

use std::fmt;

use http::HeaderMap;

use crate::{
    conversation::{BodyField, Outline},
    digest::Digest as _,
    wire::{
        Format,
        json::{Json, Kind},
    },
};

pub use labels::LABEL_BYTES_MAX;
pub use marks::{Marks, counts, marks};
pub use user::body_user;

/// Letters of a lane's hash that are shown.
const SHORT_LETTERS: usize = 12;

/// A hash of the credential that was presented: the only name of a caller that counts.
pub type PrincipalHash = [u8; 32];

/// One request, as far as it tells who speaks.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// Who asks.
    pub principal: &'r PrincipalHash,
    /// The format of the body.
    pub format: Format,
    /// The head.
    pub headers: &'r HeaderMap,
    /// The body that was read; empty where none was.
    pub body: &'r [u8],
    /// Its outline.
    pub outline: &'r Outline,
    /// The model, where the path names it.
    pub path_model: Option<&'r str>,
}

/// How far a session id is to be trusted to name one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strength {
    /// Conversations that begin alike have it in common.
    Weak,
    /// The client, or the provider, names it.
    Strong,
}

/// What told the session, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// `x-antiphon-session`.
    Antiphon,
    /// `x-claude-code-session-id`.
    ClaudeCode,
    /// The session in `metadata.user_id`.
    UserId,
    /// Another client's header.
    Header,
    /// `conversation`.
    Conversation,
    /// The answer that the request goes on from.
    Answer,
    /// Calls in the history.
    Calls,
    /// `prompt_cache_key`.
    CacheKey,
    /// How the history begins.
    History,
}

impl Source {
    /// Whether the next request of the session may name nothing but the answer that it goes on from.
    pub const fn is_looked_up(self) -> bool {
        !matches!(self, Self::Antiphon | Self::ClaudeCode | Self::UserId | Self::Header)
    }

    /// The name in logs and on the admin page.
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

    /// How far it is to be trusted.
    pub const fn strength(self) -> Strength {
        match self {
            Self::History => Strength::Weak,
            _ => Strength::Strong,
        }
    }
}

/// A session of one principal. What it is called is not shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionId {
    name: Box<[u8]>,
    source: Source,
}

impl SessionId {
    fn new(name: impl Into<Box<[u8]>>, source: Source) -> Self {
        Self {
            name: name.into(),
            source,
        }
    }

    /// What told it.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// How far it is to be trusted.
    pub const fn strength(&self) -> Strength {
        self.source.strength()
    }

    /// [`session_hash`] of its name.
    pub fn hash(&self, principal: &PrincipalHash) -> [u8; 32] {
        session_hash(principal, &self.name)
    }

    /// Whether it is called so.
    pub fn is_called(&self, name: &str) -> bool {
        *self.name == *name.as_bytes()
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionId")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A hash of a session's name and its principal: what whoever knows both may speak of a session by.
pub fn session_hash(principal: &PrincipalHash, name: &[u8]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_keyed(principal);
    hash.update(b"session");
    hash.update(name);
    hash.finalize().into()
}

/// One agent's conversation within a session of a principal: a hash that tells none of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId([u8; 32]);

impl LaneId {
    /// The lane of an agent, or the main one.
    pub fn new(principal: &PrincipalHash, format: Format, session: &SessionId, agent: Option<&str>) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(principal);
        // What two sources call alike is one session; what was only guessed is none of those.
        let guessed = session.strength() == Strength::Weak;
        let agent = agent.map_or([b"main", &b""[..]], |agent| [b"agent", agent.as_bytes()]);
        for part in [format.label().as_bytes(), &[u8::from(guessed)], &session.name]
            .into_iter()
            .chain(agent)
        {
            hash.add(part);
        }
        Self(hash.finalize().into())
    }

    /// The lane of a hash that was kept.
    pub const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// The main lanes of the session that a client calls so, in each format.
    pub fn main_of(principal: &PrincipalHash, session: &str) -> [Self; Format::ALL.len()] {
        let session = SessionId::new(session.as_bytes(), Source::Antiphon);
        Format::ALL.map(|format| Self::new(principal, format, &session, None))
    }

    /// The hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first letters of the hash, for people.
    pub fn short(self) -> String {
        blake3::Hash::from_bytes(self.0)
            .to_hex()
            .chars()
            .take(SHORT_LETTERS)
            .collect()
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneId({})", self.short())
    }
}

/// A lane, and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    /// The lane.
    pub id: LaneId,
    /// What told its session.
    pub source: Source,
    /// How far that is to be trusted.
    pub strength: Strength,
}

/// What is remembered of earlier exchanges.
pub trait Known {
    /// The lane of this principal that was given the answer of this id.
    fn lane_of_answer(&self, principal: &PrincipalHash, id: &str) -> Option<Lane>;

    /// The lane of this principal that was given the calls which a body shows or answers.
    fn lane_of_calls(&self, principal: &PrincipalHash, outline: &Outline) -> Option<Lane> {
        let _ = (principal, outline);
        None
    }
}

/// Nothing is remembered.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingKnown;

impl Known for NothingKnown {
    fn lane_of_answer(&self, _: &PrincipalHash, _: &str) -> Option<Lane> {
        None
    }
}

/// The lane of a request; none where nothing tells it. The first source that says something counts.
pub fn lane(asked: &Asked<'_>, known: &dyn Known) -> Option<Lane> {
    let of = |session: SessionId| asked.lane(&session);
    asked
        .named_session()
        .map(of)
        .or_else(|| {
            let id = asked.answer_before()?;
            let lane = known.lane_of_answer(asked.principal, &id)?;
            let source = Source::Answer;
            Some(Lane { source, ..lane })
        })
        .or_else(|| {
            let lane = known.lane_of_calls(asked.principal, asked.outline)?;
            let source = Source::Calls;
            Some(Lane { source, ..lane })
        })
        .or_else(|| asked.string(BodyField::PromptCacheKey, Source::CacheKey).map(of))
        .or_else(|| asked.guessed_session().map(of))
}

impl Asked<'_> {
    /// The session that the client names.
    pub fn named_session(&self) -> Option<SessionId> {
        let header = |(name, source): &(&str, Source)| {
            let name = labels::header(self.headers, name)?;
            Some(SessionId::new(name.as_bytes(), *source))
        };
        labels::FIRST_HEADERS
            .iter()
            .find_map(header)
            .or_else(|| self.user_id_session())
            .or_else(|| labels::HEADERS.iter().find_map(header))
            .or_else(|| self.conversation())
    }

    /// The agent within the session; none for the main one.
    pub fn agent(&self) -> Option<&str> {
        labels::agent(self.headers)
    }

    fn lane(&self, session: &SessionId) -> Lane {
        Lane {
            id: LaneId::new(self.principal, self.format, session, self.agent()),
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
        labels::user_id(&json.decode(user)).map(|name| SessionId::new(name.into_bytes(), Source::UserId))
    }

    /// `conversation` is an id, or an object that has one.
    fn conversation(&self) -> Option<SessionId> {
        let json = Json::new(self.body);
        let span = self.outline.field(BodyField::Conversation)?;
        let id = match json.kind(span) {
            Kind::Object => json.member(span, "id")?,
            _ => span,
        };
        let name = labels::string(json, id)?;
        Some(SessionId::new(name.into_bytes(), Source::Conversation))
    }

    /// The id of the answer that the request goes on from.
    fn answer_before(&self) -> Option<String> {
        let json = Json::new(self.body);
        let thread = |span| json.member(span, "previous_message_id");
        let span = self.outline.field(BodyField::PreviousResponse);
        labels::string(
            json,
            span.or_else(|| self.outline.field(BodyField::Thread).and_then(thread))?,
        )
    }

    fn string(&self, field: BodyField, source: Source) -> Option<SessionId> {
        let name = labels::string(Json::new(self.body), self.outline.field(field)?)?;
        Some(SessionId::new(name.into_bytes(), source))
    }

    fn guessed_session(&self) -> Option<SessionId> {
        weak::hash(self).map(|hash| SessionId::new(hash, Source::History))
    }
}
