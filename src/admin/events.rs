//! The event stream of the dashboard, as server-sent events: a tick every second, and updates as they happen.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::{
    sync::broadcast,
    time::{Instant, Interval, MissedTickBehavior, interval},
};

use super::{
    AdminState,
    problem::AdminProblem,
    views::{late, repairs, series},
};
use crate::{
    clock,
    server::{ListenerLimit, ListenerSlot},
    session_table::{LaneTotals, SessionTable},
    telemetry::dashboard::DashboardUpdate,
};

/// Limit of concurrent event streams.
const EVENT_STREAMS_MAX: usize = 32;
/// Time between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two keep-alive comments, which stop proxies from closing an idle stream.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Delay after which a page reconnects to a stream that ended.
const RECONNECT_DELAY: Duration = Duration::from_secs(2);

/// The limit of event streams, and the totals that all streams share.
#[derive(Clone, Debug)]
pub(super) struct AdminSubscribers {
    limit: ListenerLimit<()>,
    /// The last totals, with their time. Computed once for all streams, because there may be many lanes.
    totals: Arc<Mutex<Option<(Instant, LaneTotals)>>>,
}

impl Default for AdminSubscribers {
    fn default() -> Self {
        Self {
            limit: ListenerLimit::new(EVENT_STREAMS_MAX, EVENT_STREAMS_MAX),
            totals: Arc::default(),
        }
    }
}

impl AdminSubscribers {
    /// Returns the totals of the session table, at most half a second old.
    fn cached_totals(&self, table: &SessionTable) -> LaneTotals {
        let now = clock::now();
        // Locked while counting, so that concurrent streams wait for one count and do not start their own.
        let mut cached = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        match *cached {
            Some((at, totals)) if now.saturating_duration_since(at) < TICK_INTERVAL / 2 => totals,
            _ => {
                let totals = table.lane_totals(now);
                *cached = Some((now, totals));
                totals
            }
        }
    }
}

/// The data of a `tick` event.
#[derive(Debug, Serialize)]
struct TickEvent {
    /// The current time, in seconds since 1970.
    at: u64,
    streams_active: i64,
    lanes: usize,
    open_calls: usize,
    /// The current step of the history.
    point_at: u64,
    point: series::SeriesPoint,
    /// The step before it, which is complete.
    last_at: u64,
    last: series::SeriesPoint,
}

/// One open event stream.
struct AdminEventStream {
    parts: AdminState,
    subscribers: AdminSubscribers,
    ticks: Interval,
    updates: broadcast::Receiver<DashboardUpdate>,
    /// Events to send before the next wait.
    queued: VecDeque<Event>,
    /// The slot, freed when the client disconnects.
    _slot: ListenerSlot<()>,
}

/// Streams updates as they happen
#[utoipa::path(get, path = "/admin/v1/events", operation_id = "events", tag = "watch", responses(
    (status = 200,
        description = "`tick` every second; `repair`, `late` and `profiles` as they happen; never ends by itself",
        content_type = "text/event-stream", body = String),
    (status = 401, description = "the token is missing or wrong", body = AdminProblem),
    (status = 503, description = "all 32 event streams are in use", body = AdminProblem),
))]
pub(super) async fn stream_events(
    State(parts): State<AdminState>,
    Extension(listeners): Extension<AdminSubscribers>,
) -> Response {
    // Each stream holds a task, a buffer and a connection, so their number must be bounded.
    let Some(slot) = listeners.limit.take_slot(()) else {
        let text = "all 32 event streams are in use: close another dashboard and retry";
        return AdminProblem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners", text).into_response();
    };
    let mut ticks = interval(TICK_INTERVAL);
    // A slow client gets fewer ticks, not a burst of old ones.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = AdminEventStream {
        updates: parts.telemetry.dashboard_feed().subscribe(),
        ticks,
        queued: VecDeque::from([Event::default().retry(RECONNECT_DELAY)]),
        parts,
        subscribers: listeners,
        _slot: slot,
    };
    Sse::new(listener.into_stream())
        .keep_alive(KeepAlive::new().interval(PING_INTERVAL).text("ping"))
        .into_response()
}

impl AdminEventStream {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut this| async {
            let event = this.next_event().await;
            Some((Ok(event), this))
        })
    }

    async fn next_event(&mut self) -> Event {
        loop {
            if let Some(event) = self.queued.pop_front() {
                return event;
            }
            tokio::select! {
                _ = self.ticks.tick() => self.queued.push_back(self.tick_event()),
                update = self.updates.recv() => match update {
                    Ok(update) => self.queued.push_back(update_event(update)),
                    // The client was too slow and missed updates. This event makes the page poll the profiles again.
                    Err(broadcast::error::RecvError::Lagged(_)) => self.queued.push_back(json_event("profiles", &())),
                    // Cannot happen: `parts` keeps the sender alive.
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
            }
        }
    }

    fn tick_event(&self) -> Event {
        let (parts, current) = (&self.parts, self.parts.telemetry.dashboard_feed().current_step());
        // Counts may arrive after the last tick of their step: `last` reports them.
        let complete = parts.telemetry.dashboard_feed().previous_step();
        let totals = self.subscribers.cached_totals(&parts.sessions);
        let tick = TickEvent {
            at: clock::unix_time().as_secs(),
            streams_active: parts.telemetry.active_streams(),
            lanes: totals.lanes,
            open_calls: totals.open_calls,
            point_at: current.at,
            point: series::series_point(&current),
            last_at: complete.at,
            last: series::series_point(&complete),
        };
        json_event("tick", &tick)
    }
}

/// Converts an update to the event that pages receive.
fn update_event(update: DashboardUpdate) -> Event {
    match update {
        // Without the structure, which may be large: a page requests it when a user opens the repair.
        DashboardUpdate::Repair(entry) => json_event("repair", &repairs::repair_view(&entry, false)),
        DashboardUpdate::LateResult(change) => json_event("late", &late::late_event_view(change)),
        DashboardUpdate::Profiles => json_event("profiles", &()),
    }
}

/// Creates an event with this name and JSON data.
fn json_event(name: &'static str, data: &impl Serialize) -> Event {
    // Cannot fail: all data types of this module serialize to JSON.
    Event::default().event(name).json_data(data).unwrap_or_default()
}
