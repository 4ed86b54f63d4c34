//! The life of one renewed credential: asked for, stored, and asked for again before its end.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time;

use crate::{
    auth::{Credential, Profile},
    clock,
    keys::profiles::ProfileCredential,
    keys::{
        credential_source::CredentialSource,
        credential_source::{RefreshClock, SOURCE_TIMEOUT, SourceFailure, SuppliedCredential},
    },
};

/// Longest sleep between two looks at the system's clock, which goes on while the machine sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Shortest time between two runs of a source whose credentials the provider refuses.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);

/// A source that can be asked for a credential.
pub trait CredentialFetcher: Send {
    /// Asks the source. Dropping the future ends whatever it has started.
    fn fetch_credential(&mut self) -> impl Future<Output = Result<SuppliedCredential, SourceFailure>> + Send;
}

/// A profile whose credential is renewed.
#[derive(Clone, Debug)]
pub struct RenewedProfile {
    credential: ProfileCredential,
    /// The profile's name.
    label: String,
    /// The configuration key of the source.
    source: &'static str,
    /// Refresh interval of credentials without an end.
    interval: Duration,
}

impl RenewedProfile {
    /// Creates the handle of one profile. `None` if it does not exist.
    pub fn new(credential: ProfileCredential, source: &CredentialSource) -> Option<Self> {
        let label = credential.profile()?.label.clone();
        Some(Self {
            credential,
            label,
            source: source.label(),
            interval: source.refresh_interval(),
        })
    }

    /// Returns the profile with its present credential.
    pub(super) fn profile(&self) -> Option<Arc<Profile>> {
        self.credential.profile()
    }

    /// Stores another key in place of the present one.
    pub(super) fn replace_credential(&self, credential: Credential) {
        self.credential.replace(credential);
        let (upstream, profile) = (self.credential.upstream(), self.label.as_str());
        tracing::info!(
            upstream,
            profile,
            "the file of a profile's key has changed: the new key is used"
        );
    }

    /// Logs that the files of the profile cannot be used.
    pub(super) fn warn_of_file(&self, path: &std::path::Path, why: &dyn std::fmt::Display) {
        let (upstream, profile, path) = (self.credential.upstream(), self.label.as_str(), path.display());
        tracing::warn!(upstream, profile, %path, %why, "cannot read the file of a profile's key: the old key stays");
    }

    /// Logs that the files of the profile can be used again.
    pub(super) fn note_recovery(&self) {
        let (upstream, profile) = (self.credential.upstream(), self.label.as_str());
        tracing::info!(upstream, profile, "the file of a profile's key can be read again");
    }

    /// Stores the outcome of one run. Returns the time of the next.
    fn record_run(&self, run: Result<SuppliedCredential, SourceFailure>, clock: &mut RefreshClock) -> Instant {
        let now = clock::std_now();
        let (upstream, profile, source) = (self.credential.upstream(), self.label.as_str(), self.source);
        let had_none = self.credential.next_refresh().is_none();
        match run {
            Ok(supplied) => {
                let life = supplied.expires_at.map(|end| end.saturating_sub(clock::system_time()));
                let due = now + clock.record_success(life, self.interval);
                self.credential.renew(supplied, due);
                let seconds = life.map(|life| life.as_secs());
                if had_none {
                    tracing::info!(upstream, profile, source, seconds, "credential obtained");
                } else {
                    tracing::debug!(upstream, profile, source, seconds, "credential renewed");
                }
                due
            }
            Err(failure) => {
                let delay = clock.record_failure();
                self.credential.record_source_failure(failure);
                let retry_seconds = delay.as_secs();
                let message = if had_none {
                    "failed to obtain a credential: the profile cannot be used"
                } else {
                    "failed to renew a credential: the old one stays until its end"
                };
                tracing::warn!(upstream, profile, source, %failure, retry_seconds, "{message}");
                now + delay
            }
        }
    }

    /// Sleeps until `due`. Wakes early if the credential has expired by the system's clock, or if the provider refuses
    /// it.
    async fn sleep_until(&self, due: Instant, last_run: Instant) {
        let had_valid = self.credential.next_refresh().is_some();
        loop {
            let now = clock::std_now();
            if now >= due {
                return;
            }
            if had_valid && self.credential.next_refresh().is_none() {
                self.credential.note_expiry();
                return;
            }
            tokio::select! {
                () = time::sleep_until(due.min(now + SLEEP_MAX).into()) => {}
                () = self.credential.await_rejection() => {
                    if self.credential.next_refresh().is_some() {
                        // A source that supplies refused credentials must not be asked without a pause.
                        time::sleep_until(due.min(last_run + REFUSED_INTERVAL).into()).await;
                        return;
                    }
                }
            }
        }
    }
}

/// Keeps the credential of one profile fresh.
pub async fn renew_forever(profile: RenewedProfile, mut fetcher: impl CredentialFetcher) {
    let mut clock = RefreshClock::default();
    // A reload takes the present credential over, with the time of its refresh.
    let mut due = profile.credential.next_refresh();
    let mut last_run = clock::std_now();
    loop {
        if let Some(due) = due {
            profile.sleep_until(due, last_run).await;
        }
        last_run = clock::std_now();
        let run = time::timeout(SOURCE_TIMEOUT, fetcher.fetch_credential()).await;
        due = Some(profile.record_run(run.unwrap_or(Err(SourceFailure::TimedOut)), &mut clock));
    }
}
