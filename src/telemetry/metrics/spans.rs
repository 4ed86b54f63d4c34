//! Metrics of the trace export.

use prometheus_client::metrics::counter::Counter;

use super::{family::CounterFamily, label_sets::LabelSpace, page::metric_table};

/// Reasons for the loss of spans: the queue was full, or the export failed.
const LOSS_REASONS: [&str; 2] = ["full", "failed"];

metric_table! {
    /// Metrics of the trace export.
    SpanMetrics(page) {
        sent: Counter = page.counter("spans_sent", "Spans that the collector accepted");
        lost: CounterFamily<1> = page.counters(
            "spans_lost",
            "Spans that were dropped because the queue was full or the export failed",
            LabelSpace::closed([("why", &LOSS_REASONS)]),
        );
    }
}
