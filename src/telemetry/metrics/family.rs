//! Metrics with labels. Each [`LabelSpace`] bounds the number of label sets.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::metrics::{
    counter::Counter,
    family::{Family, MetricConstructor},
    gauge::Gauge,
    histogram::Histogram,
};

use super::label_sets::{LabelSet, LabelSpace, LabelValue};

/// Limit of values that a gauge family stores for folded label sets. Only very large configurations fold any.
const FOLDED_VALUES_MAX: usize = 16 * 1024;

/// Counters, one for each label set.
pub(in crate::telemetry) type CounterFamily<const N: usize> = BoundedFamily<N, Counter>;

/// Histograms of seconds, one for each label set.
pub(in crate::telemetry) type HistogramFamily<const N: usize> = BoundedFamily<N, Histogram, HistogramBuckets>;

/// A metric for each label set, up to the bound of its label space.
#[derive(Debug)]
pub(in crate::telemetry) struct BoundedFamily<const N: usize, M, C = fn() -> M> {
    family: Family<LabelSet<N>, M, C>,
    space: LabelSpace<N>,
    sets: Mutex<SetCounts>,
    /// Updates without room for their label set, over all families of the page.
    folded_updates: Arc<AtomicU64>,
}

/// The number of label sets on the page.
#[derive(Debug, Default)]
struct SetCounts {
    /// Sets with their own label values.
    own: usize,
    /// Sets that replace others, with labels folded to `other`.
    folded: usize,
}

/// The upper bounds of a histogram's buckets; each histogram of a family is made with them.
#[derive(Clone, Copy, Debug)]
pub(in crate::telemetry) struct HistogramBuckets(pub(super) &'static [f64]);

impl MetricConstructor<Histogram> for HistogramBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl<const N: usize, M, C: MetricConstructor<M>> BoundedFamily<N, M, C> {
    /// Bounds `family` by `space`, and creates the label sets that are on the page from the start.
    pub(super) fn new(family: Family<LabelSet<N>, M, C>, space: LabelSpace<N>, folded_updates: Arc<AtomicU64>) -> Self {
        let bounded = Self {
            family,
            space,
            sets: Mutex::default(),
            folded_updates,
        };
        for labels in bounded.space.initial_sets() {
            bounded.update_metric(&labels, |_| {});
        }
        bounded
    }

    /// Changes the metric of these labels, or of the set that replaces them.
    fn update_metric(&self, labels: &LabelSet<N>, change: impl FnOnce(&M)) {
        // The common case: the set exists, and the second lock is not needed.
        if let Some(metric) = self.family.get(labels) {
            return change(&metric);
        }
        if self.reserve_set(labels) {
            return change(&self.family.get_or_create(labels));
        }
        // Counted even if the update is dropped next: operators must see that the page is full.
        self.count_folded_update();
        if let Some(folded) = self.reserve_folded_set(labels) {
            change(&self.family.get_or_create(&folded));
        }
    }

    /// Puts these labels on the page if there is room. Returns `true` if they are on the page.
    fn reserve_set(&self, labels: &LabelSet<N>) -> bool {
        let mut sets = self.lock_sets();
        // Checked again under the lock: another thread may have added the set meanwhile.
        if self.family.get(labels).is_some() {
            return true;
        }
        if sets.own == self.space.sets_max() {
            return false;
        }
        sets.own += 1;
        // Created under the lock, so that two threads with the same new labels are counted once.
        drop(self.family.get_or_create(labels));
        true
    }

    /// Puts the set that replaces these labels on the page; `None` if updates without room are dropped.
    fn reserve_folded_set(&self, labels: &LabelSet<N>) -> Option<LabelSet<N>> {
        let folded = self.space.fold_labels(labels)?;
        let mut sets = self.lock_sets();
        if self.family.get(&folded).is_none() {
            if sets.folded == self.space.folded_sets_max() {
                return None;
            }
            sets.folded += 1;
            drop(self.family.get_or_create(&folded));
        }
        Some(folded)
    }

    /// Removes every label set.
    fn clear(&self) {
        // Locked until the family is empty, so that a set which is added meanwhile is counted.
        let mut sets = self.lock_sets();
        *sets = SetCounts::default();
        self.family.clear();
    }

    fn count_folded_update(&self) {
        self.folded_updates.fetch_add(1, Ordering::Relaxed);
    }

    fn lock_sets(&self) -> MutexGuard<'_, SetCounts> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize> BoundedFamily<N, Counter> {
    /// Adds one.
    pub(in crate::telemetry) fn count<V: Into<LabelValue>>(&self, labels: [V; N]) {
        self.add(labels, 1);
    }

    /// Adds `count`.
    pub(in crate::telemetry) fn add<V: Into<LabelValue>>(&self, labels: [V; N], count: u64) {
        self.update_metric(&self.space.label_set(labels), |counter| {
            counter.inc_by(count);
        });
    }

    /// Returns the count so far.
    pub(in crate::telemetry) fn total<V: Into<LabelValue>>(&self, labels: [V; N]) -> u64 {
        let counter = self.family.get(&self.space.label_set(labels));
        counter.map_or(0, |counter| counter.get())
    }
}

impl<const N: usize> BoundedFamily<N, Histogram, HistogramBuckets> {
    /// Records one duration.
    pub(in crate::telemetry) fn observe<V: Into<LabelValue>>(&self, labels: [V; N], took: Duration) {
        self.update_metric(&self.space.label_set(labels), |histogram| {
            histogram.observe(took.as_secs_f64());
        });
    }
}

/// Gauges, one for each label set. The gauge that replaces sets without room is their sum.
#[derive(Debug)]
pub(in crate::telemetry) struct GaugeFamily<const N: usize> {
    gauges: BoundedFamily<N, Gauge>,
    /// The last value of each folded set, from which the change of the sum is computed.
    folded_values: Mutex<HashMap<LabelSet<N>, i64>>,
}

impl<const N: usize> GaugeFamily<N> {
    pub(super) fn new(gauges: BoundedFamily<N, Gauge>) -> Self {
        Self {
            gauges,
            folded_values: Mutex::default(),
        }
    }

    /// Sets the gauge of these labels.
    pub(in crate::telemetry) fn set<V: Into<LabelValue>>(&self, labels: [V; N], value: i64) {
        let labels = self.gauges.space.label_set(labels);
        if self.gauges.reserve_set(&labels) {
            return self.gauges.update_metric(&labels, |gauge| {
                gauge.set(value);
            });
        }
        let Some(folded) = self.gauges.reserve_folded_set(&labels) else {
            return;
        };
        let mut values = self.folded_values.lock().unwrap_or_else(PoisonError::into_inner);
        // A sum without this set is better than unbounded memory.
        if values.len() >= FOLDED_VALUES_MAX && !values.contains_key(&labels) {
            return;
        }
        let before = values.insert(labels, value).unwrap_or(0);
        // Gauges are set on every scrape: an unchanged value must not count as a folded update.
        if before != value {
            self.gauges.count_folded_update();
            self.gauges.update_metric(&folded, |gauge| {
                gauge.inc_by(value - before);
            });
        }
    }

    /// Removes every label set; those that still exist must be set again.
    pub(in crate::telemetry) fn clear(&self) {
        let mut values = self.folded_values.lock().unwrap_or_else(PoisonError::into_inner);
        // Both are cleared under this lock, or a sum could subtract a value that was forgotten.
        values.clear();
        self.gauges.clear();
    }
}
