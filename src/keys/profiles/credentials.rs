//! The credentials that change while the process runs, for their sources and for requests that wait for one.

use std::{sync::Arc, time::Instant};

use super::{
    ProfilePool, Profiles,
    credential_cell::{CredentialCell, CredentialStatus},
    lock_shared,
};
use crate::{
    auth::{Credential, Profile},
    clock,
    keys::{
        credential_source::CredentialSource,
        credential_source::{SourceFailure, SuppliedCredential},
        rotation::{ProfileId, ProfileQuery},
    },
};

/// A profile that has no valid credential, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LackingProfile {
    /// The profile's name.
    pub profile: String,
    /// The configuration key of its source.
    pub source: &'static str,
    /// The last failure of its source; `None` if it has not ended its first run.
    pub failure: Option<SourceFailure>,
}

/// The handle of all profiles' credentials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProfileCredentials {
    profiles: Profiles,
}

impl ProfileCredentials {
    /// Creates the handle.
    pub(super) const fn new(profiles: Profiles) -> Self {
        Self { profiles }
    }

    /// Returns every profile whose credential has a source: its upstream, its id and the source.
    pub fn sourced_profiles(&self) -> impl Iterator<Item = (&str, ProfileId, &CredentialSource)> {
        self.profiles.0.pools.iter().flat_map(|(name, pool)| {
            let cells = pool.credentials.iter().enumerate();
            cells.filter_map(|(id, cell)| Some((name.as_str(), id, cell.source()?)))
        })
    }

    /// Returns a profile with its present credential.
    pub fn profile(&self, upstream: &str, id: ProfileId) -> Option<Arc<Profile>> {
        self.profiles.profile(upstream, id)
    }

    /// Returns the time at which a source is asked again; `None` if the profile has no valid credential.
    pub fn next_refresh(&self, upstream: &str, id: ProfileId) -> Option<Instant> {
        let cell = self.find_cell(upstream, id).filter(|cell| cell.has_valid_credential());
        cell?.load_present().due
    }

    /// Waits until the provider refuses the credential of a profile.
    pub async fn await_refusal(&self, upstream: &str, id: ProfileId) {
        match self.find_cell(upstream, id) {
            Some(cell) => cell.refused.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Stores a credential that a profile's source has supplied. The source is asked again at `due`.
    pub fn renew_credential(&self, upstream: &str, id: ProfileId, supplied: SuppliedCredential, due: Instant) {
        self.change_credential(upstream, id, |pool, cell| {
            let is_new = cell.store_credential(supplied, Some(due));
            let mut rotation = lock_shared(&pool.rotation);
            if is_new {
                rotation.renew_credential(id, clock::std_now());
            }
            rotation.set_credential_state(id, cell.credential_state());
        });
    }

    /// Stores another key in place of a profile's credential. None of its cooldowns stays.
    pub fn replace_credential(&self, upstream: &str, id: ProfileId, credential: Credential) {
        self.change_credential(upstream, id, |pool, cell| {
            let expires_at = None;
            cell.store_credential(SuppliedCredential { credential, expires_at }, None);
            let organisation = pool
                .profiles
                .get(id)
                .and_then(|profile| profile.organisation.as_deref());
            lock_shared(&pool.rotation).replace_credential(id, organisation, clock::std_now());
        });
    }

    /// Notes that the credential of a profile has expired.
    pub fn note_expiry(&self, upstream: &str, id: ProfileId) {
        self.change_credential(upstream, id, |pool, cell| {
            lock_shared(&pool.rotation).set_credential_state(id, cell.credential_state());
        });
    }

    /// Stores the failure of a profile's source. A credential that is still valid stays.
    pub fn record_source_failure(&self, upstream: &str, id: ProfileId, failure: SourceFailure) {
        self.change_credential(upstream, id, |pool, cell| {
            cell.set_failure(Some(failure));
            lock_shared(&pool.rotation).set_credential_state(id, cell.credential_state());
        });
    }

    fn find_cell(&self, upstream: &str, id: ProfileId) -> Option<&CredentialCell> {
        self.profiles.find_pool(upstream)?.credentials.get(id)
    }

    fn change_credential(&self, upstream: &str, id: ProfileId, change: impl FnOnce(&ProfilePool, &CredentialCell)) {
        let Some(pool) = self.profiles.find_pool(upstream) else {
            return;
        };
        if let Some(cell) = pool.credentials.get(id) {
            change(pool, cell);
            pool.changed.notify_waiters();
            self.profiles.0.telemetry.announce_profiles();
            if let Some(cooldowns) = self.profiles.0.cooldowns.get() {
                cooldowns.note_new_keys();
            }
        }
    }

    /// Returns the profiles that could serve a model, but have no valid credential.
    pub fn lacking_profiles(&self, upstream: &str, ask: &ProfileQuery<'_>) -> Vec<LackingProfile> {
        let pool = self.profiles.find_pool(upstream);
        let pairs = pool
            .into_iter()
            .flat_map(|pool| pool.profiles.iter().zip(&pool.credentials));
        let lacking = pairs.filter(|(profile, cell)| profile.allows_model(ask.model) && !cell.has_valid_credential());
        lacking
            .filter_map(|(profile, cell)| {
                Some(LackingProfile {
                    profile: profile.label.clone(),
                    source: cell.source()?.label(),
                    failure: cell.last_failure(),
                })
            })
            .collect()
    }

    /// Returns the states of credentials with a source, by profile. All others are `None`.
    pub fn credential_statuses(&self, upstream: &str) -> Vec<Option<CredentialStatus>> {
        let cells = self.profiles.find_pool(upstream).map(|pool| pool.credentials.iter());
        cells
            .into_iter()
            .flatten()
            .map(CredentialCell::credential_status)
            .collect()
    }
}
