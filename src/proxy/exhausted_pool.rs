//! The proxy's own answer to a request that no profile of an upstream can serve.

use std::time::Duration;

use http::StatusCode;

use crate::{keys::rotation::NoneAvailable, policy::CooldownReason};

/// Longest `retry-after`, in seconds, for which clients should wait. Beyond it they should report the error.
const RETRY_AFTER_MAX: u64 = 60;

/// A pool of profiles without one for this request.
#[derive(Debug)]
pub struct ExhaustedPool {
    /// The upstream's name.
    pub upstream: String,
    /// The reasons.
    pub none: NoneAvailable,
    /// Time until a profile may be used; `None` if no time helps.
    pub wait: Option<Duration>,
}

impl ExhaustedPool {
    /// Returns the status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        let all = |of: fn(&CooldownReason) -> bool| !self.none.reasons.is_empty() && self.none.reasons.iter().all(of);
        if self.needs_operator() {
            // The status that the provider answers to such keys: clients show it at once, and do not wait.
            let is_unpaid = self.none.reasons.contains(&CooldownReason::Billing);
            if is_unpaid {
                StatusCode::PAYMENT_REQUIRED
            } else {
                StatusCode::UNAUTHORIZED
            }
        } else if all(|reason| reason.rules().is_limit) || self.none.is_busy {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }

    /// Returns the message for the client: the failure, and what to do about it.
    pub(super) fn public_message(&self) -> String {
        let upstream = &self.upstream;
        let reasons: Vec<&str> = self.none.reasons.iter().map(|reason| reason.label()).collect();
        let reasons = reasons.join(", ");
        if self.needs_operator() {
            return format!(
                "upstream {upstream}: the provider accepts none of this proxy's keys ({reasons}); the client's own key is \
                 not used and not at fault; the operator has to replace the keys or pay for them"
            );
        }
        let (why, end) = if self.none.is_bound {
            let why = format!(
                "the profile that this conversation is bound to is in cooldown ({reasons}), and no other profile has its \
                 state"
            );
            (why, "the cooldown ends")
        } else if !reasons.is_empty() {
            (
                format!("every profile is in cooldown ({reasons})"),
                "the first cooldown ends",
            )
        } else if self.none.is_busy {
            let why = "every profile serves as many requests as its max_concurrent allows";
            (why.to_owned(), "a place is free")
        } else {
            return format!(
                "upstream {upstream}: no profile serves this model; see the profiles of this upstream in the configuration"
            );
        };
        match self.wait {
            Some(wait) if is_long(wait) => {
                format!("upstream {upstream}: {why}; {end} in {} s", whole_seconds(wait))
            }
            Some(wait) => format!("upstream {upstream}: {why}; try again in {} s", whole_seconds(wait)),
            None => format!("upstream {upstream}: {why}; try again"),
        }
    }

    /// Returns `true` if a client should wait and send its request again.
    pub(super) fn is_retryable(&self) -> bool {
        let is_served = self.none.is_bound || self.none.is_busy || !self.none.reasons.is_empty();
        is_served && !self.needs_operator() && !self.wait.is_some_and(is_long)
    }

    /// Returns the `retry-after` of the answer, in seconds. `None` if no time helps.
    pub(super) fn retry_after(&self) -> Option<u64> {
        // A client that waits for a key to be replaced only delays its error.
        self.wait.filter(|_| !self.needs_operator()).map(whole_seconds)
    }

    /// Returns `true` if time alone ends none of the cooldowns: every key is rejected or unpaid.
    fn needs_operator(&self) -> bool {
        let reasons = &self.none.reasons;
        // A bound lane knows only the state of its own profile.
        !self.none.is_bound
            && !self.none.is_busy
            && !reasons.is_empty()
            && reasons.iter().all(|reason| reason.rules().needs_operator)
    }
}

/// Returns `true` if a client should report the error instead of waiting.
pub(super) fn is_long(wait: Duration) -> bool {
    whole_seconds(wait) > RETRY_AFTER_MAX
}

/// Returns the seconds of a wait, rounded up: a retry a moment too early would fail again.
pub(super) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}
