//! Metrics of the ledger, and of the late results that tool services post to it.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{gauge::Gauge, histogram::Histogram},
    registry::Unit,
};

use super::{
    family::{CounterFamily, HistogramFamily},
    label_sets::LabelSpace,
    page::{MetricsPage, metric_table},
    sourced::SourcedGauges,
};
use crate::ledger::RecordKind;

/// Operations of the ledger.
pub const LEDGER_OPS: [&str; 5] = ["commit", "read", "list", "find", "clear"];
/// Errors of the ledger.
pub const LEDGER_ERRORS: [&str; 4] = ["full", "too_large", "store", "closed"];
/// Answers to a posted result, beside those to a malformed request.
pub const POST_ANSWERS: [&str; 9] = [
    "settled",
    "repeated",
    "parked",
    "conflict",
    "ambiguous_call",
    "expired",
    "unknown",
    "malformed",
    "unavailable",
];
/// Answers to a claim of an intent. Only `granted` permits the run. `unavailable` is a ledger that is away or full.
pub const CLAIM_ANSWERS: [&str; 10] = [
    "granted",
    "replayed",
    "in_flight",
    "outcome_unknown",
    "payload_mismatch",
    "tier_forbids",
    "not_found",
    "ambiguous_call",
    "input_unknown",
    "unavailable",
];
/// Events in the life of a posted result.
///
/// The first three are posts: in time, after the conversation continued, and before the call was recorded. `delivered`
/// and `acked` are the way to its owner. `conflict` to `cancelled` are refused posts. `unread` is a failed read of the
/// ledger, and `lost` a change that the ledger never stored.
pub const LATE_RESULT_EVENTS: [&str; 22] = [
    "attached",
    "detached",
    "parked",
    "delivered",
    "acked",
    "conflict",
    "ambiguous",
    "expired",
    "cancelled",
    "unclaimed",
    "withheld",
    "corrected",
    "withdrawn",
    "unrecorded",
    "unread",
    "lost",
    "cancel_requested",
    "cancel_revoked",
    "cancel_refused",
    "undone",
    "send_failed",
    "send_given_up",
];

const READ_WRITE: [&str; 2] = ["read", "write"];
/// Seconds of a ledger operation: microseconds in memory, milliseconds if a commit waits for the disk.
const OP_BUCKETS: [f64; 10] = [0.000_05, 0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
/// Seconds from a post to the delivery: from the next request to a week.
const AGE_BUCKETS: [f64; 6] = [10.0, 60.0, 900.0, 14_400.0, 86_400.0, 604_800.0];

metric_table! {
    /// Metrics of the ledger.
    LedgerMetrics(page) {
        missed: CounterFamily<1> = page.counters(
            "ledger_missed",
            "Exchanges that continued without the ledger because a read or write timed out or failed",
            LabelSpace::closed([("op", &READ_WRITE)]),
        );
        lost_writes: CounterFamily<1> = page.counters(
            "ledger_lost",
            "Background writes to the ledger that were lost, by kind of record",
            LabelSpace::closed([("kind", &RecordKind::LABELS)]),
        );
        is_healthy: Gauge = healthy_gauge(page);
        clock_skew: Gauge<f64, AtomicU64> = page.seconds(
            "ledger_clock_skew",
            "Time by which the clock of the ledger's database is ahead of this machine's; 0 without a database",
        );
        op_duration: HistogramFamily<1> = page.histograms(
            "ledger_op_duration",
            "Duration of ledger operations, including their time in the queue",
            &OP_BUCKETS,
            LabelSpace::closed([("op", &LEDGER_OPS)]),
        );
        errors: CounterFamily<2> = page.counters(
            "ledger_errors",
            "Ledger operations that failed, by kind of error",
            LabelSpace::closed([("op", &LEDGER_OPS), ("kind", &LEDGER_ERRORS)]),
        );
        // One source, so that the ledger is read once per scrape.
        usage: SourcedGauges<2> = SourcedGauges::register(page, [
            ("ledger_records", "Records in the ledger", None),
            ("ledger", "Bytes of the records in the ledger", Some(Unit::Bytes)),
        ]);
        messages_overdue: SourcedGauges<1> = SourcedGauges::register(page, [(
            "messages_overdue",
            "Messages to tool services and webhooks that have been due for more than 30 seconds and were not tried, \
             without those that wait for a slow receiver",
            None,
        )]);
        posts: CounterFamily<1> = page.counters(
            "ledger_posts",
            "Results that tool services posted, by the proxy's answer",
            LabelSpace::closed([("answer", &POST_ANSWERS)]),
        );
        claims: CounterFamily<1> = page.counters(
            "ledger_claims",
            "Claims of intents, by the proxy's answer: only `granted` permits the tool to run",
            LabelSpace::closed([("answer", &CLAIM_ANSWERS)]),
        );
        late_results: CounterFamily<1> = page.counters(
            "late_results",
            "Events in the life of posted results, from the post to the delivery, expiry or loss",
            LabelSpace::closed([("event", &LATE_RESULT_EVENTS)]),
        );
        late_result_age: Histogram = page.histogram(
            "late_result_age",
            "Time from the post of a result to its delivery to the client",
            &AGE_BUCKETS,
        );
    }
}

/// Adds the gauge of the ledger's health.
fn healthy_gauge(page: &mut MetricsPage) -> Gauge {
    let gauge = page.gauge(
        "ledger_healthy",
        "1 if the ledger stores what it is given, 0 if its last write or its first check failed, it is full, or its file \
         is gone or damaged",
    );
    // Until the first check it is as good as new: a zero would be an alert at each start.
    gauge.set(1);
    gauge
}
