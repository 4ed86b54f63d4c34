//! Posted results of each principal, in memory: every exchange asks which of them wait, and which belong into its body.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use moka::sync::Cache;

use crate::{
    auth::Principal,
    ledger::{ChangeStamp, MOMENT_MAX, Moment, PlacedRecord, Record, RecordName},
};

/// Principals in memory. An evicted principal is read from the ledger again.
const PRINCIPALS_MAX: u64 = 100_000;
/// Results in memory of one principal, about 100 bytes each. With more of them, those that were received are forgotten.
const RESULTS_MAX: usize = 65_536;

/// Posted results by principal.
#[derive(Clone, Debug)]
pub(super) struct PostedResults(Cache<Principal, Arc<Mutex<ResultsOfPrincipal>>>);

/// Posted results of one principal.
#[derive(Debug)]
struct ResultsOfPrincipal {
    /// The place in the ledger after which results were not read yet. `None` once all were read.
    unread_after: Option<u64>,
    results: HashMap<RecordName, KnownResult>,
    /// Number of waiting results.
    waiting: usize,
    /// The time at which the first result expires.
    next_expiry: Moment,
    /// The state of the ledger that was read last.
    read_at: Option<ChangeStamp>,
    /// The number of changes by this process.
    own_changes: u64,
}

/// A posted result.
#[derive(Clone, Copy, Debug)]
struct KnownResult {
    /// The number of the last change by this process. 0 if it was only read.
    changed_by: u64,
    /// The time until which it is stored.
    until: Moment,
    /// `true` until the caller has received it.
    is_waiting: bool,
    /// The hash of a client's answer that contains the result already.
    contained_in: Option<u64>,
}

/// The value of a delivery record: the format version, the kind, and its state. The key contains everything else.
pub(super) mod delivery_value {
    use bytes::Bytes;

    /// A result that waits for its caller.
    pub(in crate::late) const WAITING: Bytes = Bytes::from_static(&[1, 4]);
    /// A result that the caller has received. It may still belong into another branch of the conversation.
    pub(in crate::late) const RECEIVED: Bytes = Bytes::from_static(&[1, 5]);
}

impl Default for PostedResults {
    fn default() -> Self {
        Self(Cache::new(PRINCIPALS_MAX))
    }
}

impl PostedResults {
    /// Returns the number of waiting results of all principals in memory.
    pub(super) fn total_count(&self) -> usize {
        self.0.iter().map(|(_, known)| lock_known(&known).waiting).sum()
    }

    /// Returns the place after which the ledger must be read for this principal. `None` once all was read.
    ///
    /// From now on the principal's changes are tracked.
    pub(super) fn unread_after(&self, principal: Principal) -> Option<u64> {
        // Inserted before the read, so that a change during the read is not lost.
        let known = self.0.get_with(principal, Arc::default);
        lock_known(&known).unread_after
    }

    /// Returns `true` if all results of the principal were read, and no other process has changed any since.
    pub(super) fn is_current(&self, principal: Principal, stamp: Option<ChangeStamp>) -> bool {
        let known = self.0.get(&principal);
        stamp.is_some() && known.is_some_and(|known| lock_known(&known).read_at == stamp)
    }

    /// Returns the number of this process's changes so far, for [`replace`](Self::replace). From now on they are tracked.
    pub(super) fn begin_read(&self, principal: Principal) -> u64 {
        let known = self.0.get_with(principal, Arc::default);
        lock_known(&known).own_changes
    }

    /// Replaces the results by all those that were read from a shared ledger in the state `stamp`. What this process has
    /// changed since [`begin_read`](Self::begin_read) is newer, and stays.
    pub(super) fn replace(
        &self,
        principal: Principal,
        begun: u64,
        records: &[PlacedRecord],
        stamp: Option<ChangeStamp>,
    ) {
        self.update_known(principal, |known| {
            known.results.retain(|_, result| result.changed_by > begun);
            known.waiting = known.results.values().filter(|result| result.is_waiting).count();
            for (_, record) in records {
                known.insert_new(record.key.name, KnownResult::of_record(record));
            }
            known.unread_after = None;
            known.read_at = stamp;
        });
    }

    /// Notes that the ledger has no results of this principal.
    pub(super) fn note_none(&self, principal: Principal) {
        self.update_known(principal, |known| known.unread_after = None);
    }

    /// Adds one page of records from the ledger. Changes since the read began are newer, and win.
    pub(super) fn load_page(&self, principal: Principal, records: &[PlacedRecord], is_last: bool) {
        self.update_known(principal, |known| {
            for (_, record) in records {
                known.insert_new(record.key.name, KnownResult::of_record(record));
            }
            let last = records.last().map(|(place, _)| *place);
            // Two requests may read the same page: neither moves the place back.
            known.unread_after = known
                .unread_after
                .filter(|_| !is_last)
                .map(|place| place.max(last.unwrap_or(place)));
        });
    }

    /// Adds a waiting result.
    pub(super) fn add(&self, principal: Principal, name: RecordName, until: Moment) {
        self.update_known(principal, |known| {
            let changed_by = known.count_change();
            let result = KnownResult {
                changed_by,
                until,
                is_waiting: true,
                contained_in: None,
            };
            known.insert_new(name, result);
        });
    }

