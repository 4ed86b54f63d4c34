//! The reader threads, each with its own connection. A read never waits for a write to reach the disk.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::{
    rows::{self, StoredRow, select},
    store_error,
    write_request::ReplySender,
};
use crate::{
    ledger::{Index, Moment, PlacedRecord, Record, RecordKey, RecordKind, columns::to_nanoseconds},
    principal::PrincipalHash,
};

/// A request to a reader thread.
pub(super) type ReadRequest = Box<dyn FnOnce(&Connection) + Send>;

/// Builds the request that sends the result of `read`.
pub(super) fn read_request<T: Send + 'static>(
    reply: ReplySender<T>,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> ReadRequest {
    Box::new(move |connection| {
        // A caller that hit its timeout has dropped the receiver: the read would be wasted work.
        if !reply.is_closed() {
            drop(reply.send(read(connection).map_err(|error| store_error(&error))));
        }
    })
}

/// Answers requests until the queue is closed and empty.
pub(super) fn run_reader(connection: &Connection, questions: &Arc<Mutex<mpsc::Receiver<ReadRequest>>>) {
    loop {
        // One idle reader holds the lock while it waits for a request. The others wait for the lock.
        let question = questions.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(question) = question else { return };
        question(connection);
    }
}

/// Reads the records of these keys.
pub(super) fn read_keys(
    connection: &Connection,
    keys: &[RecordKey],
    now: Moment,
) -> rusqlite::Result<Vec<Option<Record>>> {
    // The transaction makes all keys be read from the same state.
    let snapshot = connection.unchecked_transaction()?;
    let one = |key: &RecordKey| Ok(rows::find_by_key(&snapshot, key)?.and_then(|found| found.into_live(now)));
    keys.iter().map(one).collect()
}

/// Lists the records of one kind of one principal.
pub(super) fn list_records(
    connection: &Connection,
    kind: RecordKind,
    principal: PrincipalHash,
    limit: usize,
    now: Moment,
) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(select!(
        "INDEXED BY by_principal WHERE kind = ?1 AND principal = ?2 AND expires_at > ?3 ORDER BY place DESC"
    ))?;
    let rows = statement.query((kind as u8, principal, to_nanoseconds(now)))?;
    rows::collect_records(rows, limit, now, |record| {
        record.key.kind == kind && record.key.principal == principal
    })
}

/// Lists the records of one kind of one principal after a place.
pub(super) fn list_after(
    connection: &Connection,
    kind: RecordKind,
    principal: PrincipalHash,
    after: u64,
    limit: usize,
    now: Moment,
) -> rusqlite::Result<Vec<PlacedRecord>> {
    let mut statement = connection.prepare_cached(select!(
        "INDEXED BY by_principal WHERE kind = ?1 AND principal = ?2 AND place > ?3 AND expires_at > ?4 ORDER BY place"
    ))?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut rows = statement.query((kind as u8, principal, after, to_nanoseconds(now)))?;
    let mut found = Vec::new();
    while found.len() < limit {
        let Some(row) = rows.next()? else { break };
        let row = StoredRow::read_row(row)?;
        let place = u64::try_from(row.place).unwrap_or_default();
        // A damaged index may lead to rows of other principals, which must never be returned.
        let record = row.into_live(now);
        let own = record.filter(|record| record.key.kind == kind && record.key.principal == principal);
        found.extend(own.map(|record| (place, record)));
    }
    Ok(found)
}

/// Lists the principals after `after` that have records of one kind.
pub(super) fn list_principals(
    connection: &Connection,
    kind: RecordKind,
    after: Option<PrincipalHash>,
    limit: usize,
) -> rusqlite::Result<Vec<PrincipalHash>> {
    let mut statement = connection.prepare_cached(
        "SELECT min(principal) FROM records INDEXED BY by_principal WHERE kind = ?1 AND principal > ?2",
    )?;
    // No hash is empty, so each comes after the empty text.
    let (mut found, mut last) = (Vec::new(), after.map_or_else(Vec::new, Vec::from));
    // One search for each principal: the number of its records does not matter.
    while found.len() < limit {
        let next: Option<Vec<u8>> = statement.query_row((kind as u8, &last), |row| row.get(0))?;
        let Some(next) = next else { break };
        // A damaged cell may have another length.
        found.extend(PrincipalHash::try_from(&next[..]).ok());
        last = next;
    }
    Ok(found)
}

/// Finds the records of one kind under an index.
pub(super) fn find_by_index(
    connection: &Connection,
    kind: RecordKind,
    index: Index,
    limit: usize,
    now: Moment,
) -> rusqlite::Result<Vec<Record>> {
    let mut statement = connection.prepare_cached(select!(
        "INDEXED BY by_index WHERE kind = ?1 AND idx = ?2 AND expires_at > ?3 ORDER BY place DESC"
    ))?;
    let rows = statement.query((kind as u8, index, to_nanoseconds(now)))?;
    rows::collect_records(rows, limit, now, |record| {
        record.key.kind == kind && record.index == Some(index)
    })
}
