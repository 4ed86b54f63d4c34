//! What all exchanges share of each upstream: the locks around its rotation, its retries' budget and its breakers.
//!
//! Each lock is held for a look or a note, never across a wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    auth::{
        Credential, Profile,
        rotation::{Ask, Member, Pick, ProfileId, ProfileState, Report, Rotation, View},
    },
    policy::{
        Class, Hints, OnOrganisationChange, RotationSettings, Verdict,
        breaker::{Breaker, Standing},
        retry::Budget,
    },
    telemetry::Telemetry,
};

/// Models of one upstream whose breakers are kept; of more, one breaker stands for all.
const MODELS_MAX: usize = 128;

/// The upstreams' shared state. A cheap handle.
#[derive(Clone, Debug)]
pub struct Profiles(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pools: BTreeMap<String, Pool>,
    telemetry: Telemetry,
}

#[derive(Debug)]
struct Pool {
    profiles: Vec<Profile>,
    rotation: Mutex<Rotation>,
    endpoint: Mutex<Endpoint>,
}

#[derive(Clone, Debug, Default)]
struct Endpoint {
    budget: Budget,
    /// By model; the empty name stands for requests without one, and for those that are too many.
    breakers: BTreeMap<Box<str>, Breaker>,
}

/// What one attempt has shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'s> {
    /// Whose endpoint it was.
    pub upstream: &'s str,
    /// Whose credential it was; none for the client's own.
    pub profile: Option<ProfileId>,
    /// What happened.
    pub verdict: Verdict,
    /// What the answer said about limits.
    pub hints: &'s Hints,
    /// The model that was asked.
    pub model: Option<&'s str>,
    /// When the attempt began.
    pub began: Instant,
    /// The name of the logical request: the same for each send of it.
    pub request: [u8; 32],
    /// Whether the attempt was the first of its exchange.
    pub first: bool,
    /// `true` if a model was asked: no other answer says anything of the profile or of the model's breaker.
    pub asks_model: bool,
}

/// A breaker as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// The model; empty where requests name none.
    pub model: Box<str>,
    /// How it stands.
    pub standing: Standing,
    /// Failures in a row.
    pub failures: u32,
    /// Until when it is open.
    pub until: Option<Instant>,
}

