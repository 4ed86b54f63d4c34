//! The health of a ledger: its present fault.

use std::{fmt, time::Duration};

use tokio::time::timeout;

use super::Ledger;

/// A reason why a ledger does not store what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerFault {
    /// The last write failed.
    WriteFailed,
    /// The last write found no room within the ledger's own limit.
    Full,
    /// The store could not be checked after it was opened. Until then nothing is read or written.
    Unchecked,
    /// The store is damaged beyond its indexes. Nothing is read or written.
    Damaged,
    /// The file was deleted, moved or replaced while it is open.
    FileGone,
    /// The store is closed, or its thread has ended.
    Closed,
    /// The store did not answer in time.
    Silent,
    /// The database cannot be reached, or refuses to answer.
    Unreachable,
    /// The clock of the database and that of this machine differ by more than 2 seconds.
    ClockSkew,
    /// The database contains no ledger any more, or another than the one that was opened: it was restored, or filled by a copy.
    OtherLedger,
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WriteFailed => "its last write failed: check the disk",
            Self::Full => "it is full: raise ledger.bytes_max",
            Self::Unchecked => "its first check failed: check the disk",
            Self::Damaged => {
                "its file is damaged: restore a copy of it and of its -wal, or move both away, and restart Antiphon"
            }
            Self::FileGone => "its file was deleted or replaced: restart Antiphon; records written until then are lost",
            Self::Closed => "it is closed",
            Self::Silent => "it does not answer in time: check the disk, or the database",
            Self::Unreachable => "its database cannot be reached: check the database and the network",
            Self::ClockSkew => {
                "the clocks of its database and of this machine differ by more than 2 s: synchronize them"
            }
            Self::OtherLedger => "its database is no longer the ledger that was opened: restart Antiphon",
        })
    }
}

/// Returns the fault of a ledger. `None` if it works.
pub async fn check_health(ledger: &dyn Ledger, limit: Duration) -> Option<LedgerFault> {
    match timeout(limit, ledger.find_fault()).await {
        Ok(Ok(fault)) => fault,
        Ok(Err(_)) => Some(LedgerFault::Closed),
        Err(_) => Some(LedgerFault::Silent),
    }
}
