//! The ledger: a store for calls, results, deliveries and pinned results. They must outlive a conversation.
//!
//! A ledger stores records and does not interpret them; the rooms above do. Every record belongs to one principal, and
//! the principal is part of its key. A caller that cannot name the principal cannot reach the record. The only
//! exception is [`Ledger::find_by_index`], for tool services that answer the calls of several principals.

mod batched_reads;
mod changes;
mod columns;
mod conflict_retries;
mod copying;
mod expiry;
mod health;
mod inspection;
mod memory;
mod postgres;
mod record_kind;
mod record_owners;
mod sqlite;
mod steps;
mod usage_counter;

use std::{
    fmt,
    future::{Future, ready},
    path::PathBuf,
    pin::Pin,
    time::Duration,
};

use bytes::Bytes;

use crate::{
    digest_cache::{DigestKey, KeyBytes},
    principal::{Principal, PrincipalHash},
};

pub use batched_reads::{read_all, read_by};
pub use changes::{ChangeEvent, ChangeStamp, LedgerChanges, RecordChange};
pub use conflict_retries::{Contended, TRIES_MAX, retry_conflicts, update_records};
pub use copying::{CopyError, CopyReport, CopyTarget, PlacedCopy, copy_records};
pub use expiry::remove_expired_hourly;
pub use health::{LedgerFault, check_health};
pub use inspection::{HashPrefix, InspectedRow, KindTotal, StoreInspector};
pub use memory::MemoryLedger;
pub use postgres::{
    DatabaseAddress, DatabaseCopyTarget, DatabaseInspector, DatabaseOpenError, DatabaseSettings, DatabaseTls,
    DatabaseUrlFlaw, PostgresLedger, PostgresWorker, SchemaReport, inspect_database, migrate_database,
};
pub use record_kind::RecordKind;
pub use record_owners::{RecordOwners, RecordState, RecordsStamp};
pub use sqlite::{FileCopyTarget, LedgerInspector, SqliteLedger};

/// The longest value of a record, in bytes. A longer one fails with [`LedgerError::TooLarge`].
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that each record counts in addition to its value.
pub const RECORD_BYTES: u64 = 256;
/// The most records that one read, list or find returns, and the most steps of one commit.
pub const ROWS_MAX: usize = 1024;

/// A record with its place in the order of inserts.
pub type PlacedRecord = (u64, Record);

/// The future that a ledger method returns. It is boxed so that the store can be chosen at startup.
pub type LedgerReply<'l, T> = Pin<Box<dyn Future<Output = Result<T, LedgerError>> + Send + 'l>>;

/// A point in time, as the duration since 1970.
///
/// Time is always a parameter: no ledger reads a clock. The time may go backwards. An expired record that was not removed
/// yet is then visible again.
pub type Moment = Duration;

/// The latest moment, in the year 2262. A later one is stored as this.
pub const MOMENT_MAX: Moment = Duration::from_nanos(i64::MAX.unsigned_abs());

/// The version of a record that was inserted and not replaced since.
pub const FIRST_VERSION: u64 = 1;

/// The name of a record within its kind and principal: a hash, or another unique id.
pub type RecordName = [u8; 32];

/// The index by which tool services find a record without its principal: a hash of a call id's letters and digits.
pub type Index = [u8; 16];

/// The key of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey {
    /// The kind of the record.
    pub kind: RecordKind,
    /// The owner of the record.
    pub principal: PrincipalHash,
    /// The name of the record within its kind and principal.
    pub name: RecordName,
}

impl DigestKey for RecordKey {
    fn key_bytes(&self) -> KeyBytes {
        KeyBytes::new([self.principal, self.name], self.kind as u8)
    }
}

impl RecordKey {
    /// Builds the key of a principal's record.
    pub const fn new(kind: RecordKind, principal: Principal, name: RecordName) -> Self {
        let principal = *principal.as_bytes();
        Self { kind, principal, name }
    }

    /// Returns the owner of the record.
    pub const fn owner(&self) -> Principal {
        Principal::from_bytes(self.principal)
    }

    /// Returns the key of another kind of record, of the same owner and name.
    #[must_use]
    pub const fn with_kind(self, kind: RecordKind) -> Self {
        Self { kind, ..self }
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A principal and a name identify a caller and a call, so a log shows neither.
        write!(f, "Key({})", self.kind.label())
    }
}

/// A stored record.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: RecordKey,
    /// The index for tool services. `None` if they cannot find the record.
    pub index: Option<Index>,
    /// The content, which the ledger does not interpret.
    pub value: Bytes,
    /// The number of times that the record was written: 1 after an insert, one more after each replace.
    pub version: u64,
    /// The time of the insert.
    pub made_at: Moment,
    /// The time from which the record no longer exists.
    pub expires_at: Moment,
}

