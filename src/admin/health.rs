//! Whether the process lives, and whether it is ready: for machines that watch it.

use std::{fmt::Write, time::Duration};

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::Parts;

/// How long the ledger may take to say how it is.
const LEDGER_PATIENCE: Duration = Duration::from_millis(500);

/// Alive as long as it answers, drain included.
pub(super) async fn live(RawQuery(query): RawQuery) -> Response {
    health(&[("serving", true)], query.as_deref())
}

/// Ready for new exchanges. A ledger that does not answer is told to those who want it verbose, and keeps nobody away:
/// requests do without it.
pub(super) async fn ready(State(parts): State<Parts>, RawQuery(query): RawQuery) -> Response {
    let mut checks = vec![("serving", true), ("not-draining", parts.readiness.is_ready())];
    if !is_verbose(query.as_deref()) {
        return health(&checks, None);
    }
    let usage = tokio::time::timeout(LEDGER_PATIENCE, parts.ledger.usage()).await;
    if matches!(usage, Ok(Ok(_))) {
        checks.push(("ledger", true));
        return health(&checks, query.as_deref());
    }
    let status = health(&checks, None).status();
    (status, page(&checks, "[-]ledger failed; requests go on without it\n")).into_response()
}

/// 200 if every check holds, else 503; one line a check if the query asks for `verbose`, as Kubernetes does.
fn health(checks: &[(&str, bool)], query: Option<&str>) -> Response {
    let good = checks.iter().all(|(_, holds)| *holds);
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    if good && !is_verbose(query) {
        return (status, "ok\n").into_response();
    }
    (status, page(checks, "")).into_response()
}

fn page(checks: &[(&str, bool)], more: &str) -> String {
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
