//! The context of one request: its caller, model, lane, and everything else that decides how it is sent.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Method};

use crate::{
    auth::{Caller, Principal},
    clock,
    conversation::{BodyField, Outline},
    keys::rotation::LaneBindings,
    policy::retry::CredentialBinding,
    provider::Route,
    proxy::{
        continuity::{ContinuityContext, RequestContinuity},
        data_path::DataPath,
        exchange_log::ExchangeLog,
        exchange_route::ExchangeRoute,
        late_results::LateResults,
        owned_ids::NamedObjects,
    },
    recall::RecallScope,
    repair::ContinuityKind,
    server::budget::BudgetClient,
    session::{self, ClientHeaders, ClientHints, Lane, SessionRequest, TurnMark},
    session_table::{EnteredLane, LaneNames, LaneRequest},
    splice::Span,
    wire::{Format, json::Json},
};

/// Bytes at the end of a history by which requests are told apart.
const TAIL_BYTES: usize = 256;
/// Maximum length of a model's name in bytes. A longer name counts as no name.
const MODEL_MAX: usize = 256;

/// The context of one request.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct RequestContext {
    /// Model, as the body or the path names it.
    pub(in crate::proxy) model: Option<String>,
    /// `true` if the client asks for a stream.
    pub(in crate::proxy) wants_stream: bool,
    /// Maximum tokens of the answer, as the body sets it. Read only for traces.
    pub(in crate::proxy) max_tokens: Option<u64>,
    /// `true` if the request asks only for a compaction of the history.
    pub(in crate::proxy) is_compaction: bool,
    /// Number of the client library's earlier tries of this request.
    pub(in crate::proxy) client_retries: u32,
    /// Timeout of the client's library. `None` if it reports none.
    pub(in crate::proxy) client_timeout: Option<Duration>,
    /// Origin of the credential that is sent, and what the body binds it to.
    pub(in crate::proxy) credential_binding: CredentialBinding,
    /// Reasons that bind the lane to its profile.
    pub(in crate::proxy) lane_binding: LaneBindings,
    /// Identity of the client. No other value in an exchange identifies it.
    pub(in crate::proxy) caller: Caller,
    /// Client whose share of the budgets the request uses.
    pub(in crate::proxy) budget_client: BudgetClient,
    /// Lane of the request. `None` if nothing identifies it.
    pub(in crate::proxy) lane: Option<Lane>,
    /// Marks of the request, by which later ones go on with its conversation.
    pub(in crate::proxy) turn_mark: TurnMark,
    /// Hash that decides which profile serves a conversation first.
    pub(in crate::proxy) choice_hash: [u8; 32],
    /// Hashes of the ids of calls that the lane went on without, when no client waited for them any more.
    pub(in crate::proxy) unattended_calls: Vec<[u8; 32]>,
    /// Time since the lane's last use. `None` if its history was compacted since, so that no cache of it is of use.
    pub(in crate::proxy) lane_idle: Option<Duration>,
    /// Label of the lane's profile. `None` if this upstream's profiles do not serve it yet.
    pub(in crate::proxy) pinned_profile: Option<Box<str>>,
    /// Provider's objects that the request names.
    pub(in crate::proxy) objects: NamedObjects,
    /// Label of the profile that owns one of them. `None` if none is known to.
    pub(in crate::proxy) owner: Option<Arc<str>>,
    /// Hash of the logical request: the same each time that the client sends it.
    pub(in crate::proxy) request_hash: u64,
    /// `true` if a later request may continue from the answer by its id alone.
    pub(in crate::proxy) is_continued_by_id: bool,
}

/// Returns the model that a request names. `None` if it names none, or one of more than [`MODEL_MAX`] bytes.
pub(super) fn named_model(route: &Route<'_>, body: &[u8], outline: &Outline) -> Option<String> {
    let named = outline
        .fields
        .get(BodyField::Model)
        .map(|span| Json::new(body).decode_string(span));
    let named = named.and_then(|name| String::from_utf8(name.into_owned()).ok());
    // Gemini, Bedrock and Azure name the model in the path.
    let model = named.or_else(|| route.model_name().map(ToOwned::to_owned));
    model.filter(|model| !model.is_empty() && model.len() <= MODEL_MAX)
}

impl RequestContext {
    /// Returns the owner of pinned results, without a guessed lane: it identifies no call with a reusable id.
    pub(super) fn pin_scope(&self, format: Format) -> RecallScope {
        RecallScope {
            caller: self.caller,
            format,
            lane: self.lane.and_then(Lane::certain_id),
        }
    }

