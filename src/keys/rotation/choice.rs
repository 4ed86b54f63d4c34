//! The choice of a profile for one send: the lane's own first, then profiles of its organisation, then others.
//!
//! Among equals, a weighted hash of lane and profile decides. The choice is stable and distributes lanes evenly. If no
//! profile is ready, the request waits for the first that will be soon. If none will be, it probes a profile in cooldown:
//! rarely if the provider has named the end.

use std::time::{Duration, Instant};

use super::{
    Cooldown, PoolMember, ProfileId, Rotation,
    pace::Slot,
    query::{ChangeCause, NoneAvailable, ProfileChange, ProfileQuery, Selection},
};
use crate::{auth::profile::allows_model, policy::CooldownReason};

/// Time that a lane waits for a slot of its own profile while another profile is ready.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Time between two probes of a profile.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// Time between two probes of a profile whose cooldown has a named end, and which is not the last one.
const NAMED_PROBE_INTERVAL: Duration = Duration::from_secs(600);

/// The time at which a profile can serve one request.
#[derive(Clone, Debug)]
struct Availability {
    /// The cooldown that blocks it; `None` if it has none.
    cooldown: Option<Cooldown>,
    /// The end of that cooldown, or of a time in which its quota is empty.
    blocked_until: Instant,
    /// The slot of the request: not before the end of that time.
    at: Instant,
    /// `true` if it serves its most requests at once.
    is_busy: bool,
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
    pub(super) const fn new(rotation: &'r Rotation, query: &'r ProfileQuery<'r>, now: Instant) -> Self {
        Self { rotation, query, now }
    }

    /// Selects the profile of a send.
    pub(super) fn select(&self) -> Selection {
        let query = self.query;
        if let Some(id) = query.owner.filter(|id| *id < self.rotation.members.len()) {
            return self.select_owner(id);
        }
        if query.asks_no_model {
            return self.select_without_model();
        }
        if let Some(selection) = self.keep_slot() {
            return selection;
        }
        let pinned = query
            .pinned
            .filter(|id| self.serves_model(*id) && !query.tried.contains(id));
        // The lane's own profile first: its prompt cache and its reasoning are there.
        if let Some(own) = pinned {
            if let Some(home) = self.home_of_cold_lane(own) {
                return home;
            }
            if let Some(selection) = self.keep_own(own) {
                return selection;
            }
        }
        // The distance counts from the profile that was used last.
        let left = query.tried.last().copied().or(query.pinned);
        let open = |id: &ProfileId| !query.tried.contains(id) && !self.shares_spent_quota(*id);
        let serving = self.serving_profiles();
        let open: Vec<ProfileId> = serving.iter().copied().filter(open).collect();
        let ready = open.iter().copied().filter(|id| self.is_ready(*id));
        let best = self
            .rank_first(ready, left)
            .or_else(|| self.last_usable().filter(|id| open.contains(id)));
        let is_bound = |id: ProfileId| left.is_some_and(|from| from != id && self.is_bound(from, id));
        if let Some(id) = best.filter(|id| !is_bound(*id)) {
            let moved = left.filter(|from| *from != id).map(|from| self.change_from(from));
            return Selection::Use {
                id,
                moved,
                is_probe: false,
            };
        }
        let reachable: Vec<ProfileId> = open.into_iter().filter(|id| !is_bound(*id)).collect();
        self.wait_for_any(&reachable)
            .or_else(|| self.probe_any(&reachable, left))
            .or_else(|| self.try_empty(&reachable, left))
            // A bound lane gets an error with the cooldown of its own profile.
            .unwrap_or_else(|| Selection::NoneAvailable(self.none_available(&serving, best.is_some())))
    }

    /// Returns `from`, the profile that a lane has left, if it can be used for a request that only it accepts.
    pub(super) fn former_profile(&self, from: ProfileId) -> Option<ProfileId> {
        // A short cooldown is no obstacle: no other profile can accept this history.
        (self.serves_model(from) && !self.is_disabled(from) && !self.query.tried.contains(&from)).then_some(from)
    }

