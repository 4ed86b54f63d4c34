//! Tables whose rows are decided before they are stored: the first request that needs a row decides it for all later ones.
//!
//! A decision is made in memory, stored while the request is on its way, and awaited before the client sees the head of an
//! answer to it. In a ledger of this process alone it is final. In a shared one the ledger decides, so that it is awaited
//! before the send. A decision that no provider accepts is rolled back, and one that was accepted stays.

#[cfg(test)]
pub(super) mod choice;
mod decided_write;
mod decisions;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    StoredRow, TableParts, TablePolicy, UnstoredRows, VerifiedCallers, WritePolicy, row::ENTRY_BYTES,
    table_records::TableRecords, unstored_rows::AwaitedRows,
};
use crate::{
    digest_cache::{DigestCache, Lifetime},
    ledger::{CommitStep, FIRST_VERSION, RecordKey, RecordName, RecordState, Unread, read_by},
    principal::Principal,
};
use decided_write::DecidedWrite;
use decisions::{Decisions, RowState, SettledRow};

/// Rows of other processes that a waiting request has yet to take.
const OVERRULED_MAX: u64 = 10_000;
/// The time for which it may take one: longer than any wait for the ledger.
const OVERRULED_TTL: Duration = Duration::from_secs(60);

/// A row that one request decides for all later ones. Its [`StoredRow::encode`] always returns a value.
pub trait DecidedRow: StoredRow {
    /// Returns `true` if a provider has accepted a request with the row.
    fn is_accepted(&self) -> bool;

    /// Returns `true` if requests with both rows are the same, whether they are accepted or not.
    fn has_same_content(&self, other: &Self) -> bool;
}

/// A row in memory that may be evicted.
#[derive(Clone, Debug)]
struct CachedRow<V> {
    row: V,
    /// `true` if the row is in the ledger, or queued for it.
    is_stored: bool,
}

/// A table of decided rows. The handle is cheap to clone.
pub struct DecidedTable<V>(Arc<DecidedState<V>>);

struct DecidedState<V> {
    records: TableRecords,
    /// Rows that the ledger has too, and those of principals that are never stored.
    rows: DigestCache<RecordKey, CachedRow<V>>,
    decisions: Mutex<Decisions<V>>,
    /// Rows of other processes that were first, and that no provider has accepted yet.
    overruled: DigestCache<RecordKey, V>,
}

impl<V> fmt::Debug for DecidedTable<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rows may belong to conversations.
        write!(
            f,
            "DecidedTable({}, {:?})",
            self.0.records.policy.kind.label(),
            self.0.rows
        )
    }
}

impl<V: DecidedRow> DecidedTable<V> {
    /// Creates an empty table over a ledger. Rows are stored for and read by the principals that `callers` has verified.
    pub fn new(parts: &TableParts, callers: &VerifiedCallers, policy: TablePolicy) -> Self {
        debug_assert_ne!(policy.writes, WritePolicy::Behind, "requests wait for decided rows");
        let rows = policy.memory.cache(policy.lifetime, |known: &CachedRow<V>| {
            known.row.byte_len().saturating_add(ENTRY_BYTES)
        });
        Self(Arc::new(DecidedState {
            records: TableRecords::new(parts, Some(callers.clone()), policy),
            rows,
            decisions: Mutex::default(),
            overruled: DigestCache::new(OVERRULED_MAX, Lifetime::SinceWrite(OVERRULED_TTL)),
        }))
    }

    /// Returns the present row from memory.
    pub fn get(&self, principal: Principal, name: RecordName) -> Option<V> {
        self.0.find_row(&self.0.records.key(principal, name))
    }

    /// Returns `true` if the principal may have rows in the ledger. Does not wait.
    pub fn may_have(&self, principal: Principal) -> bool {
        self.0.records.state_of(principal) != RecordState::Absent
    }

    /// Reads rows from the ledger, in the order of their names. An earlier decision of this process stays.
    ///
    /// # Errors
    ///
    /// [`Unread`] if the ledger fails or does not answer before the deadline.
    pub async fn read_rows(
        &self,
        principal: Principal,
        names: &[RecordName],
        deadline: Instant,
    ) -> Result<Vec<Option<V>>, Unread> {
        let records = &self.0.records;
        let keys: Vec<RecordKey> = names.iter().map(|name| records.key(principal, *name)).collect();
        let mut found = None;
        if !keys.is_empty() && self.may_have(principal) {
            let read = read_by(&*records.parts.ledger, keys.clone(), deadline);
            found = records.ask(principal, read, deadline).await?;
        }
        let found = found.unwrap_or_else(|| vec![None; keys.len()]);
        let rows = keys.into_iter().zip(found);
        let rows = rows.map(|(key, record)| self.0.adopt_row(key, V::decode(&record?)?));
        Ok(rows.collect())
    }

