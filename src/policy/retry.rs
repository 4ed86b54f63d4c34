//! The decision to send an exchange again: on which credential, and after which delay. A function of its arguments
//! alone.

use std::time::Duration;

use super::{
    class::{Class, RotationLimit},
    hints::LimitHints,
    verdict::{Verdict, VerdictScope},
};

/// Sends of one exchange in total.
pub const SENDS_MAX: u32 = 3;
/// First delay of a retry, doubled each time.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// Longest delay of a retry if the provider names none.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// The tokens that pay for an upstream's retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget(u32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(Self::TOKENS_MAX)
    }
}

impl RetryBudget {
    // A hundred retries in a row, then one for every five exchanges that succeed at once.
    const TOKENS_MAX: u32 = 500;
    const RETRY_COST: u32 = 5;
    // A timeout holds a connection and a client far longer than an error does.
    const TIMEOUT_COST: u32 = 10;

    /// Pays for a retry after `class`; returns `false` if too few tokens are left.
    pub const fn pay_for_retry(&mut self, class: Class) -> bool {
        let price = if class.is_timeout() {
            Self::TIMEOUT_COST
        } else {
            Self::RETRY_COST
        };
        match self.0.checked_sub(price) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }

    /// Earns one token for an exchange that succeeded without a retry.
    pub const fn earn_token(&mut self) {
        if self.0 < Self::TOKENS_MAX {
            self.0 += 1;
        }
    }

    /// Returns the tokens that are left.
    pub const fn tokens_left(&self) -> u32 {
        self.0
    }
}

/// The state of one exchange that bears on a retry.
#[derive(Clone, Copy, Debug)]
pub struct RetryContext {
    /// Sends so far.
    pub sends: u32,
    /// Retries so far on the present credential.
    pub retries_on_key: u32,
    /// Rotations so far, of the kind that is allowed once.
    pub rotations: u32,
    /// The credential in use, and what binds the body to it.
    pub binding: CredentialBinding,
    /// `true` if the client itself retries this request.
    pub client_retries: bool,
    /// `true` if the breaker of the endpoint and model blocks the proxy's own retries.
    pub breaker_open: bool,
    /// Longest cooldown for which an exchange waits.
    pub wait_max: Duration,
    /// `true` if the answer is streamed.
    pub is_stream: bool,
}

/// The credential in use, and what binds the body to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialBinding {
    /// The client's own credential: only a request that was never sent may be sent again.
    Passthrough,
    /// A profile, with a body that refers to provider-side state: it is never sent again once it may have arrived.
    ProviderState,
    /// A profile, with a body that any profile may send.
    Unbound,
}

/// The step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Hand the outcome to the client.
    Surface,
    /// Send again on the same credential, after the delay.
    Retry(Duration),
    /// Send on another profile.
    Rotate {
        /// `true` if the profile must have another quota.
        other_quota: bool,
    },
}

/// Decides the step after a failed attempt. `jitter` is from 0 to 1.
///
/// The caller has to find a profile for [`NextStep::Rotate`], and to pay for [`NextStep::Retry`] from the budget.
pub fn decide_next_step(verdict: Verdict, hints: &LimitHints, at: &RetryContext, jitter: f64) -> NextStep {
    let class = verdict.class;
    // Both limits hold for every class, so they are checked before anything else.
    if at.sends >= SENDS_MAX || (at.binding != CredentialBinding::Unbound && !class.is_unsent()) {
        return NextStep::Surface;
    }
    let again = retry_same_key(class, hints, at, jitter);
    let rotate = try_rotation(verdict, hints, at);
    // A lane leaves its profile only if the cooldown is too long, or if the profile itself is at fault.
    match class {
        Class::Overloaded | Class::Parked { .. } | Class::RateLimit => again.or(rotate),
        _ => rotate.or(again),
    }
    .unwrap_or(NextStep::Surface)
}

fn try_rotation(verdict: Verdict, hints: &LimitHints, at: &RetryContext) -> Option<NextStep> {
    // An error that is not the key's fault must not be repeated on all keys while the endpoint is down.
    let endpoint = verdict.class.cooldown_reason().is_none();
    if endpoint && (at.breaker_open || hints.should_retry == Some(false)) {
        return None;
    }
    // Overload is no fault of the key. Another one is only worth its cold cache if the provider asks for a long wait.
    if verdict.class == Class::Overloaded && hints.retry_delay.is_none_or(|delay| delay <= at.wait_max) {
        return None;
    }
    // The cap is per exchange, whichever classes the attempts had.
    let once = at.rotations < 1;
    match verdict.rotation_limit() {
        RotationLimit::Never => None,
        RotationLimit::Freely => Some(NextStep::Rotate { other_quota: false }),
        RotationLimit::Once => once.then_some(NextStep::Rotate { other_quota: false }),
        // Only a limit that the error names is the key's own for sure.
        RotationLimit::OtherQuota => {
            (once || verdict.scope != VerdictScope::Exchange).then_some(NextStep::Rotate { other_quota: true })
        }
    }
}

/// Decides on a retry on the same credential, after no other profile was found; `None` if none is allowed.
pub fn retry_same_key(class: Class, hints: &LimitHints, at: &RetryContext, jitter: f64) -> Option<NextStep> {
    // Checked here too: callers also use this function on its own.
    let sendable = at.binding == CredentialBinding::Unbound || class.is_unsent();
    // A header cannot allow the resend of a request that may have arrived and changed state.
    let told = hints.should_retry.filter(|_| at.binding == CredentialBinding::Unbound);
    let allowed = match told {
        Some(false) => 0,
        // The provider invites a retry, which is allowed once if the class allows none.
        Some(true) if class.cooldown_reason().is_none() => class.max_retries().max(1),
        _ => class.max_retries(),
    };
    // A request that took too long as a whole would take as long again.
    let timed_out = class == Class::ProviderTimeout && !at.is_stream;
    // A client that retries by itself must not multiply its retries with those of the proxy.
    if at.sends >= SENDS_MAX
        || at.retries_on_key >= allowed
        || at.client_retries
        || at.breaker_open
        || timed_out
        || !sendable
    {
        return None;
    }
    if class == Class::RateLimit {
        // A blind retry would meet the same limit, so it needs a time from the provider.
        let rest = hints.cooldown.or(hints.retry_delay)?;
        return (rest <= at.wait_max).then_some(NextStep::Retry(rest));
    }
    let backoff = FIRST_BACKOFF
        .saturating_mul(1 << at.retries_on_key.min(8))
        .min(BACKOFF_MAX);
    // Jitter never exceeds the longest delay that is allowed.
    let delay = match hints.retry_delay {
        Some(delay) if delay > at.wait_max => return None,
        Some(delay) => with_jitter(delay, jitter).min(at.wait_max),
        None => with_jitter(backoff, jitter).min(BACKOFF_MAX),
    };
    Some(NextStep::Retry(delay))
}

/// Returns `delay` plus up to a fifth, so that requests that were refused together are not repeated together.
pub fn with_jitter(delay: Duration, jitter: f64) -> Duration {
    delay.mul_f64(jitter.clamp(0.0, 1.0).mul_add(0.2, 1.0))
}
