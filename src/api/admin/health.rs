//! Liveness and readiness, for orchestrators and load balancers.

use std::{fmt::Write, time::Duration};

use http::{Response, StatusCode};

use super::request::{AdminRequest, AdminResponse};
use crate::{
    api::{ApiBody, private_response},
    ledger::check_health,
};

/// Timeout of the ledger's health check.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers the liveness check: 200 for as long as the process answers at all, also during a drain
///
/// `/healthz`, `/health/liveness` and `/health/liveliness` answer the same.
#[utoipa::path(get, path = "/livez", tag = "health", security(()),
    params(("verbose" = Option<String>, Query, description = "lists every check; the value does not matter")),
    responses(
    (status = 200, description = "the process answers", body = String, content_type = "text/plain", example = "ok\n"),
))]
#[expect(clippy::unnecessary_wraps, reason = "every handler returns it")]
pub(super) fn check_liveness(request: &AdminRequest) -> AdminResponse {
    Ok(show_liveness(request.head.uri.query()))
}

/// Returns the answer to a liveness check.
pub(super) fn show_liveness(query: Option<&str>) -> Response<ApiBody> {
    // No check of dependencies: a failed liveness check makes orchestrators restart the process.
    health_answer(&[("serving", true)], query)
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
    (status = 503, description = "the proxy drains and takes no new requests, or its ledger is required and does not work",
        body = String, content_type = "text/plain",
        example = "[+]serving ok\n[-]not-draining failed\nfailed\n"),
))]
pub(super) async fn check_readiness(request: AdminRequest) -> AdminResponse {
    let (parts, query) = (&request.parts, request.head.uri.query());
    let mut checks = vec![("serving", true), ("not-draining", parts.readiness.is_ready())];
    let requires_ledger = parts.readiness.requires_ledger;
    // Without `verbose` the ledger is asked only if it matters: orchestrators poll often.
    if !is_verbose(query) && !requires_ledger {
        return Ok(health_answer(&checks, None));
    }
    let Some(fault) = check_health(&*parts.ledger, LEDGER_TIMEOUT).await else {
        checks.push(("ledger", true));
        return Ok(health_answer(&checks, query));
    };
    if requires_ledger {
        checks.push(("ledger", false));
        let line = format!("ledger: {fault}\n");
        return Ok(text_response(
            StatusCode::SERVICE_UNAVAILABLE,
            checks_text(&checks, &line),
        ));
    }
    // Not part of `checks`: a failed ledger must not take the proxy out of rotation.
    let status = health_answer(&checks, None).status();
    let line = format!("[-]ledger degraded: {fault}\n");
    Ok(text_response(status, checks_text(&checks, &line)))
}

/// Answers the readiness check of a proxy that waits for its ledger.
pub(super) fn refuse_readiness() -> Response<ApiBody> {
    health_answer(&[("serving", true), ("ledger", false)], None)
}

/// Returns 200 if every check holds, else 503. With `verbose` the body has one line for each check, as in Kubernetes.
fn health_answer(checks: &[(&str, bool)], query: Option<&str>) -> Response<ApiBody> {
    let good = checks.iter().all(|(_, holds)| *holds);
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    // A failure always lists its checks, so that an operator sees the reason.
    if good && !is_verbose(query) {
        return text_response(status, "ok\n".to_owned());
    }
    text_response(status, checks_text(checks, ""))
}

fn text_response(status: StatusCode, text: String) -> Response<ApiBody> {
    private_response(status, "text/plain; charset=utf-8", text)
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
