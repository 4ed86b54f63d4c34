//! The inspection of a database, as of the time at which it was opened. Replicas may use the database at the same time.

use std::{
    fmt,
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};

use tokio::runtime::Runtime;
use tokio_postgres::{Client, Row, types::Type};

use super::{
    DatabaseOpenError, DatabaseSettings,
    connection::DatabaseConnection,
    error::PostgresError,
    migration::open_connection,
    pages,
    rows::{KeyArrays, TableRow, select},
    schema,
};
use crate::ledger::{
    HashPrefix, InspectedRow, KindTotal, LedgerError, Moment, RECORD_BYTES, Record, RecordKey, StoreInspector,
    columns::kind_from_number,
};

/// A database under inspection. Its methods block, and must not be called within a runtime.
pub struct DatabaseInspector {
    runtime: Runtime,
    /// Within a transaction that sees one state of the database.
    connection: Mutex<DatabaseConnection>,
    secret: [u8; 32],
}

impl fmt::Debug for DatabaseInspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseInspector").finish_non_exhaustive()
    }
}

impl DatabaseInspector {
    /// Opens a database that has the tables of this version. `runtime` serves its connection.
    pub fn open(runtime: Runtime, database: &DatabaseSettings) -> Result<Self, DatabaseOpenError> {
        let opened = runtime.block_on(async {
            let mut connection = open_connection(database).await?;
            let client = connection.client()?;
            let secret = schema::inspect(&*client).await?.into_secret()?;
            client
                .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                .await
                .map_err(PostgresError::from)?;
            Ok::<_, DatabaseOpenError>((connection, secret))
        });
        let (connection, secret) = opened?;
        Ok(Self {
            runtime,
            connection: Mutex::new(connection),
            secret,
        })
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(&Client) -> Result<T, PostgresError>) -> Result<T, LedgerError> {
        // Each question leaves it usable, so a panic elsewhere need not spread.
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.runtime.block_on(async { question(connection.client()?).await });
        Ok(answer?)
    }
}

impl StoreInspector for DatabaseInspector {
    fn for_each_row<E: From<LedgerError>>(
        &self,
        after: Option<i64>,
        mut show: impl FnMut(InspectedRow, Option<Record>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut place = after.unwrap_or(i64::MIN);
        loop {
            let rows = self.ask(async |client| read_page(client, place).await)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            place = last.place;
            for (row, record) in rows {
                if show(row, record)?.is_break() {
                    return Ok(());
                }
            }
        }
    }

    fn find_record(&self, key: &RecordKey) -> Result<Option<Record>, LedgerError> {
        self.ask(async |client| {
            let keys = KeyArrays::of_keys([key]);
            let sql = select!(
                "JOIN unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS k (kind, principal, name) \
                 USING (kind, principal, name)"
            );
            let rows = client.query_typed(sql, &keys.parameters()).await?;
            let row = rows.first().map(TableRow::read).transpose()?.flatten();
            Ok(row.and_then(|row| row.record))
        })
    }

    fn kind_totals(&self) -> Result<Vec<KindTotal>, LedgerError> {
        self.ask(async |client| {
            let sql = "SELECT kind, count(*), coalesce(sum(octet_length(value)), 0)::bigint FROM antiphon_records \
                       GROUP BY kind ORDER BY kind";
            let rows = client.query_typed(sql, &[]).await?;
            let total = |row: &Row| {
                let (kind, records, bytes): (i16, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                Ok(KindTotal {
                    kind: kind_of(kind),
                    records: records.unsigned_abs(),
                    bytes: bytes.unsigned_abs(),
                })
            };
            rows.iter().map(total).collect()
        })
    }

    fn find_flaws(&self) -> Result<Vec<String>, LedgerError> {
        self.ask(async |client| {
            let record_bytes = i64::try_from(RECORD_BYTES).unwrap_or(i64::MAX);
            let sql = "SELECT (SELECT count(*) FROM antiphon_records), (SELECT sum(records)::bigint FROM antiphon_sizes), \
                 (SELECT coalesce(sum(octet_length(value) + $1), 0)::bigint FROM antiphon_records), \
                 (SELECT sum(bytes)::bigint FROM antiphon_sizes), \
                 (SELECT coalesce(sum(bytes), 0)::bigint FROM antiphon_principals)";
            let row = client.query_typed(sql, &[(&record_bytes, Type::INT8)]).await?;
            let Some(row) = row.first() else { return Ok(Vec::new()) };
            let number = |at: usize| Ok::<i64, PostgresError>(row.try_get::<_, Option<i64>>(at)?.unwrap_or_default());
            let mut flaws = Vec::new();
            for (what, found, counted) in [
                ("records", number(0)?, number(1)?),
                ("bytes", number(2)?, number(3)?),
                ("bytes of callers", number(2)?, number(4)?),
            ] {
                if found != counted {
                    flaws.push(format!("the number of {what} is {found}, and counted as {counted}"));
                }
            }
            Ok(flaws)
        })
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }
}

/// Reads the rows after a place, in the order of their places.
pub(super) async fn read_page(
    client: &Client,
    after: i64,
) -> Result<Vec<(InspectedRow, Option<Record>)>, PostgresError> {
    pages::read_rows(client, after).await?.iter().map(inspect_row).collect()
}

fn inspect_row(row: &Row) -> Result<(InspectedRow, Option<Record>), PostgresError> {
    let (place, kind): (i64, i16) = (row.try_get(0)?, row.try_get(1)?);
    let (principal, name, value): (&[u8], &[u8], &[u8]) = (row.try_get(2)?, row.try_get(3)?, row.try_get(5)?);
    let (made_at, expires_at): (i64, i64) = (row.try_get(7)?, row.try_get(8)?);
    let moment = |nanoseconds: i64| Moment::from_nanos(u64::try_from(nanoseconds).unwrap_or_default());
    let record = TableRow::read(row)?.and_then(|row| row.record);
    let inspected = InspectedRow {
        place,
        is_sound: record.is_some(),
        kind: kind_of(kind),
        principal: HashPrefix::from_bytes(principal),
        name: HashPrefix::from_bytes(name),
        bytes: value.len() as u64,
        made_at: moment(made_at),
        expires_at: moment(expires_at),
    };
    Ok((inspected, record))
}

fn kind_of(number: i16) -> Option<crate::ledger::RecordKind> {
    kind_from_number(u64::try_from(number).ok()?)
}
