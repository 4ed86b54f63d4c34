//! The state of each profile and the choice among them: a state machine over values, with `now` as a parameter.
//!
//! A cooldown is never shortened, and lengthened only by a time that the provider names. A success clears only
//! cooldowns that began before its exchange. The last profile that is not disabled stays usable in spite of a cooldown
//! whose end the provider has not named. Other profiles in cooldown are probed, if nothing else can serve a request.

mod choice;
mod cooldown;
mod cooldowns;
mod pace;
mod presence;
mod query;
mod quota_paces;
mod shared_cooldown;
mod status;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use choice::{PROBE_INTERVAL, ProfileSelector};
pub use cooldown::Cooldown;
use cooldowns::ProfileCooldowns;
use pace::Pace;
pub use pace::Slot;
use presence::CredentialPresence;
pub use presence::CredentialState;
pub use query::{
    AttemptReport, ChangeCause, LaneBindings, NoneAvailable, ProfileChange, ProfileQuery, QueryWait, Selection,
};
use quota_paces::QuotaPaces;
pub use shared_cooldown::{SharedCooldown, SharedCooldownState};
pub use status::ProfileStatus;
use status::state_of_profile;

use crate::policy::{Class, CooldownReason, EmptyQuota};

/// The index of a profile in the configuration of its upstream.
pub type ProfileId = usize;

/// The facts about a profile that bear on the choice.
#[derive(Clone, Debug, Default)]
pub struct PoolMember {
    /// The profile's name: a label, never a secret.
    pub label: Arc<str>,
    /// Share of the lanes.
    pub weight: u32,
    /// The organisation, configured or learned from answers.
    pub organisation: Option<Arc<str>>,
    /// The models it serves. A trailing `*` matches any ending, an empty list every model.
    pub models: Vec<String>,
    /// Most requests at once; `None` without a limit.
    pub max_concurrent: Option<u32>,
}

/// A profile with its state.
#[derive(Clone, Debug, Default)]
struct PooledProfile {
    facts: PoolMember,
    cooldowns: ProfileCooldowns,
    /// The paces of its quota. Empty unless it is the first profile of the quota.
    paces: QuotaPaces,
    last_probe: Option<Instant>,
    /// Requests that are under way.
    in_flight: u32,
    /// The presence of its credential.
    presence: CredentialPresence,
}

/// The profiles of one upstream and their cooldowns.
#[derive(Clone, Debug)]
pub struct Rotation {
    members: Vec<PooledProfile>,
    /// Cooldowns that a success has ended early.
    early_ends: u64,
    /// The cooldowns that attempts and operators have begun and ended since [`take_changes`](Self::take_changes).
    changes: Vec<(ProfileId, SharedCooldown)>,
    /// Longest cooldown that a lane waits out for its own profile.
    wait_max: Duration,
    /// `true` if a lane with reasoning in its history may move to another organisation.
    may_leave_organisation: bool,
}

impl Rotation {
    /// Creates a rotation in which every profile is ready.
    pub fn new(members: Vec<PoolMember>, wait: Duration, may_leave_organisation: bool) -> Self {
        let member = |facts| PooledProfile {
            facts,
            ..PooledProfile::default()
        };
        Self {
            members: members.into_iter().map(member).collect(),
            early_ends: 0,
            changes: Vec::new(),
            wait_max: wait,
            may_leave_organisation,
        }
    }

    /// Copies cooldowns, last probes, presence of credentials and learned organisations from `old`, but no paces. `same` maps an id of this rotation to its id in `old`.
    pub fn inherit_state(&mut self, old: &Self, same: impl Fn(ProfileId) -> Option<ProfileId>) {
        for (id, member) in self.members.iter_mut().enumerate() {
            // A new profile, or one with a new credential, starts without cooldowns.
            let Some(before) = same(id).and_then(|before| old.members.get(before)) else {
                continue;
            };
            member.cooldowns.clone_from(&before.cooldowns);
            member.presence = before.presence;
            member.last_probe = before.last_probe;
            // A configured organisation takes precedence over a learned one.
            if member.facts.organisation.is_none() {
                member.facts.organisation.clone_from(&before.facts.organisation);
            }
        }
    }

