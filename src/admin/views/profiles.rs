//! Profiles and breakers: labels, reasons and times; never a key.

use serde::Serialize;
use utoipa::ToSchema;

use super::Dates;
use crate::{
    auth::rotation,
    profiles::{BreakerView, Profiles},
};

/// The profiles of all upstreams, and the breakers of their endpoints.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct ProfilesPage {
    profiles: Vec<Profile>,
    breakers: Vec<Breaker>,
}

/// One profile.
#[derive(Debug, Serialize, ToSchema)]
struct Profile {
    upstream: String,
    #[serde(rename = "profile")]
    label: String,
    /// `ready`, `cooling` or `disabled`.
    state: &'static str,
    organisation: Option<String>,
    rests: Vec<Rest>,
}

/// One reason why a profile rests.
#[derive(Debug, Serialize, ToSchema)]
struct Rest {
    /// The recorded reason.
    reason: &'static str,
    /// The only model that it concerns; empty for requests that name none, null for all.
    model: Option<String>,
    disables: bool,
    /// Whether it came through another profile of the same organisation.
    shared: bool,
    since: String,
    until: String,
    seconds_left: u64,
}

/// The breaker of one endpoint and model.
#[derive(Debug, Serialize, ToSchema)]
struct Breaker {
    upstream: String,
    /// Null where requests name none.
    model: Option<String>,
    /// `closed`, `half_open` or `open`.
    state: &'static str,
    failures: u32,
    until: Option<String>,
}

/// The page of profiles and breakers.
pub(in crate::admin) fn profiles(of: &Profiles) -> ProfilesPage {
    let dates = Dates::present();
    let mut profiles = Vec::new();
    for (upstream, views) in of.view(dates.now) {
        profiles.extend(views.into_iter().map(|view| profile(upstream, view, &dates)));
    }
    let mut breakers = Vec::new();
    for (upstream, views) in of.breakers(dates.now) {
        breakers.extend(views.into_iter().map(|view| breaker(upstream, view, &dates)));
    }
    ProfilesPage { profiles, breakers }
}

fn profile(upstream: &str, view: rotation::View, dates: &Dates) -> Profile {
    let rest = |rest: rotation::Rest| Rest {
        reason: rest.reason.label(),
        model: rest.model.map(String::from),
        disables: rest.disables,
        shared: rest.shared,
        since: dates.show(rest.since),
        until: dates.show(rest.until),
        seconds_left: dates.left(rest.until),
    };
    Profile {
        upstream: upstream.to_owned(),
        label: view.label.to_string(),
        state: view.state.label(),
        organisation: view.organisation.map(|organisation| organisation.to_string()),
        rests: view.rests.into_iter().map(rest).collect(),
    }
}

fn breaker(upstream: &str, view: BreakerView, dates: &Dates) -> Breaker {
    Breaker {
        upstream: upstream.to_owned(),
        model: Some(String::from(view.model)).filter(|model| !model.is_empty()),
        state: view.standing.label(),
        failures: view.failures,
        until: view.until.map(|until| dates.show(until)),
    }
}
