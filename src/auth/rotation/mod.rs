//! The state of each profile and the choice among them: a state machine over values, with `now` as a parameter.
//!
//! A cooldown is never shortened, and lengthened only by a time that the provider names. A success clears only
//! cooldowns that began before its exchange. The last profile that is not disabled stays usable in spite of its
//! cooldowns.

mod choice;
mod cooldowns;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use choice::ProfileSelector;
pub use choice::{LaneBindings, NoneAvailable, ProfileChange, ProfileQuery, Selection};
use cooldowns::{CooldownScope, ProfileCooldowns};

use crate::{
    labels::labelled_enum,
    policy::{Class, LimitHints, Reason, Verdict},
};

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
}

/// The outcome of one attempt with a profile.
#[derive(Clone, Copy, Debug)]
pub struct AttemptReport<'r> {
    /// The verdict.
    pub verdict: Verdict,
    /// The model of the request.
    pub model: Option<&'r str>,
    /// The provider's hints about limits.
    pub hints: LimitHints,
    /// The start of the attempt.
    pub began: Instant,
    /// From 0 to 1: lengthens a cooldown, so that many do not end at the same time.
    pub jitter: f64,
}

/// The profiles of one upstream and their cooldowns.
#[derive(Clone, Debug)]
pub struct Rotation {
    members: Vec<PoolMember>,
    cooldowns: Vec<ProfileCooldowns>,
    /// Longest cooldown that a lane waits out for its own profile.
    wait_max: Duration,
    /// `true` if a lane with reasoning in its history may move to another organisation.
    may_leave_organisation: bool,
}

/// The state of one profile, for the admin API.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileStatus {
    /// The profile's name.
    pub label: Arc<str>,
    /// The organisation, if it is known.
    pub organisation: Option<Arc<str>>,
    /// The state over all models.
    pub state: ProfileState,
    /// The cooldowns in force.
    pub cooldowns: Vec<Cooldown>,
}

labelled_enum! {
    /// The state of a profile.
    pub enum ProfileState {
        /// It serves requests.
        Ready = "ready",
        /// It cools down for a short time, for one model or for all.
        Cooling = "cooling",
        /// It is disabled until an operator acts, or for hours.
        Disabled = "disabled",
    }
}

/// One cooldown of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Cooldown {
    /// The recorded reason.
    pub reason: Reason,
    /// The only model that is affected, empty for requests without a model; `None` for every model.
    pub model: Option<Box<str>>,
    /// `true` if the profile is disabled.
    pub disables: bool,
    /// `true` if another profile of the same organisation caused it.
    pub shared: bool,
    /// The start.
    pub since: Instant,
    /// The end.
    pub until: Instant,
}

impl Rotation {
    /// Creates a rotation in which every profile is ready.
    pub fn new(members: Vec<PoolMember>, wait: Duration, may_leave_organisation: bool) -> Self {
        let windows = members.iter().map(|_| ProfileCooldowns::default()).collect();
        Self {
            members,
            cooldowns: windows,
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
            for member in group {
                if let Some(windows) = self.cooldowns.get_mut(member) {
                    // Another profile's success proves that the shared quota has room, and nothing else.
                    let shared_only = member != id;
                    windows.record_success(report.model, report.began, shared_only);
                }
            }
            return None;
        }
        // Verdicts without a reason cost the profile nothing.
        let reason = verdict.cooldown_reason()?;
        self.cooldowns
            .get_mut(id)?
            .record_failure(reason, report, now)
            .then_some(reason)
    }

    /// Clears a profile's cooldowns on behalf of an operator. Returns `false` if the profile does not exist.
    pub fn clear_cooldowns(&mut self, id: ProfileId) -> bool {
        let known = self.cooldowns.get_mut(id);
        known.map(|windows| *windows = ProfileCooldowns::default()).is_some()
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
            let rests = self.active_cooldowns(id, now);
            // The most severe cooldown decides.
            let state = if rests.iter().any(|rest| rest.disables) {
                ProfileState::Disabled
            } else if rests.is_empty() {
                ProfileState::Ready
            } else {
                ProfileState::Cooling
            };
            ProfileStatus {
                label: Arc::clone(&member.label),
                organisation: member.organisation.clone(),
                state,
                cooldowns: rests,
            }
        };
        self.members.iter().enumerate().map(view).collect()
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
