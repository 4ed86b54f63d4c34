//! The state that all exchanges of an upstream share: locks around its rotation, its retry budget and its breakers.
//!
//! Each lock is held for one read or update, never across an await.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    auth::{
        Credential, Profile,
        rotation::{
            AttemptReport, PoolMember, ProfileId, ProfileQuery, ProfileState, ProfileStatus, Rotation, Selection,
        },
    },
    policy::{
        Class, LimitHints, OnOrganisationChange, RotationSettings, Verdict,
        breaker::{Breaker, BreakerState},
        retry::RetryBudget,
    },
    telemetry::Telemetry,
};

/// Models of one upstream with a breaker of their own. Further models share one breaker.
const BREAKERS_MAX: usize = 128;

/// The shared state of all upstreams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Profiles(Arc<SharedPools>);

#[derive(Debug)]
struct SharedPools {
    pools: BTreeMap<String, ProfilePool>,
    telemetry: Telemetry,
}

#[derive(Debug)]
struct ProfilePool {
    profiles: Vec<Profile>,
    rotation: Mutex<Rotation>,
    endpoint: Mutex<EndpointState>,
}

#[derive(Clone, Debug, Default)]
struct EndpointState {
    budget: RetryBudget,
    /// Breakers by model. The empty name is for requests without a model, and for models beyond the limit.
    breakers: BTreeMap<Box<str>, Breaker>,
}

/// One attempt, whose outcome is still unknown.
#[derive(Clone, Debug)]
pub struct ObservedAttempt {
    /// The upstream that is used.
    pub upstream: String,
    /// The profile that is used; `None` for the client's own credential.
    pub profile: Option<ProfileId>,
    /// The model of the request.
    pub model: Option<String>,
    /// The start of the attempt.
    pub began: Instant,
    /// The name of the logical request: the same for each send, and for each retry of the client.
    pub request: [u8; 32],
    /// `true` if the attempt is the first of its exchange, and the client does not retry either.
    pub is_first: bool,
    /// `true` if a model answers such requests. Other answers prove nothing about the profile or the model's breaker.
    pub asks_model: bool,
    /// From 0 to 1: varies the length of a cooldown.
    pub jitter: f64,
}

/// The state of one breaker, for the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerStatus {
    /// The model, empty for requests without one.
    pub model: Box<str>,
    /// The state.
    pub state: BreakerState,
    /// Failures in a row.
    pub failures: u32,
    /// The end of the open period; `None` if the breaker is closed.
    pub open_until: Option<Instant>,
}