impl Profiles {
    /// The state of `upstreams`; those without an entry in `profiles` pass their clients' credentials through.
    pub fn new<'u>(
        upstreams: impl IntoIterator<Item = &'u str>,
        mut profiles: BTreeMap<String, Vec<Profile>>,
        settings: &RotationSettings,
        telemetry: Telemetry,
    ) -> Self {
        let mut pool = |name: &str| {
            let profiles = profiles.remove(name).unwrap_or_default();
            let members = profiles.iter().map(member).collect();
            let may_leave = settings.on_organisation_change == OnOrganisationChange::Move;
            Pool {
                rotation: Mutex::new(Rotation::new(members, settings.wait, may_leave)),
                endpoint: Mutex::default(),
                profiles,
            }
        };
        let named = upstreams.into_iter().map(ToOwned::to_owned);
        let pools = named.map(|name| (name.clone(), pool(&name))).collect();
        Self(Arc::new(Inner { pools, telemetry }))
    }

    /// Takes over what `old` knows: of profiles with the same name and credential, and of upstreams of the same name.
    pub fn inherit(&self, old: &Self) {
        for (name, pool) in &self.0.pools {
            let Some(known) = old.pool(name) else { continue };
            let same = |id: ProfileId| {
                let profile = pool.profiles.get(id)?;
                let is_it = |old: &Profile| old.label == profile.label && old.credential == profile.credential;
                known.profiles.iter().position(is_it)
            };
            lock(&pool.rotation).inherit(&lock(&known.rotation), same);
            lock(&pool.endpoint).clone_from(&lock(&known.endpoint));
        }
    }

    /// Whether requests to this upstream go up with profiles.
    pub fn has_profiles(&self, upstream: &str) -> bool {
        self.pool(upstream).is_some_and(|pool| !pool.profiles.is_empty())
    }

    /// Whether some profile of this upstream signs what it is sent with, for which it needs all of the body.
    pub fn needs_body(&self, upstream: &str) -> bool {
        let signs = |profile: &Profile| matches!(profile.credential, Credential::Aws(_));
        self.pool(upstream).is_some_and(|pool| pool.profiles.iter().any(signs))
    }

    /// The profile behind an id.
    pub fn profile(&self, upstream: &str, id: ProfileId) -> Option<&Profile> {
        self.pool(upstream)?.profiles.get(id)
    }

    /// The id of the profile of this name.
    pub fn find(&self, upstream: &str, label: &str) -> Option<ProfileId> {
        lock(&self.pool(upstream)?.rotation).find(label)
    }

    /// Chooses the profile of a send; none where the upstream has no profiles.
    pub fn pick(&self, upstream: &str, ask: &Ask<'_>, now: Instant) -> Option<Pick> {
        let pool = self.pool(upstream).filter(|pool| !pool.profiles.is_empty())?;
        let pick = lock(&pool.rotation).pick(ask, now);
        if let Pick::Use { moved: Some(moved), .. } = &pick {
            let from = pool
                .profiles
                .get(moved.from)
                .map_or("", |profile| profile.label.as_str());
            let reason = moved.reason.map_or("other", crate::policy::Reason::label);
            self.0.telemetry.record_rotation(upstream, from, reason);
        }
        Some(pick)
    }

    /// The profile that a lane left, if it may go back for what only that one takes.
    pub fn way_back(&self, upstream: &str, from: ProfileId, ask: &Ask<'_>, now: Instant) -> Option<ProfileId> {
        lock(&self.pool(upstream)?.rotation).way_back(from, ask, now)
    }

    /// How many profiles could serve a request now.
    pub fn able(&self, upstream: &str, ask: &Ask<'_>, now: Instant) -> usize {
        self.pool(upstream)
            .map_or(0, |pool| lock(&pool.rotation).able(ask, now))
    }

    /// Takes what one attempt has shown: of the profile, of the endpoint, and of retries.
    pub fn note(&self, shown: &Shown<'_>, jitter: f64, now: Instant) {
        let Some(pool) = self.pool(shown.upstream) else { return };
        self.0
            .telemetry
            .record_attempt(shown.upstream, shown.verdict.class.label());
        if let Some(id) = shown.profile.filter(|_| shown.asks_model) {
            let report = Report {
                verdict: shown.verdict,
                model: shown.model,
                rest: shown.hints.rest,
                rest_max: shown.hints.rest_max,
                every_model: shown.hints.every_model,
                began: shown.began,
                jitter,
            };
            let rests = lock(&pool.rotation).report(id, &report, now);
            if let (Some(reason), Some(profile)) = (rests, pool.profiles.get(id)) {
                let (upstream, profile) = (shown.upstream, profile.label.as_str());
                tracing::warn!(upstream, profile, reason = reason.label(), "a profile rests");
                self.0.telemetry.announce_profiles();
            }
        }
        let Some(halves) = shown.verdict.class.endpoint_halves() else {
            return;
        };
        let mut endpoint = lock(&pool.endpoint);
        if shown.first && shown.verdict.class == Class::Success {
            endpoint.budget.earn();
        }
        if !shown.asks_model {
            return;
        }
        let model = shown.model.unwrap_or_default();
        if let Some(breaker) = endpoint.breakers.get_mut(model) {
            breaker.note(halves, shown.request, now);
        } else if halves > 0 {
            let model = if endpoint.breakers.len() < MODELS_MAX {
                model
            } else {
                ""
            };
            let breaker = endpoint.breakers.entry(model.into()).or_default();
            breaker.note(halves, shown.request, now);
        }
    }

    /// Notes the organisation that a profile's answers name.
    pub fn learn(&self, upstream: &str, id: ProfileId, organisation: &str) {
        if let Some(pool) = self.pool(upstream) {
            lock(&pool.rotation).learn(id, organisation);
        }
    }

    /// Pays for a retry after `class`; false if the budget is used up.
    pub fn pay(&self, upstream: &str, class: Class) -> bool {
        self.pool(upstream)
            .is_some_and(|pool| lock(&pool.endpoint).budget.pay(class))
    }

    /// Whether the breaker of an endpoint and model keeps our own retries back.
    pub fn is_open(&self, upstream: &str, model: Option<&str>, now: Instant) -> bool {
        let Some(pool) = self.pool(upstream) else { return false };
        let endpoint = lock(&pool.endpoint);
        let breaker = endpoint.breakers.get(model.unwrap_or_default());
        breaker.is_some_and(|breaker| breaker.standing(now) != Standing::Closed)
    }

    /// Every profile of every upstream that has some, as it stands.
    pub fn view(&self, now: Instant) -> Vec<(&str, Vec<View>)> {
        let pools = self.0.pools.iter().filter(|(_, pool)| !pool.profiles.is_empty());
        pools
            .map(|(name, pool)| (name.as_str(), lock(&pool.rotation).view(now)))
            .collect()
    }

    /// Every breaker that has anything to say.
    pub fn breakers(&self, now: Instant) -> Vec<(&str, Vec<BreakerView>)> {
        let view = |pool: &Pool| {
            let endpoint = lock(&pool.endpoint);
            let seen = endpoint.breakers.iter().filter(|(_, breaker)| breaker.failures() > 0);
            let view = seen.map(|(model, breaker)| BreakerView {
                model: model.clone(),
                standing: breaker.standing(now),
                failures: breaker.failures(),
                until: breaker.open_until(),
            });
            view.collect()
        };
        self.0
            .pools
            .iter()
            .map(|(name, pool)| (name.as_str(), view(pool)))
            .collect()
    }

    /// An operator says that a profile is well again. False if there is no such profile.
    pub fn clear(&self, upstream: &str, label: &str) -> bool {
        let Some(pool) = self.pool(upstream) else { return false };
        let mut rotation = lock(&pool.rotation);
        rotation.find(label).is_some_and(|id| rotation.clear(id))
    }

    /// Brings the gauges up to date: windows end by themselves.
    pub fn publish(&self, now: Instant) {
        for (upstream, profiles) in self.view(now) {
            for profile in profiles {
                for state in ProfileState::ALL {
                    let is = profile.state == state;
                    self.0
                        .telemetry
                        .set_profile_state(upstream, &profile.label, state.label(), is);
                }
            }
        }
        for (upstream, breakers) in self.breakers(now) {
            for standing in Standing::ALL {
                let count = breakers.iter().filter(|breaker| breaker.standing == standing).count();
                self.0.telemetry.set_breaker_count(upstream, standing.label(), count);
            }
        }
    }

    fn pool(&self, upstream: &str) -> Option<&Pool> {
        self.0.pools.get(upstream)
    }
}

fn member(profile: &Profile) -> Member {
    Member {
        label: profile.label.as_str().into(),
        weight: profile.weight,
        organisation: profile.organisation.as_deref().map(Into::into),
        models: profile.models.clone(),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
