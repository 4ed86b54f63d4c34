//! The present credential of one profile. Its source replaces it while exchanges read it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;

use tokio::sync::Notify;

use crate::{
    auth::{Credential, Profile},
    clock,
    keys::{
        credential_source::CredentialSource,
        credential_source::{SourceFailure, SuppliedCredential},
        rotation::CredentialState,
    },
};

/// The state of a credential that has a source, for the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialStatus {
    /// The configuration key of its source.
    pub source: &'static str,
    /// Its end, since 1970; `None` if it has none, or if there is no credential.
    pub expires_at: Option<Duration>,
    /// The last failure of its source; `None` if the last run succeeded.
    pub last_failure: Option<&'static str>,
}

/// A credential and its end on both clocks.
#[derive(Clone, Debug)]
pub(super) struct PresentCredential {
    /// The profile as it was configured, with this credential.
    pub(super) profile: Arc<Profile>,
    /// The end on the process's clock.
    pub(super) until: Option<Instant>,
    /// The time of the next refresh; `None` for a credential that no source has supplied.
    pub(super) due: Option<Instant>,
    /// The end since 1970. The process's clock stands still while the machine sleeps.
    pub(super) expires_at: Option<Duration>,
}

impl PresentCredential {
    /// Returns `true` once one of the clocks has passed the end.
    pub(super) fn has_expired(&self) -> bool {
        // Both clocks are read for credentials with an end only.
        self.until.is_some_and(|end| end <= clock::std_now())
            || self.expires_at.is_some_and(|end| end <= clock::system_time())
    }
}

/// The present credential of one profile, its source and the outcome of the source's last run.
#[derive(Debug)]
pub(super) struct CredentialCell {
    /// The profile as it was configured. Its credential is awaited if it comes from a program or an endpoint.
    configured: Arc<Profile>,
    source: Option<CredentialSource>,
    present: ArcSwap<PresentCredential>,
    last_failure: Mutex<Option<SourceFailure>>,
    /// Tells the source that the provider has rejected the credential.
    pub(super) rejected: Notify,
}

impl CredentialCell {
    /// Creates the cell of a profile with its configured credential.
    pub(super) fn new(profile: &Profile, source: Option<CredentialSource>) -> Self {
        let configured = Arc::new(profile.clone());
        Self {
            present: ArcSwap::from_pointee(PresentCredential {
                profile: Arc::clone(&configured),
                until: None,
                due: None,
                expires_at: None,
            }),
            rejected: Notify::new(),
            configured,
            source,
            last_failure: Mutex::default(),
        }
    }

    /// Returns the source of the credential; `None` if it never changes.
    pub(super) const fn source(&self) -> Option<&CredentialSource> {
        self.source.as_ref()
    }

    /// Returns the profile with the credential to be sent. An expired credential is awaited again.
    pub(super) fn load_profile(&self) -> Arc<Profile> {
        let present = self.present.load();
        if present.has_expired() {
            return Arc::clone(&self.configured);
        }
        Arc::clone(&present.profile)
    }

    /// Returns the credential with its end.
    pub(super) fn load_present(&self) -> Arc<PresentCredential> {
        self.present.load_full()
    }

    /// Returns `true` if the present credential may be sent.
    pub(super) fn has_valid_credential(&self) -> bool {
        let present = self.present.load();
        !matches!(present.profile.credential, Credential::Awaited { .. }) && !present.has_expired()
    }

    /// Returns `true` if the credential comes from a source and cannot be sent.
    pub(super) fn has_lost_credential(&self) -> bool {
        self.source.is_some() && !self.has_valid_credential()
    }

    /// Returns the state of the present credential for the choice among profiles.
    pub(super) fn credential_state(&self) -> CredentialState {
        if !self.has_valid_credential() {
            return CredentialState::Missing;
        }
        let until = self.present.load().until;
        until.map_or(CredentialState::Lasting, CredentialState::Until)
    }

    /// Stores a credential, whose source is asked again at `due`. Returns `true` if it differs from the one before.
    pub(super) fn store_credential(&self, supplied: SuppliedCredential, due: Option<Instant>) -> bool {
        self.set_failure(None);
        let before = self.present.load_full();
        let is_new = before.profile.credential != supplied.credential;
        let profile = if is_new {
            let credential = supplied.credential;
            Arc::new(Profile {
                credential,
                ..Profile::clone(&self.configured)
            })
        } else {
            Arc::clone(&before.profile)
        };
        let life = supplied.expires_at.map(|end| end.saturating_sub(clock::system_time()));
        self.present.store(Arc::new(PresentCredential {
            profile,
            until: life.and_then(|life| clock::std_now().checked_add(life)),
            due,
            expires_at: supplied.expires_at,
        }));
        is_new
    }

    /// Stores the failure of the source's last run.
    pub(super) fn set_failure(&self, failure: Option<SourceFailure>) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Returns the failure of the source's last run.
    pub(super) fn last_failure(&self) -> Option<SourceFailure> {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if this profile goes on with the state of `old`: the same name, and the same source or credential.
    pub(super) fn continues(&self, old: &Self) -> bool {
        let is_same = match (&self.source, &old.source) {
            (Some(source), Some(before)) if source.is_awaited() => source == before,
            // A changed credential may work where the old one failed.
            _ => self.configured.credential == old.load_present().profile.credential,
        };
        self.configured.label == old.configured.label && is_same
    }

    /// Takes over the credential that the source of `old` has supplied.
    pub(super) fn take_over(&self, old: &Self) {
        if self.source.as_ref().is_some_and(CredentialSource::is_awaited) {
            let present = PresentCredential::clone(&old.load_present());
            // The weight and the models may have changed.
            let profile = Profile {
                credential: present.profile.credential.clone(),
                ..Profile::clone(&self.configured)
            };
            self.present.store(Arc::new(PresentCredential {
                profile: Arc::new(profile),
                ..present
            }));
        }
    }

    /// Returns the state for the admin API; `None` if the credential never changes.
    pub(super) fn credential_status(&self) -> Option<CredentialStatus> {
        Some(CredentialStatus {
            source: self.source.as_ref()?.label(),
            expires_at: self.present.load().expires_at,
            last_failure: self.last_failure().map(SourceFailure::label),
        })
    }
}
