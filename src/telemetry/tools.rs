//! Metrics of tools that clients run: how their calls end, how long they take, and who still waits for them.
//!
//! Names of tools are the one word of requests that becomes a label: the first few, and only plain ones.

use std::{
    collections::BTreeSet,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

/// Names of tools that become labels: the first that are seen.
const NAMES_MAX: usize = 50;
/// Characters of a name that becomes a label.
const NAME_MAX: usize = 64;
/// The label of all other tools.
const OTHER: &str = "other";
/// A call that was open for longer may outlive its client.
const LONG: Duration = Duration::from_secs(10);
/// Clients' time, in seconds: from reading a file to hours of work.
const ROUND_TRIP_BUCKETS: [f64; 12] = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 7200.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HowLabels {
    how: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttachedLabels {
    attached: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DetachedLabels {
    detached: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    tool: String,
}

/// The metrics.
#[derive(Debug)]
pub(super) struct Tools {
    names: RwLock<BTreeSet<Box<str>>>,
    closed: Family<HowLabels, Counter>,
    settles: Family<AttachedLabels, Counter>,
    long: Family<DetachedLabels, Counter>,
    detached: Family<WhyLabels, Counter>,
    round_trips: Family<ToolLabels, Histogram, fn() -> Histogram>,
    forks: Counter,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            names: RwLock::default(),
            closed: Family::default(),
            settles: Family::default(),
            long: Family::default(),
            detached: Family::default(),
            round_trips: Family::new_with_constructor(|| Histogram::new(ROUND_TRIP_BUCKETS)),
            forks: Counter::default(),
        }
    }
}

const fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

impl Tools {
    /// Names and help, and the label sets that are known beforehand: why calls detach is told by `whys`.
    pub(super) fn register(&self, registry: &mut Registry, whys: impl IntoIterator<Item = &'static str>) {
        registry.register(
            "tool_calls_closed",
            "Tool calls of clients that are no longer open: by a result, by a text that says it was lost, or abandoned",
            self.closed.clone(),
        );
        registry.register(
            "settles",
            "Tool calls of clients that a result has settled, by whether their conversation still waited for it",
            self.settles.clone(),
        );
        registry.register(
            "long_calls",
            "Settled tool calls that took more than 10 seconds, by whether nobody waited for the result any more",
            self.long.clone(),
        );
        registry.register(
            "calls_detached",
            "Tool calls that nobody is known to wait for any more, by why",
            self.detached.clone(),
        );
        registry.register_with_unit(
            "tool_round_trip",
            "From a call in an answer to its result in a request",
            Unit::Seconds,
            self.round_trips.clone(),
        );
        registry.register(
            "session_forks",
            "Pairs of loops that went on from one history",
            self.forks.clone(),
        );
        for how in ["settled", "placeholder", "abandoned"] {
            drop(self.closed.get_or_create(&HowLabels { how }));
        }
        for word in [true, false].map(yes_or_no) {
            drop(self.settles.get_or_create(&AttachedLabels { attached: word }));
            drop(self.long.get_or_create(&DetachedLabels { detached: word }));
        }
        let tool = OTHER.to_owned();
        drop(self.round_trips.get_or_create(&ToolLabels { tool }));
        for why in whys {
            drop(self.detached.get_or_create(&WhyLabels { why }));
        }
    }

    pub(super) fn closed(&self, how: &'static str, count: u64) {
        if count > 0 {
            self.closed.get_or_create(&HowLabels { how }).inc_by(count);
        }
    }

    pub(super) fn settled(&self, tool: &str, attached: bool, open: Duration) {
        let labels = AttachedLabels {
            attached: yes_or_no(attached),
        };
        self.settles.get_or_create(&labels).inc();
        if open > LONG {
            let detached = yes_or_no(!attached);
            self.long.get_or_create(&DetachedLabels { detached }).inc();
        }
        let tool = self.label(tool);
        let round_trip = self.round_trips.get_or_create(&ToolLabels { tool });
        round_trip.observe(open.as_secs_f64());
    }

    pub(super) fn detached(&self, why: &'static str, count: u64) {
        if count > 0 {
            self.detached.get_or_create(&WhyLabels { why }).inc_by(count);
        }
    }

    pub(super) fn detached_so_far(&self, why: &'static str) -> u64 {
        self.detached.get_or_create(&WhyLabels { why }).get()
    }

    pub(super) fn forked(&self, forks: u64) {
        self.forks.inc_by(forks);
    }

    /// The name of a tool if it is one of the first, else `other`.
    fn label(&self, tool: &str) -> String {
        let is_plain =
            !tool.is_empty() && tool.len() <= NAME_MAX && tool.bytes().all(|letter| letter.is_ascii_graphic());
        if !is_plain {
            return OTHER.to_owned();
        }
        let known = self.names.read().unwrap_or_else(PoisonError::into_inner).contains(tool);
        let is_kept = known || {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            names.contains(tool) || (names.len() < NAMES_MAX && names.insert(tool.into()))
        };
        if is_kept { tool } else { OTHER }.to_owned()
    }
}