    /// Returns the time until one of the profiles may be used; `None` if no time helps.
    pub(super) fn soonest_use(&self) -> Option<Duration> {
        let own = self.query.pinned;
        let reachable = |id: &ProfileId| own.is_none_or(|own| own == *id || !self.is_bound(own, *id));
        let serving = (0..self.rotation.members.len()).filter(|id| self.serves_model(*id) && reachable(id));
        let soonest = serving.map(|id| self.soonest_use_of(id)).min()?;
        Some(soonest.saturating_duration_since(self.now))
    }

    /// Returns the slot that a request which waits for this profile should reserve.
    pub(super) fn slot_of(&self, id: ProfileId) -> Option<Slot> {
        let held = self.query.wait.slot.filter(|(of, _)| *of == id).map(|(_, slot)| slot);
        Some(self.rotation.pace_of(id, self.query.model)?.free_slot(held, self.now))
    }

    /// Selects the owner of an object that the request names: any other profile answers that the object does not exist.
    ///
    /// Its cooldowns do not matter, because the provider's own answer says more.
    fn select_owner(&self, id: ProfileId) -> Selection {
        let none = || Selection::NoneAvailable(self.none_available(&[id], true));
        if self.query.tried.contains(&id) || !self.rotation.has_credential(id, self.now) {
            return none();
        }
        if self.rotation.is_busy(id) {
            let limit = self.wait_limit();
            return if self.now < limit {
                Selection::Wait { id, until: limit }
            } else {
                none()
            };
        }
        let state = self.availability(id);
        let is_limited = state
            .cooldown
            .as_ref()
            .is_some_and(|cooldown| cooldown.is_named && !cooldown.disables);
        // A short limit is waited for, as by any other request of a model.
        if let Some(wait) = self
            .wait_for(id, &state)
            .filter(|_| is_limited && !self.query.asks_no_model)
        {
            return wait;
        }
        Selection::Use {
            id,
            moved: None,
            is_probe: false,
        }
    }

    /// Selects the profile of a request that no model answers: one without a cooldown, if there is any.
    fn select_without_model(&self) -> Selection {
        let serving = self.serving_profiles();
        let left = self.query.tried.last().copied().or(self.query.pinned);
        let allowed = |id: &ProfileId| {
            let moves = left.is_some_and(|from| from != *id && self.is_bound(from, *id));
            !self.query.tried.contains(id) && !self.shares_spent_quota(*id) && !moves
        };
        let allowed: Vec<ProfileId> = serving.iter().copied().filter(allowed).collect();
        let has_none = |id: &ProfileId| self.blocking_cooldown(*id).is_none();
        let without_cooldown: Vec<ProfileId> = allowed.iter().copied().filter(has_none).collect();
        let own = |ids: &[ProfileId]| self.query.pinned.filter(|id| ids.contains(id));
        let first = |ids: &[ProfileId]| own(ids).or_else(|| self.rank_first(ids.iter().copied(), left));
        match first(&without_cooldown).or_else(|| first(&allowed)) {
            Some(id) => Selection::Use {
                id,
                moved: left.filter(|from| *from != id).map(|from| self.change_from(from)),
                is_probe: false,
            },
            None => Selection::NoneAvailable(self.none_available(&serving, !serving.is_empty())),
        }
    }

    /// Returns the move of a lane whose cache has expired to the profile that it would get as a new one.
    fn home_of_cold_lane(&self, own: ProfileId) -> Option<Selection> {
        if !self.query.is_cold {
            return None;
        }
        let allowed = self.serving_profiles().into_iter().filter(|id| {
            let bound = self.query.bound;
            // Its results come back to the profile that made the calls, and its reasoning to the same organisation.
            let stays = bound.provider_state || bound.open_calls;
            let is_open = !self.query.tried.contains(id) && !self.shares_spent_quota(*id);
            *id == own || (is_open && !stays && (!bound.reasoning || self.rotation.shares_quota(own, *id)))
        });
        let home = self.rank_first(allowed, None);
        let moved = ProfileChange {
            from: own,
            cause: ChangeCause::ColdCache,
        };
        home.filter(|id| *id != own && self.is_ready(*id))
            .map(|id| Selection::Use {
                id,
                moved: Some(moved),
                is_probe: false,
            })
    }

