//! The credentials that change while the process runs, for their sources and for requests that wait for one.

use std::{sync::Arc, time::Instant};

use super::{
    ProfilePool,
    credential_cell::{CredentialCell, CredentialStatus},
    lock_shared,
};
use crate::{
    auth::{Credential, Profile},
    clock,
    keys::{
        credential_source::{SourceFailure, SuppliedCredential},
        rotation::{ProfileId, ProfileQuery, Rotation},
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

/// The credential of one profile, for the task that renews it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProfileCredential {
    pool: Arc<ProfilePool>,
    id: ProfileId,
}

impl ProfileCredential {
    /// Creates the handle.
    pub(super) fn new(pool: &Arc<ProfilePool>, id: ProfileId) -> Self {
        let pool = Arc::clone(pool);
        Self { pool, id }
    }

    /// Returns the upstream's name.
    pub fn upstream(&self) -> &str {
        &self.pool.upstream
    }

    /// Returns the profile with its present credential.
    pub fn profile(&self) -> Option<Arc<Profile>> {
        self.pool.profile(self.id)
    }

    /// Returns the time at which the source is asked again; `None` if the profile has no valid credential.
    pub fn next_refresh(&self) -> Option<Instant> {
        let cell = self.cell().filter(|cell| cell.has_valid_credential());
        cell?.load_present().due
    }

    /// Waits until the provider rejects the credential.
    pub async fn await_rejection(&self) {
        match self.cell() {
            Some(cell) => cell.rejected.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Stores a credential that the source has supplied. The source is asked again at `due`.
    pub fn renew(&self, supplied: SuppliedCredential, due: Instant) {
        self.change(|cell, rotation| {
            if cell.store_credential(supplied, Some(due)) {
                rotation.renew_credential(self.id, clock::std_now());
            }
            rotation.set_credential_state(self.id, cell.credential_state());
        });
    }

    /// Stores another key in place of the credential. None of its cooldowns stays.
    pub fn replace(&self, credential: Credential) {
        self.change(|cell, rotation| {
            let expires_at = None;
            cell.store_credential(SuppliedCredential { credential, expires_at }, None);
            let profile = self.pool.profiles.get(self.id);
            let organisation = profile.and_then(|profile| profile.organisation.as_deref());
            rotation.replace_credential(self.id, organisation, clock::std_now());
        });
    }

    /// Notes that the credential has expired.
    pub fn note_expiry(&self) {
        self.change(|cell, rotation| rotation.set_credential_state(self.id, cell.credential_state()));
    }

    /// Stores the failure of the source. A credential that is still valid stays.
    pub fn record_source_failure(&self, failure: SourceFailure) {
        self.change(|cell, rotation| {
            cell.set_failure(Some(failure));
            rotation.set_credential_state(self.id, cell.credential_state());
        });
    }

    fn cell(&self) -> Option<&CredentialCell> {
        self.pool.credentials.get(self.id)
    }

    fn change(&self, change: impl FnOnce(&CredentialCell, &mut Rotation)) {
        if let Some(cell) = self.cell() {
            change(cell, &mut lock_shared(&self.pool.rotation));
            self.pool.changed.notify_waiters();
            self.pool.shared.telemetry.announce_profiles();
            if let Some(cooldowns) = self.pool.shared.cooldowns.get() {
                cooldowns.note_new_keys();
            }
        }
    }
}

impl ProfilePool {
    /// Returns the profiles that could serve a model, but have no valid credential.
    pub fn lacking_profiles(&self, ask: &ProfileQuery<'_>) -> Vec<LackingProfile> {
        let pairs = self.profiles.iter().zip(&self.credentials);
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
    pub fn credential_statuses(&self) -> Vec<Option<CredentialStatus>> {
        let cells = self.credentials.iter();
        cells.map(CredentialCell::credential_status).collect()
    }

    /// Returns the handle of a profile's credential.
    pub fn credential(self: &Arc<Self>, id: ProfileId) -> ProfileCredential {
        ProfileCredential::new(self, id)
    }
}
