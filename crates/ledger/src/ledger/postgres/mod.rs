//! A ledger in PostgreSQL, which several replicas share. A commit that was answered with [`CommitOutcome::Done`] is on
//! the disk of the database.
//!
//! Reads ask the pool of connections directly. Commits wait for a writer, which gathers them into batches.

mod address;
mod batch;
mod commit_queue;
mod connection;
mod copy_target;
mod error;
mod expiry;
mod inspector;
mod listener;
mod migration;
mod notices;
mod open_error;
mod pages;
mod rows;
mod schema;
mod server_checks;
mod writer;

use std::{
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use deadpool_postgres::Pool;
use futures_util::future::join_all;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_postgres::{Client, Row, types::Type};

use super::{
    CommitOutcome, CommitResult, CommitStep, Index, Ledger, LedgerChanges, LedgerError, LedgerFault, LedgerReply,
    LedgerSettings, LedgerSize, Moment, PlacedRecord, ROWS_MAX, Record, RecordKey, RecordKind, TimedCommit,
    columns::to_nanoseconds,
};
use crate::{clock, principal::PrincipalHash, random_bytes::random_bytes};
use commit_queue::{CommitQueue, WaitingCommits};
use connection::{DatabaseConnection, RETRY_PAUSE, new_pool};
use error::PostgresError;
use listener::ChangeListener;
use notices::ReplicaId;
use rows::{KeyArrays, Parameter, TableRow, select};
use schema::Prepared;
use server_checks::{ServerDurability, measure_skew};
use writer::BatchWriter;

pub use address::{DatabaseAddress, DatabaseSettings, DatabaseTls, DatabaseUrlFlaw};
pub use copy_target::DatabaseCopyTarget;
pub use inspector::DatabaseInspector;
pub use migration::{SchemaReport, inspect_database, migrate_database};
pub use open_error::DatabaseOpenError;

/// The requests that may wait for a writer. Further callers wait for room in the queue.
const QUEUED_REQUESTS_MAX: usize = 128;
/// The batches that are written at once.
const WRITERS: i16 = 2;
/// Timeout of a read, from its connection to its last row.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a check of the database's health.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the checks of a database and of the changes of its tables, when it is opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// The greatest difference between the clocks of the database and of this machine, in nanoseconds.
const SKEW_MAX: i64 = 2_000_000_000;

/// A ledger that stores its records in PostgreSQL.
pub struct PostgresLedger {
    pool: Pool,
    place: String,
    secret: [u8; 32],
    commits: mpsc::Sender<WaitingCommits>,
    changes: LedgerChanges,
    /// The time by which the clock of the database is ahead, in nanoseconds.
    skew: AtomicI64,
}

impl fmt::Debug for PostgresLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLedger").finish_non_exhaustive()
    }
}

/// The writers of a ledger, and the listener for changes by other replicas. Nothing is committed unless they run.
#[derive(Debug)]
pub struct PostgresWorker {
    listener: ChangeListener,
    writers: Vec<BatchWriter>,
    queue: CommitQueue,
}

impl PostgresWorker {
    /// Writes until the ledger is dropped.
    pub async fn run(self) {
        let writers = join_all(self.writers.iter().map(|writer| writer.run(&self.queue)));
        tokio::select! {
            _ = writers => {}
            () = self.listener.run() => {}
        }
    }
}