    /// Keeps a lane on its own profile, now or after a short wait; `None` if the wait is too long.
    fn keep_own(&self, own: ProfileId) -> Option<Selection> {
        let state = self.availability(own);
        let stay = Selection::Use {
            id: own,
            moved: None,
            is_probe: false,
        };
        if self.is_ready(own) || self.last_usable() == Some(own) {
            return Some(stay);
        }
        // A disabled profile is not worth a wait.
        let waits = !state.cooldown.as_ref().is_some_and(|cooldown| cooldown.disables);
        let soon = state.at <= state.blocked_until.max(self.now) + SLOT_WAIT_MAX;
        (waits && soon).then(|| self.wait_for(own, &state)).flatten()
    }

    /// Goes on with the profile and the slot that the request waits for; `None` without a slot that still counts.
    ///
    /// Another profile may have become ready sooner. But a slot that is left is lost to all others.
    fn keep_slot(&self) -> Option<Selection> {
        let (id, slot) = self.query.wait.slot?;
        // Its credential may have expired meanwhile.
        if !self.serves_model(id) || self.query.tried.contains(&id) {
            return None;
        }
        let state = self.availability(id);
        let counts = self.rotation.pace_of(id, self.query.model)?.is_valid(slot);
        // A cooldown that has begun since may end later.
        if !counts || state.blocked_until > slot.at.max(self.now) {
            return None;
        }
        if !self.is_ready(id) {
            return self.wait_for(id, &state);
        }
        let left = self.query.tried.last().copied().or(self.query.pinned);
        Some(Selection::Use {
            id,
            moved: left.filter(|from| *from != id).map(|from| self.change_from(from)),
            is_probe: false,
        })
    }

    /// Waits for the first of these profiles that will be ready; `None` if that is too late for this request.
    fn wait_for_any(&self, ids: &[ProfileId]) -> Option<Selection> {
        let waiting = ids.iter().copied().filter_map(|id| {
            let state = self.availability(id);
            let disabled = state.cooldown.as_ref().is_some_and(|cooldown| cooldown.disables);
            let selection = self.wait_for(id, &state).filter(|_| !disabled)?;
            // A lane's own profile wins a tie.
            Some(((state.at, state.is_busy, self.query.pinned != Some(id)), selection))
        });
        waiting.min_by_key(|(key, _)| *key).map(|(_, selection)| selection)
    }

    /// Returns the latest end of this request's wait.
    fn wait_limit(&self) -> Instant {
        // Counted from its start: every refusal of others could otherwise lengthen it.
        let limit = self.query.wait.since.unwrap_or(self.now) + self.rotation.wait_max;
        self.query.wait.until.map_or(limit, |until| until.min(limit))
    }

    /// Waits for one profile; `None` if that is too late for this request.
    fn wait_for(&self, id: ProfileId, state: &Availability) -> Option<Selection> {
        let limit = self.wait_limit();
        if state.is_busy && state.at <= self.now {
            // The wait for a place has no end of its own.
            return (self.now < limit).then_some(Selection::Wait { id, until: limit });
        }
        (state.at <= limit).then_some(Selection::Wait { id, until: state.at })
    }

    /// Probes the profile whose cooldown ends first, among those that are due.
    fn probe_any(&self, ids: &[ProfileId], left: Option<ProfileId>) -> Option<Selection> {
        let due = ids
            .iter()
            .copied()
            .filter(|id| !self.rotation.is_busy(*id) && self.probe_time(*id).is_some_and(|at| at <= self.now));
        let id = due.min_by_key(|id| self.availability(*id).blocked_until)?;
        let moved = left.filter(|from| *from != id).map(|from| self.change_from(from));
        Some(Selection::Use {
            id,
            moved,
            is_probe: true,
        })
    }

