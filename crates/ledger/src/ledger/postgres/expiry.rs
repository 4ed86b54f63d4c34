//! The removal of records that have expired, in portions, by one replica at a time.

use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::{
    connection::DatabaseConnection,
    error::PostgresError,
    pages,
    rows::{KeyArrays, TableRow},
};
use crate::ledger::{Moment, RECORD_BYTES, RecordKey, columns::to_nanoseconds};

/// The rows that one statement removes.
const PORTION: i64 = 1_000;
/// The advisory lock of the replica that removes expired records. The others wait: most likely they find none after that.
const EXPIRY_LOCK: i64 = 0x616e_7469_6578_7069;
/// Timeout of one statement.
const PORTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Removes the rows that a statement selects as `doomed`, and takes them off the sizes. Returns their number.
macro_rules! remove_doomed {
    ($doomed:literal) => {
        concat!(
            "WITH doomed AS (",
            $doomed,
            "), \
             gone AS (DELETE FROM antiphon_records r USING doomed d \
                 WHERE r.kind = d.kind AND r.principal = d.principal AND r.name = d.name \
                 RETURNING r.principal, octet_length(r.value) + $1 AS bytes), \
             owned AS (SELECT principal, sum(bytes)::bigint AS bytes FROM gone GROUP BY principal), \
             owners AS (UPDATE antiphon_principals p SET bytes = p.bytes - o.bytes FROM owned o \
                 WHERE p.principal = o.principal), \
             sizes AS (UPDATE antiphon_sizes SET bytes = bytes - (SELECT coalesce(sum(bytes), 0) FROM gone), \
                 records = records - (SELECT count(*) FROM gone) WHERE shard = 0) \
             SELECT count(*) FROM gone"
        )
    };
}

/// Removes the records that have expired at `now`. Returns their number.
pub(super) async fn remove_expired(pool: &Pool, now: Moment) -> Result<u64, PostgresError> {
    let mut removed = 0_u64;
    loop {
        let portion = timeout(PORTION_TIMEOUT, remove_portion(pool, now));
        let gone = portion.await.map_err(|_| PostgresError::Silent)??;
        removed = removed.saturating_add(gone.unsigned_abs());
        if gone < PORTION {
            return Ok(removed);
        }
    }
}

/// Removes some of the records that have expired at `now`. Returns their number.
async fn remove_portion(pool: &Pool, now: Moment) -> Result<i64, PostgresError> {
    let (counted, until) = (counted_bytes(), to_nanoseconds(now));
    let mut connection = DatabaseConnection::take(pool).await?;
    let rows = connection
        .client()?
        .query_typed(
            remove_doomed!(
                "SELECT kind, principal, name FROM antiphon_records WHERE expires_at <= $2 \
                 AND (SELECT pg_advisory_xact_lock($4)) IS NOT NULL \
                 ORDER BY kind, principal, name LIMIT $3 FOR UPDATE SKIP LOCKED"
            ),
            &[
                (&counted, Type::INT8),
                (&until, Type::INT8),
                (&PORTION, Type::INT8),
                (&EXPIRY_LOCK, Type::INT8),
            ],
        )
        .await?;
    connection.release();
    Ok(rows.first().map_or(Ok(0_i64), |row| row.try_get(0))?)
}

/// Removes the records that are damaged. Reads every record. Returns the number of those removed.
///
/// A record that was written over a damaged one meanwhile has another place, and stays.
pub(super) async fn remove_damaged(pool: &Pool) -> Result<u64, PostgresError> {
    let (mut removed, counted, mut place) = (0_u64, counted_bytes(), i64::MIN);
    loop {
        let mut connection = DatabaseConnection::take(pool).await?;
        let client = connection.client()?;
        let rows = pages::read_rows(client, place).await?;
        let Some(last) = rows.last() else {
            return Ok(removed);
        };
        place = last.try_get(0)?;
        let (mut damaged, mut places): (Vec<RecordKey>, Vec<i64>) = (Vec::new(), Vec::new());
        for row in &rows {
            if let Some(row) = TableRow::read(row)?.filter(|row| row.record.is_none()) {
                damaged.push(row.key);
                places.push(row.place);
            }
        }
        if damaged.is_empty() {
            connection.release();
            continue;
        }
        let keys = KeyArrays::of_keys(&damaged);
        let mut parameters = vec![(&counted as &(dyn tokio_postgres::types::ToSql + Sync), Type::INT8)];
        parameters.extend(keys.parameters());
        parameters.push((&places, Type::INT8_ARRAY));
        let rows = client
            .query_typed(
                remove_doomed!(
                    "SELECT kind, principal, name FROM antiphon_records r \
                     JOIN unnest($2::smallint[], $3::bytea[], $4::bytea[], $5::bigint[]) \
                     AS k (kind, principal, name, place) USING (kind, principal, name, place) \
                     ORDER BY kind, principal, name FOR UPDATE OF r"
                ),
                &parameters,
            )
            .await?;
        connection.release();
        let gone = rows.first().map_or(Ok(0_i64), |row| row.try_get(0))?;
        removed = removed.saturating_add(gone.unsigned_abs());
    }
}

fn counted_bytes() -> i64 {
    i64::try_from(RECORD_BYTES).unwrap_or(i64::MAX)
}
