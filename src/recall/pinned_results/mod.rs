//! Pinned results: decided in memory, stored while the provider works, and awaited before the answer's head.
//!
//! In a ledger of this process alone a decision in memory is final. In a shared one the ledger decides, so that a pin is
//! awaited before the send.

mod journal;
mod pin_write;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{AssignedResult, PinnedRow, ROW_BYTES, RecallScope, RecallStore, RecallStoreState, UNUSED_ROW_MAX};
use crate::{
    auth::Caller,
    digest::digest_of,
    digest_cache::{DigestCache, Lifetime},
    ledger::{CommitStep, FIRST_VERSION, RecordKey, RecordKind, RecordOwners, Unread, read_by},
    repair::{CallKey, PinnedResult},
};
use journal::{PinJournal, RowState, SettledRow};
use pin_write::PinWrite;

/// The limit of the rows in memory, in bytes. The journal has a limit of its own.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;

/// Results of other processes that a waiting request has yet to take.
const OVERRULED_MAX: u64 = 10_000;
/// The time for which it may take one: longer than any wait for the ledger.
const OVERRULED_TTL: Duration = Duration::from_secs(60);

/// A row in memory that may be evicted.
#[derive(Clone, Debug)]
struct CachedRow {
    row: PinnedRow,
    /// `true` if the row is in the ledger, or queued for it.
    is_stored: bool,
}

/// The pinned results of this process.
#[derive(Debug)]
pub(super) struct PinnedResults {
    /// Rows that the ledger has too, and those of callers that are never stored.
    rows: DigestCache<RecordKey, CachedRow>,
    journal: Mutex<PinJournal>,
    /// Results of other processes that were first, and that no provider has accepted yet.
    overruled: DigestCache<RecordKey, PinnedResult>,
}

/// Pins that a provider has accepted and that a crash may still lose.
#[derive(Debug)]
pub struct UnstoredPins {
    keys: Vec<RecordKey>,
    caller: Caller,
}

impl UnstoredPins {
    /// Returns `true` if there is nothing to wait for.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl PinnedResults {
    pub(super) fn new() -> Self {
        let weigh = |known: &CachedRow| known.row.text_bytes().saturating_add(ROW_BYTES);
        Self {
            rows: DigestCache::with_byte_limit(MEMORY_BYTES, Lifetime::SinceUse(UNUSED_ROW_MAX), weigh),
            journal: Mutex::default(),
            overruled: DigestCache::new(OVERRULED_MAX, Lifetime::SinceWrite(OVERRULED_TTL)),
        }
    }

    fn lock_journal(&self) -> MutexGuard<'_, PinJournal> {
        // Each change leaves a valid journal, so a panic elsewhere need not spread.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present result of a call.
    fn find_result(&self, key: &RecordKey) -> Option<PinnedResult> {
        // A row is in the cache before it leaves the journal.
        let decided = self.lock_journal().find_decision(key).map(|row| row.result.clone());
        decided.or_else(|| Some(self.rows.get(key)?.row.result))
    }

    /// Caches a row of the ledger. Returns the result of the call: an earlier decision of this process stays.
    ///
    /// In a shared ledger the process that has pinned a result may roll it back until a provider accepts it, so that it is
    /// not cached before.
    fn adopt_row(&self, key: RecordKey, row: PinnedRow, is_exclusive: bool) -> Option<PinnedResult> {
        let journal = self.lock_journal();
        if let Some(decided) = journal.find_decision(&key) {
            return Some(decided.result.clone());
        }
        // The row is being removed: no provider has accepted it.
        if journal.has_entry(&key) {
            return None;
        }
        if !is_exclusive && !row.is_committed {
            return Some(row.result);
        }
        let read = CachedRow { row, is_stored: true };
        Some(self.rows.get_or_insert_with(&key, || read).row.result)
    }

    /// Decides on a call, unless it has a decision. Returns that one if it is another result.
    fn decide_result(&self, key: RecordKey, result: &PinnedResult, is_verified: bool) -> Option<PinnedResult> {
        // Atomic under the lock: of two requests at once, one pins its result and the other receives it.
        let mut journal = self.lock_journal();
        let cached = || Some(self.rows.get(&key)?.row);
        if let Some(known) = journal.find_decision(&key).cloned().or_else(cached) {
            if is_verified {
                // A request of its caller may have pinned it before the caller was verified.
                journal.release_row(&key);
            }
            return (known.result != *result).then_some(known.result);
        }
        let row = PinnedRow {
            result: result.clone(),
            is_committed: false,
        };
        // The pins of an unverified caller are held until a provider accepts a request.
        if let Err(row) = journal.decide_row(key, row, RowState::Absent, !is_verified) {
            self.rows.insert(&key, CachedRow { row, is_stored: false });
        }
        None
    }

