//! The state that all exchanges of an upstream share: locks around its rotation, its retry budget and its breakers.
//!
//! Each lock is held for one read or update, never across an await.

mod caller_budgets;
mod endpoint_state;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Instant,
};

pub use caller_budgets::RetryPayer;
pub use endpoint_state::BreakerStatus;
use endpoint_state::EndpointState;

use crate::{
    auth::{
        Credential, Principal, Profile,
        rotation::{
            AttemptReport, PoolMember, ProfileId, ProfileQuery, ProfileState, ProfileStatus, Rotation, Selection,
        },
    },
    policy::{Class, LimitHints, OnOrganisationChange, Reason, RotationSettings, Verdict, breaker::BreakerState},
    telemetry::Telemetry,
};

/// The shared state of all upstreams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Profiles(Arc<SharedPools>);

#[derive(Debug)]
struct SharedPools {
    pools: BTreeMap<String, Arc<ProfilePool>>,
    telemetry: Telemetry,
}

#[derive(Debug)]
struct ProfilePool {
    profiles: Vec<Profile>,
    rotation: Mutex<Rotation>,
    /// Set when the pool is first used, or when it takes the place of another.
    links: OnceLock<PoolLinks>,
}

/// The state that a pool shares with those that reloads have replaced or will put in its place.
#[derive(Clone, Debug, Default)]
struct PoolLinks {
    endpoint: Arc<Mutex<EndpointState>>,
    /// The pool of the last reload. Weak, so that a pool lives only as long as something uses it.
    present: Arc<Mutex<Weak<ProfilePool>>>,
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
    /// The caller, whose budget earns by a success and whose breaker counts failures.
    pub payer: RetryPayer,
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
            Arc::new(ProfilePool {
                rotation: Mutex::new(Rotation::new(members, settings.wait, may_leave)),
                links: OnceLock::new(),
                profiles,
            })
        };
        let named = upstreams.into_iter().map(ToOwned::to_owned);
        let pools = named.map(|name| (name.clone(), pool(&name))).collect();
        Self(Arc::new(SharedPools { pools, telemetry }))
    }

    /// Takes over the state of `old` for profiles with the same name and credential, and for upstreams of the same name.
    /// What exchanges report to `old` from now on reaches these profiles too.
    ///
    /// Call it before any other use.
    pub fn inherit_state(&self, old: &Self) {
        for (name, pool) in &self.0.pools {
            let Some(known) = old.find_pool(name) else { continue };
            let same = |id: ProfileId| known.find_same(pool.profiles.get(id)?);
            let links = known.links();
            // The first use of this pool, so its links are not set yet.
            drop(pool.links.set(links.clone()));
            // Exchanges use the new state only later, so holding both locks cannot deadlock.
            let former = lock_shared(&known.rotation);
            lock_shared(&pool.rotation).inherit_state(&former, same);
            // Under the old lock, so that each report is either copied or forwarded.
            *lock_shared(&links.present) = Arc::downgrade(pool);
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
            let reason = moved.reason.map_or("other", Reason::label);
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

    /// Returns the number of profiles that could serve a request now.
    pub fn count_ready(&self, upstream: &str, ask: &ProfileQuery<'_>, now: Instant) -> usize {
        self.find_pool(upstream)
            .map_or(0, |pool| lock_shared(&pool.rotation).count_ready(ask, now))
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
            let rests = pool.record_attempt(id, &report, now);
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
        lock_shared(&pool.links().endpoint).record_attempt(attempt, verdict, now);
    }

    /// Stores the organisation that a profile's answers name.
    pub fn learn_organisation(&self, upstream: &str, id: ProfileId, organisation: &str) {
        if let Some(pool) = self.find_pool(upstream) {
            pool.learn_organisation(id, organisation);
        }
    }

    /// Pays for a retry after `class`; returns `false` if the budget of the caller or of the upstream is used up.
    pub fn pay_for_retry(&self, upstream: &str, payer: &RetryPayer, class: Class, now: Instant) -> bool {
        self.find_pool(upstream)
            .is_some_and(|pool| lock_shared(&pool.links().endpoint).pay_for_retry(payer, class, now))
    }

    /// Returns `true` if a breaker of an endpoint and model blocks the proxy's own retries for this caller.
    pub fn is_breaker_open(&self, upstream: &str, model: Option<&str>, caller: Principal, now: Instant) -> bool {
        self.find_pool(upstream)
            .is_some_and(|pool| lock_shared(&pool.links().endpoint).is_breaker_open(model, caller, now))
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
        let view = |pool: &Arc<ProfilePool>| lock_shared(&pool.links().endpoint).breaker_statuses(now);
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

    fn find_pool(&self, upstream: &str) -> Option<&Arc<ProfilePool>> {
        self.0.pools.get(upstream)
    }
}

impl ProfilePool {
    fn links(&self) -> &PoolLinks {
        self.links.get_or_init(PoolLinks::default)
    }

    /// Returns the id of the profile with the same name and credential.
    fn find_same(&self, profile: &Profile) -> Option<ProfileId> {
        // A changed credential may work where the old one failed.
        let is_it = |own: &Profile| own.label == profile.label && own.credential == profile.credential;
        self.profiles.iter().position(is_it)
    }

    /// Returns the pool that a reload has put in this one's place, and the profile's id there.
    fn find_successor(&self, id: ProfileId) -> Option<(Arc<Self>, ProfileId)> {
        let present = lock_shared(&self.links.get()?.present).upgrade()?;
        if std::ptr::eq(Arc::as_ptr(&present), self) {
            return None;
        }
        let id = present.find_same(self.profiles.get(id)?)?;
        Some((present, id))
    }

    /// Records the outcome of an attempt, here and in the pool that is in use now.
    fn record_attempt(&self, id: ProfileId, report: &AttemptReport<'_>, now: Instant) -> Option<Reason> {
        let mut rotation = lock_shared(&self.rotation);
        let rests = rotation.record_attempt(id, report, now);
        // Found under the lock, so that a reload at this moment neither loses the report nor counts it twice.
        let successor = self.find_successor(id);
        drop(rotation);
        match successor {
            Some((present, id)) => lock_shared(&present.rotation).record_attempt(id, report, now),
            None => rests,
        }
    }

    fn learn_organisation(&self, id: ProfileId, organisation: &str) {
        let mut rotation = lock_shared(&self.rotation);
        rotation.learn_organisation(id, organisation);
        let successor = self.find_successor(id);
        drop(rotation);
        if let Some((present, id)) = successor {
            lock_shared(&present.rotation).learn_organisation(id, organisation);
        }
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
