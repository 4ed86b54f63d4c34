//! Posted results of each principal, in memory: every exchange asks which of them wait, and which belong into its body.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    auth::Principal,
    digest_cache::{DigestCache, Lifetime},
    ledger::{ChangeStamp, MOMENT_MAX, Moment, PlacedRecord, Record, RecordName},
};

/// Principals in memory. An evicted principal is read from the ledger again.
const PRINCIPALS_MAX: u64 = 100_000;
/// Results in memory of one principal, about 100 bytes each. With more of them, those that were received are forgotten.
const RESULTS_MAX: usize = 65_536;

/// Posted results by principal.
#[derive(Clone, Debug)]
pub(super) struct PostedResults(DigestCache<Principal, Arc<Mutex<ResultsOfPrincipal>>>);

/// Posted results of one principal.
#[derive(Debug)]
struct ResultsOfPrincipal {
    results: HashMap<RecordName, KnownResult>,
    /// Number of waiting results.
    waiting: usize,
    /// The time at which the first result expires.
    next_expiry: Moment,
    /// The state of the ledger that was read last. `None` if none was read, or if it may have changed at once.
    read_at: Option<ChangeStamp>,
    /// The number of that reading.
    last_read: u64,
    /// The number of readings that were begun.
    readings: u64,
    /// A reading that a timeout has ended before its last page.
    unfinished: Option<Reading>,
    /// The number of changes by this process.
    own_changes: u64,
}

/// A reading of all results of one principal, page by page.
#[derive(Debug)]
pub(super) struct Reading {
    number: u64,
    /// The state of the ledger when it began.
    stamp: Option<ChangeStamp>,
    /// The number of changes by this process when it began.
    own_changes: u64,
    /// The place in the ledger after which the next page begins.
    after: u64,
    found: Vec<(RecordName, KnownResult)>,
}

impl Reading {
    /// Returns the place in the ledger after which the next page begins.
    pub(super) const fn after(&self) -> u64 {
        self.after
    }

    /// Adds a page.
    pub(super) fn add_page(&mut self, records: &[PlacedRecord]) {
        self.after = records.last().map_or(self.after, |(place, _)| *place);
        let known = |(_, record): &PlacedRecord| (record.key.name, KnownResult::of_record(record));
        self.found.extend(records.iter().map(known));
    }
}

/// A posted result.
#[derive(Clone, Copy, Debug)]
struct KnownResult {
    /// The number of the last change by this process. 0 if it was only read.
    changed_by: u64,
    /// The time until which it is stored.
    until: Moment,
    state: ResultState,
    /// The hash of a client's own result that contains it already.
    contained_in: Option<u64>,
}

/// The state of a posted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultState {
    /// Its caller has not received it.
    Waiting,
    /// Its caller has received it.
    Received,
    /// Its service has withdrawn it. A reading that began before may still find it.
    Withdrawn,
}

/// The value of a delivery record: the format version, the kind, and its state. The key contains everything else.
pub(in crate::late) mod delivery_value {
    use bytes::Bytes;

    /// A result that waits for its caller.
    pub(in crate::late) const WAITING: Bytes = Bytes::from_static(&[1, 4]);
    /// A result that the caller has received. It may still belong into another branch of the conversation.
    pub(in crate::late) const RECEIVED: Bytes = Bytes::from_static(&[1, 5]);
}

impl Default for PostedResults {
    fn default() -> Self {
        Self(DigestCache::new(PRINCIPALS_MAX, Lifetime::Unlimited))
    }
}

impl PostedResults {
    /// Returns the number of waiting results of all principals in memory.
    pub(super) fn total_count(&self) -> usize {
        self.0.iter().map(|(_, known)| lock_known(&known).waiting).sum()
    }

    /// Begins to read the results of a principal, or goes on with a reading that a timeout has ended. Returns `None` if all
    /// were read, and no other process has changed any since. From now on changes by this process are tracked.
    ///
    /// `stamp` is the state of the ledger now: the reading must not begin before it was taken. With `is_fresh` all are read
    /// anew.
    pub(super) fn begin_read(
        &self,
        principal: Principal,
        stamp: Option<ChangeStamp>,
        is_fresh: bool,
    ) -> Option<Reading> {
        let known = self.0.get_or_insert_with(&principal, Arc::default);
        let mut known = lock_known(&known);
        if !is_fresh && stamp.is_some() && known.read_at == stamp {
            return None;
        }
        let unfinished = known.unfinished.take().filter(|_| !is_fresh);
        if let Some(unfinished) = unfinished.filter(|unfinished| stamp.is_some() && unfinished.stamp == stamp) {
            return Some(unfinished);
        }
        known.readings = known.readings.wrapping_add(1);
        Some(Reading {
            number: known.readings,
            stamp,
            own_changes: known.own_changes,
            after: 0,
            found: Vec::new(),
        })
    }

