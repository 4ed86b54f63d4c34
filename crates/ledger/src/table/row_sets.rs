//! Sets of rows: what a principal has of one kind, in memory as a whole in front of a ledger.
//!
//! A request that asks which rows there are, and not only for one by its name, needs all of them. These rules hold:
//!
//! * A set is read once, and again after another process has changed records of its principal.
//! * What this process has changed since a read began is newer than what the read finds.
//! * A read that a timeout has ended goes on with the next request. After a failed one, only patient requests read for
//!   5 seconds: the others must not wait for a failed ledger one after the other.
//! * Nothing is read for a principal that has no rows, or that no provider has accepted.
//!
//! Sets write nothing: whoever changes a row of one also has the change stored.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{
    TableParts, VerifiedCallers,
    row_set::{RowSet, SetChange, SetRead, SetRow, decode_row},
};
use crate::{
    clock,
    digest_cache::{DigestCache, EntryChange, Lifetime},
    ledger::{Ledger, LedgerChanges, ROWS_MAX, RecordKey, RecordKind, RecordName, RecordOwners, Unread, read_by},
    principal::Principal,
};

/// The time after a failed read of a set in which only patient requests read it.
const READ_COOLDOWN: Duration = Duration::from_secs(5);
/// Principals in a cooldown. A forgotten one waits once more.
const COOLDOWNS_MAX: u64 = 10_000;

/// The most that all sets of a kind have in memory. A set that leaves is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMemory {
    /// This number of sets.
    Sets(u64),
    /// This number of bytes: those of [`StoredRow::byte_len`](super::StoredRow::byte_len), and 192 for each set and row.
    Bytes(u64),
}

/// The rows of a principal that a read of its set gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetDepth {
    /// All, in pages of [`ROWS_MAX`].
    All,
    /// The latest [`ROWS_MAX`]. Older ones are read by their names.
    Latest,
}

/// The policy of the sets of a kind.
#[derive(Clone, Debug)]
pub struct SetPolicy {
    /// The kind of the records.
    pub kind: RecordKind,
    /// The most in memory.
    pub memory: SetMemory,
    /// The rows that a read gets.
    pub depth: SetDepth,
    /// The principals with rows.
    pub owners: RecordOwners,
}

/// The effort of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEffort {
    /// Reads what is not known. After a failed read the next ones fail at once, for 5 seconds.
    Usual,
    /// Reads what is not known, also during that cooldown.
    Patient,
    /// Reads as with patience, and the set of a shared ledger also if it is known: another process may have changed it
    /// before this one was told.
    Fresh,
}

/// The sets of one kind. The handle is cheap to clone.
#[derive(Clone)]
pub struct RowSets<V> {
    ledger: Arc<dyn Ledger>,
    changes: LedgerChanges,
    callers: VerifiedCallers,
    policy: SetPolicy,
    sets: DigestCache<Principal, SharedSet<V>>,
    /// The end of each principal's cooldown after a failed read. Not in its set, which may leave memory earlier.
    cooldowns: DigestCache<Principal, Instant>,
}

type SharedSet<V> = Arc<Mutex<RowSet<V>>>;

impl<V> fmt::Debug for RowSets<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rows may belong to conversations.
        write!(f, "RowSets({}, {:?})", self.policy.kind.label(), self.sets)
    }
}

impl<V: SetRow> RowSets<V> {
    /// Creates the sets over a ledger, of which none is read. Rows are read for the principals that `callers` has verified.
    pub fn new(parts: &TableParts, callers: &VerifiedCallers, policy: SetPolicy) -> Self {
        let sets = match policy.memory {
            SetMemory::Sets(max) => DigestCache::new(max, Lifetime::Unlimited),
            SetMemory::Bytes(max) => {
                DigestCache::with_byte_limit(max, Lifetime::Unlimited, |set: &SharedSet<V>| lock_set(set).bytes)
            }
        };
        Self {
            ledger: Arc::clone(parts.ledger()),
            changes: parts.ledger().changes(),
            callers: callers.clone(),
            policy,
            sets,
            cooldowns: DigestCache::new(COOLDOWNS_MAX, Lifetime::SinceWrite(READ_COOLDOWN)),
        }
    }

