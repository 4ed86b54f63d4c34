//! News as server-sent events: each second how things stand, and what happens when it does.

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
    sync::{OwnedSemaphorePermit, Semaphore, broadcast},
    time::{Instant, Interval, MissedTickBehavior, interval},
};

use super::{
    Parts,
    problem::Problem,
    views::{late, repairs, series},
};
use crate::{
    clock,
    session_table::{SessionTable, Totals},
    telemetry::dashboard::DashboardUpdate,
};

/// Listeners at once.
const LISTENERS_MAX: usize = 32;
/// How often the state is told.
const TICK: Duration = Duration::from_secs(1);
/// How often something is said that means nothing, so that nobody takes the stream for dead.
const PING: Duration = Duration::from_secs(15);
/// How long a page waits before it comes back.
const RETRY: Duration = Duration::from_secs(2);

/// Who listens, and what all of them are told each second.
#[derive(Clone, Debug)]
pub(super) struct Listeners {
    room: Arc<Semaphore>,
    /// Counted once for all: there may be many lanes.
    totals: Arc<Mutex<Option<(Instant, Totals)>>>,
}

impl Default for Listeners {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(LISTENERS_MAX)),
            totals: Arc::default(),
        }
    }
}

impl Listeners {
    fn totals(&self, of: &SessionTable) -> Totals {
        let now = clock::now();
        let mut known = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((at, totals)) if now.saturating_duration_since(at) < TICK / 2 => totals,
            _ => {
                let totals = of.totals(now);
                *known = Some((now, totals));
                totals
            }
        }
    }
}

/// How things stand.
#[derive(Debug, Serialize)]
struct Tick {
    at: u64,
    streams_active: i64,
    lanes: usize,
    open_calls: usize,
    /// The running step.
    point_at: u64,
    point: series::Point,
    /// The step before it, which is whole.
    last_at: u64,
    last: series::Point,
}

/// One who listens.
struct Listener {
    parts: Parts,
    listeners: Listeners,
    ticks: Interval,
    news: broadcast::Receiver<DashboardUpdate>,
    waiting: VecDeque<Event>,
    _room: OwnedSemaphorePermit,
}

/// What happens, as it happens
#[utoipa::path(get, path = "/admin/v1/events", tag = "watch", responses(
    (status = 200, description = "`tick` each second; `repair`, `late` and `profiles` when something happens; never ends by itself",
        content_type = "text/event-stream", body = String),
    (status = 401, description = "the token is missing or wrong", body = Problem),
    (status = 503, description = "32 listen already", body = Problem),
))]
pub(super) async fn events(State(parts): State<Parts>, Extension(listeners): Extension<Listeners>) -> Response {
    let Ok(room) = Arc::clone(&listeners.room).try_acquire_owned() else {
        let text = "32 listen already; close one of them";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners", text).into_response();
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = Listener {
        news: parts.telemetry.dashboard().subscribe(),
        ticks,
        waiting: VecDeque::from([Event::default().retry(RETRY)]),
        parts,
        listeners,
        _room: room,
    };
    Sse::new(listener.stream())
        .keep_alive(KeepAlive::new().interval(PING).text("ping"))
        .into_response()
}

impl Listener {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut this| async {
            let event = this.next().await;
            Some((Ok(event), this))
        })
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return event;
            }
            tokio::select! {
                _ = self.ticks.tick() => self.waiting.push_back(self.tick()),
                news = self.news.recv() => match news {
                    Ok(news) => self.waiting.push_back(told(news)),
                    // Of what it missed the page learns by looking again.
                    Err(broadcast::error::RecvError::Lagged(_)) => self.waiting.push_back(named("profiles", &())),
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
            }
        }
    }

    fn tick(&self) -> Event {
        let (parts, running) = (&self.parts, self.parts.telemetry.dashboard().current_step());
        let finished = parts.telemetry.dashboard().previous_step();
        let totals = self.listeners.totals(&parts.sessions);
        let tick = Tick {
            at: clock::since_1970().as_secs(),
            streams_active: parts.telemetry.active_streams(),
            lanes: totals.lanes,
            open_calls: totals.open_calls,
            point_at: running.at,
            point: series::point(&running),
            last_at: finished.at,
            last: series::point(&finished),
        };
        named("tick", &tick)
    }
}

fn told(news: DashboardUpdate) -> Event {
    match news {
        DashboardUpdate::Repair(mended) => named("repair", &repairs::repair(&mended, false)),
        DashboardUpdate::LateResult(news) => named("late", &late::row(news)),
        DashboardUpdate::Profiles => named("profiles", &()),
    }
}

fn named(name: &'static str, data: &impl Serialize) -> Event {
    // What is told here can be written as JSON.
    Event::default().event(name).json_data(data).unwrap_or_default()
}