    /// Keeps a reading that a timeout has ended, for the next request.
    pub(super) fn keep_unfinished(&self, principal: Principal, reading: Reading) {
        self.update_known(principal, |known| {
            let is_further = |other: &Reading| other.after >= reading.after;
            if !known.unfinished.as_ref().is_some_and(is_further) {
                known.unfinished = Some(reading);
            }
        });
    }

    /// Replaces the results by those that were read, unless a reading that began later has done so. What this process has
    /// changed since the reading began is newer, and stays.
    pub(super) fn end_read(&self, principal: Principal, reading: Reading) {
        self.update_known(principal, |known| {
            if known.last_read > reading.number {
                return;
            }
            (known.last_read, known.read_at) = (reading.number, reading.stamp);
            let before = std::mem::take(&mut known.results);
            let newer = before
                .iter()
                .filter(|(_, result)| result.changed_by > reading.own_changes);
            known.results = newer.map(|(name, result)| (*name, *result)).collect();
            known.count_again();
            for (name, found) in reading.found {
                let contained_in = before.get(&name).and_then(|result| result.contained_in);
                known.insert_new(name, KnownResult { contained_in, ..found });
            }
        });
    }

    /// Adds a waiting result.
    pub(super) fn add(&self, principal: Principal, name: RecordName, until: Moment) {
        self.update_known(principal, |known| {
            let result = known.own_change(ResultState::Waiting, until);
            match known.results.get_mut(&name) {
                // Posted again after its withdrawal.
                Some(before) if before.state == ResultState::Withdrawn => {
                    *before = result;
                    known.count_again();
                }
                // An add that was delayed must not make a received result wait again.
                Some(_) => {}
                None => known.insert_new(name, result),
            }
        });
    }

    /// Notes that the caller has received a result.
    pub(super) fn mark_received(&self, principal: Principal, name: RecordName, until: Moment) {
        self.change_state(principal, name, (ResultState::Received, until));
    }

    /// Notes that the service of a result has withdrawn it.
    pub(super) fn forget(&self, principal: Principal, name: RecordName, until: Moment) {
        self.change_state(principal, name, (ResultState::Withdrawn, until));
    }

    fn change_state(&self, principal: Principal, name: RecordName, (state, until): (ResultState, Moment)) {
        self.update_known(principal, |known| {
            let changed = known.own_change(state, until);
            match known.results.get_mut(&name) {
                Some(result) => {
                    known.waiting = known.waiting.saturating_sub(usize::from(result.is_waiting()));
                    (result.state, result.changed_by) = (state, changed.changed_by);
                }
                // Noted all the same: a reading or an add that was delayed must not make it wait again.
                None => known.insert_new(name, changed),
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
                .is_some_and(KnownResult::is_waiting)
        })
    }

    /// Returns at most `limit` waiting results, those that expire last first.
    pub(super) fn newest_waiting(&self, principal: Principal, limit: usize) -> Vec<RecordName> {
        let Some(known) = self.0.get(&principal) else {
            return Vec::new();
        };
        let known = lock_known(&known);
        let waiting = known.results.iter().filter(|(_, result)| result.is_waiting());
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
        known.results.values().any(KnownResult::is_posted)
    }

    /// Returns those of the names that have a posted result. Each comes with the hash of an answer that contains it.
    pub(super) fn known_posted(
        &self,
        principal: Principal,
        names: impl Iterator<Item = RecordName>,
    ) -> Vec<(RecordName, Option<u64>)> {
        let Some(known) = self.0.get(&principal) else {
            return Vec::new();
        };
        let known = lock_known(&known);
        let find = |name: RecordName| {
            let result = known.results.get(&name).filter(|result| result.is_posted())?;
            Some((name, result.contained_in))
        };
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
            results: HashMap::new(),
            waiting: 0,
            next_expiry: MOMENT_MAX,
            read_at: None,
            last_read: 0,
            readings: 0,
            unfinished: None,
            own_changes: 0,
        }
    }
}

impl KnownResult {
    fn of_record(record: &Record) -> Self {
        Self {
            changed_by: 0,
            until: record.expires_at,
            state: if record.value == delivery_value::RECEIVED {
                ResultState::Received
            } else {
                ResultState::Waiting
            },
            contained_in: None,
        }
    }

    fn is_waiting(&self) -> bool {
        self.state == ResultState::Waiting
    }

    /// Returns `true` unless the result was withdrawn.
    fn is_posted(&self) -> bool {
        self.state != ResultState::Withdrawn
    }
}

