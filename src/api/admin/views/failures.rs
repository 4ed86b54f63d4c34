//! Exchanges that failed, for the admin API.

use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339_date;
use crate::{
    telemetry::{Telemetry, dashboard::FailureEntry},
    upstream::NetworkCause,
};

/// The last failures, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct FailuresPage {
    /// The number of stored failures. Those that clients caused are stored apart, 250 of each at most.
    kept: usize,
    failures: Vec<FailureView>,
}

/// An exchange that failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub(in crate::api::admin) struct FailureView {
    /// The value of `x-antiphon-request-id`.
    id: String,
    /// The end of the exchange, RFC 3339.
    at: String,
    /// The status sent to the client; 0 if none was sent.
    status: u16,
    /// The side that caused it: `client`, `proxy`, `network`, `provider`, `provider_tool` or `provider_compaction`.
    side: &'static str,
    /// The stable name of the failure, as in the log.
    code: &'static str,
    /// The phase of the exchange: `request`, `queue`, `connect`, `send`, `headers`, `body` or `done`.
    phase: &'static str,
    /// The cause of a failed send, such as `unknown_issuer`; null for every other failure.
    cause: Option<&'static str>,
    /// The upstream; null if no route matched.
    upstream: Option<String>,
    format: Option<&'static str>,
    /// The model; null if the request named none, or its body was not read.
    model: Option<String>,
    /// The client program, such as `claude-cli/1.0.83`; null if it does not name itself.
    client: Option<String>,
    /// The name of the client token; null if the client presented none.
    token: Option<String>,
    /// The lane; null if nothing identifies it.
    lane: Option<String>,
    /// The provider-side tool that was running at the end.
    stalled_tool: Option<String>,
    /// The time from the first byte of the request to the end.
    duration_seconds: f64,
    /// The number of sends to the provider, resends included.
    attempts: u32,
}

/// Returns the page of the last `limit` failures.
pub(in crate::api::admin) fn failures_page(telemetry: &Telemetry, limit: usize) -> FailuresPage {
    let (kept, entries) = telemetry.dashboard_feed().latest_failures(limit);
    FailuresPage {
        kept,
        failures: entries.iter().map(|entry| failure_view(entry)).collect(),
    }
}

/// Converts one failure.
pub(in crate::api::admin) fn failure_view(entry: &FailureEntry) -> FailureView {
    FailureView {
        id: entry.id.clone(),
        at: rfc3339_date(entry.at),
        status: entry.status,
        side: entry.side,
        code: entry.code,
        phase: entry.phase,
        cause: entry.cause.map(NetworkCause::label),
        upstream: entry.upstream.clone(),
        format: entry.format.map(crate::wire::Format::label),
        model: entry.names.model.clone(),
        client: entry.names.client.clone(),
        token: entry.names.token.clone(),
        lane: entry.names.lane.clone(),
        stalled_tool: entry.running_tool.clone(),
        duration_seconds: entry.duration.as_secs_f64(),
        attempts: entry.sends,
    }
}