    /// Returns `true` if the principal may have rows. Does not wait.
    pub fn may_have(&self, principal: Principal) -> bool {
        // A set that another process may have changed since it was read says nothing.
        let stamp = self.changes.stamp(principal);
        let known = stamp.and_then(|stamp| {
            let set = self.sets.get(&principal)?;
            let set = lock_unexpired(&set);
            set.was_read_at(stamp).then(|| set.may_have_rows())
        });
        known.unwrap_or_else(|| self.policy.owners.may_have(self.policy.kind, principal))
    }

    /// Returns `true` if the principal is known to have had rows. Does not wait.
    pub fn has_known(&self, principal: Principal) -> bool {
        self.policy.owners.has_known(self.policy.kind, principal)
    }

    /// Notes that the principal is about to have a row.
    pub fn note_principal(&self, principal: Principal) {
        self.policy.owners.note(self.policy.kind, principal);
    }

    /// Returns the answer of `look` about the principal's rows in memory. `None` if none are there.
    pub fn look<R>(&self, principal: Principal, look: impl FnOnce(&RowSet<V>) -> R) -> Option<R> {
        let set = self.sets.get(&principal)?;
        Some(look(&lock_unexpired(&set)))
    }

    /// Returns the number of rows in memory that count, of all principals.
    pub fn counted_total(&self) -> usize {
        self.sets.values().map(|set| lock_set(&set).counted()).sum()
    }

    /// Changes a row in memory. The caller has the change stored, before it or behind it.
    ///
    /// Without a set of the principal nothing changes: a read finds the change once it is stored.
    pub fn change(&self, principal: Principal, name: RecordName, change: impl FnOnce(Option<&V>) -> SetChange<V>) {
        if let Some(set) = self.sets.get(&principal) {
            self.update_set(principal, &set, |set| set.change_row(name, change));
        }
    }

    /// Reads the set of a principal into memory, unless it is known or there are no rows.
    ///
    /// # Errors
    ///
    /// [`Unread`] if the ledger fails or does not answer before the deadline. What memory has stays. The caller counts the missed read.
    pub async fn load(&self, principal: Principal, effort: ReadEffort, deadline: Instant) -> Result<(), Unread> {
        self.load_set(principal, effort, deadline).await.map(drop)
    }

    /// Reads and returns the set of a principal. `None` for one that is not verified.
    async fn load_set(
        &self,
        principal: Principal,
        effort: ReadEffort,
        deadline: Instant,
    ) -> Result<Option<SharedSet<V>>, Unread> {
        let (owners, kind) = (&self.policy.owners, self.policy.kind);
        let is_fresh = effort == ReadEffort::Fresh && !self.ledger.is_exclusive();
        // Only verified callers have rows: anyone can send an invented credential.
        match self.callers.verify(principal, deadline).await {
            Ok(true) => {}
            Err(Unread) if owners.may_have(kind, principal) => return Err(Unread),
            Ok(false) | Err(Unread) => return Ok(None),
        }
        // The stamp first, so that a change during the read is not taken for one that was read. The read before the
        // question, so that a row that is stored meanwhile is not lost.
        let stamp = self.changes.stamp(principal);
        let set = self.sets.get_or_insert_with(&principal, Arc::default);
        let begun = lock_unexpired(&set).begin_read(stamp, is_fresh);
        let Some(mut read) = begun else {
            return Ok(Some(set));
        };
        if !is_fresh && !owners.may_have(kind, principal) {
            self.update_set(principal, &set, |set| set.end_read(read));
            return Ok(Some(set));
        }
        let done = self.try_read(principal, effort, async {
            let rows = self.read_rows(principal, &mut read);
            timeout_at(deadline, rows).await.unwrap_or(Err(Unread))
        });
        let done = done.await;
        self.update_set(principal, &set, |set| match done {
            Ok(()) => set.end_read(read),
            Err(Unread) => set.keep_unfinished(read),
        });
        done.map(|()| Some(set))
    }

