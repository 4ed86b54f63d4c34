//! Label sets, with one value for each label of a metric, and the bound on the number of sets of a metric.
//!
//! Every set is one series on the page (a histogram has several). The bound is known before any traffic arrives,
//! because each label has either a closed list of values or a limit here.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
};

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

/// The value that replaces label values without room on the page.
pub(super) const OTHER: &str = "other";

/// The value of one label; values from closed lists are borrowed.
pub(super) type LabelValue = Cow<'static, str>;

/// The labels of a metric, each with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabelSet<const N: usize>([(&'static str, LabelValue); N]);

impl<const N: usize> Hash for LabelSet<N> {
    /// Hashes the values. The names are the same in all sets of a metric.
    fn hash<H: Hasher>(&self, state: &mut H) {
        // FNV-1a first, because a metric has few sets, and the standard hasher costs more for many short texts.
        let hash_byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash_value = |hash: u64, value: &LabelValue| hash_byte(value.bytes().fold(hash, hash_byte), 0xff);
        let values = self.0.iter().map(|(_, value)| value);
        state.write_u64(values.fold(0xcbf2_9ce4_8422_2325, hash_value));
    }
}

impl<const N: usize> EncodeLabelSet for LabelSet<N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }
}

/// The label sets that a metric may have.
#[derive(Debug)]
pub(super) struct LabelSpace<const N: usize> {
    names: [&'static str; N],
    /// Sets that are on the page from the start, at zero. Alerts can use a zero, but not a missing series.
    initial: Vec<[&'static str; N]>,
    /// Limit of sets with their own label values.
    sets_max: usize,
    /// Labels whose value becomes `other` in a set that has no room.
    folded_labels: Vec<&'static str>,
    /// Limit of sets that folding adds.
    folded_sets_max: usize,
}

impl<const N: usize> LabelSpace<N> {
    /// Allows every combination of these labels' values, and nothing else.
    pub(super) fn closed(labels: [(&'static str, &[&'static str]); N]) -> Self {
        let mut sets = vec![[""; N]];
        // Each label multiplies the sets so far by its values.
        for (at, (_, values)) in labels.iter().enumerate() {
            let with_each_value = |set: [&'static str; N]| {
                values.iter().map(move |value| {
                    let mut set = set;
                    set[at] = *value;
                    set
                })
            };
            sets = sets.into_iter().flat_map(with_each_value).collect();
        }
        Self::listed(labels.map(|(name, _)| name), sets)
    }

    /// Allows exactly these sets.
    pub(super) fn listed(names: [&'static str; N], sets: Vec<[&'static str; N]>) -> Self {
        let sets_max = sets.len();
        Self::open(names, sets_max).starting_with(sets)
    }

    /// Allows the first `sets_max` sets, whatever their values are.
    pub(super) const fn open(names: [&'static str; N], sets_max: usize) -> Self {
        Self {
            names,
            initial: Vec::new(),
            sets_max,
            folded_labels: Vec::new(),
            folded_sets_max: 0,
        }
    }

    /// Puts these sets on the page from the start; they count towards the bound.
    pub(super) fn starting_with(mut self, sets: Vec<[&'static str; N]>) -> Self {
        self.initial = sets;
        self
    }

    /// Folds a set without room: `labels` become `other`, the rest stay. At most `sets_max` different sets result.
    pub(super) fn folding<const F: usize>(mut self, labels: [&'static str; F], sets_max: usize) -> Self {
        self.folded_labels = labels.to_vec();
        self.folded_sets_max = sets_max;
        self
    }

    /// Returns the set with these values, in the order of the labels.
    pub(super) fn label_set<V: Into<LabelValue>>(&self, values: [V; N]) -> LabelSet<N> {
        let mut values = values.into_iter();
        // Both arrays have N elements, so the default is never used.
        let pair = |name| (name, values.next().map_or(LabelValue::Borrowed(""), Into::into));
        LabelSet(self.names.map(pair))
    }

    /// Returns the sets that are on the page from the start.
    pub(super) fn initial_sets(&self) -> impl Iterator<Item = LabelSet<N>> {
        self.initial.iter().map(|values| self.label_set(*values))
    }

    /// Returns the set that replaces `labels` on a full page; `None` if updates of such sets are dropped.
    pub(super) fn fold_labels(&self, labels: &LabelSet<N>) -> Option<LabelSet<N>> {
        let fold = |(name, value): (&'static str, LabelValue)| {
            let value = if self.folded_labels.contains(&name) {
                LabelValue::Borrowed(OTHER)
            } else {
                value
            };
            (name, value)
        };
        (!self.folded_labels.is_empty()).then(|| LabelSet(labels.0.clone().map(fold)))
    }

    /// Returns the limit of sets with their own label values.
    pub(super) const fn sets_max(&self) -> usize {
        self.sets_max
    }

    /// Returns the limit of sets that folding adds.
    pub(super) const fn folded_sets_max(&self) -> usize {
        self.folded_sets_max
    }
}
