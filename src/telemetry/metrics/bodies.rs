//! Metrics of the budgets of request bodies.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Unit,
};

use super::page::metric_table;

metric_table! {
    /// Metrics of the budgets of request bodies.
    BodyMetrics(page) {
        // Four rows with one source, so that they belong to the same moment.
        load: BodyLoadGauges = BodyLoadGauges::register(page);
    }
}

/// Use of the budgets of request bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyLoad {
    /// Bytes of all bodies in memory.
    pub bytes: u64,
    /// Limit of these bytes.
    pub bytes_max: u64,
    /// Bodies that wait for memory.
    pub waiting_for_memory: usize,
    /// Bodies that wait for a place in heavy work.
    pub waiting_for_work: usize,
}

/// A function that returns the present use of the budgets.
pub type BodyLoadSource = Box<dyn Fn() -> BodyLoad + Send + Sync>;

/// The gauges of the budgets. The source is called when the page is read. Without one the gauges are missing.
#[derive(Clone, Default)]
pub(in crate::telemetry) struct BodyLoadGauges(Arc<OnceLock<BodyLoadSource>>);

impl BodyLoadGauges {
    /// Number of gauges.
    const SERIES: usize = 4;

    fn register(page: &mut super::page::MetricsPage) -> Self {
        let gauges = Self::default();
        page.collector(Self::SERIES, gauges.clone());
        gauges
    }

    /// Sets the source. Later calls have no effect.
    pub(in crate::telemetry) fn set_source(&self, source: BodyLoadSource) {
        drop(self.0.set(source));
    }
}

impl fmt::Debug for BodyLoadGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyLoadGauges")
    }
}

impl Collector for BodyLoadGauges {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(load) = self.0.get().map(|source| source()) else {
            return Ok(());
        };
        let count = |waiting: usize| u64::try_from(waiting).unwrap_or(u64::MAX);
        for (name, help, unit, value) in [
            (
                "body_memory",
                "Bytes of request bodies in memory.",
                Some(Unit::Bytes),
                load.bytes,
            ),
            (
                "body_memory_max",
                "Bytes that request bodies may have in memory.",
                Some(Unit::Bytes),
                load.bytes_max,
            ),
            (
                "bodies_waiting_for_memory",
                "Request bodies that wait for memory.",
                None,
                count(load.waiting_for_memory),
            ),
            (
                "bodies_waiting_for_work",
                "Large or badly broken request bodies that wait to be read, repaired or searched.",
                None,
                count(load.waiting_for_work),
            ),
        ] {
            let gauge = page.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(gauge)?;
        }
        Ok(())
    }
}
