//! Changes of records that other writers change at the same time: each is judged anew after a conflict.

use std::array;

use super::{CommitOutcome, CommitStep, Ledger, LedgerError, Moment, Record, RecordKey};
use crate::clock;

/// The most tries of a change.
pub const TRIES_MAX: usize = 32;

/// Other writers changed the records before each of the tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other writers change the records")]
pub struct Contended;

impl From<Contended> for LedgerError {
    fn from(contended: Contended) -> Self {
        Self::Store(contended.into())
    }
}

/// Repeats `attempt` until it returns a value. `attempt` returns `None` if another writer was first: the next try finds what
/// that one has stored. A caller that judges by a time of its own uses the same one in each try.
pub async fn retry_conflicts<T, E: From<Contended>, F: Future<Output = Result<Option<T>, E>>>(
    attempt: impl Fn() -> F,
) -> Result<T, E> {
    for _ in 0..TRIES_MAX {
        if let Some(value) = attempt().await? {
            return Ok(value);
        }
    }
    Err(Contended.into())
}

/// Reads records, commits the steps that `change` returns, and returns its value.
///
/// Every try reads the records and the clock anew. Without steps nothing is committed.
pub async fn update_records<const N: usize, T, E: From<LedgerError> + From<Contended>>(
    ledger: &dyn Ledger,
    keys: [RecordKey; N],
    change: impl Fn([Option<Record>; N], Moment) -> (Vec<CommitStep>, T),
) -> Result<T, E> {
    // An `async` closure would not do: its future is not known to be `Send`.
    retry_conflicts(|| async {
        let now = clock::unix_time();
        let mut records = ledger.read(keys.to_vec(), now).await?.into_iter();
        let (steps, value) = change(array::from_fn(|_| records.next().flatten()), now);
        let is_done = steps.is_empty() || ledger.commit(steps, now).await? == CommitOutcome::Done;
        Ok(is_done.then_some(value))
    })
    .await
}
