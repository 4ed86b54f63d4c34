//! Lanes with their open tool calls, for the admin API.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    clock,
    session_table::{CallView, LaneView, SessionTable},
};

/// The lanes: those with open calls first, then the most recently used.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct SessionsPage {
    /// Lanes in the session table.
    lanes: usize,
    /// Lanes that are pinned to a profile.
    pinned: usize,
    /// Lanes with open calls.
    with_open_calls: usize,
    /// Tool calls that clients have not answered.
    open_calls: usize,
    latest: Vec<SessionLaneView>,
    /// The value of `after` for the next page; null on the last page.
    next: Option<String>,
}

/// The conversation of one agent within a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lane)]
struct SessionLaneView {
    /// The start of the lane's hash.
    #[serde(rename = "lane")]
    hash: String,
    upstream: Option<String>,
    profile: Option<String>,
    idle_seconds: u64,
    /// The number of times that two agent loops continued its history.
    forks: usize,
    /// The number of calls that the model made again after their result was lost.
    repeated_calls: usize,
    /// Tool calls that the client has not answered.
    open_calls: Vec<OpenCallView>,
    /// The provider-side tool that ran when an answer last stalled; null if none did.
    stalled: Option<StalledToolView>,
}

/// A tool call that the client has not answered.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenCall)]
struct OpenCallView {
    tool: String,
    /// Seconds since the model made the call.
    seconds: u64,
    /// The configured limit of the tool's duration; null without one.
    max_duration_seconds: Option<f64>,
    /// True if a client is known to wait for the result.
    attached: bool,
    /// True until the end of the stream, or a request, shows that the client received the call.
    tentative: bool,
}

/// A provider-side tool during which an answer stalled.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stalled)]
struct StalledToolView {
    tool: String,
    id: String,
    seconds: u64,
}

/// Returns the page of `limit` lanes after the first `skip`.
pub(in crate::admin) fn sessions_page(table: &SessionTable, skip: usize, limit: usize) -> SessionsPage {
    let now = clock::now();
    let totals = table.lane_totals(now);
    let latest: Vec<SessionLaneView> = table.lane_views(skip, limit, now).into_iter().map(lane_view).collect();
    let end = skip.saturating_add(latest.len());
    SessionsPage {
        lanes: totals.lanes,
        pinned: totals.pinned,
        with_open_calls: totals.waiting,
        open_calls: totals.open_calls,
        // A full page may still be the last one.
        next: (latest.len() == limit && end < totals.lanes).then(|| end.to_string()),
        latest,
    }
}

fn lane_view(view: LaneView) -> SessionLaneView {
    let call = |call: CallView| OpenCallView {
        tool: call.tool.into(),
        seconds: call.age.as_secs(),
        max_duration_seconds: call.max_duration.map(|longest| longest.as_secs_f64()),
        attached: call.attached,
        tentative: call.tentative,
    };
    let (upstream, profile) = view.pin.map(|pin| (pin.upstream, pin.profile)).unzip();
    SessionLaneView {
        hash: view.lane,
        upstream: upstream.map(String::from),
        profile: profile.map(String::from),
        idle_seconds: view.idle.as_secs(),
        forks: view.forks,
        repeated_calls: view.repeats,
        open_calls: view.calls.into_iter().map(call).collect(),
        stalled: view.stalled_tool.map(|tool| StalledToolView {
            tool: tool.name,
            id: tool.id,
            seconds: tool.age.as_secs(),
        }),
    }
}