impl Record {
    /// Builds the step that removes the record, unless another writer was first.
    pub const fn remove_step(&self) -> CommitStep {
        CommitStep::Remove {
            key: self.key,
            version: self.version,
        }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may contain a conversation: a log shows its length only.
        write!(
            f,
            "Record({}, {} bytes, version {})",
            self.key.kind.label(),
            self.value.len(),
            self.version
        )
    }
}

/// One step of a [`Ledger::commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// Inserts a record if its key is free. An expired record does not occupy its key.
    Insert {
        /// The key.
        key: RecordKey,
        /// The index for tool services.
        index: Option<Index>,
        /// The content.
        value: Bytes,
        /// The time from which the record no longer exists.
        expires_at: Moment,
    },
    /// Replaces the value of a record if its version is still `version`.
    Replace {
        /// The key.
        key: RecordKey,
        /// The version that was read.
        version: u64,
        /// The new content.
        value: Bytes,
        /// The time from which the record no longer exists.
        expires_at: Moment,
    },
    /// Removes a record if its version is still `version`.
    Remove {
        /// The key.
        key: RecordKey,
        /// The version that was read.
        version: u64,
    },
}

impl CommitStep {
    /// Inserts a record that tool services cannot find.
    pub const fn insert_record(key: RecordKey, value: Bytes, expires_at: Moment) -> Self {
        Self::Insert {
            key,
            index: None,
            value,
            expires_at,
        }
    }

    /// Replaces the record that was read under a key, or inserts one that tool services cannot find.
    pub fn put_record(key: RecordKey, stored: Option<&Record>, value: Bytes, expires_at: Moment) -> Self {
        match stored {
            Some(record) => Self::Replace {
                key,
                version: record.version,
                value,
                expires_at,
            },
            None => Self::insert_record(key, value, expires_at),
        }
    }

    /// Returns the key of the record that the step changes.
    pub const fn key(&self) -> &RecordKey {
        match self {
            Self::Insert { key, .. } | Self::Replace { key, .. } | Self::Remove { key, .. } => key,
        }
    }

    /// Returns the length of the value that the step writes.
    pub const fn value_bytes(&self) -> usize {
        match self {
            Self::Insert { value, .. } | Self::Replace { value, .. } => value.len(),
            Self::Remove { .. } => 0,
        }
    }
}

/// A commit, and the time as of which it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedCommit {
    /// The steps.
    pub steps: Vec<CommitStep>,
    /// The time.
    pub now: Moment,
}

/// The result of one commit.
pub type CommitResult = Result<CommitOutcome, LedgerError>;

/// The outcome of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// All steps were applied and are stored.
    Done,
    /// No step was applied, because at least one found another record than it expected.
    ///
    /// There is one entry for each step, in order: the record that prevents the step. An entry is `None` if the step
    /// was possible, or if no record exists under its key. Each step sees the effects of the steps before it. A step
    /// that collides with its own batch therefore returns a record that is not stored.
    Conflict(Vec<Option<Record>>),
}

/// Size limits of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Bytes of all records. Each counts [`RECORD_BYTES`] in addition to its value. The default is 1 GiB.
    pub bytes_max: u64,
    /// Bytes of the records of one principal. The default is 256 MiB.
    pub principal_bytes_max: u64,
}

impl Default for LedgerSettings {
    fn default() -> Self {
        Self {
            bytes_max: 1024 * 1024 * 1024,
            principal_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// The size of a ledger's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSize {
    /// Records, including those that have expired but were not removed yet.
    pub records: u64,
    /// Bytes of these records, with [`RECORD_BYTES`] for each.
    pub bytes: u64,
}

/// The error of a ledger operation.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Records that grow would exceed a size limit. No step was applied, although expired records were removed first.
    ///
    /// A commit that conflicts reports the conflict instead. In a shared ledger the limits may be exceeded by what the other
    /// replicas write at the same moment.
    #[error("the ledger is full ({})", if *.of_principal { "for this caller" } else { "in total" })]
    Full {
        /// `true` if the limit is the principal's own, `false` if it is that of the whole ledger.
        of_principal: bool,
    },
    /// A value exceeds [`VALUE_BYTES_MAX`], or a batch reads or writes more than [`ROWS_MAX`] records.
    #[error("too much for one record or one batch of the ledger")]
    TooLarge,
    /// The store failed. It is not known whether a commit was applied, so the caller may retry it.
    ///
    /// The message includes the cause, so the cause must not contain the content of records. It is not a
    /// `source()`: a report that prints the whole chain would repeat it.
    #[error("the ledger's store failed: {0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// The store is closed, or its thread has ended.
    #[error("the ledger is closed")]
    Closed,
}

impl LedgerError {
    /// Returns the stable name, which is a metric label.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::TooLarge => "too_large",
            Self::Store(_) => "store",
            Self::Closed => "closed",
        }
    }
}

/// The ledger failed, or did not answer before the deadline: its records are unknown. That is not the same as none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger failed or did not answer in time")]
pub struct Unread;

