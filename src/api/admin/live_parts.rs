//! The parts of the dashboard that its event streams keep up to date: rendered once for all streams, sent when changed.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    AdminState,
    views::{DateConverter, late, profiles, sessions, status, stuck_sessions, usage},
};
use crate::{
    clock,
    server::OwnerLimit,
    session_table::{LaneFilter, LaneTotals},
};

/// Limit of concurrent event streams.
const EVENT_STREAMS_MAX: usize = 32;
/// Age of rendered parts after which they are rendered anew.
const PARTS_AGE_MAX: Duration = Duration::from_millis(500);
/// The same for lanes, of which there may be many.
const LANES_AGE_MAX: Duration = Duration::from_secs(2);
/// Age of the pair of clocks. A new pair may change dates by a second, which would send parts that are the same.
const DATES_AGE_MAX: Duration = Duration::from_secs(60);
/// Limit of stuck sessions that a stream keeps up to date.
const STUCK_MAX: usize = 50;
/// Limit of lanes that a stream keeps up to date.
const LANES_MAX: usize = 100;
/// Members that change with time alone. They are sent, but they are no reason to send.
const RUNNING: [&str; 5] = [
    "uptime_seconds",
    "streams_active",
    "idle_seconds",
    "seconds",
    "seconds_left",
];

/// The limit of event streams, and the parts that all streams share.
#[derive(Clone, Debug)]
pub(super) struct AdminSubscribers {
    pub(super) limit: OwnerLimit<()>,
    pub(super) parts: LiveParts,
}

impl Default for AdminSubscribers {
    fn default() -> Self {
        Self {
            limit: OwnerLimit::new(EVENT_STREAMS_MAX, EVENT_STREAMS_MAX),
            parts: LiveParts::default(),
        }
    }
}

/// The parts, shared by all streams.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveParts(Arc<Mutex<RenderedParts>>);

/// The parts as they were last rendered.
#[derive(Debug, Default)]
struct RenderedParts {
    dates: Option<(Instant, DateConverter)>,
    parts: Option<(Instant, Arc<Vec<LivePart>>)>,
    lanes: Option<(Instant, Arc<LiveLanes>)>,
    totals: Option<(Instant, LaneTotals)>,
}

/// One part: an event of the stream.
#[derive(Clone, Debug)]
pub(super) struct LivePart {
    /// The name of the event.
    pub(super) name: &'static str,
    /// The data of the event.
    pub(super) data: Value,
    fingerprint: u64,
}

/// The first lanes, and the sums over all.
#[derive(Debug)]
struct LiveLanes {
    totals: sessions::LaneTotalsView,
    lanes: Vec<(String, LivePart)>,
}

/// The data of a `sessions` event.
#[derive(Debug, Serialize)]
struct SessionsChange {
    #[serde(flatten)]
    totals: sessions::LaneTotalsView,
    /// Lanes that are new, or not as they were.
    changed: Vec<Value>,
    /// Lanes that are not among the first any more.
    gone: Vec<String>,
}

/// The state of the parts that a stream has sent.
#[derive(Debug, Default)]
pub(super) struct SentParts {
    parts: HashMap<&'static str, u64>,
    lanes: HashMap<String, u64>,
    totals: Option<sessions::LaneTotalsView>,
}

impl LiveParts {
    /// Returns the sums over all lanes.
    pub(super) fn lane_totals(&self, state: &AdminState) -> LaneTotals {
        let now = clock::now();
        // Locked while counting, so that concurrent streams wait for one count and do not start their own.
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        renewed(&mut cached.totals, now, PARTS_AGE_MAX, || {
            state.sessions.lane_totals(now)
        })
    }

    /// Drops the rendered parts, because they may show what has just changed as it was before.
    pub(super) fn forget_parts(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).parts = None;
    }

    /// Returns the events that bring a stream up to date.
    pub(super) fn changed_parts(&self, state: &AdminState, sent: &mut SentParts) -> Vec<(&'static str, Value)> {
        let (parts, lanes) = self.rendered_parts(state);
        let mut events = Vec::new();
        for part in parts.iter() {
            if sent.parts.insert(part.name, part.fingerprint) != Some(part.fingerprint) {
                events.push((part.name, part.data.clone()));
            }
        }
        events.extend(lanes.change_since(sent).map(|change| ("sessions", change)));
        events
    }

    fn rendered_parts(&self, state: &AdminState) -> (Arc<Vec<LivePart>>, Arc<LiveLanes>) {
        let now = clock::now();
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let dates = renewed(&mut cached.dates, now, DATES_AGE_MAX, DateConverter::at_present);
        let parts = renewed(&mut cached.parts, now, PARTS_AGE_MAX, || {
            let profiles = &state.control.active_config().profiles;
            Arc::new(vec![
                LivePart::new("status", &status::status_view(state)),
                LivePart::new("profiles", &profiles::profiles_page(profiles, dates)),
                LivePart::new("late", &late::late_page(&state.telemetry, &state.late)),
                LivePart::new("usage", &usage::usage_page(&state.telemetry)),
                LivePart::new(
                    "stuck-sessions",
                    &stuck_sessions::stuck_sessions_page(&state.telemetry, STUCK_MAX, dates),
                ),
            ])
        });
        let lanes = renewed(&mut cached.lanes, now, LANES_AGE_MAX, || {
            let (_, views) = state.sessions.find_lanes(&LaneFilter::default(), 0, LANES_MAX, now);
            let part = |view| {
                let view = sessions::lane_view(view, now, dates);
                (view.hash().to_owned(), LivePart::new("sessions", &view))
            };
            Arc::new(LiveLanes {
                totals: state.sessions.lane_totals(now).into(),
                lanes: views.into_iter().map(part).collect(),
            })
        });
        (parts, lanes)
    }
}

