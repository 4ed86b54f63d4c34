//! Errors of late results.

use crate::{
    ledger::{Contended, LedgerError},
    upstream::RandomError,
};

/// The error of an operation on late results.
#[derive(Debug, thiserror::Error)]
pub enum LateError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No secret of a claim could be made.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// Other writers changed the record before each of the retries.
    #[error("too many concurrent changes of one ledger record: retry later")]
    Busy,
    /// The clock of this machine has made a step, so that it cannot judge the leases of other replicas.
    #[error("the clock of this machine has made a step: no claim is granted until it agrees with that of the database")]
    ClockStep,
}

impl From<Contended> for LateError {
    fn from(_: Contended) -> Self {
        Self::Busy
    }
}
