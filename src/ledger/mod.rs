//! The ledger: what is kept of calls, results, deliveries and frozen answers longer than a conversation lives.
//!
//! A ledger stores records and knows nothing of their meaning, which is in the rooms above. Every record belongs to one
//! principal, and its principal is a part of its key: whoever cannot name it cannot reach the record. The one way
//! around that is [`Ledger::find`], for services that answer calls of several principals.

mod clearing;
mod later;
mod measured;
mod memory;
mod portions;
mod sqlite;
mod steps;
mod tally;

use std::{fmt, future::Future, path::PathBuf, pin::Pin, time::Duration};

use bytes::Bytes;

use crate::session::PrincipalHash;

pub use clearing::clearing;
pub use later::{Later, Writer, later, later_counting};
pub use measured::Measured;
pub use memory::MemoryLedger;
pub use portions::read_all;
pub use sqlite::{Entry, Short, SqliteLedger, Survey};

/// Bytes of a value: a longer one is refused as [`LedgerError::TooLarge`].
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that a record counts beside its value.
pub const RECORD_BYTES: u64 = 256;
/// Records that one read, list or find hands out at most.
pub const ROWS_MAX: usize = 1024;

/// What a ledger's method gives: boxed, so that a ledger can be chosen when the process starts.
pub type Reply<'l, T> = Pin<Box<dyn Future<Output = Result<T, LedgerError>> + Send + 'l>>;

/// A moment, since 1970. Time is a parameter: no ledger asks for it. It may go back: what had expired and was not cleared
/// away is then there again.
pub type Moment = Duration;

/// The last moment, in 2262: a later one counts as this.
pub const MOMENT_MAX: Moment = Duration::from_nanos(i64::MAX.unsigned_abs());

/// The name of a record within its kind and principal: a hash, or an id of its own.
pub type Name = [u8; 32];

/// By what services find a record without its principal: a hash of a call id's letters and digits.
pub type Index = [u8; 16];

/// What a record is. The numbers stand in files: they are never given to another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A principal that a provider has answered with success.
    Principal = 1,
    /// A tool call, with its result once it has one.
    Call = 2,
    /// An answer that a call was given and keeps: the journal.
    Frozen = 3,
    /// Text that was put at the end of a message and stays there.
    Anchor = 4,
    /// A result on its way to its owner.
    Delivery = 5,
    /// A result that came before its call was known.
    Parked = 6,
    /// A result that was refused.
    Evidence = 7,
    /// A result that a caller brought in a request.
    Seen = 8,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Principal,
        Self::Call,
        Self::Frozen,
        Self::Anchor,
        Self::Delivery,
        Self::Parked,
        Self::Evidence,
        Self::Seen,
    ];

    /// The name for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Call => "call",
            Self::Frozen => "frozen",
            Self::Anchor => "anchor",
            Self::Delivery => "delivery",
            Self::Parked => "parked",
            Self::Evidence => "evidence",
            Self::Seen => "seen",
        }
    }
}

/// What a record is found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub principal: PrincipalHash,
    /// Its name within both.
    pub name: Name,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.kind.label())
    }
}

/// A record as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is found by.
    pub key: Key,
    /// By what services find it.
    pub index: Option<Index>,
    /// What it says.
    pub value: Bytes,
    /// 1 when it was put in, and one more each time that it was replaced.
    pub version: u64,
    /// When it was put in. Lists are in this order.
    pub made_at: Moment,
    /// From when on it is gone.
    pub expires_at: Moment,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
pub enum Step {
    /// Puts a record in, where none of its key is. A record that has expired is none.
    Insert {
        /// What it is found by.
        key: Key,
        /// By what services find it.
        index: Option<Index>,
        /// What it says.
        value: Bytes,
        /// From when on it is gone.
        expires_at: Moment,
    },
    /// Gives a record another value, if it is still of this version.
    Replace {
        /// What it is found by.
        key: Key,
        /// The version that was read.
        version: u64,
        /// What it says from now on.
        value: Bytes,
        /// From when on it is gone.
        expires_at: Moment,
    },
    /// Takes a record away, if it is still of this version.
    Remove {
        /// What it is found by.
        key: Key,
        /// The version that was read.
        version: u64,
    },
}

impl Step {
    /// What the record is found by.
    pub const fn key(&self) -> &Key {
        match self {
            Self::Insert { key, .. } | Self::Replace { key, .. } | Self::Remove { key, .. } => key,
        }
    }
}

