//! Tables: what is remembered between requests, in memory in front of a ledger.
//!
//! A table holds the rows of one kind of record: their cache, their reads and their background writes. A new kind says how
//! its rows are encoded, and which policy they follow. These rules hold for a [`Table`]:
//!
//! * Memory changes at once. The write waits in the queue of background writes, and no request waits for it.
//! * What this process has stored is newer than what a read finds, unless the row says otherwise.
//! * A row that memory does not know for certain is read, all of a request in one read. Nothing is read for a principal that
//!   has no rows, or that no provider has accepted.
//! * A row that another process may have changed is read again once the ledger tells of a change.
//!
//! Requests wait for the rows of a [`DecidedTable`], which decides a row once and for all. [`RowSets`] have all rows of a
//! principal in memory, for what is asked as a whole. [`Records`] have no memory.

mod daily_writes;
mod decided_table;
mod records;
mod row;
mod row_set;
mod row_sets;
mod table_records;
mod unstored_rows;
mod verified_callers;

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout_at};

pub use daily_writes::DailyWrites;
pub use decided_table::{DecidedRow, DecidedTable};
pub use records::{RecordValue, Records, Stored};
use row::{Entry, Seen, renewal_steps};
pub use row::{RowChange, RowWrite, StoredRow};
pub use row_set::{RowSet, SetChange, SetRow};
pub use row_sets::{ReadEffort, RowSets, SetDepth, SetMemory, SetPolicy};
use table_records::TableRecords;
pub use unstored_rows::UnstoredRows;
pub use verified_callers::VerifiedCallers;

use antiphon_core::digest::digest_of;

use crate::{
    clock,
    digest_cache::{DigestCache, EntryChange, Lifetime},
    ledger::{
        CommitStep, Ledger, LedgerError, ROWS_MAX, Record, RecordKey, RecordKind, RecordName, RecordOwners,
        RecordState, TimedCommit, Unread, read_by,
    },
    principal::Principal,
    writer::{Added, LedgerCounter, Writer},
};

/// The ledger, its writer and the counter that all tables of a process share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TableParts {
    ledger: Arc<dyn Ledger>,
    writer: Writer,
    counter: Arc<dyn LedgerCounter>,
}

impl TableParts {
    /// Returns the parts: the store, its writer, and the counter of reads that failed or came too late.
    pub fn new(ledger: &Arc<dyn Ledger>, writer: &Writer, counter: impl LedgerCounter + 'static) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            writer: writer.clone(),
            counter: Arc::new(counter),
        }
    }

    /// Returns the store.
    pub const fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.ledger
    }

    /// Returns the background writer.
    pub const fn writer(&self) -> &Writer {
        &self.writer
    }
}

/// The most that a table has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// This number of rows.
    Rows(u64),
    /// This number of bytes: those of [`StoredRow::byte_len`], and 192 for each entry.
    Bytes(u64),
}

impl MemoryLimit {
    /// Makes an empty cache within the limit.
    fn cache<V: Clone + Send + Sync + 'static>(
        self,
        lifetime: Lifetime,
        weigh: impl Fn(&V) -> usize + Send + Sync + 'static,
    ) -> DigestCache<RecordKey, V> {
        match self {
            Self::Rows(max) => DigestCache::new(max, lifetime),
            Self::Bytes(max) => DigestCache::with_byte_limit(max, lifetime, weigh),
        }
    }
}

/// The principals that have rows.
#[derive(Clone, Debug)]
pub enum KnownPrincipals {
    /// There is no set of them: every principal may have rows.
    Any,
    /// A principal that is not in the set has no rows. The ledger announces the changes of other processes to this kind, so
    /// that what was read holds until the next one.
    Announced(RecordOwners),
    /// A principal that is not in the set has no rows, as long as no other process uses the ledger: it might have stored the
    /// first row a moment ago.
    Unannounced(RecordOwners),
}

