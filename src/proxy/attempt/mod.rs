//! Attempts of one exchange: picks a profile, sends, judges the answer, and retries if that may help.
//!
//! Nothing is retried after the first byte of an answer was sent to the client.

mod explained_error;
mod large_body;
mod profile_choice;
mod recovery;
mod send;
mod success;
mod unknown_refusal;

use std::{hash::BuildHasher, sync::Arc, time::Duration};

use super::{
    attempt_reporter::AttemptReporter, data_path::DataPath, error::ProxyError, exchange_log::ExchangeLog,
    request::OutgoingRequest, response::ProviderAnswer,
};
use crate::{
    clock,
    keys::profiles::{ObservedAttempt, ProfilePlace, RetryPayer},
    keys::rotation::{ProfileChange, ProfileId},
    policy::{
        ACCOUNT_PHRASES, Class, LimitHints, Observation, Verdict, VerdictScope, billed_organisation, classify,
        retry::{self, CredentialBinding, NextStep, RetryContext},
    },
    proxy::exchange_route::ExchangeRoute,
    recall::KeyedFact,
    session_table::AnsweredRequest,
    telemetry::events::ModelRequest,
    upstream::{Phase, SendErrorKind},
};
use recovery::SentHistory;
use send::{HeadTimeout, to_proxy_error};

/// Sends a request, and retries it until there is an answer for the client.
pub(super) async fn run_attempts(
    path: &DataPath,
    route: &ExchangeRoute<'_>,
    mut outgoing: OutgoingRequest,
    log: &mut ExchangeLog,
) -> Result<ProviderAnswer, ProxyError> {
    let context = &outgoing.body.context;
    let parent = log.record_model_request(ModelRequest {
        model: context.model.as_deref(),
        is_streamed: context.wants_stream,
        max_tokens: context.max_tokens,
        conversation: context.lane.map(|lane| lane.id.short_hash()),
    });
    if let Some(parent) = parent {
        outgoing.set_trace_parent(parent);
    }
    // A keyed hash of the request id: each exchange gets its own delays, without a call for random numbers.
    let jitter = f64::from(u32::try_from(path.hash_key.hash_one(&log.event.request_id) >> 32).unwrap_or(0));
    let choice_hash = profile_choice::choice_hash(&outgoing, route, &log.event.request_id);
    let history = outgoing
        .body
        .sent_body
        .take()
        .map(|sent| Box::new(SentHistory::new(sent, route.server)));
    let mut attempts = Attempts {
        path,
        route,
        outgoing,
        history,
        learned_facts: Vec::new(),
        choice_hash,
        is_cold: false,
        profile: None,
        tried_profiles: Vec::new(),
        former_profile: None,
        retries_on_key: 0,
        rotations: 0,
        is_borrowed: false,
        jitter: jitter / f64::from(u32::MAX),
    };
    attempts.run(log).await
}

/// The attempts of one exchange.
struct Attempts<'x> {
    path: &'x DataPath,
    route: &'x ExchangeRoute<'x>,
    outgoing: OutgoingRequest,
    /// Data for resends after a refusal. `None` if the provider's first answer is final.
    /// Boxed, because most exchanges end without a refusal.
    history: Option<Box<SentHistory>>,
    /// Facts that the provider proves if it accepts the present body.
    learned_facts: Vec<KeyedFact>,
    /// Value by which a profile is chosen: the same for all requests of a lane.
    choice_hash: [u8; 32],
    /// `true` if the provider's prompt cache of the lane has expired.
    is_cold: bool,
    /// The profile of the present attempt. `None` for the client's own credential.
    profile: Option<ProfileId>,
    /// Profiles that this exchange has left.
    tried_profiles: Vec<ProfileId>,
    /// The profile that the lane had first. `None` if the lane has not moved.
    former_profile: Option<ProfileId>,
    /// Retries so far on the present profile.
    retries_on_key: u32,
    /// Rotations so far, of the kind that is allowed once.
    rotations: u32,
    /// `true` if the present profile serves this exchange only, and not the lane.
    is_borrowed: bool,
    /// From 0 to 1: varies the delays of retries and the lengths of cooldowns.
    jitter: f64,
}

