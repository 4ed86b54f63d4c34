//! The table of records within one write transaction, with its size counter.

use rusqlite::{Connection, ErrorCode, ffi};

use super::{
    files::SCHEMA_VERSION,
    index_check,
    rows::{self, StoredRow, cell_blob, cell_number, select},
    schema::INDEXES,
};
use crate::{
    ledger::{
        LedgerSize, Moment, Record, RecordKey,
        columns::{row_checksum, stored_version, to_nanoseconds},
        steps::RecordStore,
        usage_counter::UsageCounter,
    },
    principal::PrincipalHash,
};

/// The first place that Antiphon never assigns. A damaged row may have a larger one.
const PLACES_MAX: i64 = 1 << 60;

/// The table of records, with its size and the next free place.
pub(super) struct RecordTable {
    pub(super) connection: Connection,
    tally: UsageCounter,
    next_place: i64,
    /// The position of the tally at the beginning of the current commit.
    mark: usize,
}

/// What the table itself contains.
struct TableCount {
    /// The size of the content.
    tally: UsageCounter,
    /// The last place that Antiphon has assigned, or 0.
    last_place: i64,
}

/// The records that a walk removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GcScope {
    /// Sound records that have expired. The walk follows the index of expiry times.
    Expired,
    /// Damaged records too. The walk reads every row.
    ExpiredOrDamaged,
}

/// The progress of one removal, which is done in portions.
#[derive(Debug)]
pub(super) struct GcWalk {
    scope: GcScope,
    /// The expiry time and the place of the last row that was read. Rows come in the order of both, or of places alone.
    position: (i64, i64),
    /// The number of removed rows.
    pub(super) removed: u64,
    /// Set when all rows were read.
    pub(super) is_done: bool,
}

impl GcWalk {
    /// Starts a walk.
    pub(super) const fn new(scope: GcScope) -> Self {
        Self {
            scope,
            position: (i64::MIN, i64::MIN),
            removed: 0,
            is_done: false,
        }
    }
}