impl LivePart {
    fn new(name: &'static str, view: &impl Serialize) -> Self {
        // Cannot fail: all views serialize to JSON.
        let data = serde_json::to_value(view).unwrap_or_default();
        let mut stable = data.clone();
        remove_running(&mut stable);
        let mut hasher = DefaultHasher::new();
        stable.to_string().hash(&mut hasher);
        Self {
            name,
            data,
            fingerprint: hasher.finish(),
        }
    }
}

impl LiveLanes {
    /// Returns the data of the event that brings a stream up to date; `None` if it is.
    fn change_since(&self, sent: &mut SentParts) -> Option<Value> {
        let mut before = std::mem::take(&mut sent.lanes);
        let mut changed = Vec::new();
        for (hash, lane) in &self.lanes {
            if before.remove(hash) != Some(lane.fingerprint) {
                changed.push(lane.data.clone());
            }
            sent.lanes.insert(hash.clone(), lane.fingerprint);
        }
        let has_same_totals = sent.totals.replace(self.totals) == Some(self.totals);
        if has_same_totals && changed.is_empty() && before.is_empty() {
            return None;
        }
        let change = SessionsChange {
            totals: self.totals,
            changed,
            gone: before.into_keys().collect(),
        };
        serde_json::to_value(change).ok()
    }
}

/// Returns the cached value, which is made anew if it is too old.
fn renewed<T: Clone>(
    cached: &mut Option<(Instant, T)>,
    now: Instant,
    age_max: Duration,
    make: impl FnOnce() -> T,
) -> T {
    match cached {
        Some((at, value)) if now.saturating_duration_since(*at) < age_max => value.clone(),
        _ => cached.insert((now, make())).1.clone(),
    }
}

/// Removes the members that change with time alone, at any depth.
fn remove_running(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !RUNNING.contains(&name.as_str()));
            members.values_mut().for_each(remove_running);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_running),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Lanes with a tool each.
    type Lanes<'l> = &'l [(&'l str, &'l str)];

    #[test]
    fn time_alone_is_no_change() {
        let fingerprint = |view: Value| LivePart::new("x", &view).fingerprint;
        let view = |seconds: u64, state: &str| json!({"uptime_seconds": seconds, "rows": [{"seconds_left": seconds, "state": state}]});
        assert_eq!(fingerprint(view(1, "a")), fingerprint(view(2, "a")));
        assert_ne!(fingerprint(view(1, "a")), fingerprint(view(1, "b")));
    }

    #[test]
    fn only_lanes_that_changed_are_sent_again() {
        let lanes = |rows: Lanes<'_>| LiveLanes {
            totals: LaneTotals::default().into(),
            lanes: rows
                .iter()
                .map(|(hash, tool)| {
                    (
                        (*hash).to_owned(),
                        LivePart::new("sessions", &json!({"lane": hash, "tool": tool})),
                    )
                })
                .collect(),
        };
        let mut sent = SentParts::default();
        // The lanes, and what is sent of them: those that changed, then those that are gone.
        let rows: [(Lanes<'_>, Option<Value>); 5] = [
            (&[("a", "x"), ("b", "x")], Some(json!([["a", "b"], []]))),
            (&[("a", "x"), ("b", "x")], None),
            (&[("b", "x"), ("a", "x")], None),
            (&[("b", "y"), ("a", "x")], Some(json!([["b"], []]))),
            (&[("c", "x"), ("b", "y")], Some(json!([["c"], ["a"]]))),
        ];
        for (now, wanted) in rows {
            let told = lanes(now).change_since(&mut sent).map(|change| {
                let changed = change["changed"].as_array().unwrap().iter().map(|lane| &lane["lane"]);
                json!([changed.collect::<Vec<_>>(), change["gone"]])
            });
            assert_eq!(told, wanted, "{now:?}");
        }
    }
}
