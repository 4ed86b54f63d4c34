//! The metrics page and its bound: a family has room for so many label sets, and what comes beyond is counted as `other`.
//!
//! Every metric is put on the page with the series it may have at most, so that their sum is known before anything has
//! been counted: no traffic and no configuration makes the page longer. Whoever scrapes it pays for each series, always.

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text},
    metrics::{
        MetricType, TypedMetric,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::Gauge,
        histogram::Histogram,
        info::Info,
    },
    registry::{Metric, Registry, Unit},
};

/// The label of everything that there is no room for.
pub(in crate::telemetry) const OTHER: &str = "other";

/// Label sets whose values are kept although the page has no room for them: those of a very large configuration.
const UNSHOWN_MAX: usize = 16 * 1024;

/// What a label set must be.
pub(in crate::telemetry) trait Labels:
    EncodeLabelSet + Clone + Eq + Hash + Debug + Send + Sync + 'static
{
}
impl<L: EncodeLabelSet + Clone + Eq + Hash + Debug + Send + Sync + 'static> Labels for L {}

/// A family with room for so many label sets.
#[derive(Debug)]
pub(in crate::telemetry) struct Capped<L, M> {
    family: Family<L, M>,
    room: Mutex<Room>,
    sets: usize,
    fold: Option<Fold<L>>,
    /// Series of one label set.
    each: usize,
    folded: Arc<AtomicU64>,
}

/// What a label set becomes that there is no room for, and how many different ones may come out.
#[derive(Debug)]
struct Fold<L> {
    to: fn(&L) -> L,
    sets: usize,
}

/// Label sets that are there.
#[derive(Debug, Default)]
struct Room {
    own: usize,
    folded: usize,
}

impl<L: Labels, M: Default> Capped<L, M> {
    /// With labels of closed lists, of which there are so many sets: beyond them nothing is counted.
    pub(in crate::telemetry) fn closed(sets: usize) -> Self {
        Self::new(sets, None, Family::default(), 1)
    }

    /// With room for `sets`; for others `to` keeps what comes of closed lists, at most `folds` different sets.
    pub(in crate::telemetry) fn open(sets: usize, folds: usize, to: fn(&L) -> L) -> Self {
        let fold = Fold { to, sets: folds };
        Self::new(sets, Some(fold), Family::default(), 1)
    }
}

impl<L: Labels> Capped<L, Histogram> {
    /// As [`closed`](Self::closed), of histograms with so many buckets.
    pub(in crate::telemetry) fn histograms(sets: usize, buckets: usize, make: fn() -> Histogram) -> Self {
        Self::new(sets, None, Family::new_with_constructor(make), series(buckets))
    }
}

/// Series of a histogram: its buckets, the one for everything, sum and count.
const fn series(buckets: usize) -> usize {
    buckets + 3
}

impl<L: Labels, M> Capped<L, M> {
    fn new(sets: usize, fold: Option<Fold<L>>, family: Family<L, M>, each: usize) -> Self {
        Self {
            family,
            room: Mutex::default(),
            sets,
            fold,
            each,
            folded: Arc::default(),
        }
    }

    /// Makes a label set at zero: a zero can be seen, an absence cannot.
    pub(in crate::telemetry) fn begin(&self, labels: &L) {
        self.with(labels, |_| {});
    }

    /// Changes the metric of these labels, or of what stands for them.
    pub(in crate::telemetry) fn with(&self, labels: &L, change: impl FnOnce(&M)) {
        if let Some(metric) = self.family.get(labels) {
            return change(&metric);
        }
        if self.make_room(labels) {
            return change(&self.family.get_or_create(labels));
        }
        self.folded.fetch_add(1, Ordering::Relaxed);
        if let Some(folded) = self.fold(labels) {
            change(&self.family.get_or_create(&folded));
        }
    }

    /// Whether these labels are on the page, or may come there.
    fn make_room(&self, labels: &L) -> bool {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if self.family.get(labels).is_some() {
            return true;
        }
        if room.own == self.sets {
            return false;
        }
        room.own += 1;
        // Made under the lock: two who come at once are one.
        drop(self.family.get_or_create(labels));
        true
    }

    /// The labels that stand for others, if there is room for them.
    fn fold(&self, labels: &L) -> Option<L> {
        let fold = self.fold.as_ref()?;
        let folded = (fold.to)(labels);
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if self.family.get(&folded).is_none() {
            if room.folded == fold.sets {
                return None;
            }
            room.folded += 1;
            drop(self.family.get_or_create(&folded));
        }
        Some(folded)
    }

    fn series_max(&self) -> usize {
        (self.sets + self.fold.as_ref().map_or(0, |fold| fold.sets)) * self.each
    }

    fn clear(&self) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        *room = Room::default();
        self.family.clear();
    }
}

/// Observes how long it took.
pub(in crate::telemetry) fn seconds(took: Duration) -> impl FnOnce(&Histogram) {
    move |histogram| histogram.observe(took.as_secs_f64())
}

/// Gauges with room for so many label sets: what stands for several of them is their sum.
#[derive(Debug)]
pub(in crate::telemetry) struct Gauges<L> {
    shown: Capped<L, Gauge>,
    unshown: Mutex<HashMap<L, i64>>,
}

