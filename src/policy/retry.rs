//! May this exchange be sent again, on which credential, and when. Answers from values alone.

use std::time::Duration;

use super::{
    class::{Class, Rotate},
    hints::Hints,
    verdict::Verdict,
};

/// Sends of one exchange in all.
pub const SENDS_MAX: u32 = 3;
/// The first delay of a retry; doubled each time.
const BACKOFF: Duration = Duration::from_millis(500);
/// The longest delay of a retry that nobody asked for.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// Tokens that an upstream's retries are paid from.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(Self::FULL)
    }
}

impl Budget {
    const FULL: u32 = 500;
    const RETRY: u32 = 5;
    const TIMEOUT: u32 = 10;

    /// Pays for a retry after `class`; false if there is not enough left.
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

    /// An exchange was a success without a retry.
    pub const fn earn(&mut self) {
        if self.0 < Self::FULL {
            self.0 += 1;
        }
    }

    /// What is left.
    pub const fn left(&self) -> u32 {
        self.0
    }
}

/// What bears on the question, all of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Sends so far.
    pub sends: u32,
    /// Sends so far that followed on the same credential.
    pub same_key: u32,
    /// Rotations so far, of a kind that is allowed once.
    pub rotations: u32,
    /// Whose credential goes up, and what the body binds it to.
    pub footing: Footing,
    /// Whether the client itself sends this request again.
    pub client_retries: bool,
    /// Whether the breaker lets our own retries pass.
    pub breaker_open: bool,
    /// How long a rest is waited for.
    pub wait: Duration,
    /// Whether the answer is streamed.
    pub streamed: bool,
}

/// Whose credential goes up, and what the body binds it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footing {
    /// The client's own: nothing is sent again but what never left.
    Passthrough,
    /// A profile's, of a body that refers to state at the provider: it is never sent again once it may have arrived.
    Held,
    /// A profile's.
    Free,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Hand it to the client.
    Surface,
    /// Send again on the same credential, after the delay.
    Again(Duration),
    /// Ask another profile: of another quota, if `other_quota`.
    Rotate {
        /// Whether the quota must be another.
        other_quota: bool,
    },
}

/// Decides what may follow an attempt that ended so. `jitter` is from 0 to 1.
///
/// The caller still has to find a profile for [`Next::Rotate`], and to pay for [`Next::Again`] from the budget.
pub fn next(verdict: Verdict, hints: &Hints, at: &Circumstances, jitter: f64) -> Next {
    let class = verdict.class;
    if at.sends >= SENDS_MAX || (at.footing != Footing::Free && !class.is_unsent()) {
        return Next::Surface;
    }
    let again = again(class, hints, at, jitter);
    let rotate = rotate(verdict, hints, at);
    // A lane leaves its profile only for a rest that is too long to wait for, or for what the profile itself lacks.
    match class {
        Class::Overloaded | Class::Parked { .. } | Class::RateLimit => again.or(rotate),
        _ => rotate.or(again),
    }
    .unwrap_or(Next::Surface)
}

fn rotate(verdict: Verdict, hints: &Hints, at: &Circumstances) -> Option<Next> {
    // What is not the key's doing must not be spread over all keys while the endpoint is down.
    let endpoint = verdict.class.reason().is_none();
    if endpoint && (at.breaker_open || hints.should_retry == Some(false)) {
        return None;
    }
    let once = at.rotations < 1;
    match verdict.rotate() {
        Rotate::Never => None,
        Rotate::Freely => Some(Next::Rotate { other_quota: false }),
        Rotate::Once => once.then_some(Next::Rotate { other_quota: false }),
        Rotate::OtherQuota => once.then_some(Next::Rotate { other_quota: true }),
    }
}

/// As [`next`], on the same credential only: what is left where no other profile could be found.
pub fn again(class: Class, hints: &Hints, at: &Circumstances, jitter: f64) -> Option<Next> {
    let sendable = at.footing == Footing::Free || class.is_unsent();
    let told = hints.should_retry.filter(|_| at.footing == Footing::Free);
    let allowed = match told {
        Some(false) => 0,
        // The provider asks for it: once, if the class says nothing of its own.
        Some(true) if class.reason().is_none() => class.retries().max(1),
        _ => class.retries(),
    };
    let timed_out = class == Class::ProviderTimeout && !at.streamed;
    if at.sends >= SENDS_MAX || at.same_key >= allowed || at.client_retries || at.breaker_open || timed_out || !sendable
    {
        return None;
    }
    if class == Class::RateLimit {
        let rest = hints.rest.or(hints.delay)?;
        return (rest <= at.wait).then_some(Next::Again(rest));
    }
    let backoff = BACKOFF.saturating_mul(1 << at.same_key.min(8)).min(BACKOFF_MAX);
    // Chance never adds to the longest delay that is allowed.
    let delay = match hints.delay {
        Some(delay) if delay > at.wait => return None,
        Some(delay) => stretched(delay, jitter).min(at.wait),
        None => stretched(backoff, jitter).min(BACKOFF_MAX),
    };
    Some(Next::Again(delay))
}

/// `delay` and up to a fifth more, so that those who were refused together do not come back together.
pub fn stretched(delay: Duration, jitter: f64) -> Duration {
    delay.mul_f64(jitter.clamp(0.0, 1.0).mul_add(0.2, 1.0))
}
