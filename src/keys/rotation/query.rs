//! The request for a profile, the answer to it, and the report of an attempt: plain data.

use std::time::Instant;

use super::{ProfileId, pace::Slot};
use crate::policy::{CooldownReason, LimitHints, Verdict};

/// The request for a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProfileQuery<'a> {
    /// The lane, or another value that separates clients.
    pub lane: [u8; 32],
    /// The model of the request.
    pub model: Option<&'a str>,
    /// `true` if no model answers the request: cooldowns and paces rank the profiles, and none is refused.
    pub asks_no_model: bool,
    /// The profile that the lane is pinned to.
    pub pinned: Option<ProfileId>,
    /// `true` if the provider's prompt cache of the lane has expired, so that another profile costs nothing.
    pub is_cold: bool,
    /// The profiles that this exchange has tried.
    pub tried: &'a [ProfileId],
    /// `true` if the profile must not share a quota with one that was tried.
    pub other_quota: bool,
    /// The reasons for which the lane must keep its profile.
    pub bound: LaneBindings,
    /// The only profile that has the objects which the request names. Its cooldowns do not matter.
    pub owner: Option<ProfileId>,
    /// The wait of this request so far.
    pub wait: QueryWait,
}

/// The wait of one request for a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryWait {
    /// The start of the wait; `None` if it has not begun.
    pub since: Option<Instant>,
    /// Latest end of the wait, beyond the pool's own limit; `None` for that limit alone.
    pub until: Option<Instant>,
    /// The profile and the slot that the request waits for.
    pub slot: Option<(ProfileId, Slot)>,
}

/// The reasons for which a lane must keep its profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneBindings {
    /// The body refers to provider-side state that other profiles cannot see.
    pub provider_state: bool,
    /// The history contains reasoning that another organisation may not accept.
    pub reasoning: bool,
    /// Calls of the lane are open. The lane leaves its profile only if that is disabled.
    pub open_calls: bool,
}

/// The selected profile, or the reason for none.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// Send with this profile.
    Use {
        /// The profile.
        id: ProfileId,
        /// The change of profile; `None` if the lane stays.
        moved: Option<ProfileChange>,
        /// `true` if the profile is in cooldown and this request finds out whether it works again.
        is_probe: bool,
    },
    /// Wait for this profile, and ask again.
    Wait {
        /// The profile.
        id: ProfileId,
        /// The end of the wait. A place may become free before.
        until: Instant,
    },
    /// No profile can serve the request.
    NoneAvailable(NoneAvailable),
}

/// A lane's change of profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileChange {
    /// The profile that the lane leaves.
    pub from: ProfileId,
    /// The cause.
    pub cause: ChangeCause,
}

/// The cause of a change of profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeCause {
    /// The former profile is in cooldown.
    Cooldown(CooldownReason),
    /// The provider is overloaded, and asks for a longer wait than a request has. The lane keeps its profile.
    Overloaded,
    /// The prompt cache of the lane has expired, and this is the profile that the lane would have today.
    ColdCache,
    /// The former profile serves its most requests at once, or does not serve the model.
    Other,
}

impl ChangeCause {
    /// Returns the stable name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cooldown(reason) => reason.label(),
            Self::Overloaded => "overloaded",
            Self::ColdCache => "cold_cache",
            Self::Other => "other",
        }
    }
}

/// The reasons for which no profile can serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoneAvailable {
    /// The reasons of the cooldowns that stand in the way.
    pub reasons: Vec<CooldownReason>,
    /// The earliest time at which one of these profiles may be used.
    pub until: Option<Instant>,
    /// `true` if other profiles could serve, but the lane is bound to its own.
    pub is_bound: bool,
    /// `true` if a profile would serve, but has its most requests at once already.
    pub is_busy: bool,
}

/// The outcome of one attempt with a profile.
#[derive(Clone, Copy, Debug)]
pub struct AttemptReport<'r> {
    /// The verdict.
    pub verdict: Verdict,
    /// The model of the request.
    pub model: Option<&'r str>,
    /// The template of the path; `None` if it is unknown.
    pub path: Option<&'static str>,
    /// The provider's hints about limits.
    pub hints: LimitHints,
    /// The start of the attempt.
    pub began: Instant,
    /// From 0 to 1: lengthens a cooldown, so that many do not end at the same time.
    pub jitter: f64,
}