/// The time by which the rows of a table are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// Behind the request that stores a row: nothing waits for it.
    Behind,
    /// Before the client sees the head of an answer to the row. Of several rows under one name, memory decides which is
    /// first.
    BeforeHead,
    /// Before the send of the first request with the row, since the ledger decides which is first. What the success of that
    /// request changes in the row is stored before the head of its answer.
    BeforeSend,
}

impl WritePolicy {
    /// Returns the policy of rows of which the first one stays: a ledger that other processes share decides itself.
    pub fn first_stays(ledger: &dyn Ledger) -> Self {
        if ledger.is_exclusive() {
            Self::BeforeHead
        } else {
            Self::BeforeSend
        }
    }
}

/// The policy of a table.
#[derive(Clone, Debug)]
pub struct TablePolicy {
    /// The kind of the records.
    pub kind: RecordKind,
    /// The time by which rows are stored: [`WritePolicy::Behind`] for a [`Table`], another one for a [`DecidedTable`].
    pub writes: WritePolicy,
    /// The most in memory.
    pub memory: MemoryLimit,
    /// The lifetime of a row in memory.
    pub lifetime: Lifetime,
    /// The lifetime of a record in the ledger.
    pub record_ttl: Duration,
    /// The principals with rows.
    pub principals: KnownPrincipals,
    /// `true` if memory also has that a row does not exist, where no other process can write it unnoticed. For a [`Table`] only.
    pub caches_absence: bool,
    /// `true` if rows are stored only in a ledger that outlives the process.
    pub needs_lasting_ledger: bool,
    /// `true` if a row of memory is written again once a read finds that its record is gone. For a [`Table`] only.
    pub restores_lost: bool,
    /// The count of a principal's writes in a day, which is limited. `None` if something else bounds them.
    pub daily: Option<DailyWrites>,
}

/// The change of a principal's stored rows.
#[derive(Clone, Debug)]
pub struct RowsChange<V> {
    /// The places of the rows that go.
    pub removed: Vec<usize>,
    /// Rows that are stored as the latest ones.
    pub appended: Vec<V>,
}

/// A table of rows. The handle is cheap to clone.
pub struct Table<V>(Arc<TableState<V>>);

struct TableState<V> {
    records: TableRecords,
    rows: DigestCache<RecordKey, Entry<V>>,
}

impl<V> fmt::Debug for TableState<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rows may belong to conversations.
        write!(f, "Table({}, {:?})", self.records.policy.kind.label(), self.rows)
    }
}

