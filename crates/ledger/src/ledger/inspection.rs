//! The inspection of a whole store for operators: its rows, and which of them are damaged.

use std::{fmt, ops::ControlFlow};

use super::{LedgerError, Moment, Record, RecordKey, RecordKind};

/// A store under inspection, which changes nothing. Other processes may use the store at the same time.
pub trait StoreInspector {
    /// Calls `show` with every row after the place `after`, in the order of inserts, until it breaks. `None` begins with
    /// the first row.
    ///
    /// Reads each value and compares the row with its checksum. A row that differs comes without its record.
    fn for_each_row<E: From<LedgerError>>(
        &self,
        after: Option<i64>,
        show: impl FnMut(InspectedRow, Option<Record>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E>;

    /// Returns the record of a key. `None` if there is none, or if it is damaged.
    fn find_record(&self, key: &RecordKey) -> Result<Option<Record>, LedgerError>;

    /// Returns the totals of each kind in the whole store. Reads no value and compares no checksum.
    fn kind_totals(&self) -> Result<Vec<KindTotal>, LedgerError>;

    /// Returns what is wrong with the store besides its rows.
    fn find_flaws(&self) -> Result<Vec<String>, LedgerError>;

    /// Returns the secret key of the ledger.
    fn secret(&self) -> [u8; 32];
}

/// The rows of one kind in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindTotal {
    /// The kind, or `None` if the number of the kind is damaged.
    pub kind: Option<RecordKind>,
    /// The number of rows.
    pub records: u64,
    /// The length of their values in bytes.
    pub bytes: u64,
}

/// A row without its content. Any field may be wrong in a damaged row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectedRow {
    /// The place in the order of inserts.
    pub place: i64,
    /// `true` if the row matches its checksum.
    pub is_sound: bool,
    /// The kind, or `None` if the number of the kind is damaged.
    pub kind: Option<RecordKind>,
    /// The first bytes of the principal.
    pub principal: HashPrefix,
    /// The first bytes of the name.
    pub name: HashPrefix,
    /// The length of the value in bytes.
    pub bytes: u64,
    /// The time of the insert.
    pub made_at: Moment,
    /// The time from which the record no longer exists.
    pub expires_at: Moment,
}

/// The first four bytes of a hash, enough to tell one from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HashPrefix([u8; 4]);

impl HashPrefix {
    /// Takes the first four bytes. Fewer bytes give zeros.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Display for HashPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