impl ResultsOfPrincipal {
    /// Counts a change by this process. Returns the result that it makes.
    fn own_change(&mut self, state: ResultState, until: Moment) -> KnownResult {
        self.own_changes = self.own_changes.wrapping_add(1);
        KnownResult {
            changed_by: self.own_changes,
            until,
            state,
            contained_in: None,
        }
    }

    /// Counts the waiting results, and finds the first expiry.
    fn count_again(&mut self) {
        self.waiting = self.results.values().filter(|result| result.is_waiting()).count();
        let expiries = self.results.values().map(|result| result.until);
        self.next_expiry = expiries.min().unwrap_or(MOMENT_MAX);
    }

    /// Inserts a result if its name is new. An earlier entry is of a later change.
    fn insert_new(&mut self, name: RecordName, result: KnownResult) {
        if self.results.len() >= RESULTS_MAX {
            self.results.retain(|_, result| result.is_waiting());
        }
        if let Entry::Vacant(slot) = self.results.entry(name) {
            slot.insert(result);
            self.waiting += usize::from(result.is_waiting());
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
        self.count_again();
    }
}

fn lock_known(known: &Mutex<ResultsOfPrincipal>) -> MutexGuard<'_, ResultsOfPrincipal> {
    // A panic elsewhere leaves these maps usable.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        auth::{Caller, PrincipalKey},
        ledger::{RecordKey, RecordKind},
    };

    const UNTIL: Moment = Duration::from_secs(60);
    const NOW: Moment = Duration::from_secs(1);

    fn principal() -> Principal {
        Caller::of_account(Principal::of_token(&PrincipalKey::from_ledger_secret(&[1; 32]), "one")).principal()
    }

    fn page(names: &[u8]) -> Vec<PlacedRecord> {
        let record = |name: &u8| Record {
            key: RecordKey::new(RecordKind::Delivery, principal(), [*name; 32]),
            index: None,
            value: delivery_value::WAITING,
            version: 1,
            made_at: NOW,
            expires_at: UNTIL,
        };
        names.iter().map(|name| (u64::from(*name), record(name))).collect()
    }

    fn begin(posted: &PostedResults, stamp: Option<ChangeStamp>) -> Reading {
        posted.begin_read(principal(), stamp, false).unwrap()
    }

    fn stamp() -> Option<ChangeStamp> {
        crate::ledger::LedgerChanges::none().stamp(principal())
    }

    #[test]
    fn a_reading_goes_on_where_a_timeout_has_ended_it() {
        let posted = PostedResults::default();
        let mut reading = begin(&posted, stamp());
        reading.add_page(&page(&[1, 2]));
        posted.keep_unfinished(principal(), reading);
        let mut reading = begin(&posted, stamp());
        assert_eq!(reading.after(), 2);
        reading.add_page(&page(&[3]));
        posted.end_read(principal(), reading);
        assert_eq!(posted.count_waiting(principal(), NOW), 3);
        assert!(posted.begin_read(principal(), stamp(), false).is_none());
        // While changes may be missed, nothing that was read before counts.
        let mut reading = begin(&posted, None);
        reading.add_page(&page(&[1]));
        posted.keep_unfinished(principal(), reading);
        assert_eq!(begin(&posted, None).after(), 0);
    }

    #[test]
    fn a_slow_reading_does_not_replace_a_later_one() {
        let posted = PostedResults::default();
        let (mut slow, mut quick) = (begin(&posted, None), begin(&posted, None));
        slow.add_page(&page(&[1]));
        quick.add_page(&page(&[1, 2]));
        posted.end_read(principal(), quick);
        posted.end_read(principal(), slow);
        assert_eq!(posted.count_waiting(principal(), NOW), 2);
    }

    #[test]
    fn own_changes_are_newer_than_a_reading_that_began_before_them() {
        let (posted, name) = (PostedResults::default(), |name| [name; 32]);
        let mut reading = begin(&posted, stamp());
        reading.add_page(&page(&[1, 2, 3]));
        posted.forget(principal(), name(1), UNTIL);
        posted.mark_received(principal(), name(2), UNTIL);
        posted.add(principal(), name(4), UNTIL);
        posted.end_read(principal(), reading);
        let known = posted.known_posted(principal(), (1..=4).map(name));
        let known: Vec<u8> = known.into_iter().map(|(name, _)| name[0]).collect();
        assert_eq!(known, [2, 3, 4]);
        assert_eq!(posted.count_waiting(principal(), NOW), 2);
        // It is posted once more.
        posted.add(principal(), name(1), UNTIL);
        assert_eq!(posted.count_waiting(principal(), NOW), 3);
    }
}