    /// Returns the parts on which the request's continuity depends.
    pub(super) fn continuity(&self) -> ContinuityContext<'_> {
        ContinuityContext {
            caller: self.caller,
            model: self.model.as_deref(),
            lane: self.lane.map(|lane| *lane.id.as_bytes()),
            pinned_profile: self.owner.as_deref().or(self.pinned_profile.as_deref()),
        }
    }

    /// Binds the request to the profile that owns an object which it names.
    pub(super) fn follow_owner(&mut self, objects: NamedObjects, method: &Method) {
        self.owner = objects.owner(self.pinned_profile.as_deref());
        if self.owner.is_some() {
            self.lane_binding.provider_state = true;
            // A request to the object itself may change it. A read has no effect that a second send could repeat.
            let changes = objects.is_in_path() && !matches!(*method, Method::GET | Method::HEAD);
            if changes && self.credential_binding == CredentialBinding::Unbound {
                self.credential_binding = CredentialBinding::ProviderState;
            }
        }
        self.objects = objects;
    }

    /// Binds the request to the account whose values its body got back: another one could not read them.
    pub(super) fn bind_account(&mut self, continuity: &RequestContinuity) {
        self.lane_binding.reasoning |= continuity.has_filled(ContinuityKind::Signature);
        if continuity.has_filled(ContinuityKind::Container) {
            self.lane_binding.provider_state = true;
            if self.credential_binding != CredentialBinding::Passthrough {
                self.credential_binding = CredentialBinding::ProviderState;
            }
        }
    }
}

/// Everything that a context is built from besides the body.
#[derive(Debug)]
pub(in crate::proxy) struct ContextBuilder<'s> {
    pub(in crate::proxy) path: &'s DataPath,
    pub(in crate::proxy) route: &'s ExchangeRoute<'s>,
    pub(in crate::proxy) headers: &'s HeaderMap,
    pub(in crate::proxy) caller: Caller,
    pub(in crate::proxy) budget_client: BudgetClient,
}

