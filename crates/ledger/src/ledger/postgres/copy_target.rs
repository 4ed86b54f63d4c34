//! An empty database that a copy of a ledger fills, in one transaction.

use std::{collections::BTreeMap, fmt};

use tokio::runtime::Runtime;
use tokio_postgres::{Client, types::Type};

use super::{
    DatabaseSettings, check_server,
    connection::DatabaseConnection,
    error::PostgresError,
    inspector::read_page,
    migration::open_connection,
    rows::{Parameter, RowArrays},
    schema::{self, Prepared},
    writer::{ADD_OWNED, ADD_SIZE, INSERT},
};
use crate::{
    ledger::{CopyError, CopyTarget, LedgerError, PlacedCopy, RECORD_BYTES},
    principal::PrincipalHash,
};

/// A database within the transaction of a copy. Its methods block, and must not be called within a runtime.
pub struct DatabaseCopyTarget {
    runtime: Runtime,
    connection: DatabaseConnection,
}

impl fmt::Debug for DatabaseCopyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseCopyTarget").finish_non_exhaustive()
    }
}

impl DatabaseCopyTarget {
    /// Opens a database without records, for a ledger with this secret. Creates its tables if the settings say so.
    pub fn create(runtime: Runtime, database: &DatabaseSettings, secret: [u8; 32]) -> Result<Self, CopyError> {
        let connection = runtime.block_on(begin(database, secret))?;
        Ok(Self { runtime, connection })
    }
}

async fn begin(database: &DatabaseSettings, secret: [u8; 32]) -> Result<DatabaseConnection, CopyError> {
    let mut connection = open_connection(database).await?;
    let client = connection.client().map_err(LedgerError::from)?;
    check_server(client, database.allows_unsafe).await?;
    match schema::inspect(&*client).await.map_err(LedgerError::from)? {
        Prepared::Old { .. } if database.migrates => {
            let prepared = schema::migrate(client, &secret).await.map_err(LedgerError::from)?;
            prepared.into_secret()?;
        }
        prepared => drop(prepared.into_secret()?),
    }
    let found = take_over(client, secret).await.map_err(LedgerError::from)?;
    if found == 0 {
        Ok(connection)
    } else {
        Err(CopyError::NotEmpty(found))
    }
}

/// Begins the transaction, and takes the secret over. Returns the number of records, which have to be none.
async fn take_over(client: &Client, secret: [u8; 32]) -> Result<i64, PostgresError> {
    // Asked first, since the lock would stop replicas that use the database.
    let some = "SELECT place FROM antiphon_records LIMIT 1";
    if !client.query_typed(some, &[]).await?.is_empty() {
        return count_records(client).await;
    }
    // A replica that starts meanwhile waits, and reads the new secret. The commit waits for the disk.
    client
        .batch_execute(
            "BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '5s'; \
             LOCK TABLE antiphon_records, antiphon_meta IN ACCESS EXCLUSIVE MODE",
        )
        .await?;
    // Early, for a role that may not do it at the end.
    client
        .batch_execute("SELECT setval('antiphon_places', 1, false)")
        .await?;
    let set = "UPDATE antiphon_meta SET secret = $1 WHERE id = 1";
    client.query_typed(set, &[(&&secret[..], Type::BYTEA)]).await?;
    count_records(client).await
}

async fn count_records(client: &Client) -> Result<i64, PostgresError> {
    let count = "SELECT count(*) FROM antiphon_records";
    let rows = client.query_typed(count, &[]).await?;
    Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
}

impl CopyTarget for DatabaseCopyTarget {
    fn add_records(&mut self, records: &[PlacedCopy]) -> Result<(), CopyError> {
        let add = async {
            let client = self.connection.client()?;
            let rows = RowArrays::of_records(records);
            client.query_typed(INSERT, &rows.parameters()).await?;
            let mut owned = BTreeMap::<PrincipalHash, i64>::new();
            for (_, record) in records {
                let bytes = (record.value.len() as u64).saturating_add(RECORD_BYTES);
                *owned.entry(record.key.principal).or_default() += i64::try_from(bytes).unwrap_or(i64::MAX);
            }
            let (count, total) = (
                i64::try_from(records.len()).unwrap_or(i64::MAX),
                owned.values().sum::<i64>(),
            );
            let (principals, bytes): (Vec<&[u8]>, Vec<i64>) =
                owned.iter().map(|(principal, bytes)| (&principal[..], *bytes)).unzip();
            let owners: [Parameter<'_>; 2] = [(&principals, Type::BYTEA_ARRAY), (&bytes, Type::INT8_ARRAY)];
            client.query_typed(ADD_OWNED, &owners).await?;
            let sizes: [Parameter<'_>; 3] = [(&0_i16, Type::INT2), (&total, Type::INT8), (&count, Type::INT8)];
            client.query_typed(ADD_SIZE, &sizes).await?;
            Ok::<_, PostgresError>(())
        };
        Ok(self.runtime.block_on(add).map_err(LedgerError::from)?)
    }

    fn read_records(&mut self, after: i64) -> Result<Vec<PlacedCopy>, CopyError> {
        let read = async { read_page(self.connection.client()?, after).await };
        let rows = self.runtime.block_on(read).map_err(LedgerError::from)?;
        let placed = rows.into_iter().map(|(row, record)| {
            record
                .map(|record| (row.place, record))
                .ok_or(CopyError::Differs(row.place))
        });
        placed.collect()
    }

    fn finish(mut self) -> Result<(), CopyError> {
        let end = async {
            // The next record comes after those of the copy.
            let next =
                "SELECT setval('antiphon_places', greatest((SELECT max(place) FROM antiphon_records), 1)); COMMIT";
            self.connection.client()?.batch_execute(next).await?;
            Ok::<_, PostgresError>(())
        };
        Ok(self.runtime.block_on(end).map_err(LedgerError::from)?)
    }
}