/// The result of one attempt.
struct AttemptResult {
    verdict: Verdict,
    hints: LimitHints,
    result: Result<ProviderAnswer, ProxyError>,
    /// `true` if the answer is the error with which a stream has begun.
    is_stream_error: bool,
}

impl AttemptResult {
    fn failed(verdict: Verdict, error: ProxyError) -> Self {
        Self {
            verdict,
            hints: LimitHints::default(),
            result: Err(error),
            is_stream_error: false,
        }
    }
}

/// The start of the next attempt.
enum NextAttempt {
    /// After a delay, on the profile that is set.
    After(Duration),
    /// The moment at which the present profile takes another request.
    OnceReady,
}

impl Attempts<'_> {
    /// Runs attempts until one has the answer for the client.
    async fn run(&mut self, log: &mut ExchangeLog) -> Result<ProviderAnswer, ProxyError> {
        profile_choice::choose_first_profile(self, log).await?;
        loop {
            let tried = self.run_attempt(log).await;
            let Some(next) = self.prepare_next_attempt(&tried, log) else {
                return self.finish_exchange(tried, log).await;
            };
            log.report_attempt(tried.verdict, &tried.hints);
            let NextAttempt::After(delay) = next else {
                // Requests that were refused together are not repeated together: each waits for its own slot.
                if profile_choice::wait_for_own(self, log).await {
                    continue;
                }
                return self.finish_exchange(tried, log).await;
            };
            // The client never gets this answer. Dropping it cancels it at the provider.
            drop(tried);
            // A client that leaves during the delay has not waited for the provider.
            log.enter_queue();
            tokio::time::sleep(delay).await;
        }
    }

    /// Makes this the profile of the next send.
    fn use_profile(
        &mut self,
        id: ProfileId,
        profile_place: Option<ProfilePlace>,
        moved: Option<ProfileChange>,
        log: &mut ExchangeLog,
    ) {
        self.profile = Some(id);
        // Until the end of the answer. The place in the former profile becomes free.
        log.profile_place = profile_place;
        // Retries are counted per credential.
        self.retries_on_key = 0;
        let label = |id| Some(self.route.pool.profile(id)?.label.clone());
        log.event.profile = label(id);
        if let Some(moved) = moved {
            // Only the first profile counts: the history's reasoning comes from there.
            self.former_profile.get_or_insert(moved.from);
        }
        // On the way back `moved` is `None`: the lane has its own profile again, so the header names no change.
        log.left_profile = moved.and_then(|moved| Some((label(moved.from)?, moved.cause)));
    }

    /// Sends the request, resends it after refusals of its history, and judges the result.
    async fn run_attempt(&mut self, log: &mut ExchangeLog) -> AttemptResult {
        let recovered = match self.send_request(log).await {
            Ok(answer) => recovery::recover_from_refusal(self, answer, log).await,
            Err(error) => Err(error),
        };
        let mut tried = match recovered {
            Ok(recovered) => self.judge_answer(recovered.answer).await,
            Err(error) => AttemptResult::failed(error.verdict(), error),
        };
        // A stream that was held may begin with a refusal of the history, and so may that of each resend.
        while tried.is_stream_error {
            // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
            tried = Box::pin(self.recover_from_stream_error(tried, log)).await;
        }
        AttemptResult {
            verdict: self.limit_scope(tried.verdict, log).await,
            ..tried
        }
    }

    /// Resends the request if the error with which its stream has begun refuses the history.
    async fn recover_from_stream_error(&mut self, tried: AttemptResult, log: &mut ExchangeLog) -> AttemptResult {
        let recovered = match tried.result {
            Ok(answer) => recovery::recover_from_refusal(self, answer, log).await,
            Err(error) => Err(error),
        };
        match recovered {
            Ok(recovered) if recovered.is_new => self.judge_answer(recovered.answer).await,
            Ok(recovered) => AttemptResult {
                result: Ok(recovered.answer),
                is_stream_error: false,
                ..tried
            },
            Err(error) => AttemptResult::failed(error.verdict(), error),
        }
    }

    /// Limits a verdict to its exchange if it proves nothing about the profile.
    ///
    /// That holds for paths that use no model, and for an error text that the client may have written itself. Such an
    /// exchange may still try one other profile, which may have a permission that the first one lacks.
    async fn limit_scope(&mut self, verdict: Verdict, log: &mut ExchangeLog) -> Verdict {
        // The client's own timeout has ended the wait, so the endpoint is not at fault.
        if verdict.class == Class::Headless && self.head_timeout(log).is_hurried {
            return verdict.with_scope(VerdictScope::Client);
        }
        let is_limited = match verdict.scope {
            VerdictScope::Client => return verdict,
            // A provider may echo the request in its error: a client could disable a profile with such a text.
            VerdictScope::Text if self.route.asks_model => {
                // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
                let echo = Box::pin(large_body::find_phrase(self, &ACCOUNT_PHRASES, log));
                echo.await.is_some()
            }
            _ => !self.route.asks_model,
        };
        if is_limited {
            return verdict.with_scope(VerdictScope::Exchange);
        }
        verdict
    }

    /// Sends the request once, with the present profile, and waits for the response head.
    async fn send_request(&mut self, log: &mut ExchangeLog) -> Result<ProviderAnswer, ProxyError> {
        if recovery::has_foreign_values(self) {
            // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
            Box::pin(recovery::take_values_out(self, log)).await?;
        }
        let request = large_body::build_request(self, log).await?;
        // Set before the send: a client that leaves meanwhile drops the exchange, which reports that.
        log.reporter = Some(self.describe_attempt(log));
        let timeout = self.head_timeout(log);
        let context = &self.outgoing.body.context;
        let sent = send::send_once(self.path, self.route, context, request, timeout, log).await;
        sent.map_err(|error| match (error.phase, error.kind) {
            // The time limit of the exchange has shortened this timeout, so the provider is not at fault.
            (Phase::Headers, SendErrorKind::TimedOut) if log.elapsed_time() >= self.path.settings.timeouts.total => {
                ProxyError::Deadline
            }
            _ => {
                if let Some(cause) = error.network_cause() {
                    log.telemetry().record_network_failure(cause);
                }
                to_proxy_error(self.route, error)
            }
        })
    }

    /// Describes the present attempt to everything that learns its outcome.
    fn describe_attempt(&self, log: &ExchangeLog) -> Box<AttemptReporter> {
        let context = &self.outgoing.body.context;
        Box::new(AttemptReporter {
            pool: Arc::clone(self.route.pool),
            sessions: Arc::clone(&self.path.sessions),
            attempt: ObservedAttempt {
                profile: self.profile,
                model: context.model.clone(),
                // Only a profile has limits for each path.
                path: self.profile.and_then(|_| Some(self.route.path_template()?.0)),
                began: clock::std_now(),
                request: context.request_hash,
                // A retry by the client is no first attempt either.
                is_first: log.event.sends == 0 && context.client_retries == 0,
                asks_model: self.route.asks_model,
                jitter: self.jitter,
                payer: self.retry_payer(log),
            },
            caller: context.caller,
            request: context.lane.map(|lane| AnsweredRequest {
                lane,
                mark: context.turn_mark,
            }),
            late_results: self.outgoing.body.late_results.clone(),
            restored: Vec::new(),
            note: self
                .outgoing
                .body
                .continuity
                .as_ref()
                .filter(|_| self.route.asks_for_turn())
                .map(|continuity| continuity.answer_note(self.profile)),
            chain: None,
            objects: None,
            is_continued_by_id: context.is_continued_by_id,
        })
    }

    /// Judges an answer.
    ///
    /// With a profile, an error's body is read first, and a stream is held until it has begun.
    async fn judge_answer(&mut self, answer: ProviderAnswer) -> AttemptResult {
        let idle_timeout = self.path.settings.timeouts.idle;
        let binding = self.outgoing.body.context.credential_binding;
        let mut answer = answer;
        // With the client's own credential no retry follows an answer, so its errors are relayed unread.
        if binding != CredentialBinding::Passthrough {
            if let (Some(id), Some(organisation)) = (self.profile, billed_organisation(answer.headers())) {
                self.route.pool.learn_organisation(id, organisation);
            }
            if answer.status().as_u16() >= 400 {
                // Boxed like the hold below, to keep the future of an exchange small.
                answer = match Box::pin(answer.with_error_read(idle_timeout)).await {
                    Ok(answer) => answer,
                    Err(error) => return AttemptResult::failed(error.verdict(), to_proxy_error(self.route, error)),
                };
            }
        }
        let kind = self.route.upstream.kind;
        let mut error_info = answer.error_info();
        let mut is_stream_error = false;
        let mut verdict = classify(Observation::Response {
            kind,
            status: answer.status().as_u16(),
            error: &error_info,
        });
        // A portal or a wrong URL answers too, but no model does: nothing may count as its success.
        verdict = answer.foreign_verdict().unwrap_or(verdict);
        // Some providers report errors after a head with status 200. Before the first event they become a status.
        if verdict.class == Class::Success && binding != CredentialBinding::Passthrough && answer.is_watched_stream() {
            let held = Box::pin(answer.hold_until_begun(self.path.settings.timeouts.gate)).await;
            let stream_error;
            (answer, stream_error) = match held {
                Ok(held) => held,
                Err(failed) => return AttemptResult::failed(failed, ProxyError::NotBegun(failed)),
            };
            if let Some(stream_error) = stream_error {
                error_info = stream_error;
                is_stream_error = true;
                verdict = classify(Observation::StreamError {
                    kind,
                    error: &error_info,
                });
            }
        }
        if verdict.class == Class::Success {
            profile_choice::record_empty_quota(self, &answer);
        }
        // Retry hints matter after an error only.
        let hints = match verdict.class {
            Class::Success => LimitHints::default(),
            class => LimitHints::read(answer.headers(), &error_info, class, clock::system_time()),
        };
        let (hints, verdict) = hints.limit_unnamed(verdict);
        // Last, because the first frame that it takes is read by nothing above.
        match answer.take_first_frame().await {
            Ok(()) => AttemptResult {
                verdict,
                hints,
                result: Ok(answer),
                is_stream_error,
            },
            Err(broken) => AttemptResult::failed(broken, ProxyError::NotBegun(broken)),
        }
    }

    /// Prepares the next attempt. `None` if this result is the client's.
    fn prepare_next_attempt(&mut self, tried: &AttemptResult, log: &mut ExchangeLog) -> Option<NextAttempt> {
        let class = tried.verdict.class;
        // A streamed body is gone after its first send.
        if class == Class::Success || !self.outgoing.is_repeatable() {
            return None;
        }
        if profile_choice::return_to_former(self, class, log) {
            return Some(NextAttempt::After(Duration::ZERO));
        }
        let at = self.retry_context(log);
        let mut next = retry::decide_next_step(tried.verdict, &tried.hints, &at, self.jitter);
        if let NextStep::Rotate { other_quota } = next {
            // Reported first, so that the choice already sees this profile's cooldown.
            log.report_attempt(tried.verdict, &tried.hints);
            self.tried_profiles.extend(self.profile);
            if profile_choice::rotate(self, tried.verdict, other_quota, log) {
                return Some(NextAttempt::After(Duration::ZERO));
            }
            // No other profile can serve, so the present one is not left.
            self.tried_profiles.pop();
            next = retry::retry_same_key(class, &tried.hints, &at, self.jitter).unwrap_or(NextStep::GiveUp);
        }
        match next {
            // Budgets bound the retries of all exchanges of the caller together, and of the upstream.
            NextStep::Retry(delay)
                if self
                    .route
                    .pool
                    .pay_for_retry(&self.retry_payer(log), class, clock::std_now()) =>
            {
                self.retries_on_key += 1;
                // A limit that is no cooldown of the profile has no end for which a request could wait there.
                let has_cooldown = tried.verdict.cooldown_reason().is_some();
                let is_limit = class == Class::RateLimit && self.profile.is_some() && has_cooldown;
                let is_free = !self.route.asks_model || self.outgoing.body.context.owner.is_some();
                Some(if is_limit && !is_free {
                    // The limit is a cooldown of the profile now, whose end takes the place of `delay`.
                    NextAttempt::OnceReady
                } else {
                    NextAttempt::After(delay)
                })
            }
            _ => None,
        }
    }

    /// Returns the result for the client, and settles what follows from it.
    async fn finish_exchange(
        &mut self,
        tried: AttemptResult,
        log: &mut ExchangeLog,
    ) -> Result<ProviderAnswer, ProxyError> {
        let mut hold = None;
        if tried.verdict.class == Class::Success {
            hold = success::settle_success(self, log).await;
        } else {
            unknown_refusal::report_unknown(self, &tried, log);
            // The text of an unread error may name another class. It is reported when it was relayed.
            if !tried.result.as_ref().is_ok_and(ProviderAnswer::is_unread_error) {
                log.report_attempt(tried.verdict, &tried.hints);
            }
            if tried.result.is_ok() {
                // The body of the error may still end well: the head decides the verdict on the exchange.
                log.head_verdict = Some(tried.verdict);
            }
        }
        let mut answer = tried.result?;
        if tried.verdict.class != Class::Success {
            explained_error::explain_to_client(self, &mut answer, log).await;
            let profile = self.profile.and_then(|id| self.route.pool.profile(id));
            // An error may repeat the operator's key, which is not the client's.
            if let Some(profile) = profile {
                answer.mask_credential(&profile.credential);
            }
        }
        // A refusal of this request alone is no limit of a key.
        if tried.verdict.cooldown_reason().is_some() {
            profile_choice::correct_retry_after(self, &mut answer);
        }
        // Last, so that a client that leaves meanwhile undoes nothing.
        if let Some(hold) = hold {
            // Boxed, because most answers have nothing to wait for, and the future of every exchange would be larger.
            answer.wait_for_ledger(Box::pin(hold.wait_until_stored()), log).await;
        }
        Ok(answer)
    }

    /// Describes the exchange to the retry policy.
    fn retry_context(&self, log: &ExchangeLog) -> RetryContext {
        let context = &self.outgoing.body.context;
        RetryContext {
            sends: log.event.sends,
            retries_on_key: self.retries_on_key,
            rotations: self.rotations,
            binding: context.credential_binding,
            client_retries: context.client_retries > 0,
            breaker_open: self.route.pool.is_breaker_open(
                context.model.as_deref(),
                context.caller.principal(),
                clock::std_now(),
            ),
            wait_max: self.path.settings.rotation.wait,
            is_stream: context.wants_stream,
        }
    }

    /// Returns the caller as the one that pays for retries.
    fn retry_payer(&self, log: &ExchangeLog) -> RetryPayer {
        let caller = self.outgoing.body.context.caller;
        RetryPayer {
            caller: caller.principal(),
            percent: log.retry_percent,
            is_verified: self.path.callers.is_verified_in_memory(caller),
        }
    }

    /// Returns the timeout for the response head of a send that begins now.
    fn head_timeout(&self, log: &ExchangeLog) -> HeadTimeout {
        let context = &self.outgoing.body.context;
        HeadTimeout::for_send(&self.path.settings.timeouts, self.route, context, log.elapsed_time())
    }

    fn upstream_name(&self) -> &str {
        &self.route.upstream.name
    }
}