    /// Returns the organisation of a profile, or the profile's own name if the organisation is not known.
    pub fn organisation_name(&self, id: ProfileId) -> String {
        self.facts(id)
            .map_or_else(String::new, |facts| match &facts.organisation {
                // Prefixes, so that a profile called like an organisation is not taken for it.
                Some(organisation) => format!("organisation {organisation}"),
                None => format!("profile {}", facts.label),
            })
    }

    /// Returns the id of the profile with this name.
    pub fn find_profile(&self, label: &str) -> Option<ProfileId> {
        self.members.iter().position(|member| *member.facts.label == *label)
    }

    /// Stores the organisation that a profile's answers name, unless one is configured or learned.
    pub fn learn_organisation(&mut self, id: ProfileId, organisation: &str) {
        if let Some(member) = self.members.get_mut(id) {
            // The first answer decides: a key never changes its organisation.
            member.facts.organisation.get_or_insert_with(|| Arc::from(organisation));
        }
    }

    /// Records the outcome of an attempt.
    ///
    /// Returns the reason if a cooldown begins or becomes longer.
    pub fn record_attempt(
        &mut self,
        id: ProfileId,
        report: &AttemptReport<'_>,
        now: Instant,
    ) -> Option<CooldownReason> {
        let verdict = report.verdict;
        if verdict.class == Class::Success {
            // Collected first, because clearing needs the windows mutably.
            let group: Vec<ProfileId> = self.quota_group(id).collect();
            let was_limited = self.has_limit(id, report.model, now);
            for member in group {
                if let Some(known) = self.members.get_mut(member) {
                    // Another profile's success proves that the shared quota has room, and nothing else.
                    let quota_only = member != id;
                    let ended = known.cooldowns.record_success(report.model, report.began, quota_only);
                    note_ended(&mut self.changes, member, ended, report.began);
                }
            }
            if was_limited && !self.has_limit(id, report.model, now) {
                self.early_ends = self.early_ends.wrapping_add(1);
                if let Some(pace) = self.pace_mut(id, report.model, now) {
                    pace.note_early_end(now);
                }
            }
            return None;
        }
        if verdict.cooldown_reason().is_none() {
            self.repeat_probe(id, report.began);
        }
        // Verdicts without a reason cost the profile nothing.
        let reason = verdict.cooldown_reason()?;
        // Evidence about an earlier credential says nothing about the present one.
        if self.members.get(id)?.presence.is_outdated(reason, report.began) {
            return None;
        }
        let was_limited = self.has_limit(id, report.model, now);
        let cooldown = self.members.get_mut(id)?.cooldowns.record_failure(reason, report, now);
        let began = cooldown.is_some();
        self.changes.extend(cooldown.map(|cooldown| (id, cooldown)));
        if reason == CooldownReason::RateLimit {
            let until = self.limit_end(id, report.model, now).unwrap_or(now);
            if let Some(pace) = self.pace_mut(id, report.model, now) {
                match (was_limited, began) {
                    (false, _) => pace.note_limit(until.saturating_duration_since(now), now),
                    (true, true) => pace.note_extension(until),
                    // A further refusal within one cooldown was sent before it.
                    (true, false) => pace.note_late_limit(),
                }
            }
        }
        began.then_some(reason)
    }

    /// Returns the cooldowns that attempts and operators have begun and ended since the last call.
    pub fn take_changes(&mut self) -> Vec<(ProfileId, SharedCooldown)> {
        std::mem::take(&mut self.changes)
    }

