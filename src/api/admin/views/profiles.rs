//! Profiles with their cooldowns, and breakers, for the admin API. Never a key.

use serde::Serialize;
use utoipa::ToSchema;

use super::{DateConverter, rfc3339_date};
use crate::{
    clock,
    keys::profiles::{BreakerStatus, CredentialStatus, Profiles},
    keys::rotation,
};

/// The profiles of all upstreams, and the breakers of their endpoints.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct ProfilesPage {
    profiles: Vec<ProfileView>,
    breakers: Vec<BreakerView>,
}

/// The state of one profile.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Profile)]
struct ProfileView {
    upstream: String,
    #[serde(rename = "profile")]
    label: String,
    /// `ready`, `cooling` or `disabled`.
    state: &'static str,
    /// The provider's organisation, configured or learned; null if unknown.
    organisation: Option<String>,
    /// The cooldowns in force.
    rests: Vec<CooldownView>,
    /// The source of its credential; null if the credential never changes.
    credential: Option<CredentialView>,
}

/// The source of a profile's credential.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProfileCredential)]
struct CredentialView {
    /// `token_command`, `aws_credential_process`, `aws_container_credentials` or `file`.
    source: &'static str,
    /// The end of the present credential; null if it has none, or if there is no credential.
    expires_at: Option<String>,
    /// The failure of the source's last run; null if it succeeded.
    last_failure: Option<&'static str>,
}

/// One cooldown of a profile.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Rest)]
struct CooldownView {
    /// The reason for the cooldown.
    reason: &'static str,
    /// The only model that is affected; empty for requests without a model, null for all models.
    model: Option<String>,
    /// True if the profile is disabled.
    disables: bool,
    /// True if another profile of the same organisation caused it.
    shared: bool,
    /// The provider's answer that began it; null if it is not known. Never text of the provider.
    evidence: Option<EvidenceView>,
    since: String,
    until: String,
    seconds_left: u64,
}

/// The part of an answer that says something about the credential.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyEvidence)]
struct EvidenceView {
    /// The HTTP status, or the status of an error in a stream.
    status: u16,
    /// The known error type or code, or the kind of statement: see docs/keys.md.
    statement: &'static str,
    /// The template of the path; null if it is unknown.
    path: Option<&'static str>,
}

/// The breaker of one endpoint and model: the strictest, if callers have breakers of their own.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Breaker)]
struct BreakerView {
    upstream: String,
    /// The model; null for requests without a model.
    model: Option<String>,
    /// `closed`, `half_open` or `open`.
    state: &'static str,
    /// Failures in a row.
    failures: u32,
    /// True if it blocks the retries of all callers, false if only those of callers that saw the failures.
    for_all: bool,
    /// The end of the open period; null if the breaker is closed.
    until: Option<String>,
}

/// Returns the page of profiles and breakers.
pub(in crate::api::admin) fn profiles_page(pools: &Profiles, dates: DateConverter) -> ProfilesPage {
    // Read once, so that all states of the page are of the same moment.
    let now = clock::std_now();
    let mut profiles = Vec::new();
    for (upstream, views) in pools.profile_statuses(now) {
        // Both lists are in the order of the configuration.
        let views = views.into_iter().zip(pools.pool(upstream).credential_statuses());
        profiles.extend(views.map(|(view, credential)| profile_view(upstream, view, credential, &dates)));
    }
    let mut breakers = Vec::new();
    for (upstream, views) in pools.breaker_statuses(now) {
        breakers.extend(views.into_iter().map(|view| breaker_view(upstream, view, &dates)));
    }
    ProfilesPage { profiles, breakers }
}

fn profile_view(
    upstream: &str,
    view: rotation::ProfileStatus,
    credential: Option<CredentialStatus>,
    dates: &DateConverter,
) -> ProfileView {
    let cooldown = |cooldown: rotation::Cooldown| CooldownView {
        reason: cooldown.reason.label(),
        model: cooldown.model.map(String::from),
        disables: cooldown.disables,
        shared: cooldown.of_other_profile,
        evidence: cooldown.evidence.map(|evidence| EvidenceView {
            status: evidence.status,
            statement: evidence.statement,
            path: cooldown.path,
        }),
        since: dates.to_date(cooldown.since),
        until: dates.to_date(cooldown.until),
        seconds_left: cooldown.until.saturating_duration_since(clock::std_now()).as_secs(),
    };
    ProfileView {
        upstream: upstream.to_owned(),
        label: view.label.to_string(),
        state: view.state.label(),
        organisation: view.organisation.map(|organisation| organisation.to_string()),
        rests: view.cooldowns.into_iter().map(cooldown).collect(),
        credential: credential.map(|credential| CredentialView {
            source: credential.source,
            expires_at: credential.expires_at.map(rfc3339_date),
            last_failure: credential.last_failure,
        }),
    }
}

fn breaker_view(upstream: &str, view: BreakerStatus, dates: &DateConverter) -> BreakerView {
    BreakerView {
        upstream: upstream.to_owned(),
        // The table stores requests without a model under the empty name.
        model: Some(String::from(view.model)).filter(|model| !model.is_empty()),
        state: view.state.label(),
        failures: view.failures,
        for_all: view.blocks_all,
        until: view.open_until.map(|until| dates.to_date(until)),
    }
}
