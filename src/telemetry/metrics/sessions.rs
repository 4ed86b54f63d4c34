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
    metrics::{counter::Counter, histogram::Histogram},
};

use super::page::{Capped, OTHER, Page, many, one, seconds};
use crate::session_table::Detached;

/// Names of tools that become labels: the first that are seen.
const NAMES_MAX: usize = 25;
/// Characters of a name that becomes a label.
const NAME_MAX: usize = 64;
/// How a call may close.
const HOWS: [&str; 3] = ["settled", "placeholder", "abandoned"];
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
pub(in crate::telemetry) struct Tools {
    names: RwLock<BTreeSet<Box<str>>>,
    closed: Capped<HowLabels, Counter>,
    settles: Capped<AttachedLabels, Counter>,
    long: Capped<DetachedLabels, Counter>,
    detached: Capped<WhyLabels, Counter>,
    round_trips: Capped<ToolLabels, Histogram>,
    forks: Counter,
}

impl Default for Tools {
    fn default() -> Self {
        let make = || Histogram::new(ROUND_TRIP_BUCKETS);
        Self {
            names: RwLock::default(),
            closed: Capped::closed(HOWS.len()),
            settles: Capped::closed(2),
            long: Capped::closed(2),
            detached: Capped::closed(Detached::ALL.len()),
            round_trips: Capped::histograms(NAMES_MAX + 1, ROUND_TRIP_BUCKETS.len(), make),
            forks: Counter::default(),
        }
    }
}

const fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

impl Tools {
    /// Names and help, and the label sets that are known beforehand.
    pub(in crate::telemetry) fn register(&self, page: &mut Page) {
        page.family(
            "tool_calls_closed",
            "Tool calls of clients that are no longer open: by a result, by a text that says it was lost, or abandoned",
            &self.closed,
        );
        page.family(
            "settles",
            "Tool calls of clients that a result has settled, by whether their conversation still waited for it",
            &self.settles,
        );
        page.family(
            "long_calls",
            "Settled tool calls that took more than 10 seconds, by whether nobody waited for the result any more",
            &self.long,
        );
        page.family(
            "calls_detached",
            "Tool calls that nobody is known to wait for any more, by why",
            &self.detached,
        );
        page.seconds(
            "tool_round_trip",
            "From a call in an answer to its result in a request",
            &self.round_trips,
        );
        page.single(
            "session_forks",
            "Pairs of loops that went on from one history",
            self.forks.clone(),
        );
        for how in HOWS {
            self.closed.begin(&HowLabels { how });
        }
        for word in [true, false].map(yes_or_no) {
            self.settles.begin(&AttachedLabels { attached: word });
            self.long.begin(&DetachedLabels { detached: word });
        }
        let tool = OTHER.to_owned();
        self.round_trips.begin(&ToolLabels { tool });
        for why in Detached::ALL.map(Detached::label) {
            self.detached.begin(&WhyLabels { why });
        }
    }

    pub(in crate::telemetry) fn closed(&self, how: &'static str, count: u64) {
        if count > 0 {
            self.closed.with(&HowLabels { how }, many(count));
        }
    }

    pub(in crate::telemetry) fn settled(&self, tool: &str, attached: bool, open: Duration) {
        let labels = AttachedLabels {
            attached: yes_or_no(attached),
        };
        self.settles.with(&labels, one);
        if open > LONG {
            let detached = yes_or_no(!attached);
            self.long.with(&DetachedLabels { detached }, one);
        }
        let tool = self.label(tool);
        self.round_trips.with(&ToolLabels { tool }, seconds(open));
    }

    pub(in crate::telemetry) fn detached(&self, why: &'static str, count: u64) {
        if count > 0 {
            self.detached.with(&WhyLabels { why }, many(count));
        }
    }

    pub(in crate::telemetry) fn detached_so_far(&self, why: &'static str) -> u64 {
        let mut count = 0;
        self.detached.with(&WhyLabels { why }, |counter| count = counter.get());
        count
    }

    pub(in crate::telemetry) fn forked(&self, forks: u64) {
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