impl PostgresLedger {
    /// Connects to the database. Creates and changes the tables if the settings say so: `new_secret` becomes the secret of
    /// a new ledger.
    pub async fn open(
        database: &DatabaseSettings,
        settings: LedgerSettings,
        new_secret: [u8; 32],
    ) -> Result<(Self, PostgresWorker), DatabaseOpenError> {
        let address = DatabaseAddress::parse(&database.url, database.tls)?;
        let pool = new_pool(&address).map_err(|error| DatabaseOpenError::Certificates { why: error.to_string() })?;
        let prepare = async {
            let mut connection = DatabaseConnection::take(&pool).await?;
            let client = connection.client()?;
            let skew = check_server(client, database.allows_unsafe).await?;
            let prepared = match schema::inspect(client).await? {
                Prepared::Old { .. } if database.migrates => schema::migrate(client, &new_secret).await?,
                prepared => prepared,
            };
            connection.release();
            Ok::<_, DatabaseOpenError>((prepared.into_secret()?, skew))
        };
        let (secret, skew) = timeout(OPEN_TIMEOUT, prepare)
            .await
            .map_err(|_| DatabaseOpenError::from(PostgresError::Silent))??;
        let random = random_bytes().map_err(|error| DatabaseOpenError::Refused { why: error.to_string() })?;
        let replica = ReplicaId(random);
        let (commits, requests) = mpsc::channel(QUEUED_REQUESTS_MAX);
        // Another replica has other rows, most likely.
        let first_shard = i16::from(random[0]);
        let changes = LedgerChanges::of_shared();
        let writer = |number: i16| BatchWriter {
            pool: pool.clone(),
            settings,
            shard: first_shard.wrapping_add(number),
            replica,
            changes: changes.clone(),
        };
        let listen_url = database.listen_url.as_ref();
        let listen_address = listen_url
            .map(|url| DatabaseAddress::parse(url, database.tls))
            .transpose()?;
        let worker = PostgresWorker {
            listener: ChangeListener {
                address: listen_address.unwrap_or_else(|| address.clone()),
                pool: pool.clone(),
                replica,
                changes: changes.clone(),
            },
            writers: (0..WRITERS).map(writer).collect(),
            queue: CommitQueue::new(requests),
        };
        let ledger = Self {
            pool,
            place: address.shown(),
            secret,
            commits,
            changes,
            skew: AtomicI64::new(skew),
        };
        Ok((ledger, worker))
    }

    /// Returns the database and its hosts for operators.
    pub fn place(&self) -> &str {
        &self.place
    }

    async fn send_commits(&self, commits: Vec<TimedCommit>) -> Result<Vec<CommitResult>, LedgerError> {
        let steps = commits.iter().map(|commit| commit.steps.len());
        if steps.fold(0, usize::saturating_add) > ROWS_MAX {
            return Err(LedgerError::TooLarge);
        }
        let (reply, answer) = oneshot::channel();
        let request = WaitingCommits { commits, reply };
        self.commits.send(request).await.map_err(|_| LedgerError::Closed)?;
        answer.await.map_err(|_| LedgerError::Closed)?
    }

