//! The state of each profile and the choice among them: a state machine over values, with `now` as a parameter.
//!
//! A cooldown is never shortened, and lengthened only by a time that the provider names. A success clears only
//! cooldowns that began before its exchange. The last profile that is not disabled stays usable in spite of a cooldown
//! whose end the provider has not named. Other profiles in cooldown are probed, if nothing else can serve a request.

mod choice;
mod cooldowns;
mod key_rest;
mod pace;
mod presence;
mod query;
mod quota_paces;
mod status;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use choice::{PROBE_INTERVAL, ProfileSelector};
use cooldowns::{CooldownScope, CooldownWindow, ProfileCooldowns, model_key};
pub use key_rest::{KeyRest, KeyRestState};
use pace::Pace;
pub use pace::Slot;
use presence::CredentialPresence;
pub use presence::CredentialState;
pub use query::{
    AttemptReport, ChangeCause, LaneBindings, NoneAvailable, ProfileChange, ProfileQuery, QueryWait, Selection,
};
use quota_paces::QuotaPaces;
pub use status::{Cooldown, ProfileState, ProfileStatus};

use crate::policy::{Class, EmptyQuota, Reason};

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

/// The profiles of one upstream and their cooldowns.
#[derive(Clone, Debug)]
pub struct Rotation {
    members: Vec<PoolMember>,
    cooldowns: Vec<ProfileCooldowns>,
    /// Paces of each quota, under its first profile.
    paces: QuotaPaces,
    /// The last probe of each profile.
    probes: Vec<Option<Instant>>,
    /// Requests of each profile that are under way.
    in_flight: Vec<u32>,
    /// Cooldowns that a success has ended early.
    early_ends: u64,
    /// The cooldowns that attempts have begun and ended since [`take_changes`](Self::take_changes).
    changes: Vec<(ProfileId, KeyRest)>,
    /// The presence of each profile's credential.
    presence: Vec<CredentialPresence>,
    /// Longest cooldown that a lane waits out for its own profile.
    wait_max: Duration,
    /// `true` if a lane with reasoning in its history may move to another organisation.
    may_leave_organisation: bool,
}

impl Rotation {
    /// Creates a rotation in which every profile is ready.
    pub fn new(members: Vec<PoolMember>, wait: Duration, may_leave_organisation: bool) -> Self {
        let count = members.len();
        Self {
            presence: vec![CredentialPresence::default(); members.len()],
            members,
            cooldowns: vec![ProfileCooldowns::default(); count],
            paces: QuotaPaces::new(count),
            probes: vec![None; count],
            in_flight: vec![0; count],
            early_ends: 0,
            changes: Vec::new(),
            wait_max: wait,
            may_leave_organisation,
        }
    }

    /// Copies cooldowns and learned organisations from `old`. `same` maps an id of this rotation to its id in `old`.
    pub fn inherit_state(&mut self, old: &Self, same: impl Fn(ProfileId) -> Option<ProfileId>) {
        for (id, (member, windows)) in self.members.iter_mut().zip(&mut self.cooldowns).enumerate() {
            // A new profile, or one with a new credential, starts without cooldowns.
            let Some(before) = same(id) else { continue };
            if let Some(known) = old.cooldowns.get(before) {
                windows.clone_from(known);
            }
            if let (Some(own), Some(known)) = (self.presence.get_mut(id), old.presence.get(before)) {
                *own = *known;
            }
            if let (Some(own), Some(known)) = (self.probes.get_mut(id), old.probes.get(before)) {
                *own = *known;
            }
            // A configured organisation takes precedence over a learned one.
            if let Some(known) = old.members.get(before).filter(|_| member.organisation.is_none()) {
                member.organisation.clone_from(&known.organisation);
            }
        }
    }

    /// Returns the profiles by id.
    pub fn members(&self) -> &[PoolMember] {
        &self.members
    }

