//! Which profile serves, and which of them rests: a state machine over values; `now` is a parameter.
//!
//! A window is never shortened, and lengthened only by a time that the provider names. A success clears only windows
//! that are older than its exchange. The last profile that is not disabled never rests.

mod choice;
mod windows;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use choice::{Ask, Bound, Moved, Pick, Stuck};
use windows::{Scope, Windows};

use super::profile::serves;
use crate::policy::{Class, Reason, Verdict};

/// A profile of one upstream, by its place in the configuration.
pub type ProfileId = usize;

/// What rotation knows of a profile.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its name: a label, never a secret.
    pub label: Arc<str>,
    /// Its share of the lanes.
    pub weight: u32,
    /// Its organisation, where it was configured or learned.
    pub organisation: Option<Arc<str>>,
    /// The models it serves, a trailing `*` standing for any ending; empty is every model.
    pub models: Vec<String>,
}

impl Member {
    /// Whether it may be asked for a model.
    pub fn serves(&self, model: Option<&str>) -> bool {
        serves(&self.models, model)
    }
}

/// One exchange's report about a profile.
#[derive(Clone, Copy, Debug)]
pub struct Report<'r> {
    /// What happened.
    pub verdict: Verdict,
    /// The model that was asked.
    pub model: Option<&'r str>,
    /// How long the provider says that it lasts.
    pub rest: Option<Duration>,
    /// The longest rest that is believed of what the provider says.
    pub rest_max: Option<Duration>,
    /// Whether the provider says that it is for every model.
    pub every_model: bool,
    /// When the attempt began.
    pub began: Instant,
    /// From 0 to 1: stretches a rest that many would end at once.
    pub jitter: f64,
}

/// The profiles of one upstream.
#[derive(Clone, Debug)]
pub struct Rotation {
    members: Vec<Member>,
    windows: Vec<Windows>,
    /// How long a lane waits for its own profile.
    wait: Duration,
    /// Whether a lane whose history holds reasoning may move to another organisation.
    may_leave_organisation: bool,
}

/// A profile as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Its name.
    pub label: Arc<str>,
    /// Its organisation, as far as it is known.
    pub organisation: Option<Arc<str>>,
    /// Whether it is usable, for the models that are not named below.
    pub state: ProfileState,
    /// Why it rests.
    pub rests: Vec<Rest>,
}

/// How a profile stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProfileState {
    /// It serves.
    Ready,
    /// It rests for a while, of one model or of all.
    Cooling,
    /// It cannot serve until somebody acts, or hours have passed.
    Disabled,
}

impl ProfileState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Ready, Self::Cooling, Self::Disabled];

    /// The stable name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Cooling => "cooling",
            Self::Disabled => "disabled",
        }
    }
}

/// One reason why a profile rests.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// The recorded reason.
    pub reason: Reason,
    /// The only model that it concerns, empty for requests that name none; `None` for every model.
    pub model: Option<Box<str>>,
    /// Whether it disables.
    pub disables: bool,
    /// Whether it came through another profile of the same organisation.
    pub shared: bool,
    /// Since when.
    pub since: Instant,
    /// Until when.
    pub until: Instant,
}

impl Rotation {
    /// Profiles that all may serve.
    pub fn new(members: Vec<Member>, wait: Duration, may_leave_organisation: bool) -> Self {
        let windows = members.iter().map(|_| Windows::default()).collect();
        Self {
            members,
            windows,
            wait,
            may_leave_organisation,
        }
    }

    /// Takes over the windows, and the organisations that answers named, of those profiles that `same` knows in `old`.
    pub fn inherit(&mut self, old: &Self, same: impl Fn(ProfileId) -> Option<ProfileId>) {
        for (id, (member, windows)) in self.members.iter_mut().zip(&mut self.windows).enumerate() {
            let Some(before) = same(id) else { continue };
            if let Some(known) = old.windows.get(before) {
                windows.clone_from(known);
            }
            if let Some(known) = old.members.get(before).filter(|_| member.organisation.is_none()) {
                member.organisation.clone_from(&known.organisation);
            }
        }
    }

    /// The profiles, by their ids.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The profile of this name.
    pub fn find(&self, label: &str) -> Option<ProfileId> {
        self.members.iter().position(|member| *member.label == *label)
    }

    /// Notes the organisation that a profile's answers name, unless one was configured or learned before.
    pub fn learn(&mut self, id: ProfileId, organisation: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.organisation.get_or_insert_with(|| Arc::from(organisation));
        }
    }

    /// Takes an exchange's evidence about the profile that it was sent with.
    ///
    /// Gives the reason if this begins or lengthens a rest.
    pub fn report(&mut self, id: ProfileId, report: &Report<'_>, now: Instant) -> Option<Reason> {
        let verdict = report.verdict;
        if verdict.class == Class::Success {
            let group: Vec<ProfileId> = self.group(id).collect();
            for member in group {
                if let Some(windows) = self.windows.get_mut(member) {
                    let shared_only = member != id;
                    windows.succeeded(report.model, report.began, shared_only);
                }
            }
            return None;
        }
        let reason = verdict.reason()?;
        self.windows.get_mut(id)?.failed(reason, report, now).then_some(reason)
    }

    /// An operator says that a profile is well again. False if there is no such profile.
    pub fn clear(&mut self, id: ProfileId) -> bool {
        let known = self.windows.get_mut(id);
        known.map(|windows| *windows = Windows::default()).is_some()
    }

    /// Every profile as it stands.
    pub fn view(&self, now: Instant) -> Vec<View> {
        let view = |(id, member): (ProfileId, &Member)| {
            let rests = self.rests(id, now);
            let state = if rests.iter().any(|rest| rest.disables) {
                ProfileState::Disabled
            } else if rests.is_empty() {
                ProfileState::Ready
            } else {
                ProfileState::Cooling
            };
            View {
                label: Arc::clone(&member.label),
                organisation: member.organisation.clone(),
                state,
                rests,
            }
        };
        self.members.iter().enumerate().map(view).collect()
    }

    /// The profiles that share this one's quota, itself included.
    fn group(&self, id: ProfileId) -> impl Iterator<Item = ProfileId> {
        let same = move |other: &ProfileId| self.same_quota(id, *other);
        (0..self.members.len()).filter(same)
    }

    /// Whether two profiles are known to share a quota.
    fn same_quota(&self, one: ProfileId, other: ProfileId) -> bool {
        one == other || {
            let of = |id: ProfileId| self.members.get(id).and_then(|member| member.organisation.as_deref());
            of(one).is_some() && of(one) == of(other)
        }
    }

    /// Why a profile rests now, the rests of its quota included.
    fn rests(&self, id: ProfileId, now: Instant) -> Vec<Rest> {
        let mut rests = Vec::new();
        for member in self.group(id) {
            let Some(windows) = self.windows.get(member) else {
                continue;
            };
            for window in windows.active(now) {
                if member == id || window.scope == Scope::Quota {
                    rests.push(Rest {
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
        rests.sort_by_key(|rest| (rest.reason, std::cmp::Reverse(rest.until)));
        rests
    }
}