impl<V> fmt::Debug for Table<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<V> Clone for Table<V> {
    /// Returns another handle of the same table.
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V: StoredRow> Table<V> {
    /// Creates an empty table over a ledger. Rows are stored for and read by the principals that `callers` has verified.
    pub fn new(parts: &TableParts, callers: &VerifiedCallers, policy: TablePolicy) -> Self {
        debug_assert_eq!(
            policy.writes,
            WritePolicy::Behind,
            "no request waits for rows of a table"
        );
        Self::for_callers(parts, Some(callers.clone()), policy)
    }

    fn for_callers(parts: &TableParts, callers: Option<VerifiedCallers>, policy: TablePolicy) -> Self {
        let rows = policy.memory.cache(policy.lifetime, Entry::byte_len);
        let records = TableRecords::new(parts, callers, policy);
        Self(Arc::new(TableState { records, rows }))
    }

    /// Returns a row that is in memory. That renews its lifetime there.
    pub fn get(&self, principal: Principal, name: RecordName) -> Option<V> {
        self.0.rows.get(&self.0.records.key(principal, name))?.row
    }

    /// Returns `true` if any process has records of this kind, or if that is unknown. Does not wait.
    pub fn may_have_any(&self) -> bool {
        match &self.0.records.policy.principals {
            KnownPrincipals::Any => true,
            KnownPrincipals::Announced(owners) | KnownPrincipals::Unannounced(owners) => {
                owners.may_have_any(self.0.records.policy.kind)
            }
        }
    }

    /// Returns what is known of a principal's rows in the ledger without a read.
    pub fn state_of(&self, principal: Principal) -> RecordState {
        self.0.records.state_of(principal)
    }

    /// Returns `true` if the principal may have rows in the ledger. Does not wait.
    pub fn may_have(&self, principal: Principal) -> bool {
        self.0.records.state_of(principal) != RecordState::Absent
    }

    /// Returns `true` if the principal is known to have had rows. Does not wait.
    pub fn has_known(&self, principal: Principal) -> bool {
        match &self.0.records.policy.principals {
            KnownPrincipals::Any => false,
            KnownPrincipals::Announced(owners) | KnownPrincipals::Unannounced(owners) => {
                owners.has_known(self.0.records.policy.kind, principal)
            }
        }
    }

    /// Changes rows in memory at once, and queues their writes. Does not wait.
    ///
    /// A change gets the row in memory, and decides what becomes of it. Changes of one row exclude each other.
    pub fn change<C>(&self, principal: Principal, changes: impl IntoIterator<Item = (RecordName, C)>)
    where
        C: FnOnce(Option<&V>) -> RowChange<V>,
    {
        let mut added = Added::default();
        for (name, change) in changes {
            let key = self.0.records.key(principal, name);
            self.0.rows.change(&key, |known| {
                let known = known.unwrap_or_default();
                let (row, how) = match change(known.row.as_ref()) {
                    RowChange::Keep => return EntryChange::Keep,
                    RowChange::Remember(row) => (row, None),
                    RowChange::Store(row, how) => (row, Some(how)),
                };
                let is_writer = how.is_some() && self.0.records.is_writer(principal);
                // In a ledger that outlives no process nobody has such rows.
                if is_writer || (how.is_some() && !self.0.records.policy.needs_lasting_ledger) {
                    // Before the write, which is about to come.
                    self.0.records.note_principal(principal);
                }
                let how = how.filter(|_| is_writer && self.0.records.counts_write(principal));
                let version = known.version.saturating_add(u64::from(how.is_some()));
                if let Some(how) = how {
                    // While no other change of the row begins: they are queued in the order in which they are made.
                    let steps = self.0.steps(key, &row, how, known.version);
                    added.join(self.0.records.parts.writer.add_writes(steps));
                }
                // What the ledger has is as well known as before.
                EntryChange::Put(Entry {
                    row: Some(row),
                    version,
                    seen: known.seen,
                })
            });
        }
        self.0.records.parts.writer.note_added(added);
    }

    /// Returns `true` if memory knows a row, or that there is none, as well as the ledger does. Does not wait.
    pub fn is_certain(&self, principal: Principal, name: RecordName) -> bool {
        let state = self.0.records.state_of(principal);
        let entry = self.0.rows.get(&self.0.records.key(principal, name));
        state == RecordState::Absent
            || (self.0.records.policy.needs_lasting_ledger && !self.0.records.parts.ledger.survives_restart())
            || entry.is_some_and(|entry| self.0.is_final(&entry, state))
    }

    /// Stores rows that are named by their content, so that a record never changes. Does not wait, and memory keeps none.
    ///
    /// A row that is stored again becomes the latest one.
    pub fn append(&self, principal: Principal, rows: impl IntoIterator<Item = V>) {
        if !self.0.records.is_writer(principal) {
            return;
        }
        self.0.records.note_principal(principal);
        let write = |row: V| {
            let value = row.encode().filter(|_| self.0.records.counts_write(principal))?;
            let key = self.0.records.key(principal, digest_of([&value[..]]));
            Some(renewal_steps(key, value, self.0.records.expires_at(&row)))
        };
        let steps = rows.into_iter().filter_map(write).flatten();
        self.0.records.parts.writer.queue_writes(steps.collect());
    }

    /// Reads the latest rows of a principal from the ledger, at most `limit`, in the order of their inserts.
    ///
    /// # Errors
    ///
    /// [`Unread`] if the ledger fails or does not answer before the deadline.
    pub async fn list_latest(&self, principal: Principal, limit: usize, deadline: Instant) -> Result<Vec<V>, Unread> {
        let list = async {
            let (kind, now) = (self.0.records.policy.kind, clock::unix_time());
            let ledger = &self.0.records.parts.ledger;
            let list = ledger.list_records(kind, *principal.as_bytes(), limit, now);
            timeout_at(deadline, list)
                .await
                .map_err(|_| Unread)?
                .map_err(|_| Unread)
        };
        let records = self.0.records.ask(principal, list, deadline).await?.unwrap_or_default();
        Ok(records.iter().filter_map(V::decode).collect())
    }

    /// Changes the latest rows of every principal in the ledger, at most `limit` of each. `change` gets those of one principal in
    /// the order of their inserts.
    ///
    /// Only for rows that are named by their content, of which memory keeps none.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the ledger fails. What was changed before stays so.
    pub async fn change_everyones(
        &self,
        limit: usize,
        mut change: impl FnMut(&[V]) -> RowsChange<V> + Send,
    ) -> Result<(), LedgerError> {
        let (ledger, kind) = (&self.0.records.parts.ledger, self.0.records.policy.kind);
        let mut after = None;
        loop {
            let principals = ledger.list_principals(kind, after, ROWS_MAX).await?;
            let Some(last) = principals.last() else { return Ok(()) };
            after = Some(*last);
            for principal in principals {
                let records = ledger.list_records(kind, principal, limit, clock::unix_time()).await?;
                let read = |record: Record| V::decode(&record).map(|row| (record, row));
                let (records, rows): (Vec<Record>, Vec<V>) = records.into_iter().filter_map(read).unzip();
                let steps = self.change_steps(Principal::from_bytes(principal), &records, change(&rows));
                self.commit_steps(steps).await?;
            }
        }
    }

    /// Returns the steps of a change of rows, which are in these records.
    fn change_steps(&self, principal: Principal, records: &[Record], change: RowsChange<V>) -> Vec<CommitStep> {
        let removed = change.removed.into_iter().filter_map(|at| records.get(at));
        let mut steps: Vec<CommitStep> = removed.map(Record::remove_step).collect();
        for row in change.appended {
            if let Some(value) = row.encode() {
                let key = self.0.records.key(principal, digest_of([&value[..]]));
                steps.extend(renewal_steps(key, value, self.0.records.expires_at(&row)));
            }
        }
        steps
    }

    /// Carries out steps, each by itself: another process may have made some of them meanwhile.
    async fn commit_steps(&self, steps: Vec<CommitStep>) -> Result<(), LedgerError> {
        let now = clock::unix_time();
        for some in steps.chunks(ROWS_MAX) {
            let commits = some.iter().map(|step| TimedCommit {
                steps: vec![step.clone()],
                now,
            });
            for result in self.0.records.parts.ledger.commit_each(commits.collect()).await? {
                result?;
            }
        }
        Ok(())
    }

    /// Returns rows in the order of their names: from memory, and those that it does not know for certain from the ledger.
    ///
    /// # Errors
    ///
    /// [`Unread`] if the ledger fails or does not answer before the deadline. What memory has stays.
    pub async fn load(
        &self,
        principal: Principal,
        names: &[RecordName],
        deadline: Instant,
    ) -> Result<Vec<Option<V>>, Unread> {
        // Before memory is looked at and before the read: a change meanwhile needs another read.
        let state = self.0.records.state_of(principal);
        let entries = names
            .iter()
            .map(|name| self.0.rows.get(&self.0.records.key(principal, *name)));
        let entries: Vec<Option<Entry<V>>> = entries.collect();
        let is_open = |entry: &Option<Entry<V>>| entry.as_ref().is_none_or(|entry| !self.0.is_final(entry, state));
        let open = names.iter().zip(&entries).filter(|(_, entry)| is_open(entry));
        let open: Vec<RecordKey> = open.map(|(name, _)| self.0.records.key(principal, *name)).collect();
        let memory = |entries: Vec<Option<Entry<V>>>| entries.into_iter().map(|entry| entry?.row).collect();
        if open.is_empty() || state == RecordState::Absent {
            return Ok(memory(entries));
        }
        let read = read_by(&*self.0.records.parts.ledger, open.clone(), deadline);
        let Some(records) = self.0.records.ask(principal, read, deadline).await? else {
            return Ok(memory(entries));
        };
        if records.iter().any(Option::is_some) {
            // The ledger may not tell who has rows.
            self.0.records.note_principal(principal);
        }
        let adopted = open.into_iter().zip(&records);
        let mut adopted = adopted.map(|(key, record)| self.0.adopt(key, record.as_ref(), state));
        let rows = entries.into_iter().map(|entry| match entry {
            Some(entry) if self.0.is_final(&entry, state) => entry.row,
            _ => adopted.next().flatten(),
        });
        Ok(rows.collect())
    }

    /// Reads which principals have rows, and follows the changes of other processes, for as long as the ledger is in use.
    pub async fn follow_principals(self) {
        let (KnownPrincipals::Announced(owners) | KnownPrincipals::Unannounced(owners)) =
            self.0.records.policy.principals.clone()
        else {
            return;
        };
        let ledger = Arc::downgrade(&self.0.records.parts.ledger);
        // The handle is dropped first: this task must not keep the table alive.
        drop(self);
        owners.follow(ledger).await;
    }
}

impl<V: StoredRow> TableState<V> {
    /// Returns the steps that write a row. `version` is the one that memory knows, 0 if there is none.
    fn steps(&self, key: RecordKey, row: &V, how: RowWrite, version: u64) -> Vec<CommitStep> {
        let value = row.encode();
        value.map_or_else(Vec::new, |value| {
            how.steps(key, version, value, self.records.expires_at(row))
        })
    }

