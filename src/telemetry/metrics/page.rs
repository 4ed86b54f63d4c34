//! The metrics page: the rows of all tables, and the upper bound of their number of series.
//!
//! The length of the page is bounded for every configuration and all traffic: each series costs on every scrape.
//! [`MetricsPage`] has a method for each kind of row, which adds the row to the page and returns its handle.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
        info::Info,
    },
    registry::{Metric, Registry, Unit},
};

use super::{
    family::{BoundedFamily, CounterFamily, GaugeFamily, HistogramBuckets, HistogramFamily},
    label_sets::LabelSpace,
};

/// Declares a table of metrics: `Table(page) { handle: Type = page.kind("name", "help", …); … }`.
///
/// The table becomes a struct with one handle for each row. Its `register` puts the rows on a page, in their order.
macro_rules! metric_table {
    ($(#[$doc:meta])+ $table:ident($page:ident) { $($handle:ident: $kind:ty = $row:expr;)+ }) => {
        $(#[$doc])+
        #[derive(Debug)]
        pub(in crate::telemetry) struct $table {
            $(pub(in crate::telemetry) $handle: $kind,)+
        }

        impl $table {
            /// Puts the rows of the table on the page.
            pub(super) fn register($page: &mut super::page::MetricsPage) -> Self {
                Self { $($handle: $row,)+ }
            }
        }
    };
}
pub(super) use metric_table;

/// The metrics page: first its builder, then its encoder.
///
/// Names have the prefix `antiphon_`. The library appends the unit and, to counters, `_total`; it ends help with a full
/// stop.
#[derive(Debug)]
pub(super) struct MetricsPage {
    registry: Registry,
    series_max: usize,
    folded_updates: Arc<AtomicU64>,
}

impl MetricsPage {
    /// Creates a page without rows.
    pub(super) fn new() -> Self {
        Self {
            registry: Registry::with_prefix("antiphon"),
            series_max: 0,
            folded_updates: Arc::default(),
        }
    }

    /// Adds a counter without labels.
    pub(super) fn counter(&mut self, name: &str, help: &str) -> Counter {
        self.add_metric(1, name, help, None, Counter::default())
    }

    /// Adds a counter for each label set.
    pub(super) fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: LabelSpace<N>,
    ) -> CounterFamily<N> {
        let family = self.add_metric(sets_total(&labels), name, help, None, Family::default());
        BoundedFamily::new(family, labels, Arc::clone(&self.folded_updates))
    }

    /// Adds a gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.add_metric(1, name, help, None, Gauge::default())
    }

    /// Adds a gauge for each label set.
    pub(super) fn gauges<const N: usize>(&mut self, name: &str, help: &str, labels: LabelSpace<N>) -> GaugeFamily<N> {
        let family = self.add_metric(sets_total(&labels), name, help, None, Family::default());
        GaugeFamily::new(BoundedFamily::new(family, labels, Arc::clone(&self.folded_updates)))
    }

    /// Adds a gauge of seconds.
    pub(super) fn seconds(&mut self, name: &str, help: &str) -> Gauge<f64, AtomicU64> {
        self.add_metric(1, name, help, Some(Unit::Seconds), Gauge::default())
    }

    /// Adds a gauge of seconds since 1970 that is on the page only once it is set.
    pub(super) fn optional_timestamp(&mut self, name: &'static str, help: &'static str) -> Arc<AtomicU64> {
        let seconds = Arc::default();
        self.collector(
            1,
            OptionalTimestamp {
                name,
                help,
                seconds: Arc::clone(&seconds),
            },
        );
        seconds
    }

    /// Adds a histogram of seconds without labels.
    pub(super) fn histogram(&mut self, name: &str, help: &str, buckets: &'static [f64]) -> Histogram {
        let histogram = Histogram::new(buckets.iter().copied());
        self.add_metric(histogram_series(buckets), name, help, Some(Unit::Seconds), histogram)
    }

    /// Adds a histogram of seconds for each label set.
    pub(super) fn histograms<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        buckets: &'static [f64],
        labels: LabelSpace<N>,
    ) -> HistogramFamily<N> {
        let family = Family::new_with_constructor(HistogramBuckets(buckets));
        let series = sets_total(&labels) * histogram_series(buckets);
        let family = self.add_metric(series, name, help, Some(Unit::Seconds), family);
        BoundedFamily::new(family, labels, Arc::clone(&self.folded_updates))
    }

    /// Adds an info metric: facts that never change.
    pub(super) fn info<const N: usize>(&mut self, name: &str, help: &str, facts: [(&'static str, &'static str); N]) {
        self.series_max += 1;
        self.registry.register(name, help, Info::new(facts));
    }

    /// Adds rows that are collected on each scrape, with `series` series at most.
    pub(super) fn collector(&mut self, series: usize, collector: impl Collector) {
        // A collector's series are not known here, so its owner declares them.
        self.series_max += series;
        self.registry.register_collector(Box::new(collector));
    }

    /// Adds the page's own row: the updates without room for their label set.
    pub(super) fn folded_updates(&mut self, name: &'static str, help: &'static str) {
        let count = Arc::clone(&self.folded_updates);
        self.collector(1, SharedCounter { name, help, count });
    }

    /// Returns the upper bound of the number of series on the page.
    pub(super) const fn series_max(&self) -> usize {
        self.series_max
    }

    /// Writes every row as OpenMetrics text, without the end marker.
    pub(super) fn write(&self, text: &mut String) -> fmt::Result {
        text::encode_registry(text, &self.registry)
    }

    fn add_metric<M>(&mut self, series: usize, name: &str, help: &str, unit: Option<Unit>, metric: M) -> M
    where
        M: Metric + Clone,
    {
        // Counted at registration, so that the bound is known before any traffic.
        self.series_max += series;
        match unit {
            None => self.registry.register(name, help, metric.clone()),
            Some(unit) => self.registry.register_with_unit(name, help, unit, metric.clone()),
        }
        metric
    }
}

/// Returns the upper bound of the number of label sets of a family.
const fn sets_total<const N: usize>(labels: &LabelSpace<N>) -> usize {
    labels.sets_max() + labels.folded_sets_max()
}

/// Returns the number of series of a histogram: its buckets, `+Inf`, sum and count.
const fn histogram_series(buckets: &[f64]) -> usize {
    buckets.len() + 3
}

/// A counter that other code increments.
#[derive(Debug)]
struct SharedCounter {
    name: &'static str,
    help: &'static str,
    count: Arc<AtomicU64>,
}

impl Collector for SharedCounter {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        // For collectors the library does not add the full stop.
        let help = format!("{}.", self.help);
        let counter = page.encode_descriptor(self.name, &help, None, MetricType::Counter)?;
        ConstCounter::new(self.count.load(Ordering::Relaxed)).encode(counter)
    }
}

/// A time in seconds since 1970. Zero if it is not set.
#[derive(Debug)]
struct OptionalTimestamp {
    name: &'static str,
    help: &'static str,
    seconds: Arc<AtomicU64>,
}

impl Collector for OptionalTimestamp {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let seconds = self.seconds.load(Ordering::Relaxed);
        // A missing series is better than a zero, which would look like a time long ago.
        if seconds == 0 {
            return Ok(());
        }
        // For collectors the library does not add the full stop.
        let help = format!("{}.", self.help);
        let gauge = page.encode_descriptor(self.name, &help, Some(&Unit::Seconds), MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(seconds).unwrap_or(i64::MAX)).encode(gauge)
    }
}
