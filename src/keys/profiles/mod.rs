//! The state that all exchanges of an upstream share: locks around its rotation, its retry budget and its breakers.
//!
//! Each lock is held for one read or update, never across an await.

mod caller_budgets;
mod credential_cell;
mod credentials;
mod endpoint_state;
mod profile_pool;
mod shared_cooldowns;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, futures::Notified};

pub use caller_budgets::RetryPayer;
pub use endpoint_state::BreakerStatus;
pub use profile_pool::{ProfilePlace, ReservedSlot};
use profile_pool::{ProfilePool, RecordedAttempt};
pub use shared_cooldowns::{SharedCooldownWorker, SharedCooldowns};

use crate::{
    auth::{Credential, Principal, Profile},
    clock::{self, rfc3339_date},
    keys::{
        credential_source::CredentialSources,
        rotation::{
            AttemptReport, PoolMember, ProfileId, ProfileQuery, ProfileState, ProfileStatus, Rotation, Selection,
            SharedCooldown,
        },
    },
    policy::{
        Class, EmptyQuota, LimitHints, OnOrganisationChange, Reason, RotationSettings, Verdict, breaker::BreakerState,
    },
    printable::printable_word,
    telemetry::Telemetry,
};
use credential_cell::CredentialCell;
pub use credential_cell::CredentialStatus;
pub use credentials::{LackingProfile, ProfileCredentials};

/// The shared state of all upstreams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Profiles(Arc<SharedPools>);

#[derive(Debug)]
struct SharedPools {
    pools: BTreeMap<String, Arc<ProfilePool>>,
    telemetry: Telemetry,
    /// The cooldowns that other replicas share. Empty without any.
    cooldowns: OnceLock<SharedCooldowns>,
}

impl SharedPools {
    /// Applies the cooldown of a credential with the hash `tag`.
    fn apply_cooldown(
        &self,
        tag: &[u8; 32],
        cooldown: &SharedCooldown,
        hash: &impl Fn(&str, &Credential) -> Option<[u8; 32]>,
    ) {
        for (upstream, pool) in &self.pools {
            let is_its = |profile: &Profile| hash(upstream, &profile.credential).as_ref() == Some(tag);
            if pool.apply_cooldown(cooldown, clock::std_now(), is_its) {
                tracing::info!(
                    upstream,
                    reason = cooldown.reason.label(),
                    "another replica has begun or ended a profile's cooldown"
                );
                self.telemetry.announce_profiles();
            }
        }
    }
}