    /// Returns the principal's rows with these names: from memory, and those that it lacks from the ledger.
    ///
    /// # Errors
    ///
    /// [`Unread`] as for [`load`](Self::load).
    pub async fn find(
        &self,
        principal: Principal,
        names: &[RecordName],
        effort: ReadEffort,
        deadline: Instant,
    ) -> Result<HashMap<RecordName, V>, Unread> {
        // Not looked up again: a set that is too large for memory has left it already.
        let Some(set) = self.load_set(principal, effort, deadline).await? else {
            return Ok(HashMap::new());
        };
        let (mut found, missing) = lock_unexpired(&set).find(names);
        if missing.is_empty() {
            return Ok(found);
        }
        let keys = missing
            .iter()
            .map(|name| RecordKey::new(self.policy.kind, principal, *name));
        let read = read_by(&*self.ledger, keys.collect(), deadline);
        let records = self.try_read(principal, effort, read).await?;
        let read: Vec<(RecordName, V)> = records.iter().flatten().filter_map(decode_row).collect();
        found.extend(read.iter().cloned());
        self.update_set(principal, &set, |set| {
            for (name, row) in read {
                set.insert_read(name, row);
            }
        });
        Ok(found)
    }

    /// Reads the rows that a read lacks. What was read before a failure stays.
    async fn read_rows(&self, principal: Principal, read: &mut SetRead<V>) -> Result<(), Unread> {
        let (kind, hash) = (self.policy.kind, *principal.as_bytes());
        if self.policy.depth == SetDepth::Latest {
            let list = self.ledger.list_records(kind, hash, ROWS_MAX, clock::unix_time());
            let records = list.await.map_err(|_| Unread)?;
            read.is_complete = records.len() < ROWS_MAX;
            read.add(&records);
            return Ok(());
        }
        loop {
            let list = self
                .ledger
                .list_after(kind, hash, read.after, ROWS_MAX, clock::unix_time());
            let page = list.await.map_err(|_| Unread)?;
            read.after = page.last().map_or(read.after, |(place, _)| *place);
            read.add(page.iter().map(|(_, record)| record));
            if page.len() < ROWS_MAX {
                return Ok(());
            }
        }
    }

    /// Reads, unless a read has failed a moment ago. A failure begins the cooldown, and a success ends it.
    async fn try_read<T>(
        &self,
        principal: Principal,
        effort: ReadEffort,
        read: impl Future<Output = Result<T, Unread>>,
    ) -> Result<T, Unread> {
        let is_cooling = || self.cooldowns.get(&principal).is_some_and(|end| clock::now() < end);
        if effort == ReadEffort::Usual && is_cooling() {
            return Err(Unread);
        }
        let done = read.await;
        match &done {
            Ok(_) => drop(self.cooldowns.remove(&principal)),
            Err(Unread) => self.begin_cooldown(principal),
        }
        done
    }

    fn begin_cooldown(&self, principal: Principal) {
        self.cooldowns.insert(&principal, clock::now() + READ_COOLDOWN);
    }

    /// Updates a set of the principal.
    fn update_set(&self, principal: Principal, set: &SharedSet<V>, update: impl FnOnce(&mut RowSet<V>)) {
        update(&mut lock_set(set));
        self.sets.change(&principal, |known| match known {
            // Put again, so that its bytes are counted again.
            Some(known) if Arc::ptr_eq(&known, set) => EntryChange::Put(known),
            // A set that has left memory has missed changes since, and does not come back.
            _ => EntryChange::Keep,
        });
    }
}

/// Locks a set, and forgets the rows that have expired.
fn lock_unexpired<V: SetRow>(set: &Mutex<RowSet<V>>) -> MutexGuard<'_, RowSet<V>> {
    let mut set = lock_set(set);
    set.forget_expired(clock::unix_time());
    set
}