    /// Begins or ends a cooldown that another process has learned of from a provider's answer. Returns `false` if that is
    /// no news.
    pub fn apply_cooldown(&mut self, id: ProfileId, cooldown: &SharedCooldown, now: Instant) -> bool {
        let (reason, model) = (cooldown.reason, cooldown.model.as_deref());
        let was_limited = self.has_limit(id, model, now);
        let Some(member) = self.members.get_mut(id) else {
            return false;
        };
        let has_changed = match cooldown.state {
            SharedCooldownState::Lasting { until, .. } if until <= now => false,
            SharedCooldownState::Lasting { .. } => {
                Cooldown::of_shared(cooldown).is_some_and(|cooldown| member.cooldowns.begin_shared(cooldown, now))
            }
            SharedCooldownState::Ended { began_before } => member.cooldowns.end_shared(reason, model, began_before),
        };
        if !has_changed || reason != CooldownReason::RateLimit {
            return has_changed;
        }
        let until = self.limit_end(id, model, now);
        self.early_ends += u64::from(was_limited && until.is_none());
        if let Some(pace) = self.pace_mut(id, model, now) {
            match (until, was_limited) {
                (Some(until), true) => pace.note_extension(until),
                (Some(until), false) => pace.note_limit(until.saturating_duration_since(now), now),
                (None, true) => pace.note_early_end(now),
                (None, false) => {}
            }
        }
        true
    }

    /// Allows another probe soon, because the last one said nothing about the profile.
    fn repeat_probe(&mut self, id: ProfileId, began: Instant) {
        const PAUSE: Duration = Duration::from_secs(1);
        let probed = self.members.get_mut(id).and_then(|member| member.last_probe.as_mut());
        if let Some(probed) = probed.filter(|probed| **probed <= began) {
            *probed = probed
                .checked_sub(PROBE_INTERVAL.saturating_sub(PAUSE))
                .unwrap_or(*probed);
        }
    }

    /// Returns the number of cooldowns that a success has ended early.
    pub const fn early_ends(&self) -> u64 {
        self.early_ends
    }

    /// Gives back the slot of a request that does not use it.
    pub fn return_slot(&mut self, id: ProfileId, model: Option<&str>, slot: Slot, now: Instant) {
        if let Some(pace) = self.pace_mut(id, model, now) {
            pace.return_slot(slot, now);
        }
    }

    /// Records a limit that the head of a success reports as used up.
    pub fn record_empty(&mut self, id: ProfileId, model: Option<&str>, empty: EmptyQuota, now: Instant) {
        if let Some(pace) = self.pace_mut(id, model, now) {
            pace.note_empty(empty, now);
        }
    }

    /// Records what follows from a selection: a place in the profile, a slot of its quota, or a probe.
    ///
    /// Returns the slot that the request waits for. Each [`Selection::Use`] of a request that a model answers needs a later
    /// [`Self::release_place`].
    pub fn commit_selection(
        &mut self,
        ask: &ProfileQuery<'_>,
        selection: &Selection,
        now: Instant,
    ) -> Option<(ProfileId, Slot)> {
        let (id, is_probe) = match selection {
            Selection::Use { id, is_probe, .. } => (*id, Some(*is_probe)),
            Selection::Wait { id, .. } => (*id, None),
            Selection::NoneAvailable(_) => return None,
        };
        let slot = ProfileSelector::new(self, ask, now)
            .slot_of(id)
            .filter(|_| !ask.asks_no_model);
        if let Some(slot) = slot.filter(|slot| ask.wait.slot != Some((id, *slot))) {
            // A slot that this request has reserved before was taken then.
            let pace = self.pace_mut(id, ask.model, now)?;
            pace.take_slot(slot, is_probe.is_none(), now);
        }
        let Some(is_probe) = is_probe else {
            return slot.map(|slot| (id, slot));
        };
        if let Some(member) = self.members.get_mut(id).filter(|_| is_probe) {
            member.last_probe = Some(now);
        }
        // Limits of models do not concern other requests.
        if !ask.asks_no_model {
            if let Some(pace) = self.pace_mut(id, ask.model, now) {
                pace.note_send(now);
            }
            self.take_place(id);
        }
        None
    }

