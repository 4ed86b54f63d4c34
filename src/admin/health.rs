//! Liveness and readiness, for orchestrators and load balancers.

use std::{fmt::Write, time::Duration};

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::AdminState;
use crate::{api::problem::ProblemView, ledger::check_health};

/// Timeout of the ledger's health check.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers the liveness check: 200 for as long as the process answers at all, also during a drain
///
/// `/healthz`, `/health/liveness` and `/health/liveliness` answer the same.
#[utoipa::path(get, path = "/livez", tag = "health", security(()),
    params(("verbose" = Option<String>, Query, description = "lists every check; the value does not matter")),
    responses(
    (status = 200, description = "the process answers", body = String, content_type = "text/plain", example = "ok\n"),
    (status = 403, description = "the host name is not allowed", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
pub(super) async fn check_liveness(RawQuery(query): RawQuery) -> Response {
    // No check of dependencies: a failed liveness check makes orchestrators restart the process.
    health_answer(&[("serving", true)], query.as_deref())
}

/// Answers the readiness check: 503 during a drain
///
/// The ledger is checked for `verbose`. It changes the status only with `ledger.ready_requires`. `/health/readiness` answers
/// the same.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    params(("verbose" = Option<String>, Query, description = "lists every check; the value does not matter")),
    responses(
    (status = 200, description = "the proxy takes requests", body = String, content_type = "text/plain",
        example = "[+]serving ok\n[+]not-draining ok\n[+]ledger ok\nok\n"),
    (status = 403, description = "the host name is not allowed", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 503, description = "the proxy drains and takes no new requests, or its ledger is required and does not work",
        body = String, content_type = "text/plain",
        example = "[+]serving ok\n[-]not-draining failed\nfailed\n"),
))]
pub(super) async fn check_readiness(State(parts): State<AdminState>, RawQuery(query): RawQuery) -> Response {
    let mut checks = vec![("serving", true), ("not-draining", parts.readiness.is_ready())];
    let requires_ledger = parts.readiness.requires_ledger;
    // Without `verbose` the ledger is asked only if it matters: orchestrators poll often.
    if !is_verbose(query.as_deref()) && !requires_ledger {
        return health_answer(&checks, None);
    }
    let Some(fault) = check_health(&*parts.ledger, LEDGER_TIMEOUT).await else {
        checks.push(("ledger", true));
        return health_answer(&checks, query.as_deref());
    };
    if requires_ledger {
        checks.push(("ledger", false));
        let line = format!("ledger: {fault}\n");
        return (StatusCode::SERVICE_UNAVAILABLE, checks_text(&checks, &line)).into_response();
    }
    // Not part of `checks`: a failed ledger must not take the proxy out of rotation.
    let status = health_answer(&checks, None).status();
    let line = format!("[-]ledger degraded: {fault}\n");
    (status, checks_text(&checks, &line)).into_response()
}

/// Answers the readiness check of a proxy that waits for its ledger.
pub(super) async fn refuse_readiness() -> Response {
    health_answer(&[("serving", true), ("ledger", false)], None)
}

/// Returns 200 if every check holds, else 503. With `verbose` the body has one line for each check, as in Kubernetes.
fn health_answer(checks: &[(&str, bool)], query: Option<&str>) -> Response {
    let good = checks.iter().all(|(_, holds)| *holds);
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    // A failure always lists its checks, so that an operator sees the reason.
    if good && !is_verbose(query) {
        return (status, "ok\n").into_response();
    }
    (status, checks_text(checks, "")).into_response()
}

fn checks_text(checks: &[(&str, bool)], more: &str) -> String {
    let good = checks.iter().all(|(_, holds)| *holds);
    let mut page = String::new();
    for (name, holds) in checks {
        let (sign, word) = if *holds { ('+', "ok") } else { ('-', "failed") };
        // Writing into a String cannot fail.
        let _ = writeln!(page, "[{sign}]{name} {word}");
    }
    page.push_str(more);
    page.push_str(if good { "ok\n" } else { "failed\n" });
    page
}

fn is_verbose(query: Option<&str>) -> bool {
    let asks = |pair: &str| pair == "verbose" || pair.starts_with("verbose=");
    query.is_some_and(|query| query.split('&').any(asks))
}