    /// Decides on rows before their request is sent. An earlier decision stands. Waits only for a ledger that decides itself.
    ///
    /// Returns the row that stands under each name, in their order. `None`, or one with the same content, is the given one.
    /// The request must use any other one.
    pub async fn decide(&self, principal: Principal, given: Vec<(RecordName, V)>, deadline: Instant) -> Vec<Option<V>> {
        let is_verified = !given.is_empty() && self.0.note_writer(principal);
        let (mut keys, mut standing) = (Vec::with_capacity(given.len()), Vec::with_capacity(given.len()));
        for (name, row) in given {
            let key = self.0.records.key(principal, name);
            standing.push(self.0.decide_row(key, row, is_verified));
            keys.push(key);
        }
        self.queue_writes();
        if !is_verified || !self.0.ledger_decides() {
            return standing;
        }
        // Another process may have been first: the ledger decides, also about what another request of this one has decided.
        self.unstored_rows(principal, &keys).await_stored(deadline).await;
        for (key, row) in keys.iter().zip(&mut standing) {
            let decided = self.0.find_row(key).or_else(|| self.0.overruled.get(key));
            *row = decided.or_else(|| row.take());
        }
        standing
    }

    /// Notes that a provider has accepted a request with these rows. They are those of their names from now on.
    ///
    /// Returns those that the ledger does not have yet. The client must see nothing of the provider's answer before.
    #[must_use]
    pub fn accept(&self, principal: Principal, used: Vec<(RecordName, V)>) -> UnstoredRows {
        let is_verified = !used.is_empty() && self.0.note_writer(principal);
        let (mut keys, mut queued) = (Vec::new(), Vec::new());
        for (name, row) in used {
            let key = self.0.records.key(principal, name);
            self.0.accept_row(key, row, is_verified, &mut queued);
            keys.push(key);
        }
        self.0.records.parts.writer.queue_writes(queued);
        self.queue_writes();
        if is_verified {
            self.unstored_rows(principal, &keys)
        } else {
            UnstoredRows::default()
        }
    }

    /// Rolls back rows that this request has decided, and that no provider has accepted. Each is recognized by a predicate.
    ///
    /// A row that another request has accepted meanwhile stays.
    pub fn roll_back<F>(&self, principal: Principal, given: impl IntoIterator<Item = (RecordName, F)>)
    where
        F: Fn(&V) -> bool,
    {
        let mut queued = Vec::new();
        for (name, is_it) in given {
            self.0
                .roll_back_row(self.0.records.key(principal, name), is_it, &mut queued);
        }
        self.0.records.parts.writer.queue_writes(queued);
        self.queue_writes();
    }

    /// Returns rows for which a request is to wait, and the record of their principal, without which no process reads them.
    fn unstored_rows(&self, principal: Principal, keys: &[RecordKey]) -> UnstoredRows {
        let table: Arc<dyn AwaitedRows> = Arc::<DecidedState<V>>::clone(&self.0);
        let callers = self.0.records.callers.iter();
        let caller = callers.map(|callers| callers.unstored_record(principal));
        caller
            .chain(keys.iter().map(|key| (Arc::clone(&table), *key)))
            .collect()
    }

    /// Queues what the journal wants to be written. Not under its lock, which the loss of a write takes too.
    fn queue_writes(&self) {
        let unqueued = self.0.lock_decisions().take_unqueued();
        let writes = unqueued.into_iter().map(|key| DecidedWrite::new(&self.0, key));
        self.0.records.parts.writer.queue_all(writes);
    }
}

impl<V: DecidedRow> DecidedState<V> {
    fn lock_decisions(&self) -> MutexGuard<'_, Decisions<V>> {
        // Each change leaves a valid journal, so a panic elsewhere need not spread.
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if the ledger decides which row is first, and not memory.
    fn ledger_decides(&self) -> bool {
        self.records.policy.writes == WritePolicy::BeforeSend
    }

    /// Returns the present row.
    fn find_row(&self, key: &RecordKey) -> Option<V> {
        // A row is in the cache before it leaves the journal.
        let decided = self.lock_decisions().find_row(key).cloned();
        decided.or_else(|| Some(self.rows.get(key)?.row))
    }

    /// Notes that a principal has rows from now on, which later processes look for if it is stored. Returns `false` if it must
    /// not write.
    fn note_writer(&self, principal: Principal) -> bool {
        let is_writer = self.records.is_writer(principal);
        if is_writer {
            self.records.note_principal(principal);
            if let Some(callers) = &self.records.callers {
                callers.store_unless_known(principal);
            }
        }
        is_writer
    }

