//! The life of one exchange, top to bottom.

mod asked;
mod attempt;
mod body;
mod caught;
mod choose;
mod coding;
pub mod credential;
mod error;
mod gate;
mod gather;
mod guard;
pub mod headers;
mod late;
mod ledger;
mod memory;
mod owed;
mod prepared;
mod reading;
mod recalled;
mod record;
mod reject;
mod relay;
mod request;
mod response;
mod second;
mod send;
mod service;
mod shape;
mod signature;
mod stake;
mod tentative;
mod turned;

use std::{hash::RandomState, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{ALLOW, HOST},
    uri::PathAndQuery,
};
use hyper::body::Incoming;

pub use body::ClientFault;
pub use error::ProxyError;
pub use guard::Refusal;
pub use reject::Rejection;
pub use relay::{AnswerBody, RelayError};
pub use second::OnBindingError;
pub use service::{Fresh, Proxy, Shared};
pub use shape::Shape;

use crate::{
    auth::{ClientTokens, PrincipalKey, PrincipalSettings, Profile, Who},
    clock,
    late::Late,
    ledger_api::{self, LedgerApi},
    policy::{Class, Clocks, RotationSettings, Verdict},
    profiles::Profiles,
    provider::{NoRoute, Route, Routes},
    recall::Recall,
    repair::{CallKey, RepairPolicy},
    session_table::SessionTable,
    telemetry::Telemetry,
    upstream::{SendError, Sender},
    wire::{self, RefusalKind},
};
use caught::caught;
use guard::{Admission, Guard};
use memory::Memory;
use prepared::Prepared;
use record::{Ids, Record};
use response::Answer;
use second::{Again, Minds, Next};
use send::Terms;

/// Settings of the data path.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Bodies above this size, in bytes, are not inspected.
    pub inspect_bytes_max: usize,
    /// Silence of a client in the middle of its body.
    pub upload_idle_timeout: Duration,
    /// Origins of web pages that may call us, exactly as browsers send them.
    pub allow_origins: Vec<String>,
    /// Host names, besides loopback, under which we may be called; no port.
    pub allow_hosts: Vec<String>,
    /// Whether `x-antiphon-mode` may also make a route less strict.
    pub trust_mode_header: bool,
    /// What repair may do.
    pub policy: RepairPolicy,
    /// What to do about thinking that the provider has bound to another prefix, where nothing else helps.
    pub on_binding_error: OnBindingError,
    /// The clocks of an exchange.
    pub clocks: Clocks,
    /// How requests move between profiles.
    pub rotation: RotationSettings,
    /// The tokens by which clients are known.
    pub client_tokens: ClientTokens,
    /// How callers are told.
    pub principals: PrincipalSettings,
}

/// The data path with everything that its exchanges go by.
#[derive(Debug)]
struct Inner {
    routes: Routes,
    settings: ProxySettings,
    guard: Guard,
    sender: Sender,
    profiles: Profiles,
    sessions: Arc<SessionTable>,
    recall: Recall,
    telemetry: Telemetry,
    ids: Arc<Ids>,
    memory: Arc<Memory>,
    late: Late,
    api: LedgerApi,
    principals: PrincipalKey,
    /// What jitter is made of.
    chance: RandomState,
}

impl Inner {
    /// One exchange. Whatever happens, the client gets an answer and the telemetry one event.
    async fn exchange(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let mut record = Record::begin(&self.telemetry, &self.ids, &request);
        let mut shape = Shape::guess(request.uri().path(), request.headers());
        tracing::trace!(headers = ?headers::Redacted(request.headers()), "request");
        if ledger_api::is_ours(request.uri().path()) {
            return self.ledger(request, record, shape).await;
        }
        match self.run(request, &mut record, &mut shape).await {
            Ok(Some(answer)) => answer.relay(record, shape),
            Ok(None) => preflight(record),
            Err(error) => failed(&error, record, shape),
        }
    }

    /// Guard, route, prepare, send, read the head. None is a preflight, answered here.
    async fn run(
        &self,
        request: Request<Incoming>,
        record: &mut Record,
        shape: &mut Shape,
    ) -> Result<Option<Answer>, ProxyError> {
        if self.guard.admit(&request).map_err(ProxyError::Refused)? == Admission::Preflight {
            return Ok(None);
        }
        let route = self.route(&request)?;
        *shape = Shape::of(&route);
        record.goes_to(&route);
        let who = self.caller(&route, &request)?;
        let patience = self.late_results(who, record).await;
        let prepared = request::prepare(self, &route, who, patience, request, record).await?;
        self.send(&route, prepared, record).await.map(Some)
    }

    /// Who asks: refused where only holders of a client token may.
    fn caller<B>(&self, route: &Route<'_>, request: &Request<B>) -> Result<Who, ProxyError> {
        let has_profiles = self.profiles.has_profiles(&route.upstream.name);
        let (tokens, query) = (&self.settings.client_tokens, request.uri().query());
        let caller = credential::authenticate(tokens, &self.principals, request.headers(), query, has_profiles);
        let caller = caller.map_err(ProxyError::Refused)?;
        self.who(caller.principal, request.headers())
            .map_err(ProxyError::Refused)
    }

