//! Metrics of spans: how many were sent, and how many were lost.

use std::sync::Arc;

use prometheus_client::{encoding::EncodeLabelSet, metrics::counter::Counter};

use super::page::{Capped, Page, many};

/// Why spans are lost: the queue was full, or the collector did not take them.
const WHYS: [&str; 2] = ["full", "failed"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

/// The metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct SpanCounts {
    sent: Counter,
    lost: Arc<Capped<WhyLabels, Counter>>,
}

impl Default for SpanCounts {
    fn default() -> Self {
        Self {
            sent: Counter::default(),
            lost: Arc::new(Capped::closed(WHYS.len())),
        }
    }
}

impl SpanCounts {
    pub(in crate::telemetry) fn register(&self, page: &mut Page) {
        page.single("spans_sent", "Spans that the collector took", self.sent.clone());
        page.family(
            "spans_lost",
            "Spans that were lost, since the queue was full or the collector did not take them",
            &self.lost,
        );
        for why in WHYS {
            self.lost.begin(&WhyLabels { why });
        }
    }

    pub(in crate::telemetry) fn sent(&self, spans: usize) {
        self.sent.inc_by(crate::telemetry::as_u64(spans));
    }

    /// The queue was full.
    pub(in crate::telemetry) fn full(&self, spans: usize) {
        self.lost("full", spans);
    }

    /// The collector did not take them.
    pub(in crate::telemetry) fn failed(&self, spans: usize) {
        self.lost("failed", spans);
    }

    fn lost(&self, why: &'static str, spans: usize) {
        let spans = crate::telemetry::as_u64(spans);
        self.lost.with(&WhyLabels { why }, many(spans));
    }
}