/// The outcome of a choice.
#[derive(Debug)]
pub struct SelectedProfile {
    /// The profile, or the reason for none.
    pub selection: Selection,
    /// The place of the request; `None` unless it uses the profile now.
    pub place: Option<ProfilePlace>,
    /// The slot that the request waits for; `None` unless it waits.
    pub slot: Option<ReservedSlot>,
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
    /// The template of the path; `None` if it is unknown.
    pub path: Option<&'static str>,
    /// The start of the attempt.
    pub began: Instant,
    /// The hash of the logical request: the same for each send, and for each retry of the client.
    pub request: u64,
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
        profiles: BTreeMap<String, Vec<Profile>>,
        settings: &RotationSettings,
        telemetry: Telemetry,
    ) -> Self {
        Self::with_sources(upstreams, profiles, &CredentialSources::new(), settings, telemetry)
    }

    /// Creates the state of `upstreams`, with the sources of credentials that change.
    pub fn with_sources<'u>(
        upstreams: impl IntoIterator<Item = &'u str>,
        mut profiles: BTreeMap<String, Vec<Profile>>,
        sources: &CredentialSources,
        settings: &RotationSettings,
        telemetry: Telemetry,
    ) -> Self {
        let mut pool = |name: &str| {
            let profiles = profiles.remove(name).unwrap_or_default();
            let members = profiles.iter().map(pool_member).collect();
            let may_leave = settings.on_organisation_change == OnOrganisationChange::Move;
            let mut rotation = Rotation::new(members, settings.wait, may_leave);
            let source = |profile: &Profile| sources.get(name)?.get(&profile.label).cloned();
            let cell = |profile: &Profile| CredentialCell::new(profile, source(profile));
            let credentials: Vec<CredentialCell> = profiles.iter().map(cell).collect();
            for (id, cell) in credentials.iter().enumerate() {
                rotation.set_credential_state(id, cell.credential_state());
            }
            Arc::new(ProfilePool {
                rotation: Mutex::new(rotation),
                links: OnceLock::new(),
                changed: Notify::new(),
                credentials,
                profiles,
            })
        };
        let named = upstreams.into_iter().map(ToOwned::to_owned);
        let pools = named.map(|name| (name.clone(), pool(&name))).collect();
        let cooldowns = OnceLock::new();
        Self(Arc::new(SharedPools {
            pools,
            telemetry,
            cooldowns,
        }))
    }

    /// Shares cooldowns of keys with the other replicas of a ledger from now on, also after reloads.
    pub fn share_cooldowns(&self, cooldowns: &SharedCooldowns) {
        drop(self.0.cooldowns.set(cooldowns.clone()));
        cooldowns.add_pools(&self.0);
    }

    /// Tells the other replicas of cooldowns that have begun and ended.
    fn tell_cooldowns(&self, upstream: &str, changes: Vec<(Arc<Profile>, SharedCooldown)>) {
        let Some(cooldowns) = self.0.cooldowns.get() else {
            return;
        };
        for (profile, cooldown) in changes {
            cooldowns.tell(upstream, &profile.credential, cooldown);
        }
    }

    /// Takes over the state of `old` for profiles with the same name and credential or source, and for upstreams of the
    /// same name. A credential that an unchanged source has supplied stays. What exchanges report to `old` from now on
    /// reaches these profiles too.
    ///
    /// Call it before any other use.
    pub fn inherit_state(&self, old: &Self) {
        for (name, pool) in &self.0.pools {
            let Some(known) = old.find_pool(name) else { continue };
            let same = |id: ProfileId| {
                let cell = pool.credentials.get(id)?;
                let before = known.credentials.iter().position(|old| cell.continues(old))?;
                cell.take_over(known.credentials.get(before)?);
                Some(before)
            };
            let links = known.links();
            // The first use of this pool, so its links are not set yet.
            drop(pool.links.set(links.clone()));
            // Exchanges use the new state only later, so holding both locks cannot deadlock.
            let former = lock_shared(&known.rotation);
            let mut rotation = lock_shared(&pool.rotation);
            rotation.inherit_state(&former, same);
            // A source may have renewed a credential since its presence was stored.
            for (id, cell) in pool.credentials.iter().enumerate() {
                rotation.set_credential_state(id, cell.credential_state());
            }
            drop(rotation);
            // Under the old lock, so that each report is either copied or forwarded.
            *lock_shared(&links.present) = Arc::downgrade(pool);
        }
        // Last, so that what others have told meanwhile is applied to this state.
        if let Some(cooldowns) = old.0.cooldowns.get() {
            self.share_cooldowns(cooldowns);
        }
    }

    /// Returns `true` if requests to this upstream use profiles.
    pub fn has_profiles(&self, upstream: &str) -> bool {
        self.find_pool(upstream).is_some_and(|pool| !pool.profiles.is_empty())
    }

    /// Returns `true` if a profile of this upstream signs requests, which requires the whole body.
    pub fn needs_body(&self, upstream: &str) -> bool {
        let signs = |profile: &Profile| profile.credential.signs_requests();
        self.find_pool(upstream)
            .is_some_and(|pool| pool.profiles.iter().any(signs))
    }

    /// Returns a profile by its id, with its present credential.
    pub fn profile(&self, upstream: &str, id: ProfileId) -> Option<Arc<Profile>> {
        Some(self.find_pool(upstream)?.credentials.get(id)?.load_profile())
    }

    /// Returns the handle of the credentials that change.
    pub fn credentials(&self) -> ProfileCredentials {
        ProfileCredentials::new(self.clone())
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
    pub fn select_profile(&self, upstream: &str, ask: &ProfileQuery<'_>, now: Instant) -> Option<SelectedProfile> {
        let pool = self.find_pool(upstream).filter(|pool| !pool.profiles.is_empty())?;
        // The lock is released before telemetry is called.
        let (selection, slot) = pool.select_sendable(ask, now);
        let mut place = None;
        if let Selection::Use { id, moved, .. } = selection {
            // Limits of models do not concern other requests.
            place = (!ask.asks_no_model).then(|| ProfilePlace::new(pool, id));
            if let Some(moved) = moved {
                let from = pool
                    .profiles
                    .get(moved.from)
                    .map_or("", |profile| profile.label.as_str());
                self.0.telemetry.record_rotation(upstream, from, moved.cause.label());
            }
        }
        let slot = slot.map(|(id, slot)| ReservedSlot::new(pool, id, ask.model, slot));
        Some(SelectedProfile { selection, place, slot })
    }

    /// Takes a place in a profile that was not selected; `None` if the profile does not exist.
    pub fn take_place(&self, upstream: &str, id: ProfileId) -> Option<ProfilePlace> {
        let pool = self.find_pool(upstream).filter(|pool| id < pool.profiles.len())?;
        lock_shared(&pool.rotation).take_place(id);
        Some(ProfilePlace::new(pool, id))
    }

    /// Returns a future that ends when the profiles have changed, so that a request which waits should ask again.
    ///
    /// `None` if the upstream does not exist.
    pub fn pool_changed(&self, upstream: &str) -> Option<Notified<'_>> {
        self.find_pool(upstream).map(|pool| pool.changed.notified())
    }

    /// Returns the time until a profile may be used for a request; `None` if no time helps.
    pub fn soonest_use(&self, upstream: &str, ask: &ProfileQuery<'_>, now: Instant) -> Option<Duration> {
        lock_shared(&self.find_pool(upstream)?.rotation).soonest_use(ask, now)
    }

    /// Records a limit that the head of a success reports as used up.
    pub fn record_empty(&self, upstream: &str, id: ProfileId, model: Option<&str>, empty: EmptyQuota, now: Instant) {
        if let Some(pool) = self.find_pool(upstream) {
            lock_shared(&pool.rotation).record_empty(id, model, empty, now);
        }
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
        self.0.telemetry.count_attempt(upstream, verdict.class.label());
        // An answer on a path without a model has limits of its own.
        if let Some(id) = attempt.profile.filter(|_| attempt.asks_model) {
            let report = AttemptReport {
                verdict,
                model,
                path: attempt.path,
                hints: *hints,
                began: attempt.began,
                jitter: attempt.jitter,
            };
            let RecordedAttempt { began, changes } = pool.apply_attempt(id, &report, now);
            self.tell_cooldowns(upstream, changes);
            if let Some(reason) = began {
                let statuses = lock_shared(&pool.rotation).profile_statuses(now);
                let usable = statuses.iter().zip(&pool.profiles);
                let left = usable.filter(|(status, profile)| status.serves(model) && profile.allows_model(model));
                log_cooldown(attempt, (reason, verdict), statuses.get(id), left.count(), now);
                // Dashboards must not wait for the next refresh.
                self.0.telemetry.announce_profiles();
            }
        }
        lock_shared(&pool.links().endpoint).note_attempt(attempt, verdict, now);
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
        let id = rotation.find_profile(label);
        let is_cleared = id.is_some_and(|id| rotation.clear_cooldowns(id, clock::std_now()));
        let changes = rotation.take_changes();
        drop(rotation);
        self.tell_cooldowns(upstream, pool.with_profiles(changes));
        pool.changed.notify_waiters();
        is_cleared
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

/// Logs a cooldown that an attempt of a profile has begun or extended: its end, and the number of profiles that are
/// left for the model.
fn log_cooldown(
    attempt: &ObservedAttempt,
    (reason, verdict): (Reason, Verdict),
    profile: Option<&ProfileStatus>,
    left: usize,
    now: Instant,
) {
    let cooldown = profile.and_then(|profile| profile.cooldown_of(reason, attempt.model.as_deref()));
    let until = cooldown.map(|cooldown| clock::system_time() + cooldown.until.saturating_duration_since(now));
    let only_model = cooldown.and_then(|cooldown| cooldown.model.as_deref());
    tracing::warn!(
        upstream = attempt.upstream,
        profile = profile.map(|profile| &*profile.label),
        reason = reason.label(),
        // Missing if the cooldown is for every model.
        model = only_model.map(|model| printable_word(model.as_bytes())),
        until = until.map(rfc3339_date),
        left,
        status = verdict.evidence.map(|evidence| evidence.status),
        statement = verdict.evidence.map(|evidence| evidence.statement),
        path = attempt.path,
        "profile cooldown started or extended"
    );
}

fn pool_member(profile: &Profile) -> PoolMember {
    PoolMember {
        label: profile.label.as_str().into(),
        weight: profile.weight,
        organisation: profile.organisation.as_deref().map(Into::into),
        models: profile.models.clone(),
        max_concurrent: profile.max_concurrent,
    }
}

fn lock_shared<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each update leaves valid state, so a panic elsewhere need not spread.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