    /// Returns `true` if a read could tell nothing that memory does not know.
    fn is_final(&self, entry: &Entry<V>, state: RecordState) -> bool {
        let is_exclusive = self.records.parts.ledger.is_exclusive();
        if entry.row.as_ref().is_some_and(|row| row.is_settled(is_exclusive)) {
            return true;
        }
        match entry.seen {
            Seen::Never => false,
            Seen::At(stamp) => state == RecordState::Present(stamp),
            Seen::Once => is_exclusive,
        }
    }

    /// Takes over what a read has found, and returns the row. `state` is that of the principal's records before the read.
    fn adopt(&self, key: RecordKey, record: Option<&Record>, state: RecordState) -> Option<V> {
        let seen = match state {
            RecordState::Present(stamp) if matches!(self.records.policy.principals, KnownPrincipals::Announced(_)) => {
                Seen::At(stamp)
            }
            _ => Seen::Once,
        };
        // What is not found may be written by another process at any time, unless that is announced.
        let is_noticed = matches!(seen, Seen::At(_)) || self.records.parts.ledger.is_exclusive();
        let caches_absence = self.records.policy.caches_absence && is_noticed;
        let owner = Principal::from_bytes(key.principal);
        let (mut added, mut adopted) = (Added::default(), None);
        self.rows.change(&key, |known| {
            // A record that this version cannot read is never replaced: its version counts as unknown.
            let read = record.and_then(|record| Some((V::decode(record)?, record.version)));
            if known.is_none() && read.is_none() && !caches_absence {
                return EntryChange::Keep;
            }
            let known = known.unwrap_or_default();
            // The version stays with the row: only a record that memory has in this form may be replaced.
            let (row, version) = match (known.row, read) {
                (Some(own), Some((read, _))) => (Some(own.merged(read)), known.version),
                (Some(own), None) => {
                    if self.records.policy.restores_lost
                        && record.is_none()
                        && self.records.is_writer(owner)
                        && self.records.counts_write(owner)
                    {
                        let steps = self.steps(key, &own, RowWrite::Insert, 0);
                        added = self.records.parts.writer.add_writes(steps);
                    }
                    (Some(own), known.version)
                }
                (None, Some((read, version))) => (Some(read), version),
                (None, None) => (None, 0),
            };
            adopted.clone_from(&row);
            EntryChange::Put(Entry { row, version, seen })
        });
        self.records.parts.writer.note_added(added);
        adopted
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        ledger::{LedgerSettings, MemoryLedger},
        writer::writer,
    };

