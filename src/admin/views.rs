//! What `/admin/v1` shows of profiles, breakers and sessions, as JSON: labels, reasons and times; never a key, never a session's
//! name.

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::Serialize;

use crate::{
    auth::rotation,
    clock,
    profiles::{BreakerView, Profiles},
    session_table::{LaneView, SessionTable},
};

/// Lanes that are listed: those that were seen last.
const LANES_MAX: usize = 200;

/// `GET /admin/v1/profiles`.
#[derive(Debug, Serialize)]
pub(super) struct ProfilesPage {
    profiles: Vec<Profile>,
    breakers: Vec<Breaker>,
}

/// One profile.
#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
struct Rest {
    /// The recorded reason.
    reason: &'static str,
    /// The only model that it concerns; null for all.
    model: Option<String>,
    disables: bool,
    /// Whether it came through another profile of the same organisation.
    shared: bool,
    since: String,
    until: String,
    seconds_left: u64,
}

/// The breaker of one endpoint and model.
#[derive(Debug, Serialize)]
struct Breaker {
    upstream: String,
    /// Null where requests name none.
    model: Option<String>,
    /// `closed`, `half_open` or `open`.
    state: &'static str,
    failures: u32,
    until: Option<String>,
}

/// `GET /admin/v1/sessions`.
#[derive(Debug, Serialize)]
pub(super) struct SessionsPage {
    lanes: usize,
    pinned: usize,
    with_open_calls: usize,
    open_calls: usize,
    /// Those that were seen last.
    latest: Vec<Lane>,
}

/// One lane.
#[derive(Debug, Serialize)]
struct Lane {
    /// The beginning of its hash.
    #[serde(rename = "lane")]
    hash: String,
    upstream: Option<String>,
    profile: Option<String>,
    idle_seconds: u64,
    /// Calls that the client has not answered.
    open_calls: Vec<Call>,
    /// The tool of the provider during which an answer last fell silent.
    stalled: Option<Stalled>,
}

/// An open call.
#[derive(Debug, Serialize)]
struct Call {
    tool: String,
    seconds: u64,
}

/// A tool of the provider's that gave no sign.
#[derive(Debug, Serialize)]
struct Stalled {
    tool: String,
    id: String,
    seconds: u64,
}

/// Instants as dates.
struct Dates {
    now: Instant,
    since_1970: Duration,
}

impl Dates {
    fn present() -> Self {
        Self {
            now: clock::instant(),
            since_1970: clock::since_1970(),
        }
    }

    fn show(&self, at: Instant) -> String {
        let ahead = at.saturating_duration_since(self.now);
        let behind = self.now.saturating_duration_since(at);
        let since_1970 = (self.since_1970 + ahead).saturating_sub(behind);
        humantime::format_rfc3339_seconds(UNIX_EPOCH + since_1970).to_string()
    }

    fn left(&self, until: Instant) -> u64 {
        until.saturating_duration_since(self.now).as_secs()
    }
}

/// The page of profiles and breakers.
pub(super) fn profiles(of: &Profiles) -> ProfilesPage {
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

/// The page of sessions.
pub(super) fn sessions(of: &SessionTable) -> SessionsPage {
    let now = clock::now();
    let totals = of.totals(now);
    SessionsPage {
        lanes: totals.lanes,
        pinned: totals.pinned,
        with_open_calls: totals.waiting,
        open_calls: totals.open_calls,
        latest: of.view(LANES_MAX, now).into_iter().map(lane).collect(),
    }
}

fn lane(view: LaneView) -> Lane {
    let call = |(tool, age): (Box<str>, Duration)| Call {
        tool: tool.into(),
        seconds: age.as_secs(),
    };
    let (upstream, profile) = view.pin.map(|pin| (pin.upstream, pin.profile)).unzip();
    Lane {
        hash: view.lane,
        upstream: upstream.map(String::from),
        profile: profile.map(String::from),
        idle_seconds: view.idle.as_secs(),
        open_calls: view.calls.into_iter().map(call).collect(),
        stalled: view.stalled.map(|tool| Stalled {
            tool: tool.name,
            id: tool.id,
            seconds: tool.age.as_secs(),
        }),
    }
}