impl RecordTable {
    /// Wraps the connection of a store that was just opened. Nothing may be written before [`RecordTable::check_indexes`].
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            tally: UsageCounter::default(),
            next_place: 1,
            mark: 0,
        }
    }

    /// Compares the indexes with the table, and counts the records. Returns `true` if the indexes had to be rebuilt.
    ///
    /// It reads every row. Each walk is one read of a write-ahead log: no other process waits for its end.
    pub(super) fn check_indexes(&mut self) -> rusqlite::Result<bool> {
        match index_check::all_match_table(&self.connection) {
            Ok(true) => {
                let count = count_records(&self.connection)?;
                self.take_count(count);
                Ok(false)
            }
            Err(error) if !is_corruption(&error) => Err(error),
            Ok(false) | Err(_) => self.rebuild_indexes().map(|()| true),
        }
    }

    /// Returns the size of the content.
    pub(super) const fn usage(&self) -> LedgerSize {
        self.tally.usage()
    }

    fn take_count(&mut self, count: TableCount) {
        self.tally = count.tally;
        // Never lower than before: a place must not be assigned twice while this process runs.
        self.next_place = self.next_place.max(count.last_place.saturating_add(1)).max(1);
    }

    pub(super) fn begin_transaction(&mut self) -> rusqlite::Result<()> {
        self.tally.forget_changes();
        // `IMMEDIATE` takes the write lock at once, so that no later statement fails because the file is busy.
        self.connection.execute_batch("BEGIN IMMEDIATE")
    }

    /// Commits the transaction. Everything since [`RecordTable::begin_transaction`] is on disk when this returns.
    pub(super) fn commit_transaction(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")?;
        self.tally.forget_changes();
        Ok(())
    }

    /// Writes the version of the schema again, which changes nothing: one page, on disk when this returns.
    ///
    /// SQLite does not write a row whose bytes stay the same, but it always writes this field.
    pub(super) fn rewrite_version(&mut self) -> rusqlite::Result<()> {
        self.begin_transaction()?;
        self.connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        self.commit_transaction()
    }

    /// Rolls the transaction back to [`RecordTable::begin_transaction`].
    pub(super) fn roll_back_transaction(&mut self) {
        // SQLite rolls back by itself after some errors. A rollback that fails is completed when the file is next used.
        if !self.connection.is_autocommit() {
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        self.tally.roll_back_to(0);
    }

    /// Removes the records in the walk's scope among the next rows. Reads up to `rows` rows or `bytes` bytes of values.
    pub(super) fn remove_portion(
        &mut self,
        walk: &mut GcWalk,
        now: Moment,
        rows: usize,
        bytes: u64,
    ) -> rusqlite::Result<()> {
        let (mut looked, mut read, mut gone, mut seen) = (0, 0_u64, Vec::new(), walk.position);
        {
            let mut statement = self.connection.prepare_cached(match walk.scope {
                GcScope::Expired => select!(
                    "INDEXED BY by_expiry WHERE (expires_at, place) > (?1, ?2) AND expires_at <= ?3 \
                     ORDER BY expires_at, place"
                ),
                GcScope::ExpiredOrDamaged => select!("NOT INDEXED WHERE place > ?2 ORDER BY place"),
            })?;
            let mut found = match walk.scope {
                GcScope::Expired => statement.query((seen.0, seen.1, to_nanoseconds(now)))?,
                GcScope::ExpiredOrDamaged => statement.query((seen.0, seen.1))?,
            };
            while looked < rows && read < bytes {
                let Some(row) = found.next()? else {
                    walk.is_done = true;
                    break;
                };
                let found = StoredRow::read_row(row)?;
                looked += 1;
                read = read.saturating_add(value_length(row)?);
                seen = match walk.scope {
                    GcScope::Expired => next_position(seen, row.get_ref(8)?.as_i64().ok(), found.place)?,
                    GcScope::ExpiredOrDamaged => (seen.0, found.place),
                };
                // A damaged row is not live either, but only the larger scope includes it.
                let sound = found.record.is_some();
                if (sound || walk.scope == GcScope::ExpiredOrDamaged) && found.into_live(now).is_none() {
                    gone.push(seen.1);
                }
            }
        }
        // Rows are deleted after the query has ended, since a delete under a running query changes what it returns.
        if !gone.is_empty() {
            self.begin_transaction()?;
            for place in &gone {
                self.remove_row(*place)?;
            }
            self.commit_transaction()?;
        }
        walk.position = seen;
        walk.removed = walk.removed.saturating_add(gone.len() as u64);
        Ok(())
    }

    /// Rebuilds the indexes from the table, and counts its records. After an error nothing has changed.
    ///
    /// Index entries of damaged rows would prevent the removal of these rows.
    pub(super) fn rebuild_indexes(&mut self) -> rusqlite::Result<()> {
        match self.rebuild_in_transaction() {
            Ok(count) => {
                self.take_count(count);
                Ok(())
            }
            Err(error) => {
                self.roll_back_transaction();
                Err(error)
            }
        }
    }

    fn rebuild_in_transaction(&mut self) -> rusqlite::Result<TableCount> {
        self.begin_transaction()?;
        // Dropped first: the delete below must not search in a damaged index.
        for (name, _) in INDEXES {
            self.connection.execute_batch(&format!("DROP INDEX {name}"))?;
        }
        // A damaged index may have allowed two rows of one key. The unique index can only be rebuilt with the latest.
        self.connection.execute_batch(
            "DELETE FROM records WHERE place NOT IN (SELECT max(place) FROM records GROUP BY kind, principal, name)",
        )?;
        for (_, sql) in INDEXES {
            self.connection.execute_batch(sql)?;
        }
        // Before the commit: a count that fails must not leave rebuilt indexes with the old count.
        let count = count_records(&self.connection)?;
        self.commit_transaction()?;
        Ok(count)
    }

    /// Returns the principal and the value's length of the row at a place.
    fn counted_row(&self, place: i64) -> rusqlite::Result<(PrincipalHash, u64)> {
        // Reads the bare columns: a damaged row has no record, and must be removable too.
        let mut statement = self
            .connection
            .prepare_cached("SELECT principal, length(value) FROM records NOT INDEXED WHERE place = ?1")?;
        statement.query_row([place], counted_cells)
    }

    fn remove_row(&mut self, place: i64) -> rusqlite::Result<()> {
        let (principal, value) = self.counted_row(place)?;
        self.connection
            .prepare_cached("DELETE FROM records WHERE place = ?1")?
            .execute([place])?;
        self.tally.remove_record(principal, value);
        Ok(())
    }

    /// Removes the expired or damaged row that the index names for a key, to make room for an insert.
    fn remove_stale_row(&mut self, key: &RecordKey, now: Moment) -> rusqlite::Result<()> {
        let Some(found) = rows::find_by_key(&self.connection, key)? else {
            return Ok(());
        };
        let there = rows::find_by_place(&self.connection, found.place)?;
        let another = |record: &Record| record.key != *key || record.expires_at > now;
        if there.is_none_or(|there| there.record.as_ref().is_some_and(another)) {
            // No row, the row of another key, or a live one: the index is damaged, and must be rebuilt first.
            return Err(corrupt_index_error());
        }
        self.remove_row(found.place)
    }

    fn insert_row(&mut self, record: &Record) -> rusqlite::Result<()> {
        let place = self.next_place;
        rows::insert_row(&self.connection, place, record)?;
        self.next_place = place.saturating_add(1);
        self.tally.add_record(record.key.principal, record.value.len() as u64);
        Ok(())
    }

    /// Returns the place of a live record.
    fn find_place(&self, key: &RecordKey) -> rusqlite::Result<i64> {
        let mut statement = self.connection.prepare_cached(
            "SELECT place FROM records INDEXED BY by_key WHERE kind = ?1 AND principal = ?2 AND name = ?3",
        )?;
        statement.query_row((key.kind as u8, key.principal, key.name), |row| row.get(0))
    }
}