    #[derive(Debug)]
    pub(super) struct NoCounter;

    impl LedgerCounter for NoCounter {
        fn count_lost_write(&self, _kind: RecordKind) {}

        fn count_missed_read(&self) {}

        fn count_late_write(&self) {}
    }

    /// A row of one byte. Other processes change what is below 100.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Byte(u8);

    impl StoredRow for Byte {
        fn encode(&self) -> Option<Bytes> {
            Some(Bytes::copy_from_slice(&[self.0]))
        }

        fn decode(record: &Record) -> Option<Self> {
            record.value.first().copied().map(Self)
        }

        fn is_settled(&self, _is_exclusive: bool) -> bool {
            self.0 >= 100
        }
    }

    pub(super) const WHO: Principal = Principal::from_bytes([7; 32]);
    pub(super) const STRANGER: Principal = Principal::from_bytes([8; 32]);
    const NAME: RecordName = [1; 32];

    /// A process: its table, the callers that it has verified, and its queue of writes.
    struct Process {
        table: Table<Byte>,
        callers: VerifiedCallers,
        writes: Writer,
    }

    impl Process {
        fn over(ledger: &Arc<dyn Ledger>) -> Self {
            let (writes, worker) = writer(Arc::clone(ledger), NoCounter);
            #[expect(clippy::disallowed_methods, reason = "no server drains in a test")]
            drop(tokio::spawn(worker.run()));
            let parts = TableParts::new(ledger, &writes, NoCounter);
            let callers = VerifiedCallers::new(&parts);
            callers.mark_verified(WHO);
            let policy = TablePolicy {
                kind: RecordKind::Thinking,
                writes: WritePolicy::Behind,
                memory: MemoryLimit::Rows(100),
                lifetime: Lifetime::Unlimited,
                record_ttl: Duration::from_secs(60),
                principals: KnownPrincipals::Any,
                caches_absence: true,
                needs_lasting_ledger: false,
                restores_lost: true,
                daily: None,
            };
            Self {
                table: Table::new(&parts, &callers, policy),
                callers,
                writes,
            }
        }

