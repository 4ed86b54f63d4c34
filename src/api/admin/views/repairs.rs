//! Requests with findings in their bodies, for the admin API: findings, repair actions and structure.

use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339_date;
use crate::{
    conversation::Finding,
    telemetry::{
        Telemetry,
        dashboard::{BodyStructure, RepairEntry},
    },
};

/// The last requests with findings in their bodies, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct RepairsPage {
    /// The number of stored requests with findings.
    kept: usize,
    repairs: Vec<RepairView>,
}

/// A request with findings in its body.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Repair)]
pub(in crate::api::admin) struct RepairView {
    /// The value of `x-antiphon-request-id`.
    id: String,
    /// The end of the exchange, RFC 3339.
    at: String,
    upstream: Option<String>,
    /// The model; null if the request named none.
    model: Option<String>,
    /// The client program; null if it does not name itself.
    client: Option<String>,
    /// The name of the client token; null if the client presented none.
    token: Option<String>,
    format: Option<&'static str>,
    /// `repair`, `strict` or `observe`.
    mode: Option<&'static str>,
    /// `repaired`, `rejected` or `observed`.
    outcome: &'static str,
    /// The status sent to the client; 0 if the client disconnected before.
    status: u16,
    /// Messages in the received body; null if its structure was not built.
    messages: Option<usize>,
    /// The first findings, 20 at most.
    findings: Vec<FindingView>,
    /// The number of all findings.
    finding_count: usize,
    /// The repair actions, each with its count.
    actions: Vec<ActionCountView>,
    /// True if the structure was built, so that `before` can be requested.
    sketched: bool,
    /// The structure of the received body.
    before: Option<BodyStructure>,
    /// The structure of the body that was sent to the provider; null if it was sent unchanged.
    after: Option<BodyStructure>,
}

/// A breach of the pairing rules.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Found)]
struct FindingView {
    kind: &'static str,
    /// The index of the message, from 0.
    message: usize,
    call_id: Option<String>,
    tool: Option<String>,
    explanation: &'static str,
}

/// A kind of repair action with its count.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Done)]
struct ActionCountView {
    action: &'static str,
    count: usize,
    explanation: &'static str,
}

/// Returns the page of the last `limit` requests.
pub(in crate::api::admin) fn repairs_page(telemetry: &Telemetry, limit: usize) -> RepairsPage {
    let entries = telemetry.dashboard_feed().latest_repairs(limit);
    RepairsPage {
        kept: telemetry.dashboard_feed().repair_count(),
        repairs: entries.iter().map(|entry| repair_view(entry, true)).collect(),
    }
}

/// Returns one request, with the structure of its body if `with_structure`.
pub(in crate::api::admin) fn repair_view(entry: &RepairEntry, with_structure: bool) -> RepairView {
    // A finding has only the call's id; the structure knows its tool.
    let tools = entry.tool_names();
    let found = |finding: &Finding| FindingView {
        kind: finding.kind.code(),
        message: finding.message,
        tool: tools.get(finding.id.as_str()).map(|tool| (*tool).to_owned()),
        // Some formats have calls without an id.
        call_id: Some(finding.id.clone()).filter(|id| !id.is_empty()),
        explanation: finding.kind.explanation(),
    };
    let change = entry.structure.as_deref();
    let before = change.and_then(|change| change.before.as_ref());
    let after = change.and_then(|change| change.after.as_ref());
    let shown = |body: Option<&BodyStructure>| body.filter(|_| with_structure).cloned();
    RepairView {
        id: entry.id.clone(),
        at: rfc3339_date(entry.at),
        upstream: entry.upstream.clone(),
        model: entry.names.model.clone(),
        client: entry.names.client.clone(),
        token: entry.names.token.clone(),
        format: entry.format.map(crate::wire::Format::label),
        mode: entry.mode.map(crate::repair::Mode::label),
        outcome: entry.outcome,
        status: entry.status,
        // Reported without the structure too, so that lists can show the size of the history.
        messages: before.map(|body| body.messages),
        findings: entry.findings.iter().map(found).collect(),
        finding_count: entry.finding_count,
        actions: entry
            .actions
            .iter()
            .map(|(action, count)| ActionCountView {
                action: action.label(),
                count: *count,
                explanation: action.explanation(),
            })
            .collect(),
        sketched: before.is_some(),
        before: shown(before),
        after: shown(after),
    }
}