impl<L: Labels> Gauges<L> {
    /// As [`Capped::open`].
    pub(in crate::telemetry) fn open(sets: usize, folds: usize, to: fn(&L) -> L) -> Self {
        Self {
            shown: Capped::open(sets, folds, to),
            unshown: Mutex::default(),
        }
    }

    pub(in crate::telemetry) fn set(&self, labels: &L, value: i64) {
        if self.shown.make_room(labels) {
            return self.shown.with(labels, |gauge| {
                gauge.set(value);
            });
        }
        let Some(folded) = self.shown.fold(labels) else { return };
        let mut unshown = self.unshown.lock().unwrap_or_else(PoisonError::into_inner);
        if unshown.len() >= UNSHOWN_MAX && !unshown.contains_key(labels) {
            return;
        }
        let before = unshown.insert(labels.clone(), value).unwrap_or(0);
        if before != value {
            self.shown.folded.fetch_add(1, Ordering::Relaxed);
            self.shown.with(&folded, |gauge| {
                gauge.inc_by(value - before);
            });
        }
    }

    /// Forgets every label set: those that are still so are set again.
    pub(in crate::telemetry) fn clear(&self) {
        let mut unshown = self.unshown.lock().unwrap_or_else(PoisonError::into_inner);
        unshown.clear();
        self.shown.clear();
    }
}

/// Counts one.
pub(in crate::telemetry) fn one(counter: &Counter) {
    many(1)(counter);
}

/// Counts so many.
pub(in crate::telemetry) fn many(count: u64) -> impl FnOnce(&Counter) {
    move |counter| {
        counter.inc_by(count);
    }
}

/// The page: what is on it, and how many series that are at most.
#[derive(Debug)]
pub(in crate::telemetry) struct Page {
    registry: Registry,
    series_max: usize,
    folded: Vec<Arc<AtomicU64>>,
}

impl Page {
    pub(in crate::telemetry) fn new() -> Self {
        Self {
            registry: Registry::with_prefix("antiphon"),
            series_max: 0,
            folded: Vec::new(),
        }
    }

    /// Puts a family on the page. The library adds `_total` to counters and the full stop to `help`.
    pub(in crate::telemetry) fn family<L: Labels, M>(&mut self, name: &str, help: &str, family: &Capped<L, M>)
    where
        Family<L, M>: Metric,
        M: EncodeMetric + TypedMetric,
    {
        self.adopt(family);
        self.registry.register(name, help, family.family.clone());
    }

    /// As [`family`](Self::family), of what is measured in seconds.
    pub(in crate::telemetry) fn seconds<L: Labels, M>(&mut self, name: &str, help: &str, family: &Capped<L, M>)
    where
        Family<L, M>: Metric,
        M: EncodeMetric + TypedMetric,
    {
        self.adopt(family);
        self.registry
            .register_with_unit(name, help, Unit::Seconds, family.family.clone());
    }

    /// As [`family`](Self::family).
    pub(in crate::telemetry) fn gauges<L: Labels>(&mut self, name: &str, help: &str, gauges: &Gauges<L>) {
        self.family(name, help, &gauges.shown);
    }

    /// A counter or a gauge.
    pub(in crate::telemetry) fn single(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.series_max += 1;
        self.registry.register(name, help, metric);
    }

    /// As [`single`](Self::single), with a unit.
    pub(in crate::telemetry) fn measured(&mut self, name: &str, help: &str, unit: Unit, metric: impl Metric) {
        self.series_max += 1;
        self.registry.register_with_unit(name, help, unit, metric);
    }

    /// A histogram of seconds with so many buckets.
    pub(in crate::telemetry) fn histogram(&mut self, name: &str, help: &str, buckets: usize, histogram: &Histogram) {
        self.series_max += series(buckets);
        self.registry
            .register_with_unit(name, help, Unit::Seconds, histogram.clone());
    }

    /// Facts that do not change.
    pub(in crate::telemetry) fn info<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        facts: [(&'static str, &'static str); N],
    ) {
        self.series_max += 1;
        self.registry.register(name, help, Info::new(facts));
    }

    /// What is read when the page is: so many series.
    pub(in crate::telemetry) fn collector(&mut self, series: usize, collector: Box<dyn Collector>) {
        self.series_max += series;
        self.registry.register_collector(collector);
    }

    /// The last line of the page's own: how often there was no room.
    pub(in crate::telemetry) fn finish(&mut self) {
        let folded = Folded(std::mem::take(&mut self.folded));
        self.collector(1, Box::new(folded));
    }

    /// How many series the page may ever have.
    pub(in crate::telemetry) const fn series_max(&self) -> usize {
        self.series_max
    }

    pub(in crate::telemetry) fn write(&self, page: &mut String) -> Result<(), std::fmt::Error> {
        text::encode_registry(page, &self.registry)
    }

    fn adopt<L: Labels, M>(&mut self, family: &Capped<L, M>) {
        self.series_max += family.series_max();
        self.folded.push(Arc::clone(&family.folded));
    }
}

/// How often there was no room, over all families.
#[derive(Debug)]
struct Folded(Vec<Arc<AtomicU64>>);

impl Collector for Folded {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Counts that went to other, since the page has no room for more label sets.";
        let counter = page.encode_descriptor("series_folded", help, None, MetricType::Counter)?;
        let sum = self.0.iter().map(|folded| folded.load(Ordering::Relaxed)).sum::<u64>();
        ConstCounter::new(sum).encode(counter)
    }
}