        fn store(&self, who: Principal, row: u8, how: RowWrite) {
            let change = |_: Option<&Byte>| RowChange::Store(Byte(row), how);
            self.table.change(who, [(NAME, change)]);
        }

        async fn load(&self, who: Principal) -> Option<u8> {
            let by = clock::now() + Duration::from_secs(1);
            let rows = self.table.load(who, &[NAME], by).await.unwrap();
            rows[0].map(|row| row.0)
        }
    }

    fn ledger() -> Arc<dyn Ledger> {
        Arc::new(MemoryLedger::new(LedgerSettings::default(), [9; 32]))
    }

    /// Returns the byte and the version in the ledger.
    async fn stored(ledger: &Arc<dyn Ledger>, who: Principal) -> Option<(u8, u64)> {
        let key = RecordKey::new(RecordKind::Thinking, who, NAME);
        let records = ledger.read(vec![key], clock::unix_time()).await.unwrap();
        records[0].as_ref().map(|record| (record.value[0], record.version))
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_is_written_as_its_change_says() {
        for (how, of_other, of_own) in [
            (RowWrite::Insert, (1, 1), (1, 1)),
            // Memory of the second process knows no version.
            (RowWrite::ReplaceKnown, (1, 1), (3, 2)),
            (RowWrite::ReplaceFirst, (2, 2), (2, 2)),
        ] {
            let ledger = ledger();
            let (one, other) = (Process::over(&ledger), Process::over(&ledger));
            one.store(WHO, 1, RowWrite::Insert);
            one.writes.flush().await;
            other.store(WHO, 2, how);
            assert_eq!(other.table.get(WHO, NAME), Some(Byte(2)), "memory changes at once");
            other.writes.flush().await;
            assert_eq!(stored(&ledger, WHO).await, Some(of_other), "{how:?}");
            one.store(WHO, 3, how);
            one.writes.flush().await;
            assert_eq!(stored(&ledger, WHO).await, Some(of_own), "{how:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_a_row_are_stored_in_the_order_in_which_they_were_made() {
        let ledger = ledger();
        let process = Process::over(&ledger);
        let store = |row| {
            (NAME, move |_: Option<&Byte>| {
                RowChange::Store(Byte(row), RowWrite::ReplaceKnown)
            })
        };
        process.store(WHO, 1, RowWrite::ReplaceKnown);
        // Another request changes the row between the change of this one and its end.
        let mut first = Some(store(2));
        let changes = std::iter::from_fn(|| {
            let next = first.take();
            if next.is_none() {
                process.store(WHO, 3, RowWrite::ReplaceKnown);
            }
            next
        });
        process.table.change(WHO, changes);
        process.writes.flush().await;
        assert_eq!(process.table.get(WHO, NAME), Some(Byte(3)));
        assert_eq!(stored(&ledger, WHO).await, Some((3, 3)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_verified_callers_have_records() {
        let ledger = ledger();
        let process = Process::over(&ledger);
        process.store(STRANGER, 1, RowWrite::Insert);
        process.writes.flush().await;
        assert_eq!(process.table.get(STRANGER, NAME), Some(Byte(1)));
        assert_eq!(stored(&ledger, STRANGER).await, None);
        assert!(!process.callers.is_verified(STRANGER).await);
        // The row is that of memory: the ledger was not asked for it.
        assert_eq!(process.load(STRANGER).await, Some(1));
        assert_eq!(Process::over(&ledger).load(STRANGER).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_this_process_knows_is_newer_than_what_it_reads() {
        let ledger = ledger();
        let (one, other) = (Process::over(&ledger), Process::over(&ledger));
        one.store(WHO, 1, RowWrite::Insert);
        one.writes.flush().await;
        other.store(WHO, 2, RowWrite::Insert);
        assert_eq!(other.load(WHO).await, Some(2));
        assert_eq!(Process::over(&ledger).load(WHO).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_record_is_written_again() {
        let ledger = ledger();
        let process = Process::over(&ledger);
        process.store(WHO, 1, RowWrite::Insert);
        process.writes.flush().await;
        let remove = CommitStep::Remove {
            key: RecordKey::new(RecordKind::Thinking, WHO, NAME),
            version: 1,
        };
        drop(ledger.commit(vec![remove], clock::unix_time()).await.unwrap());
        assert_eq!(process.load(WHO).await, Some(1));
        process.writes.flush().await;
        assert_eq!(stored(&ledger, WHO).await, Some((1, 1)));
    }

    /// On an exclusive ledger nobody else can write what was not found.
    #[tokio::test(start_paused = true)]
    async fn a_miss_is_kept_until_this_process_stores_the_row() {
        let ledger = ledger();
        let process = Process::over(&ledger);
        assert_eq!(process.load(WHO).await, None);
        assert!(process.table.is_certain(WHO, NAME));
        Process::over(&ledger).store(WHO, 1, RowWrite::Insert);
        assert_eq!(process.load(WHO).await, None, "not read again");
        process.store(WHO, 2, RowWrite::Insert);
        assert_eq!(process.load(WHO).await, Some(2));
    }
}
