//! Metrics of exchanges: number, outcome and duration.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use prometheus_client::metrics::{gauge::Gauge, histogram::Histogram};

use super::{
    family::{CounterFamily, HistogramFamily},
    label_sets::{LabelSpace, LabelValue},
    page::metric_table,
};
use crate::{telemetry::events::ExchangeEnded, wire::Format};

/// Limit of label sets of `requests` with an upstream and a format of their own.
const REQUEST_SETS_MAX: usize = 165;
/// Limit of label sets that folding adds to `requests`: six status classes times seven outcomes.
const REQUEST_FOLDED_SETS_MAX: usize = 6 * 7;
/// Seconds of a whole exchange: from an error of the proxy itself to half an hour of work.
const DURATION_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
/// Seconds that the proxy adds: microseconds for a small body, milliseconds for a long history.
const OVERHEAD_BUCKETS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5,
];
/// Seconds that an answer waits for the ledger: a commit, or its limits of 50 ms, 250 ms and 5 s.
const HOLD_BUCKETS: [f64; 6] = [0.005, 0.025, 0.05, 0.1, 0.25, 5.0];

metric_table! {
    /// Metrics of exchanges.
    ExchangeMetrics(page) {
        requests: CounterFamily<4> = page.counters(
            "requests",
            "Exchanges that ended, by upstream, format, status class, and outcome: ok or the side that failed",
            LabelSpace::open(["upstream", "format", "code_class", "outcome"], REQUEST_SETS_MAX)
                .folding(["upstream", "format"], REQUEST_FOLDED_SETS_MAX),
        );
        in_flight: Gauge = page.gauge("inflight_requests", "Exchanges that are running");
        duration: HistogramFamily<1> = page.histograms(
            "request_duration",
            "Duration of whole exchanges, from the first byte of the request to the last byte of the answer",
            &DURATION_BUCKETS,
            LabelSpace::closed([("format", &formats_and_none())]),
        );
        overhead: Histogram = page.histogram(
            "overhead",
            "Latency that the proxy added: to read, check, plan and splice the body, and to hold the answer for the ledger",
            &OVERHEAD_BUCKETS,
        );
        ledger_hold: Histogram = page.histogram(
            "ledger_hold",
            "Time for which answers waited until the ledger had stored what belongs to them",
            &HOLD_BUCKETS,
        );
    }
}

impl ExchangeMetrics {
    /// Counts an exchange that ended.
    pub(super) fn record_end(&self, event: &ExchangeEnded, upstreams: &UpstreamNames) {
        self.in_flight.dec();
        let format = event.format_label();
        self.requests.count([
            upstreams.upstream_label(event.upstream.as_deref()),
            format.into(),
            status_class(event.status).into(),
            // An exchange without a failure has no side.
            event.side.unwrap_or("ok").into(),
        ]);
        self.duration.observe([format], event.duration);
        // Only bodies in a known format are read, so the others would hide the real overhead.
        if event.format.is_some() {
            self.overhead.observe(event.added_latency().as_secs_f64());
        }
        // Most answers have nothing to wait for.
        if event.ledger_hold > Duration::ZERO {
            self.ledger_hold.observe(event.ledger_hold.as_secs_f64());
        }
    }
}

/// The names of the configured upstreams: the only values of the `upstream` label of `requests`.
#[derive(Debug)]
pub(super) struct UpstreamNames(ArcSwap<BTreeSet<String>>);

impl UpstreamNames {
    pub(super) fn new(names: BTreeSet<String>) -> Self {
        Self(ArcSwap::from_pointee(names))
    }

    /// Replaces the names, as after a reload.
    pub(super) fn replace_names(&self, names: BTreeSet<String>) {
        self.0.store(Arc::new(names));
    }

    /// Returns the label of an upstream: its name if it is configured, else `none`.
    fn upstream_label(&self, name: Option<&str>) -> LabelValue {
        // After a reload, an exchange may name an upstream that no longer exists.
        let names = self.0.load();
        name.and_then(|name| names.get(name))
            .map_or(LabelValue::Borrowed("none"), |name| LabelValue::Owned(name.clone()))
    }
}

/// Returns the labels of all formats, and `none` for paths without history.
fn formats_and_none() -> Vec<&'static str> {
    Format::ALL.map(Format::label).into_iter().chain(["none"]).collect()
}

/// Returns the class of a status, as operators group it; `none` if no status was sent.
const fn status_class(status: u16) -> &'static str {
    match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "none",
    }
}
