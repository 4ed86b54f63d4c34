//! Metrics of what outlives a request: frozen answers, and a ledger that is slow or fails.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
    },
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RowLabels {
    row: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabels {
    op: &'static str,
}

/// The metrics.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    frozen: Family<RowLabels, Counter>,
    missed: Family<UseLabels, Counter>,
    lost: Lost,
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

impl Remembered {
    /// Names and help, and the label sets that are known beforehand.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "frozen_answers",
            "Answers that calls were given and keep, by what they are",
            self.frozen.clone(),
        );
        registry.register(
            "ledger_missed",
            "Times that an exchange went on because the ledger did not answer in time",
            self.missed.clone(),
        );
        registry.register_collector(Box::new(self.lost.clone()));
        for row in ["moved", "restored", "placeholder"] {
            drop(self.frozen.get_or_create(&RowLabels { row }));
        }
        for op in ["read", "write"] {
            drop(self.missed.get_or_create(&UseLabels { op }));
        }
    }

    pub(super) fn frozen(&self, row: &'static str) {
        self.frozen.get_or_create(&RowLabels { row }).inc();
    }

    pub(super) fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost.0)
    }

    pub(super) fn missed(&self, op: &'static str) {
        self.missed.get_or_create(&UseLabels { op }).inc();
    }
}
