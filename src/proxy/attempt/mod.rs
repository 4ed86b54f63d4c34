//! Attempts: pick a profile, send, judge, and send again where that may help. Never behind the first byte of an answer.

mod choose;
mod rejection_recovery;
mod resend;
mod send;

use std::{hash::BuildHasher, sync::Arc, time::Duration};

use super::{
    attempt_outcome::AttemptOutcome,
    client_body::ClientFault,
    data_path::DataPath,
    error::ProxyError,
    exchange_log::ExchangeLog,
    request::{OutgoingRequest, RequestContext},
    response::{Held, ProviderAnswer},
};
use crate::{
    auth::rotation::{Ask, Moved, Pick, ProfileId},
    clock,
    policy::{
        Class, Evidence, Failure, Hints, PHRASES, Reach, Rotate, Verdict, classify, organisation,
        retry::{self, Circumstances, Footing, Next},
    },
    provider::Route,
    session,
    session_table::Pin,
    telemetry::events::ModelRequest,
    upstream::SendError,
};
use rejection_recovery::RejectionRecovery;
use send::Terms;

/// Sends a request until there is an answer for the client.
pub(super) async fn send(
    path: &DataPath,
    route: &Route<'_>,
    mut outgoing: OutgoingRequest,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, ProxyError> {
    let context = &outgoing.context;
    let parent = log.asks(ModelRequest {
        model: context.model.as_deref(),
        streams: context.stream,
        max_tokens: context.max_tokens,
        conversation: context.lane.map(|lane| lane.id.short()),
    });
    if let Some(parent) = parent {
        outgoing.set_trace_parent(parent);
    }
    let jitter = f64::from(u32::try_from(path.jitter.hash_one(&log.event.request_id) >> 32).unwrap_or(0));
    let recovery = outgoing
        .sent
        .take()
        .map(|sent| RejectionRecovery::new(sent, &route.upstream.name));
    let mut attempts = Attempts {
        path,
        route,
        outgoing,
        recovery,
        profile: None,
        tried: Vec::new(),
        left: None,
        same_key: 0,
        rotations: 0,
        jitter: jitter / f64::from(u32::MAX),
    };
    attempts.run(log).await
}

/// The attempts of one exchange.
struct Attempts<'x> {
    path: &'x DataPath,
    route: &'x Route<'x>,
    outgoing: OutgoingRequest,
    /// Resends after a refusal. `None` if the provider's first word is final.
    recovery: Option<RejectionRecovery>,
    /// The profile of the attempt at hand. `None` for the client's own credential.
    profile: Option<ProfileId>,
    tried: Vec<ProfileId>,
    /// The profile that the lane left, if it did.
    left: Option<ProfileId>,
    same_key: u32,
    /// Rotations of a kind that is allowed once.
    rotations: u32,
    jitter: f64,
}

/// How one attempt ended.
struct Tried {
    verdict: Verdict,
    hints: Hints,
    what: Result<ProviderAnswer, ProxyError>,
}

