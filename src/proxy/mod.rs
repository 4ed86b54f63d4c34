//! The life of one exchange, from the client's request to the answer.

mod answer_note;
mod attempt;
mod attempt_reporter;
mod betas;
mod caller;
mod catch_core_panic;
mod client_body;
mod client_limits;
mod client_places;
mod continuity;
pub mod credential;
mod data_path;
mod error;
mod error_shape;
mod exchange_log;
mod exchange_route;
mod exhausted_pool;
mod fact_memory;
mod fact_scope;
mod guard;
pub mod headers;
mod heavy_body;
mod identity;
mod late_results;
mod ledger_exchange;
mod mend_limits;
mod mends;
mod old_ids;
mod owned_ids;
mod rejection;
mod request;
mod request_ids;
mod response;
mod response_chain;
mod routing;
mod send_failure;
mod service;
mod signature;
mod upload_timeout;

use std::pin::pin;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::ALLOW};
use http_body::Body as _;

pub use client_body::ClientFault;
pub use data_path::{OnBindingError, OnOutage, ProxySettings};
pub use error::ProxyError;
pub use error_shape::guess_shape;
pub use exhausted_pool::ExhaustedPool;
pub use guard::RequestRefusal;
pub use identity::IDENTITY_PATH;
pub use rejection::Rejection;
pub use response::{AnswerBody, RelayError};
pub use service::{BoundAddresses, Proxy, ProxyNetwork, ProxyReload, ProxyServices};

use crate::{
    api::ApiBody,
    api::ledger_api,
    policy::{Class, Verdict},
    upstream::BoxedBody,
    wire::ErrorShape,
};
use data_path::DataPath;
use exchange_log::ExchangeLog;
use guard::Admission;
use response::ProviderAnswer;

/// Runs one exchange. The client always gets an answer, and telemetry always gets one event. A request for the proxy's description is not an exchange.
async fn run_exchange(path: &DataPath, request: Request<BoxedBody>) -> Response<AnswerBody> {
    if let Some(description) = identity::describe_proxy(path, &request) {
        return description;
    }
    let mut log = ExchangeLog::for_request(&path.telemetry, &path.request_ids, &request);
    // The ledger API shares the port: tool services reach it under the clients' address.
    let is_ledger = ledger_api::is_ledger_path(request.uri().path());
    // Even an error before routing should have a form that the client's SDK can read.
    let mut shape = guess_shape(request.uri().path(), request.headers());
    tracing::trace!(headers = ?headers::RedactedHeaders(request.headers()), "request");
    let found = {
        let searching = pin!(find_response(path, request, is_ledger, &mut log, &mut shape));
        // Here alone, so that it holds for every wait before the head. Afterwards the relay looks at the signal.
        path.closing.run_until_noticed(searching).await
    };
    match found {
        Some(Ok(FoundResponse::Provider(answer))) => answer.relay_to_client(log, shape, path.closing.clone()),
        Some(Ok(FoundResponse::Ledger(answer))) => {
            let answer = answer.map(AnswerBody::from_ledger);
            own_answer(answer, Verdict::from_class(Class::Success), "done", log)
        }
        Some(Ok(FoundResponse::Preflight)) => preflight_answer(log),
        Some(Err(error)) => error_answer(&error, log, shape, is_ledger),
        None => error_answer(&ProxyError::Drained { phase: log.phase }, log, shape, is_ledger),
    }
}

/// The answer of an exchange, before the proxy adds its own headers.
enum FoundResponse {
    /// The provider's.
    Provider(ProviderAnswer),
    /// That of the ledger API.
    Ledger(Response<ApiBody>),
    /// The one to a preflight, which the proxy answers itself.
    Preflight,
}

/// Asks the ledger API or a provider for the answer.
async fn find_response(
    path: &DataPath,
    request: Request<BoxedBody>,
    is_ledger: bool,
    log: &mut ExchangeLog,
    shape: &mut ErrorShape,
) -> Result<FoundResponse, ProxyError> {
    let found = if is_ledger {
        let answered = ledger_exchange::answer_ledger_request(path, request).await?;
        answered.map(FoundResponse::Ledger)
    } else {
        let forwarded = forward_request(path, request, log, shape).await?;
        forwarded.map(FoundResponse::Provider)
    };
    Ok(found.unwrap_or(FoundResponse::Preflight))
}

/// Admits, routes and identifies a request, repairs its body, and sends it until there is an answer for the client.
///
/// Returns `None` for a preflight, which the proxy answers itself.
async fn forward_request(
    path: &DataPath,
    mut request: Request<BoxedBody>,
    log: &mut ExchangeLog,
    shape: &mut ErrorShape,
) -> Result<Option<ProviderAnswer>, ProxyError> {
    if guard::admit_request(path, &request).map_err(ProxyError::Refused)? == Admission::Preflight {
        return Ok(None);
    }
    let route = routing::find_route(path, &request)?;
    *shape = error_shape::shape_for_route(&route);
    log.record_upstream(&route);
    // Before the body is read: an unknown client must not cost memory.
    let (caller, token) = caller::identify_caller(path, &route, &mut request)?;
    if let Some(token) = token {
        log.record_client_token(token);
        client_limits::apply_limits(path, &route, token, log).await?;
    }
    let outgoing = request::prepare_request(path, &route, caller, request, log).await?;
    attempt::run_attempts(path, &route, outgoing, log).await.map(Some)
}

/// Returns the answer to an error of the proxy: in the shape that the client's SDK reads, or as the ledger API refuses.
fn error_answer(error: &ProxyError, mut log: ExchangeLog, shape: ErrorShape, is_ledger: bool) -> Response<AnswerBody> {
    log.event.cause = error.network_cause();
    // The client gets no internal detail, so the cause is only here.
    if let Some(source) = std::error::Error::source(error) {
        tracing::debug!(error = source, code = error.code(), "exchange failed");
    }
    let answer = if is_ledger {
        error.to_problem(&log.event.request_id)
    } else {
        error.to_response(shape, &log.event.request_id)
    };
    own_answer(answer.map(AnswerBody::from_bytes), error.verdict(), error.phase(), log)
}

/// Answers a preflight of an allowed web page with the allowed methods, and no CORS headers.
fn preflight_answer(log: ExchangeLog) -> Response<AnswerBody> {
    let mut answer = Response::new(AnswerBody::from_bytes(Bytes::new()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    answer.headers_mut().insert(ALLOW, methods);
    own_answer(answer, Verdict::from_class(Class::Success), "done", log)
}

/// Completes an answer of the proxy itself, and ends the log.
fn own_answer(
    answer: Response<AnswerBody>,
    verdict: Verdict,
    phase: &'static str,
    mut log: ExchangeLog,
) -> Response<AnswerBody> {
    let (mut head, body) = answer.into_parts();
    log.complete_head(head.status, &mut head.headers);
    // The length of a feed is not known, and none of its bytes are counted.
    log.event.bytes_out = body.size_hint().exact().unwrap_or(0);
    log.end_exchange(verdict, phase);
    Response::from_parts(head, body)
}