    /// Moves a row that the ledger has from the journal to the cache.
    fn keep_settled(&self, settled: Option<SettledRow>) {
        if let Some((key, row)) = settled {
            self.rows.insert(&key, CachedRow { row, is_stored: true });
        }
    }
}

impl RecallStore {
    /// Returns the pinned result of a call from memory.
    pub fn cached_result(&self, scope: RecallScope, call: CallKey) -> Option<PinnedResult> {
        self.0.pinned.find_result(&pinned_result_key(scope, call))
    }

    /// Reads the pinned results of these calls from the ledger. Calls without one are left out.
    ///
    /// Returns nothing for a caller that is not verified.
    pub async fn fetch_results(
        &self,
        scope: RecallScope,
        calls: &[CallKey],
        deadline: Instant,
    ) -> Result<HashMap<CallKey, PinnedResult>, Unread> {
        let keys: Vec<RecordKey> = calls.iter().map(|call| pinned_result_key(scope, *call)).collect();
        let look = async {
            // Only verified callers have records in the ledger.
            let may_have = |owners: &RecordOwners| owners.may_have(RecordKind::PinnedResult, scope.caller.principal());
            // Another process may have pinned the first result a moment ago.
            let is_none = self.0.ledger.is_exclusive() && !may_have(&self.0.owners);
            if is_none || !self.0.callers.verify(scope.caller, deadline).await? {
                return Ok(Vec::new());
            }
            read_by(&*self.0.ledger, keys.clone(), deadline).await
        };
        let records = self.0.count_unread(look.await)?;
        let mut found = HashMap::new();
        for ((call, key), record) in calls.iter().zip(&keys).zip(records) {
            let row = record.and_then(|record| PinnedRow::decode(&record.value));
            if let Some(result) = row.and_then(|row| self.0.pinned.adopt_row(*key, row, self.0.ledger.is_exclusive())) {
                found.insert(*call, result);
            }
        }
        Ok(found)
    }

    /// Pins these results before they are sent. Only a ledger that other processes share is waited for.
    ///
    /// Returns the results of calls that have another pinned result already. It stays, and the request must use it.
    pub async fn pin_results(
        &self,
        scope: RecallScope,
        given: &[AssignedResult],
        deadline: Instant,
    ) -> HashMap<CallKey, PinnedResult> {
        let (pins, mut existing) = (&self.0.pinned, HashMap::new());
        let is_verified = !given.is_empty() && self.0.callers.is_verified_in_memory(scope.caller);
        if is_verified {
            note_owner(&self.0, scope.caller);
        }
        let mut keys = Vec::with_capacity(given.len());
        for (call, result) in given {
            let key = pinned_result_key(scope, *call);
            if let Some(other) = pins.decide_result(key, result, is_verified) {
                existing.insert(*call, other);
            }
            keys.push((key, *call, result));
        }
        queue_pins(&self.0);
        if !is_verified || self.0.ledger.is_exclusive() {
            return existing;
        }
        // Another process may have been first: the ledger decides, also about what another request of this one has decided.
        let unstored = UnstoredPins {
            keys: keys.iter().map(|(key, ..)| *key).collect(),
            caller: scope.caller,
        };
        self.await_stored(unstored, deadline).await;
        for (key, call, result) in keys {
            let decided = pins.find_result(&key).or_else(|| pins.overruled.get(&key));
            match decided {
                Some(other) if other != *result => drop(existing.insert(call, other)),
                Some(_) => drop(existing.remove(&call)),
                None => {}
            }
        }
        existing
    }

    /// Commits these results: a provider has accepted a request with them. They are the calls' results from now on.
    ///
    /// Returns those that the ledger does not have yet. The client must see nothing of the provider's answer before.
    #[must_use]
    pub fn commit_results(&self, scope: RecallScope, used: &[AssignedResult]) -> UnstoredPins {
        let is_verified = !used.is_empty() && self.0.callers.is_verified_in_memory(scope.caller);
        if is_verified {
            note_owner(&self.0, scope.caller);
        }
        let (mut keys, mut queued) = (Vec::new(), Vec::new());
        for (call, result) in used {
            let key = pinned_result_key(scope, *call);
            let row = PinnedRow {
                result: result.clone(),
                is_committed: true,
            };
            commit_row(&self.0, key, row, is_verified, &mut queued);
            if is_verified {
                keys.push(key);
            }
        }
        self.0.writer.queue_writes(queued);
        queue_pins(&self.0);
        UnstoredPins {
            keys,
            caller: scope.caller,
        }
    }
}

/// Notes that a verified caller has pins from now on, which later processes look for if the caller is stored.
fn note_owner(store: &RecallStoreState, caller: Caller) {
    store.owners.note(RecordKind::PinnedResult, caller.principal());
    store.callers.store_unless_known(caller);
}

