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
    time::Instant,
};

use tokio::sync::Notify;

pub use caller_budgets::RetryPayer;
pub use endpoint_state::BreakerStatus;
use profile_pool::PoolListeners;
pub use profile_pool::{ObservedAttempt, ProfilePlace, ProfilePool, ReservedSlot, SelectedProfile};
pub use shared_cooldowns::{SharedCooldownReader, SharedCooldowns};

use crate::{
    auth::{Credential, Profile},
    clock,
    keys::{
        credential_source::{CredentialSource, CredentialSources},
        rotation::{PoolMember, ProfileId, ProfileStatus, Rotation, SharedCooldown},
    },
    policy::{OnOrganisationChange, ProfileState, RotationSettings, breaker::BreakerState},
    telemetry::Telemetry,
};
use credential_cell::CredentialCell;
pub use credential_cell::CredentialStatus;
pub use credentials::{LackingProfile, ProfileCredential};

/// The shared state of all upstreams. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Profiles(Arc<SharedPools>);

#[derive(Debug)]
struct SharedPools {
    pools: BTreeMap<String, Arc<ProfilePool>>,
    /// The pool of an upstream that is not listed: it has no profiles.
    unlisted: Arc<ProfilePool>,
    listeners: Arc<PoolListeners>,
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
                self.listeners.telemetry.announce_profiles();
            }
        }
    }
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
        let listeners = Arc::new(PoolListeners {
            telemetry,
            cooldowns: OnceLock::new(),
        });
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
                upstream: name.to_owned(),
                shared: Arc::clone(&listeners),
                rotation: Mutex::new(rotation),
                links: OnceLock::new(),
                changed: Notify::new(),
                credentials,
                profiles,
            })
        };
        let named = upstreams.into_iter().map(ToOwned::to_owned);
        let pools = named.map(|name| (name.clone(), pool(&name))).collect();
        let unlisted = pool("");
        Self(Arc::new(SharedPools {
            pools,
            unlisted,
            listeners,
        }))
    }

    /// Shares cooldowns of keys with the other replicas of a ledger from now on, also after reloads.
    pub fn share_cooldowns(&self, cooldowns: &SharedCooldowns) {
        drop(self.0.listeners.cooldowns.set(cooldowns.clone()));
        cooldowns.add_pools(&self.0);
    }

    /// Takes over the state of `old` for profiles with the same name and credential or source, and for upstreams of the
    /// same name. A credential that an unchanged source has supplied stays. What exchanges report to `old` from now on
    /// reaches these profiles too.
    ///
    /// Call it before any other use.
    pub fn inherit_state(&self, old: &Self) {
        for (name, pool) in &self.0.pools {
            let Some(known) = old.0.pools.get(name) else { continue };
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
        if let Some(cooldowns) = old.0.listeners.cooldowns.get() {
            self.share_cooldowns(cooldowns);
        }
    }

    /// Returns the pool of an upstream. One that is not listed has no profiles.
    pub fn pool(&self, upstream: &str) -> &Arc<ProfilePool> {
        self.0.pools.get(upstream).unwrap_or(&self.0.unlisted)
    }

    /// Returns every credential that has a source, with the source.
    pub fn sourced_credentials(&self) -> impl Iterator<Item = (ProfileCredential, &CredentialSource)> {
        self.0.pools.values().flat_map(|pool| {
            let cells = pool.credentials.iter().enumerate();
            cells.filter_map(|(id, cell)| Some((ProfileCredential::new(pool, id), cell.source()?)))
        })
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
        self.pool(upstream).clear_cooldowns(label)
    }

    /// Updates the gauges. Cooldowns end without an event, so the gauges must be refreshed.
    pub fn publish_gauges(&self, now: Instant) {
        for (upstream, profiles) in self.profile_statuses(now) {
            for profile in profiles {
                for state in ProfileState::ALL {
                    let is = profile.state == state;
                    self.0
                        .listeners
                        .telemetry
                        .set_profile_state(upstream, &profile.label, state.label(), is);
                }
            }
        }
        for (upstream, breakers) in self.breaker_statuses(now) {
            for standing in BreakerState::ALL {
                let count = breakers.iter().filter(|breaker| breaker.state == standing).count();
                self.0
                    .listeners
                    .telemetry
                    .set_breaker_count(upstream, standing.label(), count);
            }
        }
    }
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
