//! The admin listener: the dashboard, `/admin/v1`, health and metrics.
//!
//! It never shares a port with the data path, and it refuses web pages of other origins: see `guard`.

mod api;
pub mod control;
mod events;
mod guard;
mod health;
mod page;
mod problem;
mod views;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Extension, Json, Router,
    extract::State,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{
    auth::TokenHash, clock, late::LateStore, ledger::Ledger, session_table::SessionTable, telemetry::Telemetry,
};
use control::Control;
use events::Listeners;
use problem::Problem;

/// The content type of `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The endpoints, for error messages.
const MAP: &str = "see / (dashboard), /livez, /readyz (?verbose), /healthz, /metrics and /admin/v1/openapi.json";

/// The readiness of the proxy for new exchanges. Cheap to clone: all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    draining: Arc<AtomicBool>,
}

impl Readiness {
    /// Creates a state that is ready. Listeners are bound before any client can send a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the start of the drain. The proxy never becomes ready again.
    pub fn draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Returns `true` if the proxy accepts new exchanges.
    pub fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire)
    }
}

/// The state that the handlers of the admin listener share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The metrics and the feed of the dashboard.
    pub telemetry: Telemetry,
    /// The readiness for new exchanges.
    pub readiness: Readiness,
    /// The sessions of clients, with their open tool calls.
    pub sessions: Arc<SessionTable>,
    /// The late results of tool services.
    pub late: LateStore,
    /// The ledger, for its health check.
    pub ledger: Arc<dyn Ledger>,
    /// The configuration in force, and the controls that change the running process.
    pub control: Control,
    /// The admin token; `None` if every process on this machine has access. Health checks never need it.
    pub token: Option<TokenHash>,
}

/// Creates the router of the admin listener.
pub fn router(parts: Parts) -> Router {
    let (api, document) = api::routes();
    // The document never changes, so it is built once and shared.
    let document = Arc::new(document);
    api.route(
        "/admin/v1/openapi.json",
        get(async move || Json(&*document).into_response()),
    )
    .route("/", get(page::front))
    .route("/assets/{name}", get(page::asset))
    .route("/livez", get(health::live))
    .route("/readyz", get(health::ready))
    .route("/healthz", get(health::live))
    // The paths of LiteLLM, so that its health checks work without a change.
    .route("/health/liveliness", get(health::live))
    .route("/health/liveness", get(health::live))
    .route("/health/readiness", get(health::ready))
    .route("/metrics", get(metrics))
    .fallback(unknown)
    .method_not_allowed_fallback(no_such_method)
    // Added after the fallbacks, so that unknown paths are guarded too.
    .layer(middleware::from_fn_with_state(parts.clone(), guard::guard))
    .layer(Extension(Listeners::default()))
    .with_state(parts)
}

async fn metrics(State(parts): State<Parts>) -> Response {
    // Cooldowns end without an event, so the gauges are refreshed on each scrape.
    parts.control.in_force().profiles.publish_gauges(clock::std_now());
    let totals = parts.sessions.lane_totals(clock::now());
    parts.telemetry.set_session_totals(totals.lanes, totals.open_calls);
    (
        [(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS))],
        parts.telemetry.encode_metrics(),
    )
        .into_response()
}

async fn unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", format!("no such path; {MAP}"))
}

async fn no_such_method() -> Problem {
    let text = "method not allowed on this path; see /admin/v1/openapi.json";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
}