    /// Uses a profile whose quota a success has reported as empty: a report is no refusal.
    fn try_empty(&self, ids: &[ProfileId], left: Option<ProfileId>) -> Option<Selection> {
        let is_only_empty = |id: &ProfileId| {
            let slot = self.slot_of(*id);
            let is_free = slot.is_none_or(|slot| slot.at <= self.now) && !self.rotation.is_busy(*id);
            is_free && self.blocking_cooldown(*id).is_none()
        };
        let id = self.rank_first(ids.iter().copied().filter(is_only_empty), left)?;
        Some(Selection::Use {
            id,
            moved: left.filter(|from| *from != id).map(|from| self.change_from(from)),
            is_probe: false,
        })
    }

    /// Returns the time of the next probe of a profile; `None` if it is not in cooldown.
    fn probe_time(&self, id: ProfileId) -> Option<Instant> {
        let cooldowns = self.concerned_cooldowns(id);
        let began = cooldowns.iter().map(|cooldown| cooldown.since).max()?;
        // The provider mostly refuses a probe before the end that it has named. But it may reset a limit of days early,
        // and the request would fail anyway.
        let is_named = cooldowns.iter().any(|cooldown| cooldown.is_named && !cooldown.disables);
        let interval = if is_named && self.last_enabled() != Some(id) {
            NAMED_PROBE_INTERVAL
        } else {
            PROBE_INTERVAL
        };
        let probed = self.rotation.last_probe(id).map_or(began, |at| at.max(began));
        Some(probed + interval)
    }

    fn serving_profiles(&self) -> Vec<ProfileId> {
        let all = 0..self.rotation.members.len();
        all.filter(|id| self.serves_model(*id)).collect()
    }

    fn serves_model(&self, id: ProfileId) -> bool {
        let member = self.rotation.facts(id);
        self.rotation.has_credential(id, self.now)
            && member.is_some_and(|member| allows_model(&member.models, self.query.model))
    }

    fn availability(&self, id: ProfileId) -> Availability {
        let cooldown = self.blocking_cooldown(id);
        let pace = self.rotation.pace_of(id, self.query.model);
        let empty = pace.map_or(self.now, |pace| pace.empty_until().max(self.now));
        let blocked_until = cooldown.as_ref().map_or(empty, |cooldown| cooldown.until.max(empty));
        let slot = self.slot_of(id).map_or(self.now, |slot| slot.at);
        Availability {
            cooldown,
            blocked_until,
            at: slot.max(blocked_until),
            is_busy: self.rotation.is_busy(id),
        }
    }

    fn is_ready(&self, id: ProfileId) -> bool {
        let state = self.availability(id);
        state.cooldown.is_none() && state.at <= self.now && !state.is_busy
    }

    /// Returns the cooldowns of a profile that concern this request.
    fn concerned_cooldowns(&self, id: ProfileId) -> Vec<Cooldown> {
        // A cooldown of another model does not concern this request.
        let mut cooldowns = self.rotation.active_cooldowns(id, self.now);
        cooldowns.retain(|cooldown| cooldown.concerns(self.query.model));
        cooldowns
    }

    /// Returns the cooldown that blocks a profile for this request for the longest time; `None` if the profile is
    /// ready.
    fn blocking_cooldown(&self, id: ProfileId) -> Option<Cooldown> {
        let cooldowns = self.concerned_cooldowns(id).into_iter();
        cooldowns.max_by_key(|cooldown| (cooldown.disables, cooldown.until))
    }

    fn is_disabled(&self, id: ProfileId) -> bool {
        // A profile without a credential returns at an unknown time, like one that an operator must repair.
        !self.rotation.has_credential(id, self.now)
            || self.blocking_cooldown(id).is_some_and(|cooldown| cooldown.disables)
    }