fn lock_set<V>(set: &Mutex<RowSet<V>>) -> MutexGuard<'_, RowSet<V>> {
    // A panic elsewhere leaves a set usable.
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        ledger::{CommitStep, LedgerSettings, MOMENT_MAX, MemoryLedger, Moment, Record},
        table::{
            StoredRow,
            row_set::tests::OddOrEven,
            tests::{NoCounter, STRANGER, WHO},
        },
        writer::writer,
    };

    const KIND: RecordKind = RecordKind::Delivery;

    struct Process<V = OddOrEven> {
        sets: RowSets<V>,
        callers: VerifiedCallers,
        ledger: Arc<dyn Ledger>,
    }

    impl<V: SetRow> Process<V> {
        fn new(depth: SetDepth, memory: SetMemory) -> Self {
            let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::new(LedgerSettings::default(), [9; 32]));
            let (writes, _) = writer(Arc::clone(&ledger), NoCounter);
            let parts = TableParts::new(&ledger, &writes, NoCounter);
            let callers = VerifiedCallers::new(&parts);
            callers.mark_verified(WHO);
            let policy = SetPolicy {
                kind: KIND,
                memory,
                depth,
                owners: RecordOwners::new(&[KIND], ledger.changes()),
            };
            Self {
                sets: RowSets::new(&parts, &callers, policy),
                callers,
                ledger,
            }
        }

        async fn store(&self, numbers: impl IntoIterator<Item = u16>) {
            let insert = |number: u16| {
                let key = RecordKey::new(KIND, WHO, name_of(number));
                CommitStep::insert_record(key, low_byte(number).to_vec().into(), MOMENT_MAX)
            };
            for number in numbers {
                let done = self.ledger.commit(vec![insert(number)], clock::unix_time()).await;
                drop(done.unwrap());
            }
        }

        async fn load(&self, effort: ReadEffort) -> Result<(), Unread> {
            let by = clock::now() + Duration::from_secs(1);
            self.sets.load(WHO, effort, by).await
        }
    }

    impl Process {
        /// Returns the rows in memory, and the number of those that count.
        fn known(&self) -> (Vec<u8>, usize) {
            let known = self.sets.look(WHO, |set| {
                let mut rows: Vec<u8> = set.rows().map(|(_, row)| row.0).collect();
                rows.sort_unstable();
                (rows, set.counted())
            });
            known.unwrap_or_default()
        }
    }

    fn name_of(number: u16) -> RecordName {
        let mut name = [7; 32];
        name[..2].copy_from_slice(&number.to_le_bytes());
        name
    }

    fn low_byte(number: u16) -> [u8; 1] {
        [number.to_le_bytes()[0]]
    }

    const ALL: (SetDepth, SetMemory) = (SetDepth::All, SetMemory::Sets(10));

    #[tokio::test(start_paused = true)]
    async fn all_pages_are_read_or_only_the_latest_rows() {
        let rows = u16::try_from(ROWS_MAX).unwrap() + 10;
        let all = Process::<OddOrEven>::new(ALL.0, ALL.1);
        all.store(0..rows).await;
        all.load(ReadEffort::Usual).await.unwrap();
        assert_eq!(all.known().0.len(), usize::from(rows));
        let latest = Process::<OddOrEven>::new(SetDepth::Latest, SetMemory::Bytes(1024 * 1024));
        latest.store(0..rows).await;
        let by = clock::now() + Duration::from_secs(1);
        let names = [name_of(0), name_of(rows - 1), name_of(rows)];
        let found = latest.sets.find(WHO, &names, ReadEffort::Usual, by).await.unwrap();
        assert_eq!(found.len(), 2);
        // The oldest one was read by its name.
        assert_eq!(latest.known().0.len(), ROWS_MAX + 1);
        // Its removal is known, although the set is not complete.
        latest.sets.change(WHO, name_of(0), |_| SetChange::Remove(MOMENT_MAX));
        let found = latest.sets.find(WHO, &names, ReadEffort::Usual, by).await.unwrap();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [name_of(rows - 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_not_verified_reads_nothing() {
        let process = Process::<OddOrEven>::new(ALL.0, ALL.1);
        let key = RecordKey::new(KIND, STRANGER, name_of(1));
        let insert = CommitStep::insert_record(key, vec![1].into(), MOMENT_MAX);
        drop(process.ledger.commit(vec![insert], clock::unix_time()).await.unwrap());
        let by = clock::now() + Duration::from_secs(1);
        process.sets.load(STRANGER, ReadEffort::Fresh, by).await.unwrap();
        assert_eq!(process.sets.look(STRANGER, RowSet::counted), None);
        process.callers.mark_verified(STRANGER);
        process.sets.load(STRANGER, ReadEffort::Usual, by).await.unwrap();
        assert_eq!(process.sets.look(STRANGER, RowSet::counted), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_that_is_too_large_for_memory_is_found_all_the_same() {
        let process = Process::<OddOrEven>::new(SetDepth::Latest, SetMemory::Bytes(300));
        process.store(0..10).await;
        process.sets.note_principal(WHO);
        let by = clock::now() + Duration::from_secs(1);
        for _ in 0..3 {
            let found = process.sets.find(WHO, &[name_of(3)], ReadEffort::Usual, by).await;
            assert_eq!(found.unwrap().len(), 1);
            process.sets.sets.evict();
        }
        assert_eq!(process.sets.counted_total(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_read_only_patient_requests_read() {
        let more = u16::try_from(ROWS_MAX).unwrap() + 10;
        let small = SetMemory::Bytes(300);
        for (depth, memory, rows, is_known) in [
            (ALL.0, ALL.1, 1, true),
            // The oldest row is read by its name.
            (SetDepth::Latest, ALL.1, more, false),
            // The set leaves memory at once.
            (SetDepth::Latest, small, 10, false),
        ] {
            let process = Process::<OddOrEven>::new(depth, memory);
            process.store(0..rows).await;
            process.sets.note_principal(WHO);
            let find = async |name, effort| {
                process.sets.sets.evict();
                let by = clock::now() + Duration::from_secs(1);
                process.sets.find(WHO, &[name_of(name)], effort, by).await
            };
            process.sets.begin_cooldown(WHO);
            assert!(find(rows - 1, ReadEffort::Usual).await.is_err(), "nothing is known");
            find(rows - 1, ReadEffort::Patient).await.unwrap();
            process.sets.begin_cooldown(WHO);
            assert_eq!(
                find(0, ReadEffort::Usual).await.is_ok(),
                is_known,
                "{depth:?} {memory:?}"
            );
            assert_eq!(find(0, ReadEffort::Patient).await.unwrap().len(), 1);
            // A success ends the cooldown.
            assert!(
                is_known || find(0, ReadEffort::Usual).await.is_ok(),
                "{depth:?} {memory:?}"
            );
        }
    }

    /// A row whose time has passed, although the ledger still has its record.
    #[derive(Clone, Copy, Debug)]
    struct ExpiredRow;

    impl StoredRow for ExpiredRow {
        fn encode(&self) -> Option<Bytes> {
            Some(Bytes::new())
        }

        fn decode(_: &Record) -> Option<Self> {
            Some(Self)
        }
    }

    impl SetRow for ExpiredRow {
        fn until(&self) -> Moment {
            Moment::ZERO
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_row_is_found_no_more() {
        let process = Process::<ExpiredRow>::new(ALL.0, ALL.1);
        process.store([0]).await;
        process.sets.note_principal(WHO);
        process.load(ReadEffort::Usual).await.unwrap();
        let set = process.sets.sets.get(&WHO).unwrap();
        assert_eq!(lock_set(&set).rows().count(), 1, "it was read");
        let by = clock::now() + Duration::from_secs(1);
        let found = process.sets.find(WHO, &[name_of(0)], ReadEffort::Usual, by).await;
        assert!(found.unwrap().is_empty());
        assert!(!process.sets.may_have(WHO), "its only row has expired");
    }
}
