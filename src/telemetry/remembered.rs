//! Metrics of what outlives a request: frozen answers, and a ledger that is slow.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
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

    pub(super) fn missed(&self, op: &'static str) {
        self.missed.get_or_create(&UseLabels { op }).inc();
    }
}
