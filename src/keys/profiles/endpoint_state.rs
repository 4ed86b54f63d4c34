//! The state of one upstream's endpoint: its retry budgets and its breakers.
//!
//! One caller cannot spend the retries of another. A breaker blocks all callers only if two verified ones saw failures.

use std::{collections::BTreeMap, time::Instant};

use super::{
    ObservedAttempt,
    caller_budgets::{CallerBudgets, RetryPayer},
};
use crate::{
    auth::Principal,
    policy::{
        Class, Verdict,
        breaker::{Breaker, BreakerState, SharedBreaker},
    },
};

/// Models of one upstream with breakers of their own. Further models share one entry.
const MODELS_MAX: usize = 128;
/// Callers of one model with a breaker of their own. The one that failed least recently gives way to another.
const CALLERS_MAX: usize = 128;

/// The retry budgets of one upstream, and its breakers.
#[derive(Debug, Default)]
pub(super) struct EndpointState {
    budgets: CallerBudgets,
    /// Breakers by model. The empty name is for requests without a model, and for models beyond the limit.
    breakers: BTreeMap<Box<str>, ModelBreakers>,
}

/// The breakers of one model. A model that works has none.
#[derive(Debug, Default)]
struct ModelBreakers {
    /// Blocks the retries of all callers. Only verified callers add to it.
    shared: SharedBreaker,
    /// Blocks those of one caller, with the time of its last failure.
    own: BTreeMap<Principal, (Breaker, Instant)>,
}

/// The state of the breakers of one model, for the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerStatus {
    /// The model, empty for requests without one.
    pub model: Box<str>,
    /// The state of the breaker that blocks most.
    pub state: BreakerState,
    /// Failures in a row that it counts.
    pub failures: u32,
    /// The end of its open period; `None` if it is closed.
    pub open_until: Option<Instant>,
    /// `true` if it blocks the retries of all callers, and not only those of callers that saw failures themselves.
    pub blocks_all: bool,
}

impl ModelBreakers {
    fn record_failure(&mut self, attempt: &ObservedAttempt, halves: u32, now: Instant) {
        let caller = attempt.payer.caller;
        // Anybody can invent credentials that no provider has accepted: they count for their own retries only.
        if attempt.payer.is_verified {
            let bytes = *caller.as_bytes();
            self.shared.record_failure(halves, bytes, attempt.request, now);
        }
        if self.own.len() >= CALLERS_MAX && !self.own.contains_key(&caller) {
            let oldest = self.own.iter().min_by_key(|(_, (_, failed_at))| *failed_at);
            if let Some(oldest) = oldest.map(|(caller, _)| *caller) {
                self.own.remove(&oldest);
            }
        }
        let (breaker, failed_at) = self.own.entry(caller).or_insert_with(|| (Breaker::default(), now));
        breaker.record_outcome(halves, attempt.request, now);
        *failed_at = now;
    }

    /// Returns the breaker that blocks most, and `true` if it is that of all callers.
    fn strictest_breaker(&self, now: Instant) -> (&Breaker, bool) {
        let shared = self.shared.breaker();
        let own = self.own.values().map(|(breaker, _)| (breaker, false));
        let rank = |(breaker, blocks_all): &(&Breaker, bool)| {
            let state = match breaker.state_at(now) {
                BreakerState::Closed => 0,
                BreakerState::HalfOpen => 1,
                BreakerState::Open => 2,
            };
            // Of two that block, the one that blocks all callers concerns more of them.
            (state, *blocks_all && state > 0, breaker.failures_in_row())
        };
        own.chain([(shared, true)]).max_by_key(rank).unwrap_or((shared, true))
    }
}

impl EndpointState {
    /// Records the outcome of an attempt in the retry budgets and in the breakers of its model.
    pub(super) fn note_attempt(&mut self, attempt: &ObservedAttempt, verdict: Verdict, now: Instant) {
        let Some(halves) = verdict.endpoint_half_failures() else {
            return;
        };
        let is_success = verdict.class == Class::Success;
        // Only a success without a retry earns, or retries would pay for themselves.
        if attempt.is_first && is_success {
            self.budgets.earn_token(&attempt.payer);
        }
        if !attempt.asks_model {
            return;
        }
        let model = attempt.model.as_deref().unwrap_or_default();
        if halves > 0 {
            // Clients choose model names, so memory must be bounded.
            let has_room = self.breakers.len() < MODELS_MAX || self.breakers.contains_key(model);
            let model = if has_room { model } else { "" };
            let breakers = self.breakers.entry(model.into()).or_default();
            breakers.record_failure(attempt, halves, now);
        } else if attempt.payer.is_verified || is_success {
            self.breakers.remove(model);
        } else if let Some(breakers) = self.breakers.get_mut(model) {
            // An error for an invented credential shows others nothing about the model.
            breakers.own.remove(&attempt.payer.caller);
        }
    }

    /// Pays for a retry after `class`; returns `false` if a budget is used up.
    pub(super) fn pay_for_retry(&mut self, payer: &RetryPayer, class: Class, now: Instant) -> bool {
        self.budgets.pay_for_retry(payer, class, now)
    }

    /// Returns `true` if a breaker of a model blocks the proxy's own retries for this caller.
    pub(super) fn is_breaker_open(&self, model: Option<&str>, caller: Principal, now: Instant) -> bool {
        let Some(breakers) = self.breakers.get(model.unwrap_or_default()) else {
            return false;
        };
        let own = breakers.own.get(&caller).map(|(breaker, _)| breaker);
        let mut concerned = own.into_iter().chain([breakers.shared.breaker()]);
        concerned.any(|breaker| breaker.state_at(now) != BreakerState::Closed)
    }

    /// Returns the strictest breaker of every model with failures.
    pub(super) fn breaker_statuses(&self, now: Instant) -> Vec<BreakerStatus> {
        let seen = self.breakers.iter().map(|(model, breakers)| {
            let (breaker, blocks_all) = breakers.strictest_breaker(now);
            BreakerStatus {
                model: model.clone(),
                state: breaker.state_at(now),
                failures: breaker.failures_in_row(),
                open_until: breaker.open_until(),
                blocks_all: blocks_all && breaker.open_until().is_some(),
            }
        });
        seen.filter(|status| status.failures > 0).collect()
    }
}
