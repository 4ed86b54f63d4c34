//! Metrics of conversations, and of the tool calls that clients run for them.

use std::{
    collections::BTreeSet,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

use super::{
    family::{CounterFamily, HistogramFamily},
    label_sets::{LabelSpace, LabelValue, OTHER},
    page::metric_table,
};
use crate::{
    repair::Tier,
    session_table::{DetachReason, EnteredLane, LossKind, SettledCall},
};

/// The ways in which a result is late.
const LATE_KINDS: [&str; 2] = ["detached", "overrun"];
/// Ways in which a tool call is closed.
const CLOSE_KINDS: [&str; 3] = ["settled", "placeholder", "abandoned"];
const YES_NO: [&str; 2] = ["yes", "no"];
/// Duration after which a settled call counts as long: its client may have stopped waiting.
const LONG_CALL: Duration = Duration::from_secs(10);
/// Seconds that clients need for a tool call: from reading a file to hours of work.
const ROUND_TRIP_BUCKETS: [f64; 12] = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 7200.0];

metric_table! {
    /// Metrics of sessions and tool calls.
    SessionMetrics(page) {
        lanes: Gauge = page.gauge("lanes", "Conversations in the session table");
        session_forks: Counter = page.counter(
            "session_forks",
            "Forks of histories: a second agent loop continued the history of another one",
        );
        tool_calls_in_flight: Gauge = page.gauge(
            "tool_calls_inflight",
            "Tool calls that clients have not answered yet",
        );
        tool_calls_closed: CounterFamily<1> = page.counters(
            "tool_calls_closed",
            "Tool calls that are no longer open: settled by a result, answered by a placeholder, or abandoned",
            LabelSpace::closed([("how", &CLOSE_KINDS)]),
        );
        settles: CounterFamily<1> = page.counters(
            "settles",
            "Tool calls settled by a result; attached is no if no conversation waited for it any more",
            LabelSpace::closed([("attached", &YES_NO)]),
        );
        long_calls: CounterFamily<1> = page.counters(
            "long_calls",
            "Settled tool calls that took more than 10 seconds; detached is yes if no conversation waited any more",
            LabelSpace::closed([("detached", &YES_NO)]),
        );
        late_tool_calls: CounterFamily<2> = page.counters(
            "late_tool_calls",
            "Tool calls whose result came when no conversation waited any more (detached), or after the max_duration of \
             their tool (overrun)",
            LabelSpace::open(["tool", "how"], (ToolNames::MAX + 1) * LATE_KINDS.len())
                .starting_with(LATE_KINDS.map(|how| [OTHER, how]).to_vec()),
        );
        calls_detached: CounterFamily<1> = page.counters(
            "calls_detached",
            "Tool calls that no client is known to wait for any more, by reason",
            LabelSpace::closed([("why", &DetachReason::ALL.map(DetachReason::label))]),
        );
        calls_repeated: CounterFamily<2> = page.counters(
            "calls_repeated",
            "Tool calls that a model made again within 10 minutes after the result of the first was lost",
            LabelSpace::closed([
                ("first", &LossKind::ALL.map(LossKind::label)),
                ("tier", &Tier::ALL.map(Tier::label)),
            ]),
        );
        tool_round_trip: HistogramFamily<1> = page.histograms(
            "tool_round_trip",
            "Time from a tool call in an answer to its result in a request",
            &ROUND_TRIP_BUCKETS,
            // One more than the names: `other`.
            LabelSpace::open(["tool"], ToolNames::MAX + 1).starting_with(vec![[OTHER]]),
        );
        // Not a row of the page, but the choice of labels for `tool_round_trip`.
        tool_names: ToolNames = ToolNames::default();
    }
}

impl SessionMetrics {
    /// Counts the tool calls that a request of a conversation closed, and its forks.
    pub(in crate::telemetry) fn record_request(&self, entered: &EnteredLane) {
        let closed = &entered.closed;
        let [settled, placeholder, abandoned] = CLOSE_KINDS;
        for (how, calls) in [
            (settled, closed.settled.len()),
            (placeholder, closed.placeholder),
            (abandoned, closed.abandoned),
        ] {
            // Most requests close no call, so the lookup of the label set is skipped.
            if calls > 0 {
                self.tool_calls_closed.add([how], calls as u64);
            }
        }
        for call in &closed.settled {
            self.record_settled_call(call);
        }
        self.session_forks.inc_by(entered.forks as u64);
    }

    /// Counts a result that came late: when no conversation waited any more, or after the time limit of its tool.
    pub(in crate::telemetry) fn record_late_call(&self, tool: &str, is_detached: bool, is_overrun: bool) {
        let [detached, overrun] = LATE_KINDS;
        for (how, _) in [(detached, is_detached), (overrun, is_overrun)]
            .into_iter()
            .filter(|(_, is)| *is)
        {
            self.late_tool_calls
                .count([self.tool_names.tool_label(tool), LabelValue::Borrowed(how)]);
        }
    }

    /// Returns the tools with late results, by name: the results that no conversation waited for any more, and those after
    /// `max_duration`.
    pub(in crate::telemetry) fn late_tools(&self) -> Vec<(String, u64, u64)> {
        let [detached, overrun] = LATE_KINDS;
        let names = self.tool_names.labels().into_iter().map(|tool| {
            let count = |how| {
                self.late_tool_calls
                    .total([LabelValue::Owned(tool.clone()), LabelValue::Borrowed(how)])
            };
            let (detached, overrun) = (count(detached), count(overrun));
            (tool, detached, overrun)
        });
        names
            .filter(|(_, detached, overrun)| *detached > 0 || *overrun > 0)
            .collect()
    }

    fn record_settled_call(&self, call: &SettledCall) {
        self.record_late_call(&call.tool, !call.attached, call.is_overrun);
        self.settles.count([yes_or_no(call.attached)]);
        if call.open_for > LONG_CALL {
            self.long_calls.count([yes_or_no(!call.attached)]);
        }
        self.tool_round_trip
            .observe([self.tool_names.tool_label(&call.tool)], call.open_for);
    }
}

const fn yes_or_no(is: bool) -> &'static str {
    let [yes, no] = YES_NO;
    if is { yes } else { no }
}

/// The tool names that are labels: the first 25 plain ones. No other text of a request becomes a label.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct ToolNames(RwLock<BTreeSet<Box<str>>>);

impl ToolNames {
    /// Limit of names that become labels.
    const MAX: usize = 25;
    /// Limit of a name that becomes a label, in bytes.
    const NAME_BYTES_MAX: usize = 64;

    /// Returns the label of a tool: its name if that is one of the first, else `other`.
    fn tool_label(&self, tool: &str) -> LabelValue {
        // Clients choose tool names: control characters and long texts stay off the page.
        let is_plain = !tool.is_empty()
            && tool.len() <= Self::NAME_BYTES_MAX
            && tool.bytes().all(|letter| letter.is_ascii_graphic());
        // The read lock comes first, because almost every call finds a known name.
        if is_plain && (self.is_known(tool) || self.add_name(tool)) {
            LabelValue::Owned(tool.to_owned())
        } else {
            LabelValue::Borrowed(OTHER)
        }
    }

    /// Returns every label.
    fn labels(&self) -> Vec<String> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names
            .iter()
            .map(ToString::to_string)
            .chain([OTHER.to_owned()])
            .collect()
    }

    fn is_known(&self, tool: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    /// Adds a name if there is room. Returns `true` if the name is known now.
    fn add_name(&self, tool: &str) -> bool {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added it meanwhile.
        names.contains(tool) || (names.len() < Self::MAX && names.insert(tool.into()))
    }
}
