//! Attempts: pick a profile, send, judge, and send again where that may help. Never behind the first byte of an answer.

use std::{hash::BuildHasher, sync::Arc, time::Duration};

use super::{
    Inner,
    asked::Asked,
    error::ProxyError,
    prepared::Prepared,
    record::Record,
    response::{Answer, Held},
    send::Terms,
    stake::Stake,
    upstream_error,
};
use crate::{
    auth::rotation::{Ask, Moved, Pick, ProfileId},
    clock,
    policy::{
        Class, Evidence, Failure, Hints, Rotate, Verdict, classify, organisation,
        retry::{self, Circumstances, Footing, Next},
    },
    provider::Route,
    session_table::Pin,
    wire::Format,
};

/// The attempts of one exchange.
pub(super) struct Attempts<'x> {
    pub(super) inner: &'x Inner,
    route: &'x Route<'x>,
    pub(super) prepared: Prepared,
    /// The profile of the attempt at hand; none for the client's own credential.
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
    what: Result<Answer, ProxyError>,
}

impl Inner {
    /// Sends until there is an answer for the client.
    pub(super) async fn send(
        &self,
        route: &Route<'_>,
        mut prepared: Prepared,
        record: &mut Record,
    ) -> Result<Answer, ProxyError> {
        if let Some(parent) = record.asks(&prepared.asked) {
            prepared.goes_on_from(parent);
        }
        let jitter = f64::from(u32::try_from(self.chance.hash_one(&record.event.request_id) >> 32).unwrap_or(0));
        let mut attempts = Attempts {
            inner: self,
            route,
            prepared,
            profile: None,
            tried: Vec::new(),
            left: None,
            same_key: 0,
            rotations: 0,
            jitter: jitter / f64::from(u32::MAX),
        };
        attempts.run(record).await
    }
}

