//! What a request asks for, and what bears on how it is sent: model, lane, what binds it, whose credential goes up.

use std::time::Duration;

use http::HeaderMap;

use crate::{
    auth::{Principal, rotation::Bound},
    clock,
    conversation::{Field, Outline},
    late::Late,
    policy::retry::Footing,
    profiles::Profiles,
    provider::Route,
    session::{self, Lane, Marks},
    session_table::{Entered, SessionTable},
    telemetry::Telemetry,
    wire::json::Json,
};

/// Bytes at the end of a history that tell it from others.
const TAIL_BYTES: usize = 1024;
/// Bytes of a model's name: longer ones are none.
const MODEL_MAX: usize = 256;

/// What a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The model, as the body or the path names it.
    pub(super) model: Option<String>,
    /// Whether the answer is to be a stream.
    pub(super) stream: bool,
    /// How many tokens the answer may have; noted for traces alone.
    pub(super) max_tokens: Option<u64>,
    /// Whether nothing but a compaction of the history is asked for.
    pub(super) compacts: bool,
    /// How often the client's library has tried before.
    pub(super) retries: u32,
    /// How long the client's library waits.
    pub(super) budget: Option<Duration>,
    /// Whose credential goes up.
    pub(super) footing: Footing,
    /// What binds the lane to its profile.
    pub(super) bound: Bound,
    /// Who asks.
    pub(super) principal: Principal,
    /// Whose conversation it is.
    pub(super) lane: Option<Lane>,
    /// The session that the client names, as its calls are recorded under it.
    pub(super) session: Option<[u8; 32]>,
    /// Whether the lane has gone on without calls of its.
    pub(super) went_on: bool,
    /// The label of the lane's profile.
    pub(super) pin: Option<Box<str>>,
    /// The name of the logical request: the same each time that it is sent.
    pub(super) name: [u8; 32],
}

/// Where what is known stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'s> {
    pub(super) route: &'s Route<'s>,
    pub(super) headers: &'s HeaderMap,
    pub(super) profiles: &'s Profiles,
    pub(super) sessions: &'s SessionTable,
    pub(super) telemetry: &'s Telemetry,
    pub(super) late: &'s Late,
    pub(super) principal: Principal,
}

impl Sources<'_> {
    /// What a request asks for whose body is `body`; without one that was read, both are empty.
    pub(super) fn asked(&self, body: &[u8], outline: &Outline) -> Asked {
        let path = self.route.target.path();
        let marks = session::marks(self.headers, path);
        let named = outline
            .fields
            .get(Field::Model)
            .map(|span| Json::new(body).decode(span));
        let named = named.and_then(|name| String::from_utf8(name.into_owned()).ok());
        let path_model = self.route.model();
        let model = named.or_else(|| path_model.map(ToOwned::to_owned));
        let compacts = marks.compaction || outline.compaction;
        let goes_on = !compacts && !session::counts(path);
        let (lane, entered) = self.lane(body, outline, path_model, goes_on);
        let pin = entered.pin.filter(|pin| *pin.upstream == *self.route.upstream.name);
        Asked {
            model: model.filter(|model| !model.is_empty() && model.len() <= MODEL_MAX),
            stream: outline.stream || self.route.is_stream(),
            max_tokens: self.telemetry.has_traces().then(|| max_tokens(body, outline)).flatten(),
            compacts,
            retries: marks.retries,
            budget: marks.budget,
            footing: self.footing(outline, marks),
            bound: Bound {
                state: outline.held || outline.paused || marks.turn_state,
                reasoning: outline.reasoning,
                calls: entered.has_open_calls,
            },
            principal: self.principal,
            lane,
            session: self.session(body, outline, path_model),
            went_on: !entered.closed.detached.is_empty(),
            pin: pin.map(|pin| pin.profile),
            name: self.name(body, outline, lane),
        }
    }

    /// The lane, and how this request finds it. The calls that it answers are closed.
    fn lane(&self, body: &[u8], outline: &Outline, path_model: Option<&str>, goes_on: bool) -> (Option<Lane>, Entered) {
        let Some(asked) = self.session_asked(body, outline, path_model) else {
            return (None, Entered::default());
        };
        let Some(lane) = session::lane(&asked, self.sessions) else {
            return (None, Entered::default());
        };
        let entered = self.sessions.entered(lane.id, outline, goes_on, clock::now());
        self.telemetry.record_lane_request(&entered);
        (Some(lane), entered)
    }

    fn session_asked<'r>(
        &'r self,
        body: &'r [u8],
        outline: &'r Outline,
        path_model: Option<&'r str>,
    ) -> Option<session::Asked<'r>> {
        let wire = self.route.wire.filter(|_| !body.is_empty())?;
        Some(session::Asked {
            principal: self.principal.as_bytes(),
            format: wire.format,
            headers: self.headers,
            body,
            outline,
            path_model,
        })
    }

    /// Asked for only where services may answer calls.
    fn session(&self, body: &[u8], outline: &Outline, path_model: Option<&str>) -> Option<[u8; 32]> {
        if !self.late.is_used() {
            return None;
        }
        let session = self.session_asked(body, outline, path_model)?.named_session()?;
        Some(session.hash(self.principal.as_bytes()))
    }

    fn footing(&self, outline: &Outline, marks: Marks) -> Footing {
        if !self.profiles.has_profiles(&self.route.upstream.name) {
            Footing::Passthrough
        } else if outline.held || marks.turn_state {
            Footing::Held
        } else {
            Footing::Free
        }
    }

    /// Told by lane and history alone, where they are known: a stream that died is asked for again as no stream, and with
    /// other limits.
    fn name(&self, body: &[u8], outline: &Outline, lane: Option<Lane>) -> [u8; 32] {
        let mut hash = blake3::Hasher::new_keyed(self.principal.as_bytes());
        if let Some(lane) = lane {
            hash.update(lane.id.as_bytes());
        }
        let begin = outline.first_user.or(outline.last).map(|first| first.start);
        let history = begin
            .zip(outline.last)
            .and_then(|(from, last)| body.get(from..last.end));
        let told = history.unwrap_or(body);
        if history.is_none() {
            hash.update(self.route.target.path().as_bytes());
        }
        hash.update(&(told.len() as u64).to_le_bytes());
        hash.update(told.get(told.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default());
        hash.finalize().into()
    }
}

fn max_tokens(body: &[u8], outline: &Outline) -> Option<u64> {
    let digits = body.get(outline.field(Field::MaxTokens)?.range())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
