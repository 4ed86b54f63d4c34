//! Gauges whose values belong to other rooms, which are asked whenever the page is read.

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

use super::page::MetricsPage;

/// The name of a gauge, its help and its unit.
pub(super) type GaugeRow = (&'static str, &'static str, Option<Unit>);

/// A function that returns the values of all rows, or `None` while they are unknown.
pub(super) type GaugeSource<const N: usize> = Box<dyn Fn() -> Option<[u64; N]> + Send + Sync>;

/// Gauges with one source, so that their values belong to the same moment.
///
/// Without values they are missing from the page: a zero would look like one.
#[derive(Clone)]
pub(in crate::telemetry) struct SourcedGauges<const N: usize> {
    rows: Arc<[GaugeRow; N]>,
    source: Arc<OnceLock<GaugeSource<N>>>,
}

impl<const N: usize> SourcedGauges<N> {
    pub(super) fn register(page: &mut MetricsPage, rows: [GaugeRow; N]) -> Self {
        let gauges = Self {
            rows: Arc::new(rows),
            source: Arc::default(),
        };
        page.collector(N, gauges.clone());
        gauges
    }

    /// Sets the source. Later calls have no effect.
    pub(in crate::telemetry) fn set_source(&self, source: GaugeSource<N>) {
        drop(self.source.set(source));
    }
}

impl<const N: usize> fmt::Debug for SourcedGauges<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourcedGauges")
    }
}

impl<const N: usize> Collector for SourcedGauges<N> {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(values) = self.source.get().and_then(|source| source()) else {
            return Ok(());
        };
        for ((name, help, unit), value) in self.rows.iter().zip(values) {
            // For collectors the library does not add the full stop.
            let help = format!("{help}.");
            let gauge = page.encode_descriptor(name, &help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(gauge)?;
        }
        Ok(())
    }
}
