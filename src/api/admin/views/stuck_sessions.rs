//! Stuck sessions, for the admin API: who is refused, where, and in which words.

use serde::Serialize;
use utoipa::ToSchema;

use super::DateConverter;
use crate::{
    ledger::HashPrefix,
    telemetry::{Telemetry, dashboard::StuckSession},
    wire::Format,
};

/// Sessions that a provider refuses again and again with an error that the proxy does not know, the last refusal first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct StuckSessionsPage {
    /// The number of stuck sessions, 64 at most.
    stuck: usize,
    sessions: Vec<StuckSessionView>,
}

/// A session that a provider has refused three times or more with the same error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StuckSession)]
struct StuckSessionView {
    /// The error, masked: known words of errors are kept, every other word is `<word>`, a number is `<n>`.
    refusal: String,
    /// The number of refusals with this error.
    refusals: u32,
    /// The status of the last refusal.
    status: u16,
    /// The value of `x-antiphon-request-id` of the last refusal.
    id: String,
    /// The first refusal, RFC 3339.
    first_at: String,
    /// The last refusal, RFC 3339.
    at: String,
    /// The upstream.
    upstream: String,
    format: Option<&'static str>,
    /// The model; null if the request named none.
    model: Option<String>,
    /// The client program, such as `claude-cli/1.0.83`; null if it does not name itself.
    client: Option<String>,
    /// The name of the client token; null if the client presented none.
    token: Option<String>,
    /// The short id of the caller.
    caller: String,
    /// The lane; null if nothing identifies it.
    lane: Option<String>,
}

/// Returns the page of the last `limit` stuck sessions.
pub(in crate::api::admin) fn stuck_sessions_page(
    telemetry: &Telemetry,
    limit: usize,
    dates: DateConverter,
) -> StuckSessionsPage {
    let sessions = telemetry.dashboard_feed().stuck_sessions();
    StuckSessionsPage {
        stuck: sessions.len(),
        sessions: sessions
            .into_iter()
            .take(limit)
            .map(|session| session_view(session, dates))
            .collect(),
    }
}

fn session_view(session: StuckSession, dates: DateConverter) -> StuckSessionView {
    StuckSessionView {
        upstream: session.upstream().to_owned(),
        caller: HashPrefix::from_bytes(session.principal_bytes()).to_string(),
        refusal: session.text.into(),
        refusals: session.refusals,
        status: session.status,
        id: session.id,
        first_at: dates.to_date(session.first_at.into_std()),
        at: dates.to_date(session.last_at.into_std()),
        format: session.format.map(Format::label),
        model: session.names.model,
        client: session.names.client,
        token: session.names.token,
        lane: session.names.lane,
    }
}
