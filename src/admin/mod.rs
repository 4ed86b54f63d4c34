//! The admin listener: health, readiness and metrics, for this machine only.
//!
//! Never on the data path's port, and never for a web page: a `Host` or `Origin` that is not loopback gets 403.

mod views;

use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::{Path, RawQuery, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN},
        uri::Authority,
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};

use crate::{clock, profiles::Profiles, provider, session_table::SessionTable, telemetry::Telemetry};

/// What `/metrics` is.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The front page: where everything is.
const FRONT: &str = concat!(
    "antiphon ",
    env!("CARGO_PKG_VERSION"),
    " admin listener: /livez /readyz (?verbose) /healthz /metrics /admin/v1/profiles /admin/v1/sessions\n"
);

/// Whether new exchanges are welcome. A cheap handle: every clone sees the same.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    draining: Arc<AtomicBool>,
}

impl Readiness {
    /// Ready from the start: listeners are bound before anybody can ask.
    pub fn new() -> Self {
        Self::default()
    }

    /// The drain has begun; there is no way back.
    pub fn draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether new exchanges are welcome.
    pub fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire)
    }
}

/// What the admin listener looks at. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The metrics.
    pub telemetry: Telemetry,
    /// Whether new exchanges are welcome.
    pub readiness: Readiness,
    /// The profiles of all upstreams.
    pub profiles: Profiles,
    /// The sessions.
    pub sessions: Arc<SessionTable>,
}

/// The routes of the admin listener.
pub fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", get(front))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/healthz", get(live))
        .route("/metrics", get(metrics))
        .route("/admin/v1/profiles", get(profiles))
        .route("/admin/v1/profiles/{upstream}/{profile}/clear", post(clear))
        .route("/admin/v1/sessions", get(sessions))
        .fallback(unknown)
        .layer(middleware::from_fn(only_from_here))
        .with_state(shared)
}

async fn front() -> &'static str {
    FRONT
}

/// Alive as long as it answers, drain included.
async fn live(RawQuery(query): RawQuery) -> Response {
    health(&[("serving", true)], query.as_deref())
}

async fn ready(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    health(
        &[("serving", true), ("not-draining", shared.readiness.is_ready())],
        query.as_deref(),
    )
}

async fn profiles(State(shared): State<Shared>) -> Response {
    Json(views::profiles(&shared.profiles)).into_response()
}

async fn sessions(State(shared): State<Shared>) -> Response {
    Json(views::sessions(&shared.sessions)).into_response()
}

/// An operator says that a profile is well again: everything it rests for is forgotten.
async fn clear(State(shared): State<Shared>, Path((upstream, profile)): Path<(String, String)>) -> Response {
    if shared.profiles.clear(&upstream, &profile) {
        tracing::info!(upstream, profile, "a profile was cleared");
        return StatusCode::NO_CONTENT.into_response();
    }
    let unknown = "there is no such profile; GET /admin/v1/profiles lists them\n";
    (StatusCode::NOT_FOUND, unknown).into_response()
}

async fn metrics(State(shared): State<Shared>) -> Response {
    shared.profiles.publish(clock::instant());
    let totals = shared.sessions.totals(clock::now());
    shared.telemetry.sessions(totals.lanes, totals.open_calls);
    (
        [(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS))],
        shared.telemetry.encode(),
    )
        .into_response()
}

async fn unknown() -> Response {
    (StatusCode::NOT_FOUND, format!("nothing here\n{FRONT}")).into_response()
}

/// 200 if every check holds, else 503; one line a check if the query asks for `verbose`, as Kubernetes does.
fn health(checks: &[(&str, bool)], query: Option<&str>) -> Response {
    let good = checks.iter().all(|(_, holds)| *holds);
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let verbose = query.is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair == "verbose" || pair.starts_with("verbose="))
    });
    let verdict = if good { "ok" } else { "failed" };
    let mut page = String::new();
    if verbose || !good {
        for (name, holds) in checks {
            // Writing into a String cannot fail.
            let _ = writeln!(
                page,
                "[{}]{name} {}",
                if *holds { '+' } else { '-' },
                if *holds { "ok" } else { "failed" }
            );
        }
    }
    page.push_str(verdict);
    page.push('\n');
    (status, page).into_response()
}

/// Refuses web pages and names that are not this machine's own: a page may point its own host name at 127.0.0.1.
async fn only_from_here(request: Request, next: Next) -> Response {
    let mut answer = if is_from_here(request.headers(), request.uri().authority()) {
        next.run(request).await
    } else {
        (
            StatusCode::FORBIDDEN,
            "only http://127.0.0.1, http://[::1] and http://localhost are answered here\n",
        )
            .into_response()
    };
    let plain = [
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    for (name, value) in plain {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn is_from_here(headers: &HeaderMap, target: Option<&Authority>) -> bool {
    let local = |authority: &str| {
        authority
            .parse::<Authority>()
            .is_ok_and(|authority| !authority.as_str().contains('@') && provider::is_loopback(authority.host()))
    };
    let text = |value: &HeaderValue| value.to_str().map(ToOwned::to_owned).unwrap_or_default();
    let mut hosts: Vec<String> = headers.get_all(HOST).iter().map(text).collect();
    hosts.extend(target.map(ToString::to_string));
    let origins: Vec<String> = headers.get_all(ORIGIN).iter().map(text).collect();
    let host_is_local = !hosts.is_empty() && hosts.iter().all(|host| local(host));
    host_is_local
        && origins
            .iter()
            .all(|origin| origin.strip_prefix("http://").is_some_and(local))
}
