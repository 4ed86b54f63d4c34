//! The choice of a profile for one send: the lane's own first, then profiles of its organisation, then others.
//!
//! Among equals, a weighted hash of lane and profile decides. The choice is stable and distributes lanes evenly.

use std::time::Instant;

use super::{Cooldown, PoolMember, ProfileId, Rotation, cooldowns::model_key};
use crate::{auth::profile::allows_model, policy::Reason};

/// The request for a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProfileQuery<'a> {
    /// The lane, or another value that separates clients.
    pub lane: [u8; 32],
    /// The model of the request.
    pub model: Option<&'a str>,
    /// The profile that the lane is pinned to.
    pub pinned: Option<ProfileId>,
    /// The profiles that this exchange has tried.
    pub tried: &'a [ProfileId],
    /// `true` if the profile must not share a quota with one that was tried.
    pub other_quota: bool,
    /// The reasons for which the lane must keep its profile.
    pub bound: LaneBindings,
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
    },
    /// Wait for the lane's own profile.
    Wait {
        /// The profile.
        id: ProfileId,
        /// The end of its cooldown.
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
    /// The reason of its cooldown; `None` if it only does not serve the model.
    pub reason: Option<Reason>,
}

/// The reasons for which no profile can serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoneAvailable {
    /// The reasons of the cooldowns that stand in the way.
    pub reasons: Vec<Reason>,
    /// The earliest end of these cooldowns.
    pub until: Option<Instant>,
    /// `true` if other profiles could serve, but the lane is bound to its own.
    pub is_bound: bool,
}

/// One choice: the profiles, the request for one of them, and the present.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProfileSelector<'r> {
    rotation: &'r Rotation,
    query: &'r ProfileQuery<'r>,
    now: Instant,
}

impl<'r> ProfileSelector<'r> {
    /// Prepares the choice for one request.
    pub(super) const fn new(rotation: &'r Rotation, ask: &'r ProfileQuery<'r>, now: Instant) -> Self {
        Self {
            rotation,
            query: ask,
            now,
        }
    }

    /// Selects the profile of a send.
    pub(super) fn select(&self) -> Selection {
        let (members, ask, now) = (&self.rotation.members, self.query, self.now);
        let serving: Vec<ProfileId> = (0..members.len()).filter(|id| self.serves_model(*id)).collect();
        let pinned = ask.pinned.filter(|id| serving.contains(id));
        // A cooldown of the last usable profile would only turn a possible failure into a certain one.
        let last = self.last_enabled(&serving);
        let usable = |id: &ProfileId| last == Some(*id) || self.blocking_cooldown(*id).is_none();
        // The lane's own profile first: its prompt cache and its reasoning are there.
        if let Some(id) = pinned.filter(|id| !ask.tried.contains(id)) {
            if usable(&id) {
                return Selection::Use { id, moved: None };
            }
            // A disabled profile is not worth a wait.
            let waits = self.blocking_cooldown(id).filter(|rest| !rest.disables);
            let wait = self.rotation.wait_max;
            if let Some(rest) = waits.filter(|rest| rest.until.saturating_duration_since(now) <= wait) {
                return Selection::Wait { id, until: rest.until };
            }
        }
        // The distance counts from the profile that was used last.
        let left = ask.tried.last().copied().or(ask.pinned);
        let open = |id: &ProfileId| !ask.tried.contains(id) && usable(id) && !self.shares_spent_quota(*id);
        let ranked = serving.iter().filter(|id| open(id));
        let best = ranked.min_by(|one, other| {
            let key = |id: ProfileId| {
                (
                    self.organisation_distance(left, id),
                    -score_for_lane(&ask.lane, members.get(id)),
                )
            };
            let (one, other) = (key(**one), key(**other));
            // Distance decides before the score: reasoning and prompt caches belong to an organisation.
            one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
        });
        match (best, left) {
            // A bound lane gets an error with the cooldown of its own profile.
            (Some(id), Some(from)) if from != *id && self.is_bound(from, *id) => {
                Selection::NoneAvailable(self.none_available(&serving, true))
            }
            (Some(id), Some(from)) if from != *id => Selection::Use {
                id: *id,
                moved: Some(ProfileChange {
                    from,
                    reason: self.blocking_cooldown(from).map(|rest| rest.reason),
                }),
            },
            (Some(id), _) => Selection::Use { id: *id, moved: None },
            (None, _) => Selection::NoneAvailable(self.none_available(&serving, false)),
        }
    }