impl RecordStore for RecordTable {
    type Error = rusqlite::Error;

    fn begin_commit(&mut self) -> rusqlite::Result<()> {
        // Several commits share one transaction, so each needs a savepoint of its own.
        self.mark = self.tally.mark();
        self.connection.execute_batch("SAVEPOINT one")
    }

    fn keep_changes(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("RELEASE one")
    }

    fn undo_changes(&mut self) -> rusqlite::Result<()> {
        self.tally.roll_back_to(self.mark);
        // `ROLLBACK TO` alone would leave the savepoint open.
        self.connection.execute_batch("ROLLBACK TO one; RELEASE one")
    }

    fn find_live(&mut self, key: &RecordKey, now: Moment) -> rusqlite::Result<Option<Record>> {
        Ok(rows::find_by_key(&self.connection, key)?.and_then(|found| found.into_live(now)))
    }

    fn insert_record(&mut self, record: Record) -> rusqlite::Result<()> {
        self.remove_stale_row(&record.key, record.made_at)?;
        self.insert_row(&record)
    }

    fn replace_record(&mut self, record: Record) -> rusqlite::Result<()> {
        let place = self.find_place(&record.key)?;
        let (_, before) = self.counted_row(place)?;
        self.connection
            .prepare_cached(
                "UPDATE records SET value = ?2, version = ?3, expires_at = ?4, checksum = ?5 WHERE place = ?1",
            )?
            .execute((
                place,
                &record.value[..],
                stored_version(&record),
                to_nanoseconds(record.expires_at),
                row_checksum(place, &record, &record.value),
            ))?;
        self.tally.remove_record(record.key.principal, before);
        self.tally.add_record(record.key.principal, record.value.len() as u64);
        Ok(())
    }

    fn remove_record(&mut self, key: &RecordKey) -> rusqlite::Result<()> {
        let place = self.find_place(key)?;
        self.remove_row(place)
    }

    fn clear_expired(&mut self, now: Moment) -> rusqlite::Result<()> {
        // Collected first: the deletes change the index that this query reads.
        let expired = {
            let mut statement = self
                .connection
                .prepare_cached("SELECT place FROM records INDEXED BY by_expiry WHERE expires_at <= ?1")?;
            let rows = statement.query_map([to_nanoseconds(now)], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<Vec<i64>>>()?
        };
        expired.into_iter().try_for_each(|place| self.remove_row(place))
    }

    fn usage_counter(&self) -> &UsageCounter {
        &self.tally
    }
}

/// Counts the records in the table.
fn count_records(connection: &Connection) -> rusqlite::Result<TableCount> {
    let mut tally = UsageCounter::default();
    // Without an index: a damaged one would hide rows from the count.
    let mut statement = connection.prepare("SELECT principal, length(value) FROM records NOT INDEXED")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (principal, value) = counted_cells(row)?;
        tally.add_record(principal, value);
        tally.forget_changes();
    }
    // A damaged rowid must not use up the range of places.
    let last_place = connection.query_row(
        "SELECT coalesce(max(place), 0) FROM records WHERE place < ?1",
        [PLACES_MAX],
        |row| row.get(0),
    )?;
    Ok(TableCount { tally, last_place })
}

/// Returns `true` if an error indicates a damaged file.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    // The statements here violate no constraint and miss no row, unless an index disagrees with the table.
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::ConstraintViolation)
    ) || matches!(error, rusqlite::Error::QueryReturnedNoRows)
}

/// Returns the position after a row in the index of expiry times.
///
/// Fails if the walk would not advance, since it would then never end.
fn next_position(seen: (i64, i64), end: Option<i64>, place: i64) -> rusqlite::Result<(i64, i64)> {
    let next = end.map(|end| (end, place));
    next.filter(|next| *next > seen).ok_or_else(corrupt_index_error)
}

fn corrupt_index_error() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT_INDEX), None)
}

/// Returns the principal and the value's length of a row of these two columns. Damaged ones give zeros.
fn counted_cells(row: &rusqlite::Row<'_>) -> rusqlite::Result<(PrincipalHash, u64)> {
    let length = cell_number(row.get_ref(1)?).unwrap_or_default();
    Ok((cell_blob(row.get_ref(0)?).unwrap_or_default(), length))
}

fn value_length(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    Ok(row.get_ref(5)?.as_blob_or_null().ok().flatten().map_or(0, <[u8]>::len) as u64)
}