impl ContextBuilder<'_> {
    /// Enters the lane of the request, which closes the calls it answers. Returns the context, and the late results of
    /// the conversation. The log gets the model and the lane.
    ///
    /// Consumes the builder: a request enters its lane once. `body` and `outline` are empty if no body was read.
    pub(in crate::proxy) fn enter_lane(
        self,
        body: &[u8],
        outline: &Outline,
        log: &mut ExchangeLog,
    ) -> (Box<RequestContext>, LateResults) {
        let path = self.route.target.path();
        let headers = ClientHeaders::read(self.headers);
        let hints = session::read_client_hints(&headers, path);
        let is_compaction = hints.is_compaction || outline.compaction;
        let first_text = session::first_text(body, outline);
        let request = LaneRequest {
            outline,
            mark: TurnMark::of_request(body, outline, first_text),
            // A count or a compaction reads the history, but is not the conversation's next request.
            may_be_turn: !is_compaction && !session::is_token_count(path),
            is_compacted: hints.is_compacted,
        };
        let evidence = self.session_evidence((body, outline), first_text, &headers);
        let evidence = evidence.as_ref();
        let model = named_model(self.route, body, outline);
        log.record_model(model.as_deref());
        let (lane, entered) = self.find_and_enter_lane(evidence, log.lane_names(), request);
        log.record_lane(lane);
        let upstream = &self.route.upstream.name;
        let head = (&**upstream, self.headers);
        let results = LateResults::of_request(self.path, head, (self.caller, lane), evidence, &entered);
        // The label of another upstream's profile means nothing here.
        let pin = entered.pin.filter(|pin| *pin.upstream == **upstream);
        // Boxed, because it is moved several times until the request is sent.
        let context = Box::new(RequestContext {
            budget_client: self.budget_client,
            model,
            wants_stream: outline.stream || self.route.is_stream(),
            // Searched only if traces are on: nothing else reads it.
            max_tokens: self
                .path
                .telemetry
                .has_traces()
                .then(|| read_max_tokens(body, outline))
                .flatten(),
            is_compaction,
            client_retries: hints.retries,
            client_timeout: hints.client_timeout,
            credential_binding: self.credential_binding(outline, hints),
            lane_binding: LaneBindings {
                provider_state: outline.names_remote_state || outline.is_paused || hints.has_turn_state,
                reasoning: outline.has_signed_reasoning,
                open_calls: entered.has_open_calls,
            },
            caller: self.caller,
            lane,
            turn_mark: request.mark,
            choice_hash: self.choice_hash(evidence, lane),
            unattended_calls: entered.unattended,
            lane_idle: (!entered.is_compacted && !hints.is_compacted).then_some(entered.idle),
            pinned_profile: pin.map(|pin| pin.profile),
            objects: NamedObjects::default(),
            owner: None,
            request_hash: self.request_hash(body, outline, lane),
            is_continued_by_id: self.is_continued_by_id(outline, lane),
        });
        (context, results)
    }

    /// Enters the lane, which closes the calls that this request answers.
    fn find_and_enter_lane(
        &self,
        evidence: Option<&SessionRequest<'_>>,
        names: LaneNames<'_>,
        request: LaneRequest<'_>,
    ) -> (Option<Lane>, EnteredLane) {
        let sessions = &self.path.sessions;
        let lane =
            evidence.and_then(|asked| session::find_lane(asked, |caller, id| sessions.lane_of_answer(caller, id)));
        let Some(lane) = lane else {
            return (None, EnteredLane::default());
        };
        let entered = sessions.enter_lane(lane.id, names, request, clock::now());
        self.path.telemetry.record_lane_request(&entered);
        (Some(lane), entered)
    }

    /// Returns the hash that decides which profile serves the conversation first.
    fn choice_hash(&self, evidence: Option<&SessionRequest<'_>>, lane: Option<Lane>) -> [u8; 32] {
        // Lists and stored objects differ from key to key, so a caller without a lane stays with one.
        let Some(lane) = lane else {
            return *self.caller.principal_bytes();
        };
        if self.path.recall.survives_restart() {
            return *lane.id.as_bytes();
        }
        // The names of lanes are new after a restart then. The choice must not be, or conversations would move.
        let nobody = Caller::of_account(Principal::NONE);
        let asked = evidence.map(|evidence| SessionRequest {
            caller: &nobody,
            ..*evidence
        });
        let choice = asked.and_then(|asked| session::find_lane(&asked, |_, _| None));
        *choice.unwrap_or(lane).id.as_bytes()
    }

    /// Returns what the request shows of its session. `None` if its body was not read.
    fn session_evidence<'r>(
        &'r self,
        (body, outline): (&'r [u8], &'r Outline),
        first_text: Option<Span>,
        headers: &ClientHeaders<'r>,
    ) -> Option<SessionRequest<'r>> {
        // An unread body is passed as empty: entering its lane would count the results in it as missing.
        let wire = self.route.wire.filter(|_| !body.is_empty())?;
        Some(SessionRequest {
            caller: &self.caller,
            format: wire.format,
            headers: *headers,
            body,
            outline,
            first_text,
            path_model: self.route.model_name(),
        })
    }

    /// Returns the origin of the credential, and what the body binds it to.
    fn credential_binding(&self, outline: &Outline, hints: ClientHints) -> CredentialBinding {
        if !self.route.pool.has_profiles() {
            CredentialBinding::Passthrough
        } else if outline.names_remote_state || hints.has_turn_state {
            // Another profile would not find the state, and a second send could repeat its effect.
            CredentialBinding::ProviderState
        } else if self.route.creates_object {
            CredentialBinding::Creation
        } else {
            CredentialBinding::Unbound
        }
    }

    /// Returns `true` if a later request may continue from the answer by its id alone.
    ///
    /// Responses may always. Messages may within a thread, which its first request creates by a field of the body.
    fn is_continued_by_id(&self, outline: &Outline, lane: Option<Lane>) -> bool {
        let is_threaded = outline.field(BodyField::Thread).is_some();
        // If clients name the session, no request finds its lane by an answer's id.
        let is_looked_up = lane.is_some_and(|lane| lane.source.is_looked_up());
        self.route.wire.is_some_and(|wire| wire.format.continues_by_id()) || (is_threaded && is_looked_up)
    }

    /// Hashes the lane and the end of the history, or of the whole body if its history is not known.
    ///
    /// Other fields do not count: after a broken stream, clients repeat it without `stream`, or with other limits.
    fn request_hash(&self, body: &[u8], outline: &Outline, lane: Option<Lane>) -> u64 {
        // 64 bits are enough: the hash only tells retries from other requests.
        let mut hash = self.path.hash_key.build_hasher();
        hash.write(self.caller.principal_bytes());
        if let Some(lane) = lane {
            hash.write(lane.id.as_bytes());
        }
        let begin = outline.first_user.or(outline.last).map(|first| first.start);
        let history = begin
            .zip(outline.last)
            .and_then(|(from, last)| body.get(from..last.end));
        let told = history.unwrap_or(body);
        if history.is_none() {
            // Without a history, equal bodies for two paths are two requests.
            hash.write(self.route.target.path().as_bytes());
        }
        hash.write_usize(told.len());
        // The end tells one turn from the next: hashing all of a long history would cost every request time.
        hash.write(told.get(told.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default());
        hash.finish()
    }
}

/// Reads the maximum tokens of the answer. `None` if the body sets no number.
fn read_max_tokens(body: &[u8], outline: &Outline) -> Option<u64> {
    let digits = body.get(outline.field(BodyField::MaxTokens)?.range())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
