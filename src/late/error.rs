//! Errors of late results.

use crate::ledger::LedgerError;

/// The error of an operation on late results.
#[derive(Debug, thiserror::Error)]
pub enum LateError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Other writers changed the record before each of the retries.
    #[error("too many concurrent changes of one ledger record: retry later")]
    Busy,
}