    /// Counts a request that uses a profile. Each needs a later [`Self::release_place`].
    pub fn take_place(&mut self, id: ProfileId) {
        if let Some(member) = self.members.get_mut(id) {
            member.in_flight = member.in_flight.saturating_add(1);
        }
    }

    /// Ends a request's use of a profile.
    pub fn release_place(&mut self, id: ProfileId) {
        if let Some(member) = self.members.get_mut(id) {
            member.in_flight = member.in_flight.saturating_sub(1);
        }
    }

    /// Returns the time until one of the profiles may be used; `None` if no time helps.
    pub fn soonest_use(&self, ask: &ProfileQuery<'_>, now: Instant) -> Option<Duration> {
        ProfileSelector::new(self, ask, now).soonest_use()
    }

    /// Clears a profile's cooldowns on behalf of an operator. Returns `false` if the profile does not exist.
    pub fn clear_cooldowns(&mut self, id: ProfileId, now: Instant) -> bool {
        let Some(known) = self.members.get(id) else {
            return false;
        };
        let ended = known
            .cooldowns
            .active_cooldowns(now)
            .map(|cooldown| (cooldown.reason, cooldown.model.clone()));
        note_ended(&mut self.changes, id, ended.collect(), now);
        self.forget_cooldowns(id);
        true
    }

    fn forget_cooldowns(&mut self, id: ProfileId) {
        // The pace reserves no slot before the end of a cooldown, which is now.
        let first = self.quota_group(id).next();
        if let Some(first) = first.and_then(|first| self.members.get_mut(first)) {
            first.paces = QuotaPaces::default();
        }
        if let Some(member) = self.members.get_mut(id) {
            member.cooldowns = ProfileCooldowns::default();
        }
    }

    /// Stores the presence of a profile's credential.
    pub fn set_credential_state(&mut self, id: ProfileId, state: CredentialState) {
        if let Some(member) = self.members.get_mut(id) {
            member.presence.state = state;
        }
    }

    /// Stores that a profile has a new credential of the same account. Ends the cooldowns that concern the old one: its
    /// limits and bills are those of the account.
    pub fn renew_credential(&mut self, id: ProfileId, now: Instant) {
        if let Some(member) = self.members.get_mut(id) {
            member.presence.note_renewal(now);
            member.cooldowns.forget_refusals();
        }
    }

    /// Stores that a profile has another key, of an account that may be another. Ends all of its cooldowns.
    /// `organisation` is the configured one.
    pub fn replace_credential(&mut self, id: ProfileId, organisation: Option<&str>, now: Instant) {
        if let Some(member) = self.members.get_mut(id) {
            member.presence.note_replacement(now);
            member.facts.organisation = organisation.map(Arc::from);
            self.forget_cooldowns(id);
        }
    }

    /// Returns `true` if a profile has a credential that can be sent.
    pub fn has_credential(&self, id: ProfileId, now: Instant) -> bool {
        self.members
            .get(id)
            .is_some_and(|member| member.presence.state.is_valid(now))
    }

    /// Selects the profile of a send.
    pub fn select_profile(&self, ask: &ProfileQuery<'_>, now: Instant) -> Selection {
        ProfileSelector::new(self, ask, now).select()
    }

    /// Returns `from`, the profile that a lane has left, if it can be used for a request that only it accepts.
    pub fn former_profile(&self, from: ProfileId, ask: &ProfileQuery<'_>, now: Instant) -> Option<ProfileId> {
        ProfileSelector::new(self, ask, now).former_profile(from)
    }

    /// Returns the state of every profile.
    pub fn profile_statuses(&self, now: Instant) -> Vec<ProfileStatus> {
        let view = |(id, member): (ProfileId, &PooledProfile)| {
            let cooldowns = self.active_cooldowns(id, now);
            let has_credential = self.has_credential(id, now);
            ProfileStatus {
                label: Arc::clone(&member.facts.label),
                organisation: member.facts.organisation.clone(),
                state: state_of_profile(&cooldowns, has_credential),
                has_credential,
                cooldowns,
            }
        };
        self.members.iter().enumerate().map(view).collect()
    }

