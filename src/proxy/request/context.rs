//! The context of one request: its caller, model, lane, and everything else that decides how it is sent.

use std::time::Duration;

use http::HeaderMap;

use crate::{
    auth::{Caller, rotation::Bound},
    clock,
    conversation::{BodyField, Outline},
    policy::retry::Footing,
    provider::Route,
    proxy::data_path::DataPath,
    session::{self, Lane, Marks},
    session_table::Entered,
    wire::json::Json,
};

/// Bytes at the end of a history that tell it from others.
const TAIL_BYTES: usize = 1024;
/// Bytes of a model's name: longer ones are none.
const MODEL_MAX: usize = 256;

/// The context of one request.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct RequestContext {
    /// The model, as the body or the path names it.
    pub(in crate::proxy) model: Option<String>,
    /// Whether the answer is to be a stream.
    pub(in crate::proxy) stream: bool,
    /// How many tokens the answer may have; noted for traces alone.
    pub(in crate::proxy) max_tokens: Option<u64>,
    /// Whether nothing but a compaction of the history is asked for.
    pub(in crate::proxy) compacts: bool,
    /// How often the client's library has tried before.
    pub(in crate::proxy) retries: u32,
    /// How long the client's library waits.
    pub(in crate::proxy) budget: Option<Duration>,
    /// Whose credential goes up.
    pub(in crate::proxy) footing: Footing,
    /// What binds the lane to its profile.
    pub(in crate::proxy) bound: Bound,
    /// The client. Nothing else in an exchange says who asks.
    pub(in crate::proxy) caller: Caller,
    /// Whose conversation it is.
    pub(in crate::proxy) lane: Option<Lane>,
    /// The session that the client names, as its calls are recorded under it.
    pub(in crate::proxy) session: Option<[u8; 32]>,
    /// Whether the lane has gone on without calls of its.
    pub(in crate::proxy) went_on: bool,
    /// The label of the lane's profile.
    pub(in crate::proxy) pin: Option<Box<str>>,
    /// The name of the logical request: the same each time that it is sent.
    pub(in crate::proxy) name: [u8; 32],
}

/// Everything that a context is made from besides the body.
#[derive(Debug)]
pub(in crate::proxy) struct ContextBuilder<'s> {
    pub(in crate::proxy) path: &'s DataPath,
    pub(in crate::proxy) route: &'s Route<'s>,
    pub(in crate::proxy) headers: &'s HeaderMap,
    pub(in crate::proxy) caller: Caller,
}

impl ContextBuilder<'_> {
    /// Enters the lane of the request, which closes the calls it answers, and returns the context.
    ///
    /// Consumes the builder: a request enters its lane once. `body` and `outline` are empty if no body was read.
    pub(in crate::proxy) fn enter(self, body: &[u8], outline: &Outline) -> RequestContext {
        let path = self.route.target.path();
        let marks = session::marks(self.headers, path);
        let named = outline
            .fields
            .get(BodyField::Model)
            .map(|span| Json::new(body).decode(span));
        let named = named.and_then(|name| String::from_utf8(name.into_owned()).ok());
        let path_model = self.route.model();
        let model = named.or_else(|| path_model.map(ToOwned::to_owned));
        let compacts = marks.compaction || outline.compaction;
        let goes_on = !compacts && !session::counts(path);
        let (lane, entered) = self.lane(body, outline, path_model, goes_on);
        let pin = entered.pin.filter(|pin| *pin.upstream == *self.route.upstream.name);
        RequestContext {
            model: model.filter(|model| !model.is_empty() && model.len() <= MODEL_MAX),
            stream: outline.stream || self.route.is_stream(),
            max_tokens: self
                .path
                .telemetry
                .has_traces()
                .then(|| max_tokens(body, outline))
                .flatten(),
            compacts,
            retries: marks.retries,
            budget: marks.budget,
            footing: self.footing(outline, marks),
            bound: Bound {
                state: outline.names_remote_state || outline.is_paused || marks.turn_state,
                reasoning: outline.has_signed_reasoning,
                calls: entered.has_open_calls,
            },
            caller: self.caller,
            lane,
            session: self.session(body, outline, path_model),
            went_on: !entered.closed.detached.is_empty(),
            pin: pin.map(|pin| pin.profile),
            name: self.name(body, outline, lane),
        }
    }

    /// Enters the lane: the calls that this request answers are closed.
    fn lane(&self, body: &[u8], outline: &Outline, path_model: Option<&str>, goes_on: bool) -> (Option<Lane>, Entered) {
        let Some(asked) = self.session_asked(body, outline, path_model) else {
            return (None, Entered::default());
        };
        let Some(lane) = session::lane(&asked, &*self.path.sessions) else {
            return (None, Entered::default());
        };
        let entered = self.path.sessions.entered(lane.id, outline, goes_on, clock::now());
        self.path.telemetry.record_lane_request(&entered);
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
            principal: self.caller.principal_bytes(),
            format: wire.format,
            headers: self.headers,
            body,
            outline,
            path_model,
        })
    }

    /// Names the session for recorded calls. `None` if no tool service is configured.
    fn session(&self, body: &[u8], outline: &Outline, path_model: Option<&str>) -> Option<[u8; 32]> {
        if !self.path.late.is_used() {
            return None;
        }
        let session = self.session_asked(body, outline, path_model)?.named_session()?;
        Some(session.hash(self.caller.principal_bytes()))
    }

    fn footing(&self, outline: &Outline, marks: Marks) -> Footing {
        if !self.path.profiles.has_profiles(&self.route.upstream.name) {
            Footing::Passthrough
        } else if outline.names_remote_state || marks.turn_state {
            Footing::Held
        } else {
            Footing::Free
        }
    }

    /// Told by lane and history alone, where they are known: a stream that died is asked for again as no stream, and with
    /// other limits.
    fn name(&self, body: &[u8], outline: &Outline, lane: Option<Lane>) -> [u8; 32] {
        let mut hash = blake3::Hasher::new_keyed(self.caller.principal_bytes());
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
    let digits = body.get(outline.field(BodyField::MaxTokens)?.range())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
