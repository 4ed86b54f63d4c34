//! Reads of more records than one [`Ledger::read`] returns.

use tokio::time::{Instant, timeout_at};

use super::{Ledger, LedgerError, Moment, ROWS_MAX, Record, RecordKey, Unread};
use crate::clock;

/// Returns the records of all these keys, in their order.
///
/// More than [`ROWS_MAX`] keys take several reads, so that the records may belong to different states of the ledger.
pub async fn read_all(
    ledger: &dyn Ledger,
    keys: Vec<RecordKey>,
    now: Moment,
) -> Result<Vec<Option<Record>>, LedgerError> {
    if keys.len() <= ROWS_MAX {
        return ledger.read(keys, now).await;
    }
    let mut records = Vec::with_capacity(keys.len());
    for portion in keys.chunks(ROWS_MAX) {
        records.append(&mut ledger.read(portion.to_vec(), now).await?);
    }
    Ok(records)
}

/// Returns the records of all these keys, in their order, if the ledger returns them before the deadline.
pub async fn read_by(
    ledger: &dyn Ledger,
    keys: Vec<RecordKey>,
    deadline: Instant,
) -> Result<Vec<Option<Record>>, Unread> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let read = timeout_at(deadline, read_all(ledger, keys, clock::unix_time())).await;
    read.map_err(|_| Unread)?.map_err(|_| Unread)
}