impl Attempts<'_> {
    async fn run(&mut self, record: &mut Record) -> Result<Answer, ProxyError> {
        self.choose(record).await?;
        loop {
            let tried = self.attempt(record).await;
            let Some(delay) = self.follows(&tried, record) else {
                return self.surface(tried, record);
            };
            record.judge(tried.verdict, &tried.hints);
            // The answer is not for the client: dropping it ends it at the provider.
            drop(tried);
            record.queues();
            tokio::time::sleep(delay).await;
        }
    }

    /// Goes on with this profile.
    pub(super) fn take(&mut self, id: ProfileId, moved: Option<Moved>, record: &mut Record) {
        self.profile = Some(id);
        self.same_key = 0;
        let profiles = &self.inner.profiles;
        let label = |id| {
            profiles
                .profile(self.route.upstream.name.as_str(), id)
                .map(|profile| profile.label.clone())
        };
        record.event.profile = label(id);
        if let Some(moved) = moved {
            self.left.get_or_insert(moved.from);
        }
        // Back where it was, the lane has left nobody.
        record.moved = moved.and_then(|moved| Some((label(moved.from)?, moved.reason)));
    }

    /// One send, up to the answer that the client could get.
    async fn attempt(&mut self, record: &mut Record) -> Tried {
        let sent = match self.exchange(record).await {
            Ok(answer) => self.mended(answer, record).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(answer) => self.judged(answer, record).await,
            Err(error) => Tried {
                verdict: error.verdict(),
                hints: Hints::default(),
                what: Err(error),
            },
        }
    }

    async fn mended(&mut self, answer: Answer, record: &mut Record) -> Result<Answer, ProxyError> {
        let terms = self.terms(record);
        let profile = self
            .profile
            .and_then(|id| self.inner.profiles.profile(self.upstream(), id));
        let mended = self
            .inner
            .mended(self.route, &mut self.prepared, profile, answer, &terms, record);
        mended.await.map_err(|error| upstream_error(self.route, error))
    }

    /// Sends the request as it stands and waits for the answer's head.
    async fn exchange(&mut self, record: &mut Record) -> Result<Answer, ProxyError> {
        let profile = self
            .profile
            .and_then(|id| self.inner.profiles.profile(self.upstream(), id));
        let limit = self.inner.settings.inspect_bytes_max;
        let request = self.prepared.request(self.route.upstream, profile);
        let request = request.map_err(|error| ProxyError::Unsigned { error, limit })?;
        record.stake = Some(self.stake(record));
        let terms = self.terms(record);
        let sent = self.inner.once(self.route, request, &terms, record).await;
        sent.map_err(|error| match error.failure() {
            Failure::HeadTimeout if record.spent() >= self.inner.settings.clocks.total => ProxyError::Deadline,
            _ => upstream_error(self.route, error),
        })
    }

    fn stake(&self, record: &Record) -> Stake {
        let asked = &self.prepared.asked;
        Stake {
            profiles: self.inner.profiles.clone(),
            sessions: Arc::clone(&self.inner.sessions),
            upstream: self.upstream().to_owned(),
            profile: self.profile,
            model: asked.model.clone(),
            began: clock::instant(),
            request: asked.name,
            first: record.event.attempts == 0 && asked.retries == 0,
            jitter: self.jitter,
            principal: asked.principal,
            lane: asked.lane,
            debtor: self.prepared.debtor.clone(),
            is_gone_on_from: self.route.wire.map(|wire| wire.format) == Some(Format::OpenAiResponses),
        }
    }

    /// What an answer means. An answer that could be improved on is looked into first: an error is read, a stream held.
    async fn judged(&mut self, answer: Answer, record: &Record) -> Tried {
        let patience = self.inner.settings.clocks.idle;
        let footing = self.prepared.asked.footing;
        let mut answer = answer;
        if footing != Footing::Passthrough {
            if let (Some(id), Some(organisation)) = (self.profile, organisation(answer.headers())) {
                self.inner.profiles.learn(self.upstream(), id, organisation);
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
        let mut said = answer.said();
        let mut verdict = classify(Evidence::Answered {
            status: answer.status().as_u16(),
            said: &said,
        });
        if verdict.class == Class::Success && self.may_hold(record) {
            answer = match answer.held(self.inner.settings.clocks.gate).await {
                Held::Answer(answer) => answer,
                Held::Refused(answer, words) => {
                    said = words;
                    verdict = classify(Evidence::InStream(&said));
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
            _ => Hints::read(answer.headers(), &said, clock::since_1970()),
        };
        Tried {
            verdict,
            hints,
            what: Ok(answer),
        }
    }

    /// Whether another attempt could still be made, so that the answer is worth holding.
    fn may_hold(&self, record: &Record) -> bool {
        if self.prepared.asked.footing != Footing::Free || record.event.attempts >= retry::SENDS_MAX {
            return false;
        }
        let at = self.circumstances(record);
        let again = !at.client_retries && !at.breaker_open && at.same_key < Class::Overloaded.retries();
        again
            || self
                .inner
                .profiles
                .able(self.upstream(), &self.ask(false), clock::instant())
                > 1
    }

    /// After which delay another attempt follows; none if this is the client's answer.
    fn follows(&mut self, tried: &Tried, record: &mut Record) -> Option<Duration> {
        let class = tried.verdict.class;
        if class == Class::Success || !self.prepared.is_repeatable() {
            return None;
        }
        if let Some(back) = self.way_back(class, record) {
            self.tried.extend(self.profile);
            self.take(back, None, record);
            return Some(Duration::ZERO);
        }
        let at = self.circumstances(record);
        let mut next = retry::next(class, &tried.hints, &at, self.jitter);
        if let Next::Rotate { other_quota } = next {
            // The report first: the choice must know what this profile has just shown.
            record.judge(tried.verdict, &tried.hints);
            self.tried.extend(self.profile);
            let pick = self
                .inner
                .profiles
                .pick(self.upstream(), &self.ask(other_quota), clock::instant());
            if let Some(Pick::Use { id, moved }) = pick {
                self.take(id, moved, record);
                self.rotations += u32::from(class.rotate() != Rotate::Freely);
                return Some(Duration::ZERO);
            }
            self.tried.pop();
            next = retry::again(class, &tried.hints, &at, self.jitter).unwrap_or(Next::Surface);
        }
        match next {
            Next::Again(delay) if self.inner.profiles.pay(self.upstream(), class) => {
                self.same_key += 1;
                Some(delay)
            }
            _ => None,
        }
    }

    /// What only the profile that the lane left takes goes back there, once.
    fn way_back(&mut self, class: Class, record: &Record) -> Option<ProfileId> {
        let left = self.left.filter(|_| class == Class::Affinity)?;
        if record.event.attempts >= retry::SENDS_MAX || self.prepared.asked.footing != Footing::Free {
            return None;
        }
        self.left = None;
        self.inner
            .profiles
            .way_back(self.upstream(), left, &self.ask(false), clock::instant())
    }

    /// Hands the attempt to the client.
    fn surface(&mut self, tried: Tried, record: &mut Record) -> Result<Answer, ProxyError> {
        if tried.verdict.class == Class::Success {
            self.inner.late.callers().prove(self.prepared.asked.principal);
            if let Some(tentative) = self.prepared.tentative.take() {
                tentative.accepted();
            }
            let Asked { lane, pin, .. } = &self.prepared.asked;
            let label = record
                .event
                .profile
                .as_deref()
                .filter(|label| pin.as_deref() != Some(*label));
            if let (Some(lane), Some(label)) = (lane, label) {
                let pin = Pin {
                    upstream: self.upstream().into(),
                    profile: label.into(),
                };
                self.inner.sessions.set_pin(lane.id, Some(pin), clock::now());
            }
        } else {
            record.judge(tried.verdict, &tried.hints);
            if tried.what.is_ok() {
                record.tell(tried.verdict);
            }
        }
        tried.what
    }

    pub(super) fn ask(&self, other_quota: bool) -> Ask<'_> {
        let asked = &self.prepared.asked;
        Ask {
            lane: asked
                .lane
                .map_or(*asked.principal.as_bytes(), |lane| *lane.id.as_bytes()),
            model: asked.model.as_deref(),
            pinned: asked
                .pin
                .as_deref()
                .and_then(|label| self.inner.profiles.find(self.upstream(), label)),
            tried: &self.tried,
            other_quota,
            bound: asked.bound,
        }
    }

    fn circumstances(&self, record: &Record) -> Circumstances {
        let asked = &self.prepared.asked;
        Circumstances {
            sends: record.event.attempts,
            same_key: self.same_key,
            rotations: self.rotations,
            footing: asked.footing,
            client_retries: asked.retries > 0,
            breaker_open: self
                .inner
                .profiles
                .is_open(self.upstream(), asked.model.as_deref(), clock::instant()),
            wait: self.inner.settings.rotation.wait,
            streamed: asked.stream,
        }
    }

    fn terms(&self, record: &Record) -> Terms {
        let clocks = &self.inner.settings.clocks;
        Terms::of(&self.prepared.asked, self.route, clocks, record.spent())
    }

    pub(super) fn upstream(&self) -> &str {
        &self.route.upstream.name
    }
}
