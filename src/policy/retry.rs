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

/// The tokens that pay for retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    left: u32,
    max: u32,
}

impl RetryBudget {
    /// Tokens of one caller: a hundred retries in a row, then one for every five exchanges that succeed at once.
    pub const CALLER_TOKENS: u32 = 500;
    /// Tokens of all callers of an upstream together.
    pub const UPSTREAM_TOKENS: u32 = 4_000;
    const RETRY_COST: u32 = 5;
    // A timeout holds a connection and a client far longer than an error does.
    const TIMEOUT_COST: u32 = 10;

    /// Creates a full budget of `max` tokens.
    pub const fn with_tokens(max: u32) -> Self {
        Self { left: max, max }
    }

    /// Pays for a retry after `class`; returns `false` if too few tokens are left.
    pub const fn pay_for_retry(&mut self, class: Class) -> bool {
        match self.left.checked_sub(Self::price_after(class)) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Returns `true` if the tokens suffice for a retry after `class`.
    pub const fn can_pay(&self, class: Class) -> bool {
        self.left >= Self::price_after(class)
    }

    /// Earns one token for an exchange that succeeded without a retry.
    pub const fn earn_token(&mut self) {
        if self.left < self.max {
            self.left += 1;
        }
    }

    /// Sets the size. What exceeds it is lost, and what is missing must be earned.
    pub fn resize_to(&mut self, max: u32) {
        self.left = self.left.min(max);
        self.max = max;
    }

    /// Returns `true` if no token is missing.
    pub const fn is_full(&self) -> bool {
        self.left == self.max
    }

    /// Returns the tokens that are left.
    pub const fn tokens_left(&self) -> u32 {
        self.left
    }

    const fn price_after(class: Class) -> u32 {
        if class.is_timeout() {
            Self::TIMEOUT_COST
        } else {
            Self::RETRY_COST
        }
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
    /// A profile, with a request that creates something: sent again only if it never arrived, or if the provider has
    /// refused the credential.
    Creation,
    /// A profile, with a body that any profile may send.
    Unbound,
}

impl CredentialBinding {
    /// Returns `true` if a request may be sent again after a failure of this class.
    const fn allows_resend(self, class: Class) -> bool {
        match self {
            Self::Unbound => true,
            // A provider that refuses a credential has done nothing with the request.
            Self::Creation => class.is_unsent() || class.cooldown_reason().is_some(),
            Self::Passthrough | Self::ProviderState => class.is_unsent(),
        }
    }
}

/// The step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Hand the outcome to the client.
    GiveUp,
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
    if at.sends >= SENDS_MAX || !at.binding.allows_resend(class) {
        return NextStep::GiveUp;
    }
    let again = retry_same_key(class, hints, at, jitter);
    let rotate = try_rotation(verdict, hints, at);
    // A lane leaves its profile only if the cooldown is too long, or if the profile itself is at fault.
    match class {
        Class::Overloaded | Class::Parked { .. } | Class::RateLimit => again.or(rotate),
        _ => rotate.or(again),
    }
    .unwrap_or(NextStep::GiveUp)
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
    let sendable = at.binding.allows_resend(class);
    // A header cannot allow the resend of a request that may have arrived and changed state.
    let told = hints
        .should_retry
        .filter(|allowed| !allowed || at.binding == CredentialBinding::Unbound);
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