    /// Notes that the caller has received a result.
    pub(super) fn mark_received(&self, principal: Principal, name: RecordName, until: Moment) {
        self.update_known(principal, |known| {
            let changed_by = known.count_change();
            let received = KnownResult {
                changed_by,
                until,
                is_waiting: false,
                contained_in: None,
            };
            match known.results.get_mut(&name) {
                Some(result) => {
                    known.waiting = known.waiting.saturating_sub(usize::from(result.is_waiting));
                    (result.is_waiting, result.changed_by) = (false, changed_by);
                }
                // A load or an add that was delayed must not make it wait again.
                None => known.insert_new(name, received),
            }
        });
    }

    /// Forgets a result that its service has withdrawn.
    pub(super) fn forget(&self, principal: Principal, name: &RecordName) {
        self.update_known(principal, |known| {
            if let Some(result) = known.results.remove(name) {
                known.waiting = known.waiting.saturating_sub(usize::from(result.is_waiting));
            }
        });
    }

    /// Notes that a client's answer, by its hash, contains the posted result already.
    pub(super) fn note_contained(&self, principal: Principal, name: RecordName, answer: u64) {
        self.update_known(principal, |known| {
            if let Some(result) = known.results.get_mut(&name) {
                result.contained_in = Some(answer);
            }
        });
    }

    /// Returns `true` if this result waits.
    pub(super) fn is_waiting(&self, principal: Principal, name: &RecordName) -> bool {
        let known = self.0.get(&principal);
        known.is_some_and(|known| {
            lock_known(&known)
                .results
                .get(name)
                .is_some_and(|result| result.is_waiting)
        })
    }

    /// Returns at most `limit` waiting results, those that expire last first.
    pub(super) fn newest_waiting(&self, principal: Principal, limit: usize) -> Vec<RecordName> {
        let Some(known) = self.0.get(&principal) else {
            return Vec::new();
        };
        let known = lock_known(&known);
        let waiting = known.results.iter().filter(|(_, result)| result.is_waiting);
        let mut waiting: Vec<(Moment, RecordName)> = waiting.map(|(name, result)| (result.until, *name)).collect();
        drop(known);
        waiting.sort_unstable_by(|one, other| other.cmp(one));
        waiting.into_iter().take(limit).map(|(_, name)| name).collect()
    }

    /// Returns `true` if the principal has a result that has not expired, whether received or not.
    pub(super) fn has_any(&self, principal: Principal, now: Moment) -> bool {
        let Some(known) = self.0.get(&principal) else {
            return false;
        };
        let mut known = lock_known(&known);
        known.forget_expired(now);
        !known.results.is_empty()
    }

    /// Returns those of the names that have a posted result. Each comes with the hash of an answer that contains it.
    pub(super) fn find_posted(
        &self,
        principal: Principal,
        names: impl Iterator<Item = RecordName>,
    ) -> Vec<(RecordName, Option<u64>)> {
        let Some(known) = self.0.get(&principal) else {
            return Vec::new();
        };
        let known = lock_known(&known);
        let find = |name: RecordName| Some((name, known.results.get(&name)?.contained_in));
        names.filter_map(find).collect()
    }

    /// Returns the number of waiting results, without those that have expired.
    pub(super) fn count_waiting(&self, principal: Principal, now: Moment) -> usize {
        let Some(known) = self.0.get(&principal) else { return 0 };
        let mut known = lock_known(&known);
        known.forget_expired(now);
        known.waiting
    }

    /// Applies a change if the principal is in memory. For any other, a later load reads the whole state.
    fn update_known(&self, principal: Principal, change: impl FnOnce(&mut ResultsOfPrincipal)) {
        if let Some(known) = self.0.get(&principal) {
            change(&mut lock_known(&known));
        }
    }
}

impl Default for ResultsOfPrincipal {
    fn default() -> Self {
        Self {
            unread_after: Some(0),
            results: HashMap::new(),
            waiting: 0,
            next_expiry: MOMENT_MAX,
            read_at: None,
            own_changes: 0,
        }
    }
}

impl KnownResult {
    fn of_record(record: &Record) -> Self {
        Self {
            changed_by: 0,
            until: record.expires_at,
            is_waiting: record.value != delivery_value::RECEIVED,
            contained_in: None,
        }
    }
}

impl ResultsOfPrincipal {
    /// Counts a change by this process. Returns its number.
    fn count_change(&mut self) -> u64 {
        self.own_changes = self.own_changes.wrapping_add(1);
        self.own_changes
    }

    /// Inserts a result if its name is new. An earlier entry is of a later change.
    fn insert_new(&mut self, name: RecordName, result: KnownResult) {
        if self.results.len() >= RESULTS_MAX {
            self.results.retain(|_, result| result.is_waiting);
        }
        if let Entry::Vacant(slot) = self.results.entry(name) {
            slot.insert(result);
            self.waiting += usize::from(result.is_waiting);
            self.next_expiry = self.next_expiry.min(result.until);
        }
    }

    /// Forgets the results that have expired: the ledger does not announce them.
    fn forget_expired(&mut self, now: Moment) {
        // Every exchange asks, so the walk over all results is made only if one has expired.
        if now < self.next_expiry {
            return;
        }
        self.results.retain(|_, result| result.until > now);
        self.waiting = self.results.values().filter(|result| result.is_waiting).count();
        let expiries = self.results.values().map(|result| result.until);
        self.next_expiry = expiries.min().unwrap_or(MOMENT_MAX);
    }
}

fn lock_known(known: &Mutex<ResultsOfPrincipal>) -> MutexGuard<'_, ResultsOfPrincipal> {
    // A panic elsewhere leaves these maps usable.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
