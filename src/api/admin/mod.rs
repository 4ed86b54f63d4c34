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
mod request;
mod task_links;
mod taught;
mod token_attempts;
mod views;
mod webhooks;

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response, header::CONTENT_LENGTH};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper::service::Service;
use tokio::net::TcpListener;

use crate::{
    api::{ApiBody, Problem, ProblemCode},
    auth::TokenHash,
    late::LateStore,
    ledger::Ledger,
    recall::RecallStore,
    server::{ClientAddress, DescriptorReserve, ServerSettings, Tasks, serve_connection, tls::ListenerTls},
    session_table::SessionTable,
    telemetry::Telemetry,
    upstream::BoxError,
};
use control::AdminControl;
use listener::AdminListener;
use live_parts::AdminSubscribers;
use request::{AdminHandler, AdminRequest};
use token_attempts::TokenAttempts;

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
    /// The memory of what servers have taught.
    pub recall: RecallStore,
    /// The ledger, for its health check.
    pub ledger: Arc<dyn Ledger>,
    /// The configuration in force, and the controls that change the running process.
    pub control: AdminControl,
    /// The admin token; `None` if every process on this machine has access. Health checks never need it.
    pub token: Option<TokenHash>,
}

/// The service of the admin listener. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminService(Option<Running>);

/// The parts of a running proxy that the admin listener shows.
#[derive(Clone, Debug)]
struct Running {
    parts: AdminState,
    attempts: TokenAttempts,
    subscribers: AdminSubscribers,
}

impl AdminService {
    /// Creates the service of a running proxy.
    pub fn new(parts: AdminState) -> Self {
        Self(Some(Running {
            parts,
            attempts: TokenAttempts::default(),
            subscribers: AdminSubscribers::default(),
        }))
    }

    /// Creates the service of a proxy that waits for its ledger: it is alive and not ready.
    pub const fn starting() -> Self {
        Self(None)
    }

    /// Answers a request.
    pub async fn answer_request<B>(&self, request: Request<B>) -> Response<ApiBody>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let Some(running) = &self.0 else {
            return match request.uri().path() {
                "/livez" | "/healthz" | "/health/liveliness" | "/health/liveness" => {
                    health::show_liveness(request.uri().query())
                }
                _ => health::refuse_readiness(),
            };
        };
        let is_head = request.method() == Method::HEAD;
        let answered = running.run_request(request).await;
        let mut answer = answered.unwrap_or_else(Problem::into_response);
        guard::complete_head(&mut answer);
        if is_head {
            // The length is that of the answer to GET.
            let length = answer.body().size_hint().exact();
            if let Some(length) = length {
                answer.headers_mut().insert(CONTENT_LENGTH, length.into());
            }
            *answer.body_mut() = Empty::new().boxed_unsync();
        }
        answer
    }
}

impl Running {
    async fn run_request<B>(&self, request: Request<B>) -> request::AdminResponse
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        // Before the path is looked up, so that unknown paths are guarded too.
        guard::check_access(&self.parts, &self.attempts, &request)?;
        let (head, body) = request.into_parts();
        let method = if head.method == Method::HEAD {
            &Method::GET
        } else {
            &head.method
        };
        let found = api::TABLE.find(method, head.uri.path());
        let (route, ids) = found.map_err(|problem| match problem.code {
            ProblemCode::NotFound => Problem::new(ProblemCode::NotFound, format!("no such path; {ENDPOINTS_HINT}")),
            _ => problem,
        })?;
        let request = AdminRequest {
            parts: self.parts.clone(),
            subscribers: self.subscribers.clone(),
            ids: ids
                .into_iter()
                .map(|id| String::from_utf8_lossy(&id).into_owned())
                .collect(),
            head,
            body: Some(body.map_err(Into::into).boxed_unsync()),
        };
        let answered = match route.handler {
            AdminHandler::Now(answer) => answer(&request),
            AdminHandler::Later(answer) => answer(request).await,
        };
        answered.inspect_err(|problem| route.check_code(problem.code))
    }
}

impl<B> Service<Request<B>> for AdminService
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer_request(request).await) })
    }
}

/// Serves requests on a listener for as long as the process lives.
///
/// `timeouts` are the settings of the data listener, whose timeouts hold here too. The connections run in the tasks.
pub async fn serve_listener(
    listener: TcpListener,
    reserve: DescriptorReserve,
    tls: Option<ListenerTls>,
    timeouts: ServerSettings,
    (service, tasks): (AdminService, Tasks),
) {
    let mut listener = AdminListener::new(listener, reserve, tls.as_ref());
    loop {
        let (stream, address) = listener.accept_connection().await;
        let peer = ClientAddress(address.ip().to_canonical());
        let connection = serve_connection(stream, Some(peer), timeouts.clone(), tasks.clone(), service.clone());
        tasks.spawn_connection(connection);
    }
}