/// What became of the steps of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of them were done, and are kept.
    Done,
    /// None of them was done. For each step in order: the record that stands where the step wanted another, or none
    /// where the step could have been done or nothing stands there. Each step sees what those before it would have done:
    /// one that collides with its own batch is shown a record that is not kept.
    Conflict(Vec<Option<Record>>),
}

/// Bounds of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Bytes of all records, each with [`RECORD_BYTES`] more than its value.
    pub bytes_max: u64,
    /// Bytes of one principal's records.
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

/// How much a ledger holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records that have not expired, and those that have but were not cleared away.
    pub records: u64,
    /// Bytes that they count.
    pub bytes: u64,
}

/// Why a ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A bound would be passed by records that grow. None of the steps was done; what has expired was cleared away first.
    /// A conflict goes before it.
    #[error("the ledger is full ({})", if *.of_principal { "for this caller" } else { "in total" })]
    Full {
        /// Whether the bound is the principal's own.
        of_principal: bool,
    },
    /// A value is longer than [`VALUE_BYTES_MAX`], or a batch reads or writes more than [`ROWS_MAX`] records.
    #[error("too much for one record or one batch of the ledger")]
    TooLarge,
    /// The store failed. Whether a commit was done is not known: it may be asked for again. The cause is told along, so it
    /// holds nothing of what records say; it is no source, or those who tell whole chains would tell it twice.
    #[error("the ledger's store failed: {0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// The store is closed, or its thread has ended.
    #[error("the ledger is closed")]
    Closed,
}

impl LedgerError {
    /// The stable name.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::TooLarge => "too_large",
            Self::Store(_) => "store",
            Self::Closed => "closed",
        }
    }
}

/// Why a store was not opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{path} is in use by another process: stop it, or set ledger.path to another file")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is no ledger of ours.
    #[error("{path} is no ledger of Antiphon ({why}): set ledger.path to another file, or move this one away")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What tells.
        why: String,
    },
    /// A later version wrote it.
    #[error("{path} has schema version {found}, and this version of Antiphon knows {known}: use a later one")]
    Version {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: i64,
        /// The latest that is known.
        known: i64,
    },
    /// Folder or file cannot be made, read or written.
    #[error("{path} cannot be opened: {why}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

/// A store of records. Methods may be called from any task, and several at a time.
///
/// A ledger that is slow or fails delays nobody beyond his own patience: callers bound the wait, and drop the reply. A
/// dropped reply may still be carried out; one that was never polled need not be.
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Does all of the steps or none, in order, as seen at `now`: later steps see what earlier ones did.
    ///
    /// When this says [`Outcome::Done`], what was written survives the death of the process (where the ledger survives
    /// it at all), and every later read of any caller sees it. Wrongly said, a result is lost that a service was told is safe.
    fn commit(&self, steps: Vec<Step>, now: Moment) -> Reply<'_, Outcome>;

    /// The records of these keys, in their order; none where there is none, it has expired at `now`, or it does not match
    /// its checksum: a damaged record is never handed out, and counts as not there for every other method too.
    fn read(&self, keys: Vec<Key>, now: Moment) -> Reply<'_, Vec<Option<Record>>>;

    /// The latest `limit` records of one kind of one principal, in the order in which they were put in.
    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Reply<'_, Vec<Record>>;

    /// The latest `limit` records of one kind under this index, whosever they are, in the order in which they were put in.
    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Reply<'_, Vec<Record>>;

    /// Clears away what has expired at `now`, and says how many records that was. It costs what is cleared away, and
    /// leaves what is damaged for people to see. A ledger in which nothing is ever damaged need not have this of its own.
    fn expire(&self, now: Moment) -> Reply<'_, u64> {
        self.clear(now)
    }

    /// Clears away what has expired at `now` and what is damaged, and says how many records that was. It may look at every
    /// record.
    fn clear(&self, now: Moment) -> Reply<'_, u64>;

    /// How much it holds, commits that were answered included.
    fn usage(&self) -> Reply<'_, Usage>;

    /// The secret key of this ledger: 32 bytes, random when it was made, the same for as long as it lives. Names of
    /// callers are hashed under it, so that they mean the same after a restart.
    fn secret(&self) -> [u8; 32];

    /// Whether what it keeps is still there after the process was started anew.
    fn survives_restart(&self) -> bool;
}
