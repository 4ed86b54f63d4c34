//! Metrics of what outlives a request: frozen answers, and a ledger that is slow or fails.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        gauge::ConstGauge,
        histogram::Histogram,
    },
    registry::Unit,
};

use super::page::{Capped, Page, one, seconds};

/// What is asked of the ledger.
pub const LEDGER_OPS: [&str; 5] = ["commit", "read", "list", "find", "clear"];
/// How the ledger may fail.
pub const LEDGER_ERRORS: [&str; 4] = ["full", "too_large", "store", "closed"];

/// The ledger's time, in seconds: a read out of memory takes microseconds, a commit waits for the disk.
const OP_BUCKETS: [f64; 10] = [0.000_05, 0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

const ROWS: [&str; 3] = ["moved", "restored", "placeholder"];
const USES: [&str; 2] = ["read", "write"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RowLabels {
    row: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabels {
    op: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    op: &'static str,
    kind: &'static str,
}

/// The metrics.
#[derive(Debug)]
pub(in crate::telemetry) struct Remembered {
    frozen: Capped<RowLabels, Counter>,
    missed: Capped<UseLabels, Counter>,
    durations: Capped<UseLabels, Histogram>,
    failures: Capped<FailureLabels, Counter>,
    lost: Lost,
    holds: Holds,
}

impl Default for Remembered {
    fn default() -> Self {
        let make = || Histogram::new(OP_BUCKETS);
        Self {
            frozen: Capped::closed(ROWS.len()),
            missed: Capped::closed(USES.len()),
            durations: Capped::histograms(LEDGER_OPS.len(), OP_BUCKETS.len(), make),
            failures: Capped::closed(LEDGER_OPS.len() * LEDGER_ERRORS.len()),
            lost: Lost::default(),
            holds: Holds::default(),
        }
    }
}

/// Counted by those who know no metrics, and read when the page is.
#[derive(Clone, Debug, Default)]
struct Lost(Arc<AtomicU64>);

impl Collector for Lost {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Writes into the ledger that nobody waited for and that were lost.";
        let counter = page.encode_descriptor("ledger_lost", help, None, MetricType::Counter)?;
        ConstCounter::new(self.0.load(Ordering::Relaxed)).encode(counter)
    }
}

/// How many records a ledger holds, and how many bytes they count; none while it cannot tell.
pub type LedgerUsageSource = Box<dyn Fn() -> Option<(u64, u64)> + Send + Sync>;

/// Read when the page is; nothing is said where nobody tells.
#[derive(Clone, Default)]
struct Holds(Arc<OnceLock<LedgerUsageSource>>);

impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holds")
    }
}

impl Collector for Holds {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let Some((records, bytes)) = self.0.get().and_then(|holds| holds()) else {
            return Ok(());
        };
        for (name, help, unit, value) in [
            ("ledger_records", "Records that the ledger holds.", None, records),
            (
                "ledger",
                "Bytes that the ledger's records count.",
                Some(Unit::Bytes),
                bytes,
            ),
        ] {
            let gauge = page.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(gauge)?;
        }
        Ok(())
    }
}

impl Remembered {
    /// Names and help, and the label sets that are known beforehand.
    pub(in crate::telemetry) fn register(&self, page: &mut Page) {
        page.family(
            "frozen_answers",
            "Answers that calls were given and keep, by what they are",
            &self.frozen,
        );
        page.family(
            "ledger_missed",
            "Times that an exchange went on because the ledger did not answer in time",
            &self.missed,
        );
        page.collector(1, Box::new(self.lost.clone()));
        page.seconds(
            "ledger_op_duration",
            "Time of the ledger, its queue included, by what it was asked",
            &self.durations,
        );
        page.family(
            "ledger_errors",
            "Times that the ledger did not do what it was asked",
            &self.failures,
        );
        page.collector(2, Box::new(self.holds.clone()));
        for row in ROWS {
            self.frozen.begin(&RowLabels { row });
        }
        for op in USES {
            self.missed.begin(&UseLabels { op });
        }
        for op in LEDGER_OPS {
            self.durations.begin(&UseLabels { op });
            for kind in LEDGER_ERRORS {
                self.failures.begin(&FailureLabels { op, kind });
            }
        }
    }

    pub(in crate::telemetry) fn frozen(&self, row: &'static str) {
        self.frozen.with(&RowLabels { row }, one);
    }

    pub(in crate::telemetry) fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost.0)
    }

    pub(in crate::telemetry) fn missed(&self, op: &'static str) {
        self.missed.with(&UseLabels { op }, one);
    }

    pub(in crate::telemetry) fn op(&self, op: &'static str, took: Duration, error: Option<&'static str>) {
        self.durations.with(&UseLabels { op }, seconds(took));
        if let Some(kind) = error {
            self.failures.with(&FailureLabels { op, kind }, one);
        }
    }

    /// Whom to ask how much the ledger holds; only the first counts.
    pub(in crate::telemetry) fn holds(&self, holds: LedgerUsageSource) {
        drop(self.holds.0.set(holds));
    }
}
