//! Lanes: what clients work on, and for how long.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    clock,
    session_table::{CallView, LaneView, SessionTable},
};

/// The lanes: those with open calls first, then those that were seen last.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct SessionsPage {
    /// Lanes that are remembered.
    lanes: usize,
    /// Lanes that keep to a profile.
    pinned: usize,
    /// Lanes with open calls.
    with_open_calls: usize,
    /// Calls that clients have not answered.
    open_calls: usize,
    latest: Vec<Lane>,
    /// What `after` takes to see more; null behind the last.
    next: Option<String>,
}

/// One agent's conversation within a session.
#[derive(Debug, Serialize, ToSchema)]
struct Lane {
    /// The beginning of its hash.
    #[serde(rename = "lane")]
    hash: String,
    upstream: Option<String>,
    profile: Option<String>,
    idle_seconds: u64,
    /// How often its history was seen to part.
    forks: usize,
    /// Calls that the client has not answered.
    open_calls: Vec<OpenCall>,
    /// The tool of the provider during which an answer last fell silent.
    stalled: Option<Stalled>,
}

/// A call that the client has not answered.
#[derive(Debug, Serialize, ToSchema)]
struct OpenCall {
    tool: String,
    /// Since the model made it.
    seconds: u64,
    /// How long the tool may take; null where nobody said so.
    max_duration_seconds: Option<f64>,
    /// Whether somebody is known to wait for its result.
    attached: bool,
    /// Whether it is not known that the client has it.
    tentative: bool,
}

/// A tool of the provider's that gave no sign.
#[derive(Debug, Serialize, ToSchema)]
struct Stalled {
    tool: String,
    id: String,
    seconds: u64,
}

/// The page of `limit` lanes behind `skip`.
pub(in crate::admin) fn sessions(of: &SessionTable, skip: usize, limit: usize) -> SessionsPage {
    let now = clock::now();
    let totals = of.totals(now);
    let latest: Vec<Lane> = of.view(skip, limit, now).into_iter().map(lane).collect();
    let end = skip.saturating_add(latest.len());
    SessionsPage {
        lanes: totals.lanes,
        pinned: totals.pinned,
        with_open_calls: totals.waiting,
        open_calls: totals.open_calls,
        next: (latest.len() == limit && end < totals.lanes).then(|| end.to_string()),
        latest,
    }
}

fn lane(view: LaneView) -> Lane {
    let call = |call: CallView| OpenCall {
        tool: call.tool.into(),
        seconds: call.age.as_secs(),
        max_duration_seconds: call.max_duration.map(|longest| longest.as_secs_f64()),
        attached: call.attached,
        tentative: call.tentative,
    };
    let (upstream, profile) = view.pin.map(|pin| (pin.upstream, pin.profile)).unzip();
    Lane {
        hash: view.lane,
        upstream: upstream.map(String::from),
        profile: profile.map(String::from),
        idle_seconds: view.idle.as_secs(),
        forks: view.forks,
        open_calls: view.calls.into_iter().map(call).collect(),
        stalled: view.stalled.map(|tool| Stalled {
            tool: tool.name,
            id: tool.id,
            seconds: tool.age.as_secs(),
        }),
    }
}