    /// Returns `from`, the profile that a lane has left, if it can be used for a request that only it accepts.
    pub(super) fn former_profile(&self, from: ProfileId) -> Option<ProfileId> {
        // A short cooldown is no obstacle: no other profile can accept this history.
        (self.serves_model(from) && !self.is_disabled(from) && !self.query.tried.contains(&from)).then_some(from)
    }

    fn serves_model(&self, id: ProfileId) -> bool {
        let member = self.rotation.members.get(id);
        member.is_some_and(|member| allows_model(&member.models, self.query.model))
    }

    /// Returns the cooldown that blocks a profile for this request for the longest time; `None` if the profile is
    /// ready.
    fn blocking_cooldown(&self, id: ProfileId) -> Option<Cooldown> {
        let asked = model_key(self.query.model);
        // A cooldown of another model does not concern this request.
        let concerned = |rest: &Cooldown| rest.model.as_deref().is_none_or(|model| model == asked);
        let rests = self
            .rotation
            .active_cooldowns(id, self.now)
            .into_iter()
            .filter(concerned);
        rests.max_by_key(|rest| (rest.disables, rest.until))
    }

    fn is_disabled(&self, id: ProfileId) -> bool {
        self.blocking_cooldown(id).is_some_and(|rest| rest.disables)
    }

    /// Returns the only profile that is not disabled, which stays usable in spite of cooldowns; `None` if there are
    /// several.
    fn last_enabled(&self, serving: &[ProfileId]) -> Option<ProfileId> {
        let mut enabled = serving.iter().copied().filter(|id| !self.is_disabled(*id));
        // The second `next` proves that there is no other.
        enabled.next().filter(|_| enabled.next().is_none())
    }

    /// Returns `true` if a profile shares its quota with one that this exchange has tried, and another quota is
    /// required.
    fn shares_spent_quota(&self, id: ProfileId) -> bool {
        let shares = |tried: &ProfileId| self.rotation.shares_quota(*tried, id);
        self.query.other_quota && self.query.tried.iter().any(shares)
    }

    fn organisation_distance(&self, from: Option<ProfileId>, to: ProfileId) -> OrganisationDistance {
        let members = &self.rotation.members;
        let of = |id: ProfileId| members.get(id).and_then(|member| member.organisation.as_deref());
        match (from, from.and_then(of), of(to)) {
            (None, ..) => OrganisationDistance::Same,
            (Some(from), ..) if from == to => OrganisationDistance::Same,
            (_, Some(from), Some(to)) if from == to => OrganisationDistance::Same,
            (_, Some(_), Some(_)) => OrganisationDistance::Other,
            _ => OrganisationDistance::Unknown,
        }
    }

    /// Returns `true` if the lane is bound to `from` and must not move to `to`.
    fn is_bound(&self, from: ProfileId, to: ProfileId) -> bool {
        let bound = self.query.bound;
        let other = self.organisation_distance(Some(from), to) == OrganisationDistance::Other;
        // A disabled profile will not return while the calls are open.
        bound.provider_state
            || (bound.reasoning && other && !self.rotation.may_leave_organisation)
            || (bound.open_calls && !self.is_disabled(from))
    }

    fn none_available(&self, serving: &[ProfileId], bound: bool) -> NoneAvailable {
        let own = self.query.tried.last().copied().or(self.query.pinned);
        // For a bound lane only its own profile counts, because no other end of a cooldown helps it.
        let asked = |id: &&ProfileId| !bound || Some(**id) == own;
        let rests: Vec<Cooldown> = serving
            .iter()
            .filter(asked)
            .filter_map(|id| self.blocking_cooldown(*id))
            .collect();
        let mut reasons: Vec<Reason> = rests.iter().map(|rest| rest.reason).collect();
        reasons.sort_unstable();
        reasons.dedup();
        NoneAvailable {
            reasons,
            until: rests.iter().map(|rest| rest.until).min(),
            is_bound: bound,
        }
    }
}

/// The distance between a lane's profile and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OrganisationDistance {
    /// The same organisation.
    Same,
    /// An organisation that is unknown.
    Unknown,
    /// Another organisation.
    Other,
}

/// Scores a profile for a lane: weighted rendezvous hashing.
fn score_for_lane(lane: &[u8; 32], member: Option<&PoolMember>) -> f64 {
    let Some(member) = member else { return f64::MIN };
    let mut hash = blake3::Hasher::new_keyed(lane);
    hash.update(member.label.as_bytes());
    let [a, b, c, d, ..] = *hash.finalize().as_bytes();
    // Strictly between 0 and 1, where the logarithm is finite and not zero.
    let point = (f64::from(u32::from_le_bytes([a, b, c, d])) + 1.0) / (f64::from(u32::MAX) + 2.0);
    -f64::from(member.weight.max(1)) / point.ln()
}