    /// Returns `true` if a profile is in cooldown, and the provider has not named its end.
    fn is_guessed(&self, id: ProfileId) -> bool {
        self.blocking_cooldown(id)
            .is_some_and(|cooldown| !cooldown.is_named && !cooldown.disables)
    }

    /// Returns the only enabled profile if its cooldown is a guess: the provider's answer to a request is newer.
    fn last_usable(&self) -> Option<ProfileId> {
        let last = self.last_enabled();
        last.filter(|id| self.is_guessed(*id) && !self.rotation.is_busy(*id))
    }

    /// Returns the only profile of this model that is not disabled; `None` if there are several.
    fn last_enabled(&self) -> Option<ProfileId> {
        let serving = (0..self.rotation.members.len()).filter(|id| self.serves_model(*id));
        let mut enabled = serving.filter(|id| !self.is_disabled(*id));
        // The second `next` proves that there is no other.
        enabled.next().filter(|_| enabled.next().is_none())
    }

    /// Returns the profile that a lane prefers: by the distance of organisations, then by the lane's hash.
    fn rank_first(&self, ids: impl Iterator<Item = ProfileId>, left: Option<ProfileId>) -> Option<ProfileId> {
        let key = |id: ProfileId| {
            let score = score_for_lane(&self.query.lane, self.rotation.facts(id));
            (self.organisation_distance(left, id), -score)
        };
        ids.map(|id| (key(id), id))
            // Distance decides before the score: reasoning and prompt caches belong to an organisation.
            .min_by(|(one, _), (other, _)| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))
            .map(|(_, id)| id)
    }

    /// Returns `true` if a profile shares its quota with one that this exchange has tried, and another quota is
    /// required.
    fn shares_spent_quota(&self, id: ProfileId) -> bool {
        let shares = |tried: &ProfileId| self.rotation.shares_quota(*tried, id);
        self.query.other_quota && self.query.tried.iter().any(shares)
    }

    fn organisation_distance(&self, from: Option<ProfileId>, to: ProfileId) -> OrganisationDistance {
        let of = |id: ProfileId| self.rotation.facts(id).and_then(|facts| facts.organisation.as_deref());
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

    fn change_from(&self, from: ProfileId) -> ProfileChange {
        let cooldown = self.blocking_cooldown(from);
        ProfileChange {
            from,
            cause: cooldown.map_or(ChangeCause::Other, |cooldown| ChangeCause::Cooldown(cooldown.reason)),
        }
    }

    /// Returns the earliest time at which a profile may be used: at its slot, or as a probe of a guessed cooldown.
    fn soonest_use_of(&self, id: ProfileId) -> Instant {
        let state = self.availability(id);
        // A probe before a named end serves one request alone. All others would come in vain.
        let is_named = state.cooldown.as_ref().is_some_and(|cooldown| cooldown.is_named);
        let probe = self.probe_time(id).filter(|_| !is_named);
        probe.map_or(state.at, |probe| probe.min(state.at))
    }

    fn none_available(&self, serving: &[ProfileId], bound: bool) -> NoneAvailable {
        let own = self.query.tried.last().copied().or(self.query.pinned);
        // For a bound lane only its own profile counts, because no other end of a cooldown helps it.
        let asked: Vec<ProfileId> = serving
            .iter()
            .copied()
            .filter(|id| !bound || Some(*id) == own)
            .collect();
        // Without a cooldown, and with a free place, only the pace of the quota is in the way.
        let reason = |id: &ProfileId| match self.blocking_cooldown(*id) {
            Some(cooldown) => Some(cooldown.reason),
            None => (!self.rotation.is_busy(*id)).then_some(CooldownReason::RateLimit),
        };
        let mut reasons: Vec<CooldownReason> = asked.iter().filter_map(reason).collect();
        let is_busy = asked.iter().any(|id| self.rotation.is_busy(*id));
        reasons.sort_unstable();
        reasons.dedup();
        NoneAvailable {
            reasons,
            until: asked.iter().map(|id| self.soonest_use_of(*id)).min(),
            is_bound: bound,
            is_busy,
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