impl Profiles {
    /// Creates the state of `upstreams`. Upstreams without an entry in `profiles` pass the client's credential through.
    pub fn new<'u>(
        upstreams: impl IntoIterator<Item = &'u str>,
        mut profiles: BTreeMap<String, Vec<Profile>>,
        settings: &RotationSettings,
        telemetry: Telemetry,
    ) -> Self {
        let mut pool = |name: &str| {
            let profiles = profiles.remove(name).unwrap_or_default();
            let members = profiles.iter().map(pool_member).collect();
            let may_leave = settings.on_organisation_change == OnOrganisationChange::Move;
            ProfilePool {
                rotation: Mutex::new(Rotation::new(members, settings.wait, may_leave)),
                endpoint: Mutex::default(),
                profiles,
            }
        };
        let named = upstreams.into_iter().map(ToOwned::to_owned);
        let pools = named.map(|name| (name.clone(), pool(&name))).collect();
        Self(Arc::new(SharedPools { pools, telemetry }))
    }

    /// Copies the state from `old` for profiles with the same name and credential, and for upstreams of the same name.
    pub fn inherit_state(&self, old: &Self) {
        for (name, pool) in &self.0.pools {
            let Some(known) = old.find_pool(name) else { continue };
            let same = |id: ProfileId| {
                let profile = pool.profiles.get(id)?;
                // A changed credential may work where the old one failed.
                let is_it = |old: &Profile| old.label == profile.label && old.credential == profile.credential;
                known.profiles.iter().position(is_it)
            };
            // Exchanges use the new state only later, so holding both locks cannot deadlock.
            lock_shared(&pool.rotation).inherit_state(&lock_shared(&known.rotation), same);
            lock_shared(&pool.endpoint).clone_from(&lock_shared(&known.endpoint));
        }
    }

    /// Returns `true` if requests to this upstream use profiles.
    pub fn has_profiles(&self, upstream: &str) -> bool {
        self.find_pool(upstream).is_some_and(|pool| !pool.profiles.is_empty())
    }

    /// Returns `true` if a profile of this upstream signs requests, which requires the whole body.
    pub fn needs_body(&self, upstream: &str) -> bool {
        let signs = |profile: &Profile| matches!(profile.credential, Credential::Aws(_));
        self.find_pool(upstream)
            .is_some_and(|pool| pool.profiles.iter().any(signs))
    }

    /// Returns a profile by its id.
    pub fn profile(&self, upstream: &str, id: ProfileId) -> Option<&Profile> {
        self.find_pool(upstream)?.profiles.get(id)
    }

    /// Returns the id of the profile with this name.
    pub fn find_profile(&self, upstream: &str, label: &str) -> Option<ProfileId> {
        lock_shared(&self.find_pool(upstream)?.rotation).find_profile(label)
    }

    /// Returns the organisation of a profile, or the profile's own name if the organisation is not known.
    pub fn organisation_name(&self, upstream: &str, id: ProfileId) -> String {
        let pool = self.find_pool(upstream);
        pool.map_or_else(String::new, |pool| lock_shared(&pool.rotation).organisation_name(id))
    }

    /// Returns the only organisation of an upstream's profiles. `None` if there are several.
    pub fn common_organisation(&self, upstream: &str) -> Option<String> {
        let pool = self.find_pool(upstream)?;
        let rotation = lock_shared(&pool.rotation);
        let mut names = (0..pool.profiles.len()).map(|id| rotation.organisation_name(id));
        let first = names.next()?;
        names.all(|name| name == first).then_some(first)
    }

    /// Selects the profile of a send; `None` if the upstream has no profiles.
    pub fn select_profile(&self, upstream: &str, ask: &ProfileQuery<'_>, now: Instant) -> Option<Selection> {
        let pool = self.find_pool(upstream).filter(|pool| !pool.profiles.is_empty())?;
        // The lock is released before telemetry is called.
        let pick = lock_shared(&pool.rotation).select_profile(ask, now);
        if let Selection::Use { moved: Some(moved), .. } = &pick {
            let from = pool
                .profiles
                .get(moved.from)
                .map_or("", |profile| profile.label.as_str());
            let reason = moved.reason.map_or("other", crate::policy::Reason::label);
            self.0.telemetry.record_rotation(upstream, from, reason);
        }
        Some(pick)
    }

    /// Returns the profile that a lane has left, if it can be used for a request that only it accepts.
    pub fn former_profile(
        &self,
        upstream: &str,
        from: ProfileId,
        ask: &ProfileQuery<'_>,
        now: Instant,
    ) -> Option<ProfileId> {
        lock_shared(&self.find_pool(upstream)?.rotation).former_profile(from, ask, now)
    }

    /// Records the outcome of one attempt in the rotation, the breaker and the retry budget.
    pub fn record_attempt(&self, attempt: &ObservedAttempt, verdict: Verdict, hints: &LimitHints, now: Instant) {
        let (upstream, model) = (attempt.upstream.as_str(), attempt.model.as_deref());
        let Some(pool) = self.find_pool(upstream) else {
            return;
        };
        self.0.telemetry.record_attempt(upstream, verdict.class.label());
        // An answer on a path without a model has limits of its own.
        if let Some(id) = attempt.profile.filter(|_| attempt.asks_model) {
            let report = AttemptReport {
                verdict,
                model,
                hints: *hints,
                began: attempt.began,
                jitter: attempt.jitter,
            };
            let rests = lock_shared(&pool.rotation).record_attempt(id, &report, now);
            if let (Some(reason), Some(profile)) = (rests, pool.profiles.get(id)) {
                let profile = profile.label.as_str();
                tracing::warn!(
                    upstream,
                    profile,
                    reason = reason.label(),
                    "profile cooldown started or extended"
                );
                // Dashboards must not wait for the next refresh.
                self.0.telemetry.announce_profiles();
            }
        }
        let Some(halves) = verdict.class.endpoint_half_failures() else {
            return;
        };
        let mut endpoint = lock_shared(&pool.endpoint);
        // Only a success without a retry earns, or retries would pay for themselves.
        if attempt.is_first && verdict.class == Class::Success {
            endpoint.budget.earn_token();
        }
        if !attempt.asks_model {
            return;
        }
        let model = model.unwrap_or_default();
        if let Some(breaker) = endpoint.breakers.get_mut(model) {
            breaker.record_outcome(halves, attempt.request, now);
        // A breaker without failures needs no entry.
        } else if halves > 0 {
            // Clients choose model names, so memory must be bounded.
            let model = if endpoint.breakers.len() < BREAKERS_MAX {
                model
            } else {
                ""
            };
            let breaker = endpoint.breakers.entry(model.into()).or_default();
            breaker.record_outcome(halves, attempt.request, now);
        }
    }

    /// Stores the organisation that a profile's answers name.
    pub fn learn_organisation(&self, upstream: &str, id: ProfileId, organisation: &str) {
        if let Some(pool) = self.find_pool(upstream) {
            lock_shared(&pool.rotation).learn_organisation(id, organisation);
        }
    }

    /// Pays for a retry after `class`; returns `false` if the budget is used up.
    pub fn pay_for_retry(&self, upstream: &str, class: Class) -> bool {
        self.find_pool(upstream)
            .is_some_and(|pool| lock_shared(&pool.endpoint).budget.pay_for_retry(class))
    }

    /// Returns `true` if the breaker of an endpoint and model blocks the proxy's own retries.
    pub fn is_breaker_open(&self, upstream: &str, model: Option<&str>, now: Instant) -> bool {
        let Some(pool) = self.find_pool(upstream) else {
            return false;
        };
        let endpoint = lock_shared(&pool.endpoint);
        let breaker = endpoint.breakers.get(model.unwrap_or_default());
        breaker.is_some_and(|breaker| breaker.state_at(now) != BreakerState::Closed)
    }

    /// Returns the state of every profile, by upstream. Upstreams without profiles are left out.
    pub fn profile_statuses(&self, now: Instant) -> Vec<(&str, Vec<ProfileStatus>)> {
        let pools = self.0.pools.iter().filter(|(_, pool)| !pool.profiles.is_empty());
        pools
            .map(|(name, pool)| (name.as_str(), lock_shared(&pool.rotation).profile_statuses(now)))
            .collect()
    }

    /// Returns every breaker with failures, by upstream.
    pub fn breaker_statuses(&self, now: Instant) -> Vec<(&str, Vec<BreakerStatus>)> {
        let view = |pool: &ProfilePool| {
            let endpoint = lock_shared(&pool.endpoint);
            let seen = endpoint
                .breakers
                .iter()
                .filter(|(_, breaker)| breaker.failures_in_row() > 0);
            let view = seen.map(|(model, breaker)| BreakerStatus {
                model: model.clone(),
                state: breaker.state_at(now),
                failures: breaker.failures_in_row(),
                open_until: breaker.open_until(),
            });
            view.collect()
        };
        self.0
            .pools
            .iter()
            .map(|(name, pool)| (name.as_str(), view(pool)))
            .collect()
    }

    /// Clears a profile's cooldowns on behalf of an operator. Returns `false` if the profile does not exist.
    pub fn clear_cooldowns(&self, upstream: &str, label: &str) -> bool {
        let Some(pool) = self.find_pool(upstream) else {
            return false;
        };
        let mut rotation = lock_shared(&pool.rotation);
        rotation
            .find_profile(label)
            .is_some_and(|id| rotation.clear_cooldowns(id))
    }

    /// Updates the gauges. Cooldowns end without an event, so the gauges must be refreshed.
    pub fn publish_gauges(&self, now: Instant) {
        for (upstream, profiles) in self.profile_statuses(now) {
            for profile in profiles {
                for state in ProfileState::ALL {
                    let is = profile.state == state;
                    self.0
                        .telemetry
                        .set_profile_state(upstream, &profile.label, state.label(), is);
                }
            }
        }
        for (upstream, breakers) in self.breaker_statuses(now) {
            for standing in BreakerState::ALL {
                let count = breakers.iter().filter(|breaker| breaker.state == standing).count();
                self.0.telemetry.set_breaker_count(upstream, standing.label(), count);
            }
        }
    }

    fn find_pool(&self, upstream: &str) -> Option<&ProfilePool> {
        self.0.pools.get(upstream)
    }
}

fn pool_member(profile: &Profile) -> PoolMember {
    PoolMember {
        label: profile.label.as_str().into(),
        weight: profile.weight,
        organisation: profile.organisation.as_deref().map(Into::into),
        models: profile.models.clone(),
    }
}

fn lock_shared<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each update leaves valid state, so a panic elsewhere need not spread.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