impl Attempts<'_> {
    async fn run(&mut self, log: &mut ExchangeLog) -> Result<ProviderAnswer, ProxyError> {
        choose::choose_first(self, log).await?;
        loop {
            let tried = self.attempt(log).await;
            let Some(delay) = self.follows(&tried, log) else {
                return self.surface(tried, log);
            };
            log.judge(tried.verdict, &tried.hints);
            // The answer is not for the client: dropping it ends it at the provider.
            drop(tried);
            log.queues();
            tokio::time::sleep(delay).await;
        }
    }

    /// Goes on with this profile.
    fn take(&mut self, id: ProfileId, moved: Option<Moved>, log: &mut ExchangeLog) {
        self.profile = Some(id);
        self.same_key = 0;
        let profiles = &self.path.profiles;
        let label = |id| {
            profiles
                .profile(self.route.upstream.name.as_str(), id)
                .map(|profile| profile.label.clone())
        };
        log.event.profile = label(id);
        if let Some(moved) = moved {
            self.left.get_or_insert(moved.from);
        }
        // Back where it was, the lane has left nobody.
        log.moved = moved.and_then(|moved| Some((label(moved.from)?, moved.reason)));
    }

    /// One send, up to the answer that the client could get.
    async fn attempt(&mut self, log: &mut ExchangeLog) -> Tried {
        let sent = match self.exchange(log).await {
            Ok(answer) => resend::recover(self, answer, log).await,
            Err(error) => Err(error),
        };
        let tried = match sent {
            Ok(answer) => self.judged(answer, log).await,
            Err(error) => Tried {
                verdict: error.verdict(),
                hints: Hints::default(),
                what: Err(error),
            },
        };
        Tried {
            verdict: self.limited(tried.verdict),
            ..tried
        }
    }

    /// Keeps a verdict to its exchange if it says nothing of the profile: on a path that asks no model, or where the
    /// provider's text is also the client's.
    ///
    /// Such an exchange may still try one other profile. A list that a restricted key refuses is then answered by another
    /// key, at the price of one send.
    fn limited(&self, verdict: Verdict) -> Verdict {
        let limit = self.path.settings.inspect_bytes_max;
        let is_echo = || verdict.reach == Reach::Text && self.outgoing.contains_any(&PHRASES, limit);
        if self.route.asks_model && !is_echo() {
            return verdict;
        }
        verdict.within(Reach::Exchange)
    }

    /// Sends the request as it stands and waits for the answer's head.
    async fn exchange(&mut self, log: &mut ExchangeLog) -> Result<ProviderAnswer, ProxyError> {
        let profile = self
            .profile
            .and_then(|id| self.path.profiles.profile(self.upstream(), id));
        let limit = self.path.settings.inspect_bytes_max;
        let request = self.outgoing.build(self.route.upstream, profile);
        let request = request.map_err(|error| ProxyError::Unsigned { error, limit })?;
        log.outcome = Some(self.outcome(log));
        let terms = self.terms(log);
        let sent = send::send_once(self.path, self.route, request, &terms, log).await;
        sent.map_err(|error| match error.failure() {
            Failure::HeadTimeout if log.spent() >= self.path.settings.clocks.total => ProxyError::Deadline,
            _ => upstream_error(self.route, error),
        })
    }

    fn outcome(&self, log: &ExchangeLog) -> AttemptOutcome {
        let context = &self.outgoing.context;
        AttemptOutcome {
            profiles: self.path.profiles.clone(),
            sessions: Arc::clone(&self.path.sessions),
            upstream: self.upstream().to_owned(),
            profile: self.profile,
            model: context.model.clone(),
            began: clock::instant(),
            request: context.name,
            first: log.event.attempts == 0 && context.retries == 0,
            asks_model: self.route.asks_model,
            jitter: self.jitter,
            caller: context.caller,
            lane: context.lane,
            results: self.outgoing.results.clone(),
            is_continued_by_id: self.route.wire.is_some_and(|wire| wire.format.continues_by_id()),
        }
    }

    /// What an answer means. An answer that could be improved on is looked into first: an error is read, a stream held.
    async fn judged(&mut self, answer: ProviderAnswer, log: &ExchangeLog) -> Tried {
        let patience = self.path.settings.clocks.idle;
        let footing = self.outgoing.context.footing;
        let mut answer = answer;
        if footing != Footing::Passthrough {
            if let (Some(id), Some(organisation)) = (self.profile, organisation(answer.headers())) {
                self.path.profiles.learn(self.upstream(), id, organisation);
            }
            answer = match answer.with_error(patience).await {
                Ok(answer) => answer,
                Err(error) => {
                    return Tried {
                        verdict: classify(Evidence::Unanswered(error.failure())),
                        hints: Hints::default(),
                        what: Err(upstream_error(self.route, error)),
                    };
                }
            };
        }
        let kind = self.route.upstream.kind;
        let mut said = answer.said();
        let mut verdict = classify(Evidence::Answered {
            kind,
            status: answer.status().as_u16(),
            said: &said,
        });
        if verdict.class == Class::Success && self.may_hold(log) {
            answer = match answer.held(self.path.settings.clocks.gate).await {
                Held::Answer(answer) => answer,
                Held::Refused(answer, words) => {
                    said = words;
                    verdict = classify(Evidence::InStream { kind, said: &said });
                    answer
                }
                Held::Failed(failed) => {
                    return Tried {
                        verdict: failed,
                        hints: Hints::default(),
                        what: Err(ProxyError::Unbegun(failed)),
                    };
                }
            };
        }
        // Of a success nobody asks when to come back.
        let hints = match verdict.class {
            Class::Success => Hints::default(),
            class => Hints::read(answer.headers(), &said, class, clock::since_1970()),
        };
        Tried {
            verdict,
            hints,
            what: Ok(answer),
        }
    }

    /// Whether another attempt could still be made, so that the answer is worth holding.
    fn may_hold(&self, log: &ExchangeLog) -> bool {
        if self.outgoing.context.footing != Footing::Free || log.event.attempts >= retry::SENDS_MAX {
            return false;
        }
        let at = self.circumstances(log);
        let again = !at.client_retries && !at.breaker_open && at.same_key < Class::Overloaded.retries();
        again
            || self
                .path
                .profiles
                .able(self.upstream(), &self.ask(false), clock::instant())
                > 1
    }

    /// After which delay another attempt follows; none if this is the client's answer.
    fn follows(&mut self, tried: &Tried, log: &mut ExchangeLog) -> Option<Duration> {
        let class = tried.verdict.class;
        if class == Class::Success || !self.outgoing.is_repeatable() {
            return None;
        }
        if let Some(back) = self.way_back(class, log) {
            self.tried.extend(self.profile);
            self.take(back, None, log);
            return Some(Duration::ZERO);
        }
        let at = self.circumstances(log);
        let mut next = retry::next(tried.verdict, &tried.hints, &at, self.jitter);
        if let Next::Rotate { other_quota } = next {
            // The report first: the choice must know what this profile has just shown.
            log.judge(tried.verdict, &tried.hints);
            self.tried.extend(self.profile);
            let pick = self
                .path
                .profiles
                .pick(self.upstream(), &self.ask(other_quota), clock::instant());
            if let Some(Pick::Use { id, moved }) = pick {
                self.take(id, moved, log);
                self.rotations += u32::from(tried.verdict.rotate() != Rotate::Freely);
                return Some(Duration::ZERO);
            }
            self.tried.pop();
            next = retry::again(class, &tried.hints, &at, self.jitter).unwrap_or(Next::Surface);
        }
        match next {
            Next::Again(delay) if self.path.profiles.pay(self.upstream(), class) => {
                self.same_key += 1;
                Some(delay)
            }
            _ => None,
        }
    }

    /// What only the profile that the lane left takes goes back there, once.
    fn way_back(&mut self, class: Class, log: &ExchangeLog) -> Option<ProfileId> {
        let left = self.left.filter(|_| class == Class::Affinity)?;
        if log.event.attempts >= retry::SENDS_MAX || self.outgoing.context.footing != Footing::Free {
            return None;
        }
        self.left = None;
        self.path
            .profiles
            .way_back(self.upstream(), left, &self.ask(false), clock::instant())
    }

    /// Hands the attempt to the client.
    fn surface(&mut self, tried: Tried, log: &mut ExchangeLog) -> Result<ProviderAnswer, ProxyError> {
        if tried.verdict.class == Class::Success {
            self.path.late.callers().prove(self.outgoing.context.caller);
            if let Some(pins) = self.outgoing.pins.take() {
                pins.commit();
            }
            // A count that another profile answered moves no conversation.
            let is_turn = !session::counts(self.route.target.path());
            let RequestContext { lane, pin, .. } = &self.outgoing.context;
            let label = log
                .event
                .profile
                .as_deref()
                .filter(|label| is_turn && pin.as_deref() != Some(*label));
            if let (Some(lane), Some(label)) = (lane, label) {
                let pin = Pin {
                    upstream: self.upstream().into(),
                    profile: label.into(),
                };
                self.path.sessions.set_pin(lane.id, Some(pin), clock::now());
            }
        } else {
            log.judge(tried.verdict, &tried.hints);
            if tried.what.is_ok() {
                log.tell(tried.verdict);
            }
        }
        tried.what
    }

    fn ask(&self, other_quota: bool) -> Ask<'_> {
        let asked = &self.outgoing.context;
        Ask {
            lane: asked
                .lane
                .map_or_else(|| *asked.caller.principal_bytes(), |lane| *lane.id.as_bytes()),
            model: asked.model.as_deref(),
            pinned: asked
                .pin
                .as_deref()
                .and_then(|label| self.path.profiles.find(self.upstream(), label)),
            tried: &self.tried,
            other_quota,
            bound: asked.bound,
        }
    }

    fn circumstances(&self, log: &ExchangeLog) -> Circumstances {
        let asked = &self.outgoing.context;
        Circumstances {
            sends: log.event.attempts,
            same_key: self.same_key,
            rotations: self.rotations,
            footing: asked.footing,
            client_retries: asked.retries > 0,
            breaker_open: self
                .path
                .profiles
                .is_open(self.upstream(), asked.model.as_deref(), clock::instant()),
            wait: self.path.settings.rotation.wait,
            streamed: asked.stream,
        }
    }

    fn terms(&self, log: &ExchangeLog) -> Terms {
        let clocks = &self.path.settings.clocks;
        Terms::of(&self.outgoing.context, self.route, clocks, log.spent())
    }

    fn upstream(&self) -> &str {
        &self.route.upstream.name
    }
}

fn upstream_error(route: &Route<'_>, error: SendError) -> ProxyError {
    if let Some(fault) = error.cause::<ClientFault>() {
        return ProxyError::Body(*fault);
    }
    let upstream = format!("{} ({})", route.upstream.name, route.upstream.authority.host());
    ProxyError::Upstream { upstream, error }
}