/// Queues what the journal wants to be written. Not under its lock, which the loss of a write takes too.
fn queue_pins(store: &Arc<RecallStoreState>) {
    let unqueued = store.pinned.lock_journal().take_unqueued();
    let writes = unqueued.into_iter().map(|key| PinWrite::new(store, key));
    store.writer.queue_all(writes);
}

/// Commits one result. Adds the steps to `queued` that the journal has no room for.
fn commit_row(
    store: &RecallStoreState,
    key: RecordKey,
    row: PinnedRow,
    is_verified: bool,
    queued: &mut Vec<CommitStep>,
) {
    let pins = &store.pinned;
    let mut journal = pins.lock_journal();
    // The first result that a provider accepted stays: its history is cached with these bytes.
    let is_committed = |row: &PinnedRow| row.is_committed;
    if journal.find_decision(&key).is_some_and(is_committed) {
        return;
    }
    let cached = pins.rows.get(&key).filter(|_| !journal.has_entry(&key));
    if cached.as_ref().is_some_and(|known| known.row.is_committed) {
        return;
    }
    if !is_verified {
        // Requests without a credential may be of anyone, so nothing of them is stored.
        journal.forget_entry(&key);
        pins.rows.insert(&key, CachedRow { row, is_stored: false });
        return;
    }
    if journal.has_entry(&key) {
        let settled = journal.accept_row(&key, row);
        pins.keep_settled(settled);
        return;
    }
    let stored = match &cached {
        Some(known) if known.is_stored => RowState::read_earlier(known.row.result == row.result),
        _ => RowState::Absent,
    };
    if let Err(row) = journal.decide_row(key, row, stored, false) {
        // Without room in the journal the row reaches the ledger later, after the removal of an unaccepted one.
        store.telemetry.record_ledger_timeout("write");
        let insert = CommitStep::insert_record(key, row.encode(), store.expires_at());
        queued.extend([remove_step(key), insert]);
        pins.rows.insert(&key, CachedRow { row, is_stored: true });
    }
}

impl RecallStore {
    /// Rolls back these results, which this request was the first to use, and which no provider has accepted.
    ///
    /// A result that another request has committed meanwhile stays.
    pub fn roll_back_results<'g>(&self, scope: RecallScope, given: impl IntoIterator<Item = &'g AssignedResult>) {
        let (pins, mut queued) = (&self.0.pinned, Vec::new());
        for (call, result) in given {
            let key = pinned_result_key(scope, *call);
            let mut journal = pins.lock_journal();
            if journal.has_entry(&key) {
                journal.roll_back(&key, result);
                continue;
            }
            let Some(known) = pins.rows.get(&key) else { continue };
            // Another request has committed or replaced the pin since.
            if known.row.is_committed || known.row.result != *result {
                continue;
            }
            pins.rows.remove(&key);
            if known.is_stored && !journal.remove_row(key) {
                queued.push(remove_step(key));
            }
        }
        self.0.writer.queue_writes(queued);
        queue_pins(&self.0);
    }

    /// Waits until the ledger has these pins, or the deadline. They are written in any case.
    pub async fn await_stored(&self, unstored: UnstoredPins, deadline: Instant) {
        // The usual case: the provider took longer than the disk.
        if !is_due(&self.0, &unstored) {
            return;
        }
        // No answer waits while the store fails.
        let is_over = || !is_due(&self.0, &unstored) || self.0.writer.is_failing();
        self.0.writer.await_end(deadline, is_over).await;
        if is_due(&self.0, &unstored) {
            // The provider has accepted the pins, so they stay. The writer goes on with them.
            self.0.telemetry.record_ledger_timeout("write");
            let mut journal = self.0.pinned.lock_journal();
            unstored.keys.iter().for_each(|key| journal.note_late(key));
            drop(journal);
            self.0.callers.note_late(unstored.caller);
        }
    }
}

/// Returns `true` if the ledger lacks one of these pins, or their caller.
fn is_due(store: &RecallStoreState, unstored: &UnstoredPins) -> bool {
    if !unstored.is_empty() && store.callers.delays_head(unstored.caller) {
        return true;
    }
    let journal = store.pinned.lock_journal();
    unstored.keys.iter().any(|key| journal.delays_head(key))
}

fn remove_step(key: RecordKey) -> CommitStep {
    CommitStep::Remove {
        key,
        version: FIRST_VERSION,
    }
}

fn pinned_result_key(scope: RecallScope, call: CallKey) -> RecordKey {
    // The format is included, since a result fits no other one.
    let name = digest_of([scope.format.label().as_bytes(), call.as_bytes()]);
    RecordKey::new(RecordKind::PinnedResult, scope.caller.principal(), name)
}
