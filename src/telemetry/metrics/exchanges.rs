//! Metrics of what runs now: exchanges, their duration, and the configuration they run under.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{gauge::Gauge, histogram::Histogram},
    registry::Unit,
};

use super::page::{Capped, Page, seconds};
use crate::{clock, wire::Format};

/// Whole exchanges, in seconds: from an answer of ours to an hour of work.
const DURATION_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FormatLabels {
    format: &'static str,
}

/// The metrics.
#[derive(Debug)]
pub(in crate::telemetry) struct Running {
    durations: Capped<FormatLabels, Histogram>,
    pub(in crate::telemetry) inflight: Gauge,
    reload_successful: Gauge,
    reloaded_at: Gauge<f64, AtomicU64>,
}

impl Default for Running {
    fn default() -> Self {
        let make = || Histogram::new(DURATION_BUCKETS);
        Self {
            durations: Capped::histograms(Format::ALL.len() + 1, DURATION_BUCKETS.len(), make),
            inflight: Gauge::default(),
            reload_successful: Gauge::default(),
            reloaded_at: Gauge::default(),
        }
    }
}

impl Running {
    /// Names and help. The configuration of the start counts as read.
    pub(in crate::telemetry) fn register(&self, page: &mut Page) {
        page.single(
            "inflight_requests",
            "Exchanges that have begun and not ended",
            self.inflight.clone(),
        );
        page.seconds(
            "request_duration",
            "Whole exchanges, from the first byte of the request to the last of the answer",
            &self.durations,
        );
        page.single(
            "config_last_reload_successful",
            "1 if the configuration that was read last is in force, the one of the start included",
            self.reload_successful.clone(),
        );
        page.measured(
            "config_last_reload_success_timestamp",
            "When the configuration in force was read, in seconds since 1970",
            Unit::Seconds,
            self.reloaded_at.clone(),
        );
        for format in Format::ALL.map(Format::label).into_iter().chain(["none"]) {
            self.durations.begin(&FormatLabels { format });
        }
        self.reloaded(true);
    }

    pub(in crate::telemetry) fn ended(&self, format: &'static str, duration: Duration) {
        self.durations.with(&FormatLabels { format }, seconds(duration));
    }

    pub(in crate::telemetry) fn reloaded(&self, ok: bool) {
        self.reload_successful.set(i64::from(ok));
        if ok {
            self.reloaded_at.set(clock::since_1970().as_secs_f64());
        }
    }
}