    /// Returns the organisation of a profile, or the profile's own name if the organisation is not known.
    pub fn organisation_name(&self, id: ProfileId) -> String {
        let member = self.members.get(id);
        member.map_or_else(String::new, |member| match &member.organisation {
            // Prefixes, so that a profile called like an organisation is not taken for it.
            Some(organisation) => format!("organisation {organisation}"),
            None => format!("profile {}", member.label),
        })
    }

    /// Returns the id of the profile with this name.
    pub fn find_profile(&self, label: &str) -> Option<ProfileId> {
        self.members.iter().position(|member| *member.label == *label)
    }

    /// Stores the organisation that a profile's answers name, unless one is configured or learned.
    pub fn learn_organisation(&mut self, id: ProfileId, organisation: &str) {
        if let Some(member) = self.members.get_mut(id) {
            // The first answer decides: a key never changes its organisation.
            member.organisation.get_or_insert_with(|| Arc::from(organisation));
        }
    }

    /// Records the outcome of an attempt.
    ///
    /// Returns the reason if a cooldown begins or becomes longer.
    pub fn record_attempt(&mut self, id: ProfileId, report: &AttemptReport<'_>, now: Instant) -> Option<Reason> {
        let verdict = report.verdict;
        if verdict.class == Class::Success {
            // Collected first, because clearing needs the windows mutably.
            let group: Vec<ProfileId> = self.quota_group(id).collect();
            let was_limited = self.has_limit(id, report.model, now);
            for member in group {
                if let Some(windows) = self.cooldowns.get_mut(member) {
                    // Another profile's success proves that the shared quota has room, and nothing else.
                    let shared_only = member != id;
                    let ended = windows.record_success(report.model, report.began, shared_only);
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
        if self.presence.get(id)?.is_outdated(reason, report.began) {
            return None;
        }
        let was_limited = self.has_limit(id, report.model, now);
        let rest = self.cooldowns.get_mut(id)?.record_failure(reason, report, now);
        let began = rest.is_some();
        self.changes.extend(rest.map(|rest| (id, rest)));
        if reason == Reason::RateLimit {
            let until = self.limit_end(id, report.model, now).unwrap_or(now);
            if let Some(pace) = self.pace_mut(id, report.model, now) {
                match (was_limited, began) {
                    (false, _) => pace.note_refusal(until.saturating_duration_since(now), now),
                    (true, true) => pace.note_extension(until),
                    // A further refusal within one cooldown was sent before it.
                    (true, false) => pace.note_late_refusal(),
                }
            }
        }
        began.then_some(reason)
    }

    /// Returns the cooldowns that attempts and operators have begun and ended since the last call.
    pub fn take_changes(&mut self) -> Vec<(ProfileId, KeyRest)> {
        std::mem::take(&mut self.changes)
    }

    /// Begins or ends a cooldown that another process has learned of from a provider's answer. Returns `false` if that is
    /// no news.
    pub fn apply_rest(&mut self, id: ProfileId, rest: &KeyRest, now: Instant) -> bool {
        let (reason, model) = (rest.reason, rest.model.as_deref());
        let was_limited = self.has_limit(id, model, now);
        let Some(cooldowns) = self.cooldowns.get_mut(id) else {
            return false;
        };
        let has_changed = match rest.state {
            KeyRestState::Resting { until, .. } if until <= now => false,
            KeyRestState::Resting { .. } => {
                CooldownWindow::of_rest(rest).is_some_and(|window| cooldowns.begin_shared(window, now))
            }
            KeyRestState::Ended { began_before } => cooldowns.end_shared(reason, model, began_before),
        };
        if !has_changed || reason != Reason::RateLimit {
            return has_changed;
        }
        let until = self.limit_end(id, model, now);
        self.early_ends += u64::from(was_limited && until.is_none());
        if let Some(pace) = self.pace_mut(id, model, now) {
            match (until, was_limited) {
                (Some(until), true) => pace.note_extension(until),
                (Some(until), false) => pace.note_refusal(until.saturating_duration_since(now), now),
                (None, true) => pace.note_early_end(now),
                (None, false) => {}
            }
        }
        true
    }

    /// Allows another probe soon, because the last one said nothing about the profile.
    fn repeat_probe(&mut self, id: ProfileId, began: Instant) {
        const PAUSE: Duration = Duration::from_secs(1);
        let probed = self.probes.get_mut(id).and_then(Option::as_mut);
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

    /// Gives the slot of a request back that does not use it.
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
        if let Some(probed) = self.probes.get_mut(id).filter(|_| is_probe) {
            *probed = Some(now);
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
        if let Some(count) = self.in_flight.get_mut(id) {
            *count = count.saturating_add(1);
        }
    }

    /// Ends a request's use of a profile.
    pub fn release_place(&mut self, id: ProfileId) {
        if let Some(count) = self.in_flight.get_mut(id) {
            *count = count.saturating_sub(1);
        }
    }

    /// Returns the time until one of the profiles may be used; `None` if no time helps.
    pub fn soonest_use(&self, ask: &ProfileQuery<'_>, now: Instant) -> Option<Duration> {
        ProfileSelector::new(self, ask, now).soonest_use()
    }

    /// Clears a profile's cooldowns on behalf of an operator. Returns `false` if the profile does not exist.
    pub fn clear_cooldowns(&mut self, id: ProfileId, now: Instant) -> bool {
        let Some(known) = self.cooldowns.get(id) else {
            return false;
        };
        let ended = known
            .active_windows(now)
            .map(|window| (window.reason, window.model.clone()));
        note_ended(&mut self.changes, id, ended.collect(), now);
        self.forget_cooldowns(id);
        true
    }

    fn forget_cooldowns(&mut self, id: ProfileId) {
        // The pace reserves no slot before the end of a cooldown, which is now.
        let first = self.quota_group(id).next();
        if let Some(first) = first {
            self.paces.forget_paces(first);
        }
        if let Some(known) = self.cooldowns.get_mut(id) {
            *known = ProfileCooldowns::default();
        }
    }

    /// Stores the presence of a profile's credential.
    pub fn set_credential_state(&mut self, id: ProfileId, state: CredentialState) {
        if let Some(presence) = self.presence.get_mut(id) {
            presence.state = state;
        }
    }

    /// Stores that a profile has a new credential of the same account. Ends the cooldowns that concern the old one: its
    /// limits and bills are those of the account.
    pub fn renew_credential(&mut self, id: ProfileId, now: Instant) {
        if let (Some(presence), Some(windows)) = (self.presence.get_mut(id), self.cooldowns.get_mut(id)) {
            presence.note_renewal(now);
            windows.forget_refusals();
        }
    }

    /// Stores that a profile has another key, of an account that may be another. Ends all of its cooldowns.
    /// `organisation` is the configured one.
    pub fn replace_credential(&mut self, id: ProfileId, organisation: Option<&str>, now: Instant) {
        if let (Some(presence), Some(member)) = (self.presence.get_mut(id), self.members.get_mut(id)) {
            presence.note_replacement(now);
            member.organisation = organisation.map(Arc::from);
            self.forget_cooldowns(id);
        }
    }

    /// Returns `true` if a profile has a credential that can be sent.
    pub fn has_credential(&self, id: ProfileId, now: Instant) -> bool {
        self.presence
            .get(id)
            .is_some_and(|presence| presence.state.is_valid(now))
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
        let view = |(id, member): (ProfileId, &PoolMember)| {
            let cooldowns = self.active_cooldowns(id, now);
            let has_credential = self.has_credential(id, now);
            ProfileStatus {
                label: Arc::clone(&member.label),
                organisation: member.organisation.clone(),
                state: ProfileState::of_profile(&cooldowns, has_credential),
                has_credential,
                cooldowns,
            }
        };
        self.members.iter().enumerate().map(view).collect()
    }

    /// Returns `true` if a profile serves its most requests at once.
    fn is_busy(&self, id: ProfileId) -> bool {
        let most = self.members.get(id).and_then(|member| member.max_concurrent);
        most.zip(self.in_flight.get(id))
            .is_some_and(|(most, count)| *count >= most)
    }

    fn last_probe(&self, id: ProfileId) -> Option<Instant> {
        self.probes.get(id).copied().flatten()
    }

    /// Returns `true` if a rate limit of a model is in force.
    fn has_limit(&self, id: ProfileId, model: Option<&str>, now: Instant) -> bool {
        self.limit_end(id, model, now).is_some()
    }

    /// Returns the end of the rate limit of a model that is in force.
    fn limit_end(&self, id: ProfileId, model: Option<&str>, now: Instant) -> Option<Instant> {
        let is_limit = |rest: &Cooldown| {
            rest.reason == Reason::RateLimit && rest.model.as_deref().is_none_or(|of| of == model_key(model))
        };
        let rests = self.active_cooldowns(id, now).into_iter().filter(is_limit);
        rests.map(|rest| rest.until).max()
    }

    /// Returns the pace of a profile's quota for a model; `None` if it has none yet.
    fn pace_of(&self, id: ProfileId, model: Option<&str>) -> Option<&Pace> {
        self.paces.pace_of(self.quota_group(id).next()?, model)
    }

    /// Returns the pace of a profile's quota for a model, which is created; `None` if there are too many models.
    fn pace_mut(&mut self, id: ProfileId, model: Option<&str>, now: Instant) -> Option<&mut Pace> {
        let first = self.quota_group(id).next()?;
        self.paces.pace_mut(first, model, now)
    }

    /// Returns the profiles that share this one's quota, including itself.
    fn quota_group(&self, id: ProfileId) -> impl Iterator<Item = ProfileId> {
        let same = move |other: &ProfileId| self.shares_quota(id, *other);
        (0..self.members.len()).filter(same)
    }

    /// Returns `true` if two profiles are known to share a quota.
    fn shares_quota(&self, one: ProfileId, other: ProfileId) -> bool {
        one == other || {
            let of = |id: ProfileId| self.members.get(id).and_then(|member| member.organisation.as_deref());
            // Two unknown organisations are not assumed to be the same.
            of(one).is_some() && of(one) == of(other)
        }
    }

    /// Returns the cooldowns in force for a profile, including those of its quota.
    fn active_cooldowns(&self, id: ProfileId, now: Instant) -> Vec<Cooldown> {
        let mut rests = Vec::new();
        for member in self.quota_group(id) {
            let Some(windows) = self.cooldowns.get(member) else {
                continue;
            };
            for window in windows.active_windows(now) {
                // Another profile's own trouble does not affect this one.
                if member == id || window.scope == CooldownScope::Quota {
                    rests.push(Cooldown {
                        reason: window.reason,
                        model: window.model.clone(),
                        disables: window.disables,
                        is_named: window.is_named,
                        evidence: window.evidence,
                        path: window.path,
                        shared: member != id,
                        since: window.since,
                        until: window.until,
                    });
                }
            }
        }
        // The most severe reason first, and of one reason the longest cooldown first.
        rests.sort_by_key(|rest| (rest.reason, std::cmp::Reverse(rest.until)));
        rests
    }
}

/// Notes that cooldowns of a profile which began before a time have ended.
fn note_ended(
    changes: &mut Vec<(ProfileId, KeyRest)>,
    id: ProfileId,
    ended: Vec<(Reason, Option<Box<str>>)>,
    began_before: Instant,
) {
    let state = KeyRestState::Ended { began_before };
    let rest = |(reason, model)| KeyRest { reason, model, state };
    changes.extend(ended.into_iter().map(|ended| (id, rest(ended))));
}
