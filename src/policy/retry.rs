//! The decision to send an exchange again: on which credential, and after which delay. A function of its arguments
//! alone.

use std::time::Duration;

use super::{
    class::{Class, Rotate},
    hints::Hints,
    verdict::Verdict,
};

/// Sends of one exchange in total.
pub const SENDS_MAX: u32 = 3;
/// First delay of a retry, doubled each time.
const BACKOFF: Duration = Duration::from_millis(500);
/// Longest delay of a retry if the provider names none.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// The tokens that pay for an upstream's retries.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(Self::FULL)
    }
}

impl Budget {
    // A hundred retries in a row, then one for every five exchanges that succeed at once.
    const FULL: u32 = 500;
    const RETRY: u32 = 5;
    // A timeout holds a connection and a client far longer than an error does.
    const TIMEOUT: u32 = 10;

    /// Pays for a retry after `class`; returns `false` if too few tokens are left.
    pub const fn pay(&mut self, class: Class) -> bool {
        let price = if class.is_timeout() { Self::TIMEOUT } else { Self::RETRY };
        match self.0.checked_sub(price) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }

    /// Earns one token for an exchange that succeeded without a retry.
    pub const fn earn(&mut self) {
        if self.0 < Self::FULL {
            self.0 += 1;
        }
    }

    /// Returns the tokens that are left.
    pub const fn left(&self) -> u32 {
        self.0
    }
}

/// The state of one exchange that bears on a retry.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Sends so far.
    pub sends: u32,
    /// Retries so far on the present credential.
    pub same_key: u32,
    /// Rotations so far, of the kind that is allowed once.
    pub rotations: u32,
    /// The credential in use, and what binds the body to it.
    pub footing: Footing,
    /// `true` if the client itself retries this request.
    pub client_retries: bool,
    /// `true` if the breaker of the endpoint and model blocks the proxy's own retries.
    pub breaker_open: bool,
    /// Longest cooldown for which an exchange waits.
    pub wait: Duration,
    /// `true` if the answer is streamed.
    pub streamed: bool,
}

/// The credential in use, and what binds the body to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footing {
    /// The client's own credential: only a request that was never sent may be sent again.
    Passthrough,
    /// A profile, with a body that refers to provider-side state: it is never sent again once it may have arrived.
    Held,
    /// A profile, with a body that any profile may send.
    Free,
}

/// The step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Hand the outcome to the client.
    Surface,
    /// Send again on the same credential, after the delay.
    Again(Duration),
    /// Send on another profile.
    Rotate {
        /// `true` if the profile must have another quota.
        other_quota: bool,
    },
}

/// Decides the step after a failed attempt. `jitter` is from 0 to 1.
///
/// The caller has to find a profile for [`Next::Rotate`], and to pay for [`Next::Again`] from the budget.
pub fn next(verdict: Verdict, hints: &Hints, at: &Circumstances, jitter: f64) -> Next {
    let class = verdict.class;
    // Both limits hold for every class, so they are checked before anything else.
    if at.sends >= SENDS_MAX || (at.footing != Footing::Free && !class.is_unsent()) {
        return Next::Surface;
    }
    let again = again(class, hints, at, jitter);
    let rotate = rotate(verdict, hints, at);
    // A lane leaves its profile only if the cooldown is too long, or if the profile itself is at fault.
    match class {
        Class::Overloaded | Class::Parked { .. } | Class::RateLimit => again.or(rotate),
        _ => rotate.or(again),
    }
    .unwrap_or(Next::Surface)
}

fn rotate(verdict: Verdict, hints: &Hints, at: &Circumstances) -> Option<Next> {
    // An error that is not the key's fault must not be repeated on all keys while the endpoint is down.
    let endpoint = verdict.class.reason().is_none();
    if endpoint && (at.breaker_open || hints.should_retry == Some(false)) {
        return None;
    }
    // The cap is per exchange, whichever classes the attempts had.
    let once = at.rotations < 1;
    match verdict.rotate() {
        Rotate::Never => None,
        Rotate::Freely => Some(Next::Rotate { other_quota: false }),
        Rotate::Once => once.then_some(Next::Rotate { other_quota: false }),
        Rotate::OtherQuota => once.then_some(Next::Rotate { other_quota: true }),
    }
}

/// Decides on a retry on the same credential, after no other profile was found; `None` if none is allowed.
pub fn again(class: Class, hints: &Hints, at: &Circumstances, jitter: f64) -> Option<Next> {
    // Checked here too: callers also use this function on its own.
    let sendable = at.footing == Footing::Free || class.is_unsent();
    // A header cannot allow the resend of a request that may have arrived and changed state.
    let told = hints.should_retry.filter(|_| at.footing == Footing::Free);
    let allowed = match told {
        Some(false) => 0,
        // The provider invites a retry, which is allowed once if the class allows none.
        Some(true) if class.reason().is_none() => class.retries().max(1),
        _ => class.retries(),
    };
    // A request that took too long as a whole would take as long again.
    let timed_out = class == Class::ProviderTimeout && !at.streamed;
    // A client that retries by itself must not multiply its retries with those of the proxy.
    if at.sends >= SENDS_MAX || at.same_key >= allowed || at.client_retries || at.breaker_open || timed_out || !sendable
    {
        return None;
    }
    if class == Class::RateLimit {
        // A blind retry would meet the same limit, so it needs a time from the provider.
        let rest = hints.rest.or(hints.delay)?;
        return (rest <= at.wait).then_some(Next::Again(rest));
    }
    let backoff = BACKOFF.saturating_mul(1 << at.same_key.min(8)).min(BACKOFF_MAX);
    // Jitter never exceeds the longest delay that is allowed.
    let delay = match hints.delay {
        Some(delay) if delay > at.wait => return None,
        Some(delay) => stretched(delay, jitter).min(at.wait),
        None => stretched(backoff, jitter).min(BACKOFF_MAX),
    };
    Some(Next::Again(delay))
}

/// Returns `delay` plus up to a fifth, so that requests that were refused together are not repeated together.
pub fn stretched(delay: Duration, jitter: f64) -> Duration {
    delay.mul_f64(jitter.clamp(0.0, 1.0).mul_add(0.2, 1.0))
}