    /// Sends again as long as the provider says how to do better, all on one credential.
    async fn mended(
        &self,
        route: &Route<'_>,
        prepared: &mut Prepared,
        profile: Option<&Profile>,
        mut answer: Answer,
        terms: &Terms,
        record: &mut Record,
    ) -> Result<Answer, SendError> {
        let idle = self.settings.clocks.idle;
        if prepared.again.is_some() || !prepared.renamed.is_empty() {
            answer = answer.with_refusal(idle).await?;
        }
        while let Some(refusal) = answer.refusal(&prepared.renamed) {
            self.recollect(prepared, &refusal).await;
            let Some(mut next) = self.second(route, prepared.again.as_mut(), &refusal, record) else {
                break;
            };
            if let Some(tentative) = prepared.tentative.as_mut() {
                let (notes, late) = (std::mem::take(&mut next.notes), next.late.take());
                if !tentative.replaced(notes, late).await {
                    // What the client says could not be kept anywhere else: it stays where it is.
                    prepared.again.iter_mut().for_each(Again::overrules_nothing);
                    continue;
                }
            }
            prepared.replace(next.body, next.asks_for_binding_controls);
            // Whatever happens to it, the client gets an answer of the provider's.
            let Ok(request) = prepared.request(route.upstream, profile) else {
                break;
            };
            let Ok(better) = self.once(route, request, terms, record).await else {
                break;
            };
            let Ok(better) = better.with_refusal(idle).await else {
                break;
            };
            answer = better;
            record.repair = Some(request::actions(&next.report));
            prepared.renamed.clone_from(&next.report.renamed);
            record.event.report = Some(next.report);
            if answer.is_success() {
                next.lesson.learn(&self.memory, prepared.asked.principal);
            }
        }
        Ok(answer.with_old_ids(&prepared.renamed))
    }

    /// Behind a refusal of bound thinking: looks up what the calls that the client has answered in their places were given
    /// before.
    async fn recollect(&self, prepared: &mut Prepared, refusal: &wire::Refusal) {
        let kept = prepared.again.as_ref().zip(prepared.tentative.as_mut());
        if let Some((again, tentative)) = kept.filter(|_| matches!(refusal.kind, RefusalKind::Bound { .. })) {
            let scope = tentative.owed.scope();
            let is_unknown = |call: &CallKey| self.recall.recalled(scope, *call).is_none();
            let calls = caught(|| Some(again.answered_calls(&self.settings.policy))).unwrap_or_default();
            let calls: Vec<CallKey> = calls.into_iter().filter(is_unknown).collect();
            if !calls.is_empty() {
                let fetch = |by| self.recall.fetch(scope, &calls, by);
                drop(tentative.patience.spend(fetch).await);
            }
        }
    }

    /// What to send after a refusal.
    fn second(
        &self,
        route: &Route<'_>,
        again: Option<&mut Again>,
        refusal: &wire::Refusal,
        record: &mut Record,
    ) -> Option<Next> {
        let upstream = route.upstream.name.as_str();
        if refusal.kind == RefusalKind::RepeatedCall && again.is_some() {
            self.memory.learn_unique_ids(upstream);
        }
        let began = clock::now();
        let policy = request::policy(&self.settings, &self.memory, upstream);
        let (again, sends) = (again?, record.event.attempts);
        // A panic of the core would be our bug, so that the provider's word is final.
        let next = caught(|| {
            let minds = Minds {
                memory: &self.memory,
                recall: &self.recall,
                policy: &policy,
            };
            again.next(refusal, minds, self.settings.on_binding_error, sends)
        });
        record.event.overhead += clock::now().duration_since(began);
        let next = next?;
        record.sends_again(next.why);
        Some(next)
    }

    fn route<B>(&self, request: &Request<B>) -> Result<Route<'_>, ProxyError> {
        let root = PathAndQuery::from_static("/");
        let target = request.uri().path_and_query().unwrap_or(&root);
        self.routes
            .route(request.method(), target, request.headers())
            .map_err(|reason| match reason {
                NoRoute::BadPath => ProxyError::Refused(Refusal::Path),
                NoRoute::Unknown => ProxyError::NoRoute {
                    bases: self.bases(request.uri(), request.headers()),
                },
            })
    }

    /// The base URLs to use in place of the one that led nowhere.
    fn bases(&self, uri: &http::Uri, headers: &HeaderMap) -> Vec<String> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host
            .or_else(|| uri.authority().map(http::uri::Authority::as_str))
            .unwrap_or("localhost");
        self.routes.base_urls(host).into_iter().map(|(_, base)| base).collect()
    }
}

fn upstream_error(route: &Route<'_>, error: SendError) -> ProxyError {
    if let Some(fault) = error.cause::<ClientFault>() {
        return ProxyError::Body(*fault);
    }
    let upstream = format!("{} ({})", route.upstream.name, route.upstream.authority.host());
    ProxyError::Upstream { upstream, error }
}

/// An answer of ours in the shape that the client reads.
fn failed(error: &ProxyError, mut record: Record, shape: Shape) -> Response<AnswerBody> {
    if let Some(source) = std::error::Error::source(error) {
        tracing::debug!(error = source, code = error.code(), "exchange failed");
    }
    let (mut head, body) = error.answer(shape, &record.event.request_id).into_parts();
    record.answered(head.status, &mut head.headers);
    record.event.bytes_out = body.len() as u64;
    record.end(error.verdict(), error.phase());
    Response::from_parts(head, AnswerBody::full(body))
}

/// The answer to a preflight of an allowed web page: what the path takes, and nothing that opens it further.
fn preflight(mut record: Record) -> Response<AnswerBody> {
    let (mut head, body) = Response::new(AnswerBody::empty()).into_parts();
    head.status = StatusCode::NO_CONTENT;
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    head.headers.insert(ALLOW, methods);
    record.answered(head.status, &mut head.headers);
    record.end(Verdict::of(Class::Success), "done");
    Response::from_parts(head, body)
}
