//! The event stream of the dashboard, as server-sent events: a tick every second, parts that changed, and news.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tokio::{
    sync::broadcast,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until},
};

use super::{
    AdminState,
    live_parts::{AdminSubscribers, SentParts},
    request::{AdminRequest, AdminResponse},
    views::{failures, repairs, series},
};
use crate::{
    api::{
        ProblemCode,
        json::write_json,
        stream::{event_stream, write_event},
    },
    clock,
    server::OwnerPlace,
    telemetry::dashboard::DashboardUpdate,
};

/// Time between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Delay after which a stream sends changed profiles. Many may change at once, and are sent together.
const PROFILES_DELAY: Duration = Duration::from_millis(50);
/// The first lines of a stream: the delay in milliseconds after which a page reconnects to a stream that ended.
const RECONNECT: &[u8] = b"retry: 2000\n\n";

/// The data of a `tick` event.
#[derive(Debug, Serialize)]
struct TickEvent {
    /// The current time, in seconds since 1970.
    at: u64,
    streams_active: i64,
    lanes: usize,
    open_calls: usize,
    /// Open calls beyond the time limit of their tool.
    overdue_calls: usize,
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
    sent: SentParts,
    /// The time at which changed profiles are sent; `None` if they have not changed.
    profiles_due: Option<Instant>,
    /// Events to send before the next wait.
    queued: VecDeque<Bytes>,
    /// The place, freed when the client disconnects.
    _place: OwnerPlace<()>,
}

/// Streams updates as they happen
#[utoipa::path(get, path = "/admin/v1/events", operation_id = "events", tag = "watch", responses(
    (status = 200,
        description = "`tick` every second; `repair` and `failure` as they happen; `status`, `profiles`, `late`, \
            `usage` and `stuck-sessions` at the start and when they change, each as its path returns it; `sessions` with the lanes that \
            changed among the first 100; `resync` if news were missed; never ends by itself",
        content_type = "text/event-stream", body = String),
))]
pub(super) fn stream_events(request: &AdminRequest) -> AdminResponse {
    let (parts, subscribers) = (request.parts.clone(), request.subscribers.clone());
    // Each stream holds a task, a buffer and a connection, so their number must be bounded.
    let place = subscribers.limit.take_place(()).ok_or(ProblemCode::TooManyListeners)?;
    let mut ticks = interval(TICK_INTERVAL);
    // A slow client gets fewer ticks, not a burst of old ones.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = AdminEventStream {
        updates: parts.telemetry.dashboard_feed().subscribe(),
        ticks,
        sent: SentParts::default(),
        profiles_due: None,
        queued: VecDeque::from([Bytes::from_static(RECONNECT)]),
        parts,
        subscribers,
        _place: place,
    };
    // A tick comes every second, so that no proxy closes the stream as idle.
    Ok(event_stream(stream::unfold(listener, |mut this| async {
        let event = this.next_event().await;
        Some((event, this))
    })))
}

impl AdminEventStream {
    async fn next_event(&mut self) -> Bytes {
        loop {
            if let Some(event) = self.queued.pop_front() {
                return event;
            }
            tokio::select! {
                _ = self.ticks.tick() => {
                    self.queued.push_back(self.tick_event());
                    self.queue_parts();
                }
                () = sleep_until(self.profiles_due.unwrap_or_else(clock::now)), if self.profiles_due.is_some() => {
                    self.profiles_due = None;
                    self.queue_parts();
                }
                update = self.updates.recv() => match update {
                    Ok(DashboardUpdate::Repair(entry)) => {
                        // Without the structure, which may be large: a page requests it when a user opens the repair.
                        self.queued.push_back(json_event("repair", &repairs::repair_view(&entry, false)));
                    }
                    Ok(DashboardUpdate::Failure(entry)) => {
                        self.queued.push_back(json_event("failure", &failures::failure_view(&entry)));
                    }
                    // An operator who cleared a cooldown looks at the page now.
                    Ok(DashboardUpdate::Profiles) => {
                        self.subscribers.parts.forget_parts();
                        self.profiles_due.get_or_insert_with(|| clock::now() + PROFILES_DELAY);
                    }
                    // The next tick brings the counts and the list.
                    Ok(DashboardUpdate::LateResult(_)) => {}
                    // The client was too slow and missed news. This event makes the page load the lists again.
                    Err(broadcast::error::RecvError::Lagged(_)) => self.queued.push_back(json_event("resync", &())),
                    // Cannot happen: `parts` keeps the sender alive.
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
            }
        }
    }

    /// Queues an event for each part that is not as this stream has sent it.
    fn queue_parts(&mut self) {
        let changed = self.subscribers.parts.changed_parts(&self.parts, &mut self.sent);
        let events = changed.iter().map(|(name, data)| json_event(name, data));
        self.queued.extend(events);
    }

    fn tick_event(&self) -> Bytes {
        let (parts, current) = (&self.parts, self.parts.telemetry.dashboard_feed().current_step());
        // Counts may arrive after the last tick of their step: `last` reports them.
        let complete = parts.telemetry.dashboard_feed().previous_step();
        let totals = self.subscribers.parts.lane_totals(parts);
        let tick = TickEvent {
            at: clock::unix_time().as_secs(),
            streams_active: parts.telemetry.active_streams(),
            lanes: totals.lanes,
            open_calls: totals.open_calls,
            overdue_calls: totals.overdue_calls,
            point_at: current.at,
            point: series::series_point(&current),
            last_at: complete.at,
            last: series::series_point(&complete),
        };
        json_event("tick", &tick)
    }
}

/// Creates an event with this name and JSON data.
fn json_event(name: &'static str, data: &impl Serialize) -> Bytes {
    write_event(name, None, &write_json(data))
}