/// The error of opening a store. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerOpenError {
    /// Another process has the file open.
    #[error("{path} is in use by another process: stop it, or set ledger.path to another file")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is not an Antiphon ledger.
    #[error("{path} is not an Antiphon ledger ({why}): set ledger.path to another file, or move this one away")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The evidence for that.
        why: String,
    },
    /// A later version of Antiphon wrote the file.
    #[error("{path} has schema version {found}, but this version of Antiphon supports {known}: upgrade Antiphon")]
    Version {
        /// The file.
        path: PathBuf,
        /// The schema version of the file.
        found: i64,
        /// The latest schema version that this build supports.
        known: i64,
    },
    /// The folder or the file cannot be created, read or written.
    #[error(
        "{path} cannot be opened ({why}): free space on its disk, give this user access to its folder, or set \
         ledger.path to another file"
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system or of SQLite.
        why: String,
    },
    /// The file is damaged, or its write-ahead log is there without it.
    #[error(
        "{path} is damaged ({why}): restore a copy of it and of {path}-wal, or move both away to begin a new ledger"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The evidence for that.
        why: String,
    },
}

/// A store of records. Its methods may be called from any task, and concurrently.
///
/// Callers bound their wait with a timeout and drop the future. A dropped operation may still be carried out. One that
/// was never polled may be skipped.
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Applies all steps or none, in order, as of `now`. Later steps see the effects of earlier ones.
    ///
    /// After [`CommitOutcome::Done`] every later read sees the new records. In a ledger that survives a restart they also
    /// survive a crash of the process. A premature `Done` would lose a result that a tool service was told is safe.
    fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome>;

    /// Applies several commits in order, each on its own: one that conflicts or fails prevents no other. Returns their
    /// results, in order. They have [`ROWS_MAX`] steps at most in all.
    ///
    /// A store with a disk stores all of them with one wait for it. After an error it is not known which were applied.
    fn commit_each(&self, commits: Vec<TimedCommit>) -> LedgerReply<'_, Vec<CommitResult>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(commits.len());
            for TimedCommit { steps, now } in commits {
                results.push(self.commit(steps, now).await);
            }
            Ok(results)
        })
    }

    /// Returns the records of these keys, in their order.
    ///
    /// An entry is `None` if there is no record, if it has expired at `now`, or if its checksum does not match. A
    /// damaged record is never returned, and every other method treats it as missing.
    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>>;

    /// Returns the latest `limit` records of one kind of one principal, in the order of their inserts.
    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>>;

    /// Returns the first `limit` records of one kind of one principal after the place `after`, in the order of their
    /// inserts, each with its place. The first page begins after 0.
    ///
    /// A place is never used for two records, and stays valid after its record is removed.
    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>>;

    /// Returns the first `limit` principals after `after` that have records of this kind, each once and in the order of
    /// their hashes. `None` begins with the first. Records that have expired and were not removed yet count too.
    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>>;

    /// Returns the latest `limit` records of one kind under this index, in the order of their inserts.
    ///
    /// They may belong to several principals.
    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>>;

    /// Removes the records that have expired at `now`, and returns their number.
    ///
    /// The cost is proportional to the records that are removed. Damaged records stay, so that operators can inspect
    /// them; only a shared ledger removes those that have expired, too. The default implementation is enough for a ledger
    /// whose records cannot be damaged.
    fn remove_expired(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.remove_unusable(now)
    }

    /// Removes the expired and the damaged records, and returns their number. It may read every record.
    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64>;

    /// Returns the size of the content, including every commit that was answered. Waits for as long as it is unknown.
    fn usage(&self) -> LedgerReply<'_, LedgerSize>;

    /// Returns the present fault. `None` if the ledger works. The default is for a ledger that has no disk.
    fn find_fault(&self) -> LedgerReply<'_, Option<LedgerFault>> {
        Box::pin(ready(Ok(None)))
    }

    /// Returns the time, in nanoseconds, by which the clock of the store is ahead of this machine's, as of the last
    /// [`find_fault`](Self::find_fault). `None` if the store has no clock of its own.
    fn clock_skew(&self) -> Option<i64> {
        None
    }

    /// Returns the secret key of this ledger: 32 random bytes, made with the ledger and never changed.
    ///
    /// Names of callers are hashed under this key, so they stay the same after a restart.
    fn secret(&self) -> [u8; 32];

    /// Returns `true` if the records still exist after a restart of the process.
    fn survives_restart(&self) -> bool;

    /// Returns `true` if no other process writes to the store. A decision of this process is final then, even before it
    /// is stored. In a shared store a decision is made by its commit.
    fn is_exclusive(&self) -> bool;

    /// Returns the changes that other processes make. The default is for a ledger that no other process writes.
    fn changes(&self) -> LedgerChanges {
        LedgerChanges::none()
    }
}
