//! Detached calls and late results, for the admin API.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339_date;
use crate::{
    late::LateStore,
    telemetry::{Telemetry, dashboard::LateResultChange},
};

/// Detached calls and late results, since the start.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct LatePage {
    /// Tool calls that no client is known to wait for, by reason.
    detached: BTreeMap<&'static str, u64>,
    /// Events of posted results, by name.
    events: BTreeMap<&'static str, u64>,
    /// The tools with late results, by name.
    tools: Vec<LateToolView>,
    /// Posted results that wait for delivery to callers that were seen since the start.
    outstanding: usize,
    /// Tool services that may post results. Without any, no call is recorded.
    services: usize,
    /// The latest events of posted results, the newest first.
    recent: Vec<LateEventView>,
}

/// The late results of a tool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LateTool)]
struct LateToolView {
    /// The name of the tool; `other` for those beyond the first 25.
    tool: String,
    /// Results that came when no conversation waited any more.
    detached: u64,
    /// Results that came after the tool's `max_duration`.
    overrun: u64,
}

/// An event in the life of a posted result.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LateRow)]
struct LateEventView {
    /// The time of the event, RFC 3339.
    at: String,
    event: &'static str,
    /// Seconds since the result was posted; null unless it was delivered.
    age_seconds: Option<f64>,
    /// The call id; null if the event is of no single call. An odd id is escaped, a long one shortened.
    call_id: Option<String>,
    /// The tool; null if it is not known.
    tool: Option<String>,
    /// The program whose result it is, as its service named it in the post, such as `mcp:toy`; null for other events.
    source: Option<String>,
}

/// Returns the page of late results.
pub(in crate::api::admin) fn late_page(telemetry: &Telemetry, late: &LateStore) -> LatePage {
    LatePage {
        // Read from the metrics, so that the page and `/metrics` cannot disagree.
        detached: telemetry.detached_calls().into_iter().collect(),
        events: telemetry.late_result_counts().into_iter().collect(),
        tools: telemetry
            .late_tools()
            .into_iter()
            .map(|(tool, detached, overrun)| LateToolView {
                tool,
                detached,
                overrun,
            })
            .collect(),
        outstanding: late.calls().waiting_total(),
        services: late.services().len(),
        recent: telemetry
            .dashboard_feed()
            .late_results()
            .into_iter()
            .map(late_event_view)
            .collect(),
    }
}

/// Converts one event.
fn late_event_view(change: LateResultChange) -> LateEventView {
    let (call_id, tool, source) = change
        .call
        .map_or((None, None, None), |call| (Some(call.call_id), call.tool, call.source));
    LateEventView {
        at: rfc3339_date(change.at),
        event: change.event,
        age_seconds: change.age.map(|age| age.as_secs_f64()),
        call_id,
        tool,
        source,
    }
}
