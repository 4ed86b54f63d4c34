//! Reads of more records than one [`Ledger::read`] returns.

use super::{Ledger, LedgerError, Moment, ROWS_MAX, Record, RecordKey};

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
