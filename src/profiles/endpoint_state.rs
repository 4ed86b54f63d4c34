//! The state of one upstream's endpoint: its retry budget and its breakers.

use std::{collections::BTreeMap, time::Instant};

use super::ObservedAttempt;
use crate::policy::{
    Class,
    breaker::{Breaker, BreakerState},
    retry::RetryBudget,
};

/// Models of one upstream with a breaker of their own. Further models share one breaker.
const BREAKERS_MAX: usize = 128;

/// The retry budget of one upstream, and its breakers.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointState {
    budget: RetryBudget,
    /// Breakers by model. The empty name is for requests without a model, and for models beyond the limit.
    breakers: BTreeMap<Box<str>, Breaker>,
}

/// The state of one breaker, for the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerStatus {
    /// The model, empty for requests without one.
    pub model: Box<str>,
    /// The state.
    pub state: BreakerState,
    /// Failures in a row.
    pub failures: u32,
    /// The end of the open period; `None` if the breaker is closed.
    pub open_until: Option<Instant>,
}

impl EndpointState {
    /// Records the outcome of an attempt in the retry budget and in the breaker of its model.
    pub(super) fn record_attempt(&mut self, attempt: &ObservedAttempt, class: Class, now: Instant) {
        let Some(halves) = class.endpoint_half_failures() else {
            return;
        };
        // Only a success without a retry earns, or retries would pay for themselves.
        if attempt.is_first && class == Class::Success {
            self.budget.earn_token();
        }
        if !attempt.asks_model {
            return;
        }
        let model = attempt.model.as_deref().unwrap_or_default();
        if let Some(breaker) = self.breakers.get_mut(model) {
            breaker.record_outcome(halves, attempt.request, now);
        // A breaker without failures needs no entry.
        } else if halves > 0 {
            // Clients choose model names, so memory must be bounded.
            let model = if self.breakers.len() < BREAKERS_MAX { model } else { "" };
            let breaker = self.breakers.entry(model.into()).or_default();
            breaker.record_outcome(halves, attempt.request, now);
        }
    }

    /// Pays for a retry after `class`; returns `false` if the budget is used up.
    pub(super) const fn pay_for_retry(&mut self, class: Class) -> bool {
        self.budget.pay_for_retry(class)
    }

    /// Returns `true` if the breaker of a model blocks the proxy's own retries.
    pub(super) fn is_breaker_open(&self, model: Option<&str>, now: Instant) -> bool {
        let breaker = self.breakers.get(model.unwrap_or_default());
        breaker.is_some_and(|breaker| breaker.state_at(now) != BreakerState::Closed)
    }

    /// Returns every breaker with failures.
    pub(super) fn breaker_statuses(&self, now: Instant) -> Vec<BreakerStatus> {
        let seen = self
            .breakers
            .iter()
            .filter(|(_, breaker)| breaker.failures_in_row() > 0);
        let view = seen.map(|(model, breaker)| BreakerStatus {
            model: model.clone(),
            state: breaker.state_at(now),
            failures: breaker.failures_in_row(),
            open_until: breaker.open_until(),
        });
        view.collect()
    }
}