    /// Runs a query. Returns its rows, in their order. One that this build cannot read is `None`.
    async fn query(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<(i64, Option<TableRow>)>, PostgresError> {
        let run = async {
            let rows = self.query_rows(sql, parameters).await?;
            let read = |row: &Row| Ok((row.try_get(0)?, TableRow::read(row)?));
            rows.iter().map(read).collect()
        };
        timeout(READ_TIMEOUT, run).await.map_err(|_| PostgresError::Silent)?
    }

    /// Runs a query, without a timeout. Tries again for as long as the database cannot be reached.
    async fn query_rows(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, PostgresError> {
        loop {
            match self.try_query(sql, parameters).await {
                Err(error) if error.is_outage() => tokio::time::sleep(RETRY_PAUSE).await,
                rows => return rows,
            }
        }
    }

    async fn try_query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, PostgresError> {
        let mut connection = DatabaseConnection::take(&self.pool).await?;
        match connection.client()?.query_typed(sql, parameters).await {
            Err(error) if error.is_closed() => Err(error.into()),
            rows => {
                // Also after a refusal of the database, which ends the query.
                connection.release();
                Ok(rows?)
            }
        }
    }

    async fn read_keys(&self, keys: &[RecordKey], now: Moment) -> Result<Vec<Option<Record>>, LedgerError> {
        if keys.len() > ROWS_MAX {
            return Err(LedgerError::TooLarge);
        }
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let arrays = KeyArrays::of_keys(keys);
        let sql = select!(
            "JOIN (SELECT DISTINCT * FROM unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS k (kind, principal, name)) k \
             USING (kind, principal, name)"
        );
        let rows = self.query(sql, &arrays.parameters()).await?;
        let found: HashMap<RecordKey, Record> = rows
            .into_iter()
            .filter_map(|(_, row)| row?.into_live(now))
            .map(|(_, record)| (record.key, record))
            .collect();
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// Returns the latest `limit` sound records of a query, in the order of their inserts. The query takes the place
    /// before which a page ends as `$3`, and the number of its rows as `$4`.
    async fn latest(
        &self,
        sql: &str,
        (kind, owner): (RecordKind, &[u8]),
        limit: usize,
        now: Moment,
    ) -> Result<Vec<Record>, LedgerError> {
        let limit = limit.min(ROWS_MAX);
        let kind = i16::from(kind as u8);
        let (mut before, until, mut found) = (i64::MAX, to_nanoseconds(now), Vec::new());
        while found.len() < limit {
            let rows_max = i64::try_from(limit - found.len()).unwrap_or(i64::MAX);
            let parameters: [Parameter<'_>; 5] = [
                (&kind, Type::INT2),
                (&owner, Type::BYTEA),
                (&before, Type::INT8),
                (&rows_max, Type::INT8),
                (&until, Type::INT8),
            ];
            let rows = self.query(sql, &parameters).await?;
            let Some((last, _)) = rows.last() else { break };
            before = *last;
            let is_last_page = rows.len() < limit - found.len();
            found.extend(rows.into_iter().filter_map(|(_, row)| Some(row?.into_live(now)?.1)));
            if is_last_page {
                break;
            }
        }
        found.reverse();
        Ok(found)
    }
}

/// Refuses a server that may lose what it has confirmed, or whose clock is another one. Warns if a failover may lose it.
/// Returns the time by which its clock is ahead, in nanoseconds.
async fn check_server(client: &Client, allows_unsafe: bool) -> Result<i64, DatabaseOpenError> {
    let durability = ServerDurability::read(client).await?;
    if !durability.has_fsync && !allows_unsafe {
        return Err(DatabaseOpenError::Unsafe);
    }
    if durability.unconfirmed_standbys > 0 {
        tracing::warn!(
            standbys = durability.unconfirmed_standbys,
            "no standby of the database confirms commits, so a failover may lose posted results that were accepted: set \
             synchronous_standby_names"
        );
    }
    let skew = measure_skew(client).await?;
    if skew.abs() > SKEW_MAX {
        return Err(DatabaseOpenError::Skew { skew });
    }
    clock::follow_clock(skew);
    Ok(skew)
}

impl Ledger for PostgresLedger {
    fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        Box::pin(async move {
            let results = self.send_commits(vec![TimedCommit { steps, now }]).await?;
            results.into_iter().next().unwrap_or(Err(LedgerError::Closed))
        })
    }

    fn commit_each(&self, commits: Vec<TimedCommit>) -> LedgerReply<'_, Vec<CommitResult>> {
        Box::pin(self.send_commits(commits))
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        Box::pin(async move { self.read_keys(&keys, now).await })
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        let sql = select!(
            "WHERE r.kind = $1 AND r.principal = $2 AND r.place < $3 AND r.expires_at > $5 ORDER BY r.place DESC LIMIT $4"
        );
        Box::pin(async move { self.latest(sql, (kind, &principal), limit, now).await })
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        Box::pin(async move {
            let (limit, kind) = (limit.min(ROWS_MAX), i16::from(kind as u8));
            let Ok(mut after) = i64::try_from(after) else {
                return Ok(Vec::new());
            };
            let (owner, until, mut found) = (&principal[..], to_nanoseconds(now), Vec::new());
            while found.len() < limit {
                let rows_max = i64::try_from(limit - found.len()).unwrap_or(i64::MAX);
                let parameters: [Parameter<'_>; 5] = [
                    (&kind, Type::INT2),
                    (&owner, Type::BYTEA),
                    (&after, Type::INT8),
                    (&rows_max, Type::INT8),
                    (&until, Type::INT8),
                ];
                let sql = select!(
                    "WHERE r.kind = $1 AND r.principal = $2 AND r.place > $3 AND r.expires_at > $5 ORDER BY r.place LIMIT $4"
                );
                let rows = self.query(sql, &parameters).await?;
                let Some((last, _)) = rows.last() else { break };
                after = *last;
                let is_last_page = rows.len() < limit - found.len();
                found.extend(rows.into_iter().filter_map(|(_, row)| row?.into_live(now)));
                if is_last_page {
                    break;
                }
            }
            Ok(found)
        })
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        Box::pin(async move {
            let (kind, limit) = (i16::from(kind as u8), i64::try_from(limit).unwrap_or(i64::MAX));
            let after = after.as_ref().map(|after| &after[..]);
            let parameters: [Parameter<'_>; 3] = [(&kind, Type::INT2), (&after, Type::BYTEA), (&limit, Type::INT8)];
            // Each step skips the rest of one principal's records.
            let sql = "WITH RECURSIVE found AS ( \
                 (SELECT principal FROM antiphon_records WHERE kind = $1 AND ($2::bytea IS NULL OR principal > $2) \
                  ORDER BY principal LIMIT 1) \
                 UNION ALL SELECT (SELECT r.principal FROM antiphon_records r WHERE r.kind = $1 \
                  AND r.principal > found.principal ORDER BY r.principal LIMIT 1) FROM found \
                  WHERE found.principal IS NOT NULL) \
                 SELECT principal FROM found WHERE principal IS NOT NULL LIMIT $3";
            let run = async {
                let rows = self.query_rows(sql, &parameters).await?;
                let mut found = Vec::with_capacity(rows.len());
                for row in &rows {
                    found.extend(PrincipalHash::try_from(row.try_get::<_, &[u8]>(0)?));
                }
                Ok::<_, PostgresError>(found)
            };
            let found = timeout(READ_TIMEOUT, run).await.map_err(|_| PostgresError::Silent)?;
            Ok(found?)
        })
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        let sql = select!(
            "WHERE r.kind = $1 AND r.idx = $2 AND r.place < $3 AND r.expires_at > $5 ORDER BY r.place DESC LIMIT $4"
        );
        Box::pin(async move { self.latest(sql, (kind, &index), limit, now).await })
    }

    fn remove_expired(&self, now: Moment) -> LedgerReply<'_, u64> {
        Box::pin(async move { Ok(expiry::remove_expired(&self.pool, now).await?) })
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        Box::pin(async move {
            let expired = expiry::remove_expired(&self.pool, now).await?;
            Ok(expired.saturating_add(expiry::remove_damaged(&self.pool).await?))
        })
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        Box::pin(async move {
            let run = async {
                let sql = "SELECT sum(bytes)::bigint, sum(records)::bigint FROM antiphon_sizes";
                let rows = self.query_rows(sql, &[]).await?;
                let Some(row) = rows.first() else {
                    return Ok(LedgerSize::default());
                };
                let [bytes, records]: [i64; 2] = [row.try_get(0)?, row.try_get(1)?];
                Ok::<_, PostgresError>(LedgerSize {
                    bytes: bytes.unsigned_abs(),
                    records: records.unsigned_abs(),
                })
            };
            let size = timeout(READ_TIMEOUT, run).await.map_err(|_| PostgresError::Silent)?;
            Ok(size?)
        })
    }

    /// Also lets this process follow the clock of the database.
    fn find_fault(&self) -> LedgerReply<'_, Option<LedgerFault>> {
        Box::pin(async move {
            let ask = async {
                let mut connection = DatabaseConnection::take(&self.pool).await?;
                let skew = measure_skew(connection.client()?).await?;
                let tables = schema::inspect(connection.client()?).await?;
                connection.release();
                Ok::<_, PostgresError>((skew, tables))
            };
            let Ok(Ok((skew, tables))) = timeout(CHECK_TIMEOUT, ask).await else {
                return Ok(Some(LedgerFault::Unreachable));
            };
            // Callers are derived from the secret: with another one nobody would find its records.
            if !tables.may_belong_to(self.secret) {
                return Ok(Some(LedgerFault::OtherLedger));
            }
            self.skew.store(skew, Ordering::Relaxed);
            if skew.abs() > SKEW_MAX {
                return Ok(Some(LedgerFault::ClockSkew));
            }
            clock::follow_clock(skew);
            Ok(None)
        })
    }

    fn clock_skew(&self) -> Option<i64> {
        Some(self.skew.load(Ordering::Relaxed))
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    fn changes(&self) -> LedgerChanges {
        self.changes.clone()
    }
}