    /// Caches a row of the ledger. Returns the present row: an earlier decision of this process stays.
    ///
    /// In a shared ledger the process that has decided on a row may roll it back until a provider accepts it, so that it is
    /// not cached before.
    fn adopt_row(&self, key: RecordKey, row: V) -> Option<V> {
        let decisions = self.lock_decisions();
        if let Some(decided) = decisions.find_row(&key) {
            return Some(decided.clone());
        }
        // The row is being removed: no provider has accepted it.
        if decisions.has_entry(&key) {
            return None;
        }
        if self.ledger_decides() && !row.is_accepted() {
            return Some(row);
        }
        let read = CachedRow { row, is_stored: true };
        Some(self.rows.get_or_insert_with(&key, || read).row)
    }

    /// Decides on a row, unless it is decided. Returns the earlier decision if it is another one.
    fn decide_row(&self, key: RecordKey, row: V, is_verified: bool) -> Option<V> {
        // Atomic under the lock: of two requests at once, one decides and the other receives its row.
        let mut decisions = self.lock_decisions();
        let cached = || Some(self.rows.get(&key)?.row);
        if let Some(known) = decisions.find_row(&key).cloned().or_else(cached) {
            if is_verified {
                // A request of its caller may have decided it before the caller was verified.
                decisions.release_row(&key);
            }
            return (!known.has_same_content(&row)).then_some(known);
        }
        // The decisions of an unverified caller are held until a provider accepts a request.
        if let Err(row) = decisions.decide_row(key, row, RowState::Absent, !is_verified) {
            self.rows.insert(&key, CachedRow { row, is_stored: false });
        }
        None
    }

    /// Accepts one row. Adds the steps to `queued` that the journal has no room for.
    fn accept_row(&self, key: RecordKey, row: V, is_verified: bool, queued: &mut Vec<CommitStep>) {
        let mut decisions = self.lock_decisions();
        // The first row that a provider accepted stays: its history is cached with these bytes.
        if decisions.find_row(&key).is_some_and(DecidedRow::is_accepted) {
            return;
        }
        let cached = self.rows.get(&key).filter(|_| !decisions.has_entry(&key));
        if cached.as_ref().is_some_and(|known| known.row.is_accepted()) {
            return;
        }
        if !is_verified {
            // Requests without a credential may be of anyone, so nothing of them is stored.
            decisions.forget_entry(&key);
            self.rows.insert(&key, CachedRow { row, is_stored: false });
            return;
        }
        if decisions.has_entry(&key) {
            let settled = decisions.accept_row(&key, row);
            self.keep_settled(settled);
            return;
        }
        let stored = match &cached {
            Some(known) if known.is_stored => RowState::read_earlier(known.row.has_same_content(&row)),
            _ => RowState::Absent,
        };
        if let Err(row) = decisions.decide_row(key, row, stored, false) {
            // Without room in the journal the row reaches the ledger later, after the removal of an unaccepted one.
            self.records.parts.counter.count_late_write();
            let expires_at = self.records.expires_at(&row);
            let insert = row
                .encode()
                .map(|value| CommitStep::insert_record(key, value, expires_at));
            queued.extend([remove_step(key)].into_iter().chain(insert));
            self.rows.insert(&key, CachedRow { row, is_stored: true });
        }
    }

    /// Rolls one row back. Adds the step to `queued` that the journal has no room for.
    fn roll_back_row(&self, key: RecordKey, is_it: impl Fn(&V) -> bool, queued: &mut Vec<CommitStep>) {
        let mut decisions = self.lock_decisions();
        if decisions.has_entry(&key) {
            decisions.roll_back(&key, is_it);
            return;
        }
        let Some(known) = self.rows.get(&key) else { return };
        // Another request has accepted or replaced the row since.
        if known.row.is_accepted() || !is_it(&known.row) {
            return;
        }
        self.rows.remove(&key);
        if known.is_stored && !decisions.remove_row(key) {
            queued.push(remove_step(key));
        }
    }

    /// Moves a row that the ledger has from the journal to the cache.
    fn keep_settled(&self, settled: Option<SettledRow<V>>) {
        if let Some((key, row)) = settled {
            self.rows.insert(&key, CachedRow { row, is_stored: true });
        }
    }
}

impl<V: DecidedRow> AwaitedRows for DecidedState<V> {
    fn parts(&self) -> &TableParts {
        &self.records.parts
    }

    fn unstored_generation(&self, key: &RecordKey) -> Option<u64> {
        self.lock_decisions().unstored_generation(key)
    }
}

fn remove_step(key: RecordKey) -> CommitStep {
    CommitStep::Remove {
        key,
        version: FIRST_VERSION,
    }
}
