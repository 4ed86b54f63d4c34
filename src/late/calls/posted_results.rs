//! Posted results of each principal, in memory: every exchange asks which of them wait, and which belong into its body.

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    auth::Principal,
    late::records::delivery_value,
    ledger::{Moment, Record, RecordKind, RecordName, RecordOwners, Unread},
    table::{
        ReadEffort, RowSet, RowSets, SetChange, SetDepth, SetMemory, SetPolicy, SetRow, StoredRow, TableParts,
        VerifiedCallers,
    },
};

/// Principals in memory. An evicted principal is read from the ledger again.
const PRINCIPALS_MAX: u64 = 100_000;

/// Posted results by principal. Memory has what the ledger has: a result changes here once its change is stored.
#[derive(Clone, Debug)]
pub(super) struct PostedResults(RowSets<PostedRow>);

/// A posted result. One that its service has withdrawn has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PostedRow {
    /// `true` if its caller has not received it.
    is_waiting: bool,
    /// The time until which it is stored.
    until: Moment,
    /// The hash of a client's own result that contains it already.
    contained_in: Option<u64>,
}

impl PostedResults {
    /// Creates the results over the ledger of `parts`. `owners` are the callers that have some.
    pub(super) fn new(parts: &TableParts, callers: &VerifiedCallers, owners: RecordOwners) -> Self {
        let policy = SetPolicy {
            kind: RecordKind::Delivery,
            memory: SetMemory::Sets(PRINCIPALS_MAX),
            depth: SetDepth::All,
            owners,
        };
        Self(RowSets::new(parts, callers, policy))
    }

    /// Reads the results of a principal into memory, unless they are known.
    pub(super) async fn load(&self, principal: Principal, effort: ReadEffort, by: Instant) -> Result<(), Unread> {
        self.0.load(principal, effort, by).await
    }

    /// Returns the number of waiting results of all principals in memory.
    pub(super) fn total_count(&self) -> usize {
        self.0.counted_total()
    }

    /// Adds a waiting result. An add that was delayed does not make a received result wait again.
    pub(super) fn add(&self, principal: Principal, name: RecordName, until: Moment) {
        self.0.change(principal, name, |known| match known {
            Some(_) => SetChange::Keep,
            None => SetChange::Put(PostedRow::waiting(until)),
        });
    }

    /// Notes that the caller has received a result. A read or an add that was delayed does not make it wait again.
    pub(super) fn mark_received(&self, principal: Principal, name: RecordName, until: Moment) {
        self.0.change(principal, name, |known| {
            let known = known.copied().unwrap_or_else(|| PostedRow::waiting(until));
            let is_waiting = false;
            SetChange::Put(PostedRow { is_waiting, ..known })
        });
    }

    /// Notes that the service of a result has withdrawn it.
    pub(super) fn forget(&self, principal: Principal, name: RecordName, until: Moment) {
        self.0.change(principal, name, |_| SetChange::Remove(until));
    }

    /// Notes that a client's answer, by its hash, contains the posted result already.
    pub(super) fn note_contained(&self, principal: Principal, name: RecordName, answer: u64) {
        let contained_in = Some(answer);
        self.0.change(principal, name, |known| match known {
            Some(known) => SetChange::Mark(PostedRow { contained_in, ..*known }),
            None => SetChange::Keep,
        });
    }

    /// Returns `true` if this result waits.
    pub(super) fn is_waiting(&self, principal: Principal, name: &RecordName) -> bool {
        let waits = |set: &RowSet<PostedRow>| set.get(name).is_some_and(|row| row.is_waiting);
        self.0.look(principal, waits).unwrap_or_default()
    }

    /// Returns at most `limit` waiting results, those that expire last first.
    pub(super) fn newest_waiting(&self, principal: Principal, limit: usize) -> Vec<RecordName> {
        let waiting = self.0.look(principal, |set| {
            let waiting = set.rows().filter(|(_, row)| row.is_waiting);
            waiting.map(|(name, row)| (row.until, *name)).collect()
        });
        let mut waiting: Vec<(Moment, RecordName)> = waiting.unwrap_or_default();
        waiting.sort_unstable_by(|one, other| other.cmp(one));
        waiting.into_iter().take(limit).map(|(_, name)| name).collect()
    }

    /// Returns `true` if the principal has a result, whether received or not.
    pub(super) fn has_any(&self, principal: Principal) -> bool {
        let has_any = self.0.look(principal, |set| set.rows().next().is_some());
        has_any.unwrap_or_default()
    }

    /// Returns those of the names that have a posted result. Each comes with the hash of an answer that contains it.
    pub(super) fn known_posted(
        &self,
        principal: Principal,
        names: impl Iterator<Item = RecordName>,
    ) -> Vec<(RecordName, Option<u64>)> {
        let find = |set: &RowSet<PostedRow>| {
            let found = names.filter_map(|name| Some((name, set.get(&name)?.contained_in)));
            found.collect()
        };
        self.0.look(principal, find).unwrap_or_default()
    }

    /// Returns the number of waiting results.
    pub(super) fn count_waiting(&self, principal: Principal) -> usize {
        self.0.look(principal, RowSet::counted).unwrap_or_default()
    }
}

impl PostedRow {
    const fn waiting(until: Moment) -> Self {
        Self {
            is_waiting: true,
            until,
            contained_in: None,
        }
    }
}

impl StoredRow for PostedRow {
    fn encode(&self) -> Option<Bytes> {
        Some(if self.is_waiting {
            delivery_value::WAITING
        } else {
            delivery_value::RECEIVED
        })
    }

    fn decode(record: &Record) -> Option<Self> {
        Some(Self {
            is_waiting: record.value != delivery_value::RECEIVED,
            ..Self::waiting(record.expires_at)
        })
    }

    fn merged(self, read: Self) -> Self {
        Self {
            // Only memory knows it.
            contained_in: self.contained_in,
            ..read
        }
    }
}

impl SetRow for PostedRow {
    fn until(&self) -> Moment {
        self.until
    }

    fn is_counted(&self) -> bool {
        self.is_waiting
    }
}
