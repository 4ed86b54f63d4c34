//! Reads of more records than one read hands out.

use super::{Key, Ledger, LedgerError, Moment, ROWS_MAX, Record};

/// The records of all these keys, in their order: one read after the other, each of its own moment in the ledger's life.
pub async fn read_all(ledger: &dyn Ledger, keys: Vec<Key>, now: Moment) -> Result<Vec<Option<Record>>, LedgerError> {
    if keys.len() <= ROWS_MAX {
        return ledger.read(keys, now).await;
    }
    let mut records = Vec::with_capacity(keys.len());
    for portion in keys.chunks(ROWS_MAX) {
        records.append(&mut ledger.read(portion.to_vec(), now).await?);
    }
    Ok(records)
}
