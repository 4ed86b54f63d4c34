//! The admin listener: the dashboard, `/admin/v1`, health and metrics.
//!
//! Never on the data path's port, and never for a web page of others: see `guard`.

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

use crate::{auth::TokenHash, clock, late::Late, ledger::Ledger, session_table::SessionTable, telemetry::Telemetry};
use control::Control;
use events::Listeners;
use problem::Problem;

/// What `/metrics` is.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where everything is.
const MAP: &str = "the dashboard is at /; also /livez /readyz (?verbose) /healthz /metrics and /admin/v1/openapi.json";

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
pub struct Parts {
    /// The metrics, and what happened last.
    pub telemetry: Telemetry,
    /// Whether new exchanges are welcome.
    pub readiness: Readiness,
    /// The sessions.
    pub sessions: Arc<SessionTable>,
    /// Late results.
    pub late: Late,
    /// Where calls and results are kept.
    pub ledger: Arc<dyn Ledger>,
    /// What is in force, and may be changed.
    pub control: Control,
    /// The token of those who may see and do more than ask for health; none: everybody on this machine.
    pub token: Option<TokenHash>,
}

/// The routes of the admin listener.
pub fn router(parts: Parts) -> Router {
    let (api, document) = api::routes();
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
    // As LiteLLM spells them.
    .route("/health/liveliness", get(health::live))
    .route("/health/liveness", get(health::live))
    .route("/health/readiness", get(health::ready))
    .route("/metrics", get(metrics))
    .fallback(unknown)
    .method_not_allowed_fallback(no_such_method)
    .layer(middleware::from_fn_with_state(parts.clone(), guard::guard))
    .layer(Extension(Listeners::default()))
    .with_state(parts)
}

async fn metrics(State(parts): State<Parts>) -> Response {
    parts.control.in_force().profiles.publish(clock::instant());
    let totals = parts.sessions.totals(clock::now());
    parts.telemetry.set_session_totals(totals.lanes, totals.open_calls);
    (
        [(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS))],
        parts.telemetry.encode_metrics(),
    )
        .into_response()
}

async fn unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", format!("nothing here; {MAP}"))
}

async fn no_such_method() -> Problem {
    let text = "this is not asked for in this way; /admin/v1/openapi.json says how";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
}