    /// Returns `true` if a profile serves its most requests at once.
    fn is_busy(&self, id: ProfileId) -> bool {
        self.members.get(id).is_some_and(|member| {
            let most = member.facts.max_concurrent;
            most.is_some_and(|most| member.in_flight >= most)
        })
    }

    fn last_probe(&self, id: ProfileId) -> Option<Instant> {
        self.members.get(id)?.last_probe
    }

    fn facts(&self, id: ProfileId) -> Option<&PoolMember> {
        self.members.get(id).map(|member| &member.facts)
    }

    /// Returns `true` if a rate limit of a model is in force.
    fn has_limit(&self, id: ProfileId, model: Option<&str>, now: Instant) -> bool {
        self.limit_end(id, model, now).is_some()
    }

    /// Returns the end of the rate limit of a model that is in force.
    fn limit_end(&self, id: ProfileId, model: Option<&str>, now: Instant) -> Option<Instant> {
        let cooldowns = self.active_cooldowns(id, now).into_iter();
        let limits = cooldowns.filter(|known| known.reason == CooldownReason::RateLimit && known.concerns(model));
        limits.map(|known| known.until).max()
    }

    /// Returns the pace of a profile's quota for a model; `None` if it has none yet.
    fn pace_of(&self, id: ProfileId, model: Option<&str>) -> Option<&Pace> {
        let first = self.quota_group(id).next()?;
        self.members.get(first)?.paces.pace_of(model)
    }

    /// Returns the pace of a profile's quota for a model, which is created; `None` if there are too many models.
    fn pace_mut(&mut self, id: ProfileId, model: Option<&str>, now: Instant) -> Option<&mut Pace> {
        let first = self.quota_group(id).next()?;
        self.members.get_mut(first)?.paces.pace_mut(model, now)
    }

    /// Returns the profiles that share this one's quota, including itself.
    fn quota_group(&self, id: ProfileId) -> impl Iterator<Item = ProfileId> {
        let same = move |other: &ProfileId| self.shares_quota(id, *other);
        (0..self.members.len()).filter(same)
    }

    /// Returns `true` if two profiles are known to share a quota.
    fn shares_quota(&self, one: ProfileId, other: ProfileId) -> bool {
        one == other || {
            let of = |id: ProfileId| self.facts(id).and_then(|facts| facts.organisation.as_deref());
            // Two unknown organisations are not assumed to be the same.
            of(one).is_some() && of(one) == of(other)
        }
    }

    /// Returns the cooldowns in force for a profile, including those of its quota.
    fn active_cooldowns(&self, id: ProfileId, now: Instant) -> Vec<Cooldown> {
        let mut active = Vec::new();
        for member in self.quota_group(id) {
            let Some(known) = self.members.get(member) else {
                continue;
            };
            let of_other_profile = member != id;
            let cooldowns = known.cooldowns.active_cooldowns(now);
            // Another profile's own trouble does not affect this one.
            let concerned = cooldowns.filter(|cooldown| !of_other_profile || cooldown.reason.is_of_organisation());
            active.extend(concerned.map(|cooldown| Cooldown {
                of_other_profile,
                ..cooldown.clone()
            }));
        }
        // The most severe reason first, and of one reason the longest cooldown first.
        active.sort_by_key(|cooldown| (cooldown.reason, std::cmp::Reverse(cooldown.until)));
        active
    }
}

/// Notes that cooldowns of a profile which began before a time have ended.
fn note_ended(
    changes: &mut Vec<(ProfileId, SharedCooldown)>,
    id: ProfileId,
    ended: Vec<(CooldownReason, Option<Box<str>>)>,
    began_before: Instant,
) {
    let state = SharedCooldownState::Ended { began_before };
    let cooldown = |(reason, model)| SharedCooldown { reason, model, state };
    changes.extend(ended.into_iter().map(|ended| (id, cooldown(ended))));
}
