//! Lanes with their open tool calls, for the admin API.

use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::DateConverter;
use crate::{
    clock,
    session_table::{CallView, LaneFilter, LaneTotals, LaneView, SessionTable},
};

/// The lanes: those with overdue calls first, then those with other open calls, then the most recently used.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct SessionsPage {
    /// Lanes in the session table.
    lanes: usize,
    /// Lanes that are pinned to a profile.
    pinned: usize,
    /// Lanes with open calls.
    with_open_calls: usize,
    /// Tool calls that clients have not answered.
    open_calls: usize,
    /// Those beyond the time limit of their tool.
    overdue_calls: usize,
    /// Lanes that the query selects.
    found: usize,
    latest: Vec<SessionLaneView>,
    /// The value of `after` for the next page; null on the last page.
    next: Option<String>,
}

/// The sums of a [`SessionsPage`], for the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(in crate::api::admin) struct LaneTotalsView {
    lanes: usize,
    pinned: usize,
    with_open_calls: usize,
    open_calls: usize,
    overdue_calls: usize,
}

impl From<LaneTotals> for LaneTotalsView {
    fn from(totals: LaneTotals) -> Self {
        Self {
            lanes: totals.lanes,
            pinned: totals.pinned,
            with_open_calls: totals.waiting,
            open_calls: totals.open_calls,
            overdue_calls: totals.overdue_calls,
        }
    }
}

/// The conversation of one agent within a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lane)]
pub(in crate::api::admin) struct SessionLaneView {
    /// The start of the lane's hash.
    #[serde(rename = "lane")]
    hash: String,
    /// The upstream of its last request; null if it is not known.
    upstream: Option<String>,
    /// The profile that serves it; null if the client's own credential does.
    profile: Option<String>,
    /// The model of its last request; null if that named none.
    model: Option<String>,
    /// The client program of its last request; null if it does not name itself.
    client: Option<String>,
    /// The name of the client token of its last request; null if the client presented none.
    token: Option<String>,
    /// Its first request, RFC 3339.
    first_seen_at: String,
    /// Its last use, RFC 3339.
    seen_at: String,
    idle_seconds: u64,
    /// The number of times that two agent loops continued its history.
    forks: usize,
    /// The number of calls that the model made again after their result was lost.
    repeated_calls: usize,
    /// Tool calls that the client has not answered.
    open_calls: Vec<OpenCallView>,
    /// The provider-side tool that ran when the last answer stalled; null after 15 minutes, or once the lane goes on.
    stalled: Option<StalledToolView>,
}

/// A tool call that the client has not answered.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenCall)]
struct OpenCallView {
    tool: String,
    /// The time at which the model made the call, RFC 3339.
    since: String,
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
    /// The age of the tool when the answer ended, in seconds.
    age_seconds: u64,
    /// The end of the answer, RFC 3339.
    ended_at: String,
}

/// Returns the page of `limit` selected lanes after the first `skip`.
pub(in crate::api::admin) fn sessions_page(
    table: &SessionTable,
    filter: &LaneFilter,
    skip: usize,
    limit: usize,
) -> SessionsPage {
    let (now, dates) = (clock::now(), DateConverter::at_present());
    let totals = table.lane_totals(now);
    let (found, views) = table.find_lanes(filter, skip, limit, now);
    let latest: Vec<SessionLaneView> = views.into_iter().map(|view| lane_view(view, now, dates)).collect();
    let end = skip.saturating_add(latest.len());
    SessionsPage {
        lanes: totals.lanes,
        pinned: totals.pinned,
        with_open_calls: totals.waiting,
        open_calls: totals.open_calls,
        overdue_calls: totals.overdue_calls,
        found,
        // A full page may still be the last one.
        next: (latest.len() == limit && end < found).then(|| end.to_string()),
        latest,
    }
}

/// Converts one lane. `now` is the time at which its view was made.
pub(in crate::api::admin) fn lane_view(view: LaneView, now: Instant, dates: DateConverter) -> SessionLaneView {
    let date_before = |age: std::time::Duration| {
        // A lane cannot be older than the process, so the subtraction always succeeds.
        let at = now.into_std().checked_sub(age);
        dates.to_date(at.unwrap_or_else(|| now.into_std()))
    };
    let call = |call: CallView| OpenCallView {
        tool: call.tool.into(),
        since: date_before(call.age),
        seconds: call.age.as_secs(),
        max_duration_seconds: call.max_duration.map(|longest| longest.as_secs_f64()),
        attached: call.attached,
        tentative: call.tentative,
    };
    let (upstream, profile) = view.pin.map(|pin| (pin.upstream, pin.profile)).unzip();
    let labels = view.labels;
    SessionLaneView {
        hash: view.lane,
        upstream: upstream.or(labels.upstream).map(String::from),
        profile: profile.map(String::from),
        model: labels.model.map(String::from),
        client: labels.client.map(String::from),
        token: labels.token.map(String::from),
        first_seen_at: date_before(view.age),
        seen_at: date_before(view.idle),
        idle_seconds: view.idle.as_secs(),
        forks: view.forks,
        repeated_calls: view.repeats,
        open_calls: view.calls.into_iter().map(call).collect(),
        stalled: view.stalled_tool.map(|stall| StalledToolView {
            age_seconds: stall.tool.age.as_secs(),
            ended_at: date_before(stall.ended),
            tool: stall.tool.name,
            id: stall.tool.id,
        }),
    }
}

impl SessionLaneView {
    /// Returns the start of the lane's hash.
    pub(in crate::api::admin) fn hash(&self) -> &str {
        &self.hash
    }
}
