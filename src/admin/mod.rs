//! The admin listener: the dashboard, `/admin/v1`, health and metrics.
//!
//! It never shares a port with the data path, and it refuses web pages of other origins: see `guard`.

mod api;
pub mod control;
mod events;
mod guard;
mod health;
mod intents;
mod listener;
mod live_parts;
mod metrics_page;
mod page;
mod pages;
mod problem;
mod task_links;
mod token_attempts;
mod views;
mod webhooks;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{Extension, Json, Router, middleware, response::IntoResponse, routing::get};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::{
    api::{Problem, ProblemCode},
    auth::TokenHash,
    late::LateStore,
    ledger::Ledger,
    server::{ClientAddress, DescriptorReserve, ServerSettings, Tasks, serve_connection, tls::ListenerTls},
    session_table::SessionTable,
    telemetry::Telemetry,
};
use control::AdminControl;
use events::AdminSubscribers;
use guard::AccessGuard;
use listener::AdminListener;

/// The endpoints, for error messages.
const ENDPOINTS_HINT: &str =
    "see / (dashboard), /livez, /readyz (?verbose), /healthz, /metrics and /admin/v1/openapi.json";

/// The readiness of the proxy for new exchanges. Cheap to clone: all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    is_draining: Arc<AtomicBool>,
    /// `true` if the proxy is not ready while its ledger does not work.
    requires_ledger: bool,
}

impl Readiness {
    /// Creates a state that is ready. Listeners are bound before any client can send a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the proxy not ready while its ledger does not work, if `requires` is set.
    #[must_use]
    pub const fn with_required_ledger(mut self, requires: bool) -> Self {
        self.requires_ledger = requires;
        self
    }

    /// Marks the start of the drain. The proxy never becomes ready again.
    pub fn start_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Returns `true` if the proxy accepts new exchanges.
    pub fn is_ready(&self) -> bool {
        !self.is_draining.load(Ordering::Acquire)
    }
}

/// The state that the handlers of the admin listener share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
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
    pub control: AdminControl,
    /// The admin token; `None` if every process on this machine has access. Health checks never need it.
    pub token: Option<TokenHash>,
}

/// Creates the router of the admin listener.
pub fn admin_router(parts: AdminState) -> Router {
    let (api, document) = api::api_routes();
    // The document never changes, so it is built once and shared.
    let document = Arc::new(document);
    api.route(
        "/admin/v1/openapi.json",
        get(async move || Json(&*document).into_response()),
    )
    .route("/", get(page::serve_index))
    .route("/assets/{name}", get(page::serve_asset))
    .route("/assets/{version}/{name}", get(page::serve_versioned_asset))
    .route("/healthz", get(health::check_liveness))
    // The paths of LiteLLM, so that its health checks work without a change.
    .route("/health/liveliness", get(health::check_liveness))
    .route("/health/liveness", get(health::check_liveness))
    .route("/health/readiness", get(health::check_readiness))
    .fallback(unknown_path)
    .method_not_allowed_fallback(method_not_allowed)
    // Added after the fallbacks, so that unknown paths are guarded too.
    .layer(middleware::from_fn_with_state(
        AccessGuard::new(parts.clone()),
        guard::check_access,
    ))
    .layer(Extension(AdminSubscribers::default()))
    .with_state(parts)
}

/// Creates the router of the admin listener of a proxy that waits for its ledger: it is alive and not ready.
pub fn starting_router() -> Router {
    Router::new()
        .route("/livez", get(health::check_liveness))
        .route("/healthz", get(health::check_liveness))
        .route("/health/liveliness", get(health::check_liveness))
        .route("/health/liveness", get(health::check_liveness))
        .fallback(health::refuse_readiness)
}

/// Serves the router on a listener for as long as the process lives.
///
/// `timeouts` are the settings of the data listener, whose timeouts hold here too. The connections run in the tasks.
pub async fn serve_router(
    listener: TcpListener,
    reserve: DescriptorReserve,
    tls: Option<ListenerTls>,
    timeouts: ServerSettings,
    (router, tasks): (Router, Tasks),
) {
    let mut listener = AdminListener::new(listener, reserve, tls.as_ref());
    loop {
        let (stream, address) = listener.accept_connection().await;
        let peer = ClientAddress(address.ip().to_canonical());
        let service = TowerToHyperService::new(router.clone());
        let connection = serve_connection(stream, Some(peer), timeouts.clone(), tasks.clone(), service);
        tasks.spawn_connection(connection);
    }
}

async fn unknown_path() -> Problem {
    Problem::new(ProblemCode::NotFound, format!("no such path; {ENDPOINTS_HINT}"))
}

async fn method_not_allowed() -> Problem {
    let text = "method not allowed on this path; see /admin/v1/openapi.json";
    Problem::new(ProblemCode::WrongMethod, text)
}
