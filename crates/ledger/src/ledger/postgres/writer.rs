//! The writers: they gather the commits that wait, and write them in one transaction of three round trips.
//!
//! The rows of all keys are locked in the order of the keys, so that two batches never wait for each other in a circle.
//! A key without a row has no lock: if another batch has inserted it meanwhile, this one is decided anew.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use deadpool_postgres::Pool;
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::{Client, types::Type};

use super::{
    batch::{LoadedRecords, TableChange},
    commit_queue::CommitQueue,
    connection::{DatabaseConnection, RETRY_PAUSE},
    error::PostgresError,
    expiry,
    notices::{NOTIFY, ReplicaId, notify_parameters},
    rows::{KeyArrays, Parameter, RowArrays, TableRow, select},
    schema::SIZE_SHARDS,
};
use crate::{
    clock,
    ledger::{
        CommitResult, CommitStep, LedgerChanges, LedgerError, LedgerSettings, LedgerSize, RecordKey, TimedCommit, steps,
    },
    principal::PrincipalHash,
};

/// The most tries of a batch that other writers delay.
const TRIES_MAX: usize = 8;
/// Timeout of a transaction, from its connection to its commit.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which the database ends a transaction that sends nothing more: that of a process which was suspended, or
/// cut off. Shorter than `lock_timeout`, so that other writers outlast it. [`BEGIN`] contains the same number.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Begins a transaction. These settings end with it, so they are right behind a pooler of connections, too.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; SET LOCAL statement_timeout = '5s'; \
                     SET LOCAL lock_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '4s'";

/// Deletes the rows of keys.
const DELETE: &str = "DELETE FROM antiphon_records r USING unnest($1::smallint[], $2::bytea[], $3::bytea[]) \
    AS k (kind, principal, name) WHERE r.kind = k.kind AND r.principal = k.principal AND r.name = k.name";
/// Writes rows over existing ones.
const UPDATE: &str = "UPDATE antiphon_records r SET place = k.place, idx = k.idx, value = k.value, version = k.version, \
    made_at = k.made_at, expires_at = k.expires_at, checksum = k.checksum \
    FROM unnest($1::smallint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bigint[], \
    $8::bigint[], $9::bigint[], $10::bytea[]) \
    AS k (kind, principal, name, place, idx, value, version, made_at, expires_at, checksum) \
    WHERE r.kind = k.kind AND r.principal = k.principal AND r.name = k.name";
/// Adds rows, and returns one row for each. Another batch may have added the same key meanwhile.
pub(super) const INSERT: &str = "INSERT INTO antiphon_records (kind, principal, name, place, idx, value, version, made_at, expires_at, \
    checksum) SELECT * FROM unnest($1::smallint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], \
    $6::bytea[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[]) \
    ON CONFLICT (kind, principal, name) DO NOTHING RETURNING 1";
/// Adds to the bytes of principals.
pub(super) const ADD_OWNED: &str = "INSERT INTO antiphon_principals AS p (principal, bytes) SELECT * FROM unnest($1::bytea[], $2::bigint[]) \
    ON CONFLICT (principal) DO UPDATE SET bytes = p.bytes + excluded.bytes";
/// Adds to one part of the size.
pub(super) const ADD_SIZE: &str =
    "UPDATE antiphon_sizes SET bytes = bytes + $2, records = records + $3 WHERE shard = $1";

/// A writer of batches.
#[derive(Debug)]
pub(super) struct BatchWriter {
    pub(super) pool: Pool,
    pub(super) settings: LedgerSettings,
    /// The row to which the batches of this writer add their size.
    pub(super) shard: i16,
    pub(super) changes: LedgerChanges,
    /// The replica that tells the others of its changes.
    pub(super) replica: ReplicaId,
}

impl BatchWriter {
    /// Writes batches until the ledger is dropped.
    pub(super) async fn run(&self, queue: &CommitQueue) {
        while let Some(mut batch) = queue.next_batch().await {
            let (commits, replies): (Vec<Vec<TimedCommit>>, Vec<_>) = std::mem::take(&mut batch.requests)
                .into_iter()
                .map(|request| (request.commits, request.reply))
                .unzip();
            let lengths: Vec<usize> = commits.iter().map(Vec::len).collect();
            let written = self.write(commits.into_iter().flatten().collect()).await;
            // Before the answers: a caller may send the next commit of the same records at once.
            drop(batch);
            match written {
                Ok(results) => {
                    let mut results = results.into_iter();
                    for (length, reply) in lengths.into_iter().zip(replies) {
                        // A caller that hit its timeout has dropped the receiver.
                        drop(reply.send(Ok(results.by_ref().take(length).collect())));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to write to the ledger");
                    let why = error.to_string();
                    for reply in replies {
                        drop(reply.send(Err(LedgerError::Store(why.clone().into()))));
                    }
                }
            }
        }
    }

    /// Writes commits. Those that find no room are tried once more without the records that have expired.
    async fn write(&self, commits: Vec<TimedCommit>) -> Result<Vec<CommitResult>, PostgresError> {
        let (mut results, wants_room) = self.write_in_time(&commits).await?;
        if !wants_room {
            return Ok(results);
        }
        let is_full = |result: &CommitResult| matches!(result, Err(LedgerError::Full { .. }));
        let full = commits.iter().zip(&results).filter(|(_, result)| is_full(result));
        let now = full.map(|(commit, _)| commit.now).max().unwrap_or_default();
        expiry::remove_expired(&self.pool, now).await?;
        for (commit, result) in commits
            .into_iter()
            .zip(&mut results)
            .filter(|(_, result)| is_full(result))
        {
            let (again, _) = self.write_in_time(std::slice::from_ref(&commit)).await?;
            if let Some(again) = again.into_iter().next() {
                *result = again;
            }
        }
        Ok(results)
    }

    async fn write_in_time(&self, commits: &[TimedCommit]) -> Result<(Vec<CommitResult>, bool), PostgresError> {
        let mut tries = 1;
        loop {
            let written = self.try_write(commits, clock::now() + BATCH_TIMEOUT).await;
            if matches!(&written, Err(error) if error.is_outage()) {
                // It may have been committed, without this process taking note of it.
                self.changes.note_unknown();
            }
            match written {
                Err(error) if error.is_temporary() && tries < TRIES_MAX => tries += 1,
                written => return written,
            }
        }
    }

    /// Writes commits in one transaction. Returns their results, and `true` if one needs the room of expired records.
    async fn try_write(
        &self,
        commits: &[TimedCommit],
        deadline: Instant,
    ) -> Result<(Vec<CommitResult>, bool), PostgresError> {
        let connected = timeout_at(deadline, self.connect()).await;
        let mut connection = connected.map_err(|_| PostgresError::Silent)??;
        let run = run_batch(connection.client()?, commits, self);
        let Ok(done) = timeout_at(deadline, run).await else {
            drop(connection);
            // The COMMIT may still arrive. Until the database has ended the transaction, no later commit of these records
            // may be sent.
            sleep(SILENCE_MAX).await;
            return Err(PostgresError::Silent);
        };
        let done = done?;
        connection.release();
        Ok(done)
    }

    /// Takes a connection. Tries again for as long as the database cannot be reached: nothing was written yet.
    async fn connect(&self) -> Result<DatabaseConnection, PostgresError> {
        loop {
            match DatabaseConnection::take(&self.pool).await {
                Err(error) if error.is_outage() => sleep(RETRY_PAUSE).await,
                taken => return taken,
            }
        }
    }
}

async fn run_batch(
    client: &Client,
    commits: &[TimedCommit],
    writer: &BatchWriter,
) -> Result<(Vec<CommitResult>, bool), PostgresError> {
    let mut loaded = load(client, commits).await?;
    let mut results = Vec::with_capacity(commits.len());
    for TimedCommit { steps, now } in commits {
        let result = match steps::check_bounds(steps) {
            Ok(()) => {
                let Ok(result) = steps::commit_steps(&mut loaded, writer.settings, steps, *now);
                result
            }
            Err(error) => Err(error),
        };
        results.push(result);
    }
    let wants_room = loaded.wants_room();
    let change = loaded.into_change();
    if change.is_empty() {
        client.batch_execute("ROLLBACK").await?;
    } else {
        apply(client, &change, writer).await?;
        client.batch_execute("COMMIT").await?;
    }
    Ok((results, wants_room))
}

/// Begins a transaction, locks the rows of a batch and reads them. One round trip.
async fn load(client: &Client, commits: &[TimedCommit]) -> Result<LoadedRecords, PostgresError> {
    let steps = || commits.iter().flat_map(|commit| &commit.steps);
    let keys: BTreeSet<&RecordKey> = steps().map(CommitStep::key).collect();
    let principals: BTreeSet<&[u8]> = keys.iter().map(|key| &key.principal[..]).collect();
    let inserts = steps().filter(|step| matches!(step, CommitStep::Insert { .. }));
    let places = i32::try_from(inserts.count()).unwrap_or(i32::MAX);
    let arrays = KeyArrays::of_keys(keys.iter().copied());
    let principals: Vec<&[u8]> = principals.into_iter().collect();
    let (rows, own, size, places) = {
        let key_parameters = arrays.parameters();
        let begin = client.batch_execute(BEGIN);
        // Sorted below the lock, so that the rows are locked in this order.
        let rows = client.query_typed(
            select!(
                "JOIN unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS k (kind, principal, name) \
                 USING (kind, principal, name) ORDER BY r.kind, r.principal, r.name FOR UPDATE OF r"
            ),
            &key_parameters,
        );
        let own: [Parameter<'_>; 1] = [(&principals, Type::BYTEA_ARRAY)];
        let own = client.query_typed(
            "SELECT principal, bytes FROM antiphon_principals WHERE principal = ANY($1)",
            &own,
        );
        let size = client.query_typed(
            "SELECT coalesce(sum(bytes), 0)::bigint, coalesce(sum(records), 0)::bigint FROM antiphon_sizes",
            &[],
        );
        let count: [Parameter<'_>; 1] = [(&places, Type::INT4)];
        let places = client.query_typed("SELECT nextval('antiphon_places') FROM generate_series(1, $1)", &count);
        // Sent at once, and answered in this order.
        let (begun, rows, own, size, places) = tokio::join!(begin, rows, own, size, places);
        begun?;
        (rows?, own?, size?, places?)
    };
    let mut stored = Vec::with_capacity(rows.len());
    for row in &rows {
        stored.extend(TableRow::read(row)?);
    }
    // A principal without a row has no bytes, but is written like the others.
    let mut bytes: HashMap<PrincipalHash, u64> = keys.iter().map(|key| (key.principal, 0)).collect();
    for row in &own {
        if let Ok(principal) = <PrincipalHash>::try_from(row.try_get::<_, &[u8]>(0)?) {
            bytes.insert(principal, unsigned(row.try_get(1)?));
        }
    }
    let size = match size.first() {
        Some(row) => LedgerSize {
            bytes: unsigned(row.try_get(0)?),
            records: unsigned(row.try_get(1)?),
        },
        None => LedgerSize::default(),
    };
    let mut free = places
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<Vec<i64>, _>>()?;
    free.sort_unstable();
    Ok(LoadedRecords::new(stored, size, bytes, free))
}

/// Writes the change of a batch. One round trip.
async fn apply(client: &Client, change: &TableChange, writer: &BatchWriter) -> Result<(), PostgresError> {
    let deleted = KeyArrays::of_keys(&change.deleted);
    let (replaced, added) = (
        RowArrays::of_records(&change.replaced),
        RowArrays::of_records(&change.added),
    );
    let (principals, bytes): (Vec<&[u8]>, Vec<i64>) = change
        .bytes
        .iter()
        .map(|(principal, bytes)| (&principal[..], *bytes))
        .unzip();
    let shard = writer.shard.rem_euclid(SIZE_SHARDS);
    let notices = writer.replica.notices(change);
    let told = notify_parameters(&notices);
    let deleted = deleted.parameters();
    let (replaced, added) = (replaced.parameters(), added.parameters());
    let sizes: [Parameter<'_>; 3] = [
        (&shard, Type::INT2),
        (&change.total_bytes, Type::INT8),
        (&change.total_records, Type::INT8),
    ];
    let owners: [Parameter<'_>; 2] = [(&principals, Type::BYTEA_ARRAY), (&bytes, Type::INT8_ARRAY)];
    let statements: [(bool, &str, &[Parameter<'_>]); 6] = [
        (!change.deleted.is_empty(), DELETE, &deleted),
        (!change.replaced.is_empty(), UPDATE, &replaced),
        (!change.added.is_empty(), INSERT, &added),
        (!principals.is_empty(), ADD_OWNED, &owners),
        (true, ADD_SIZE, &sizes),
        (!notices.is_empty(), NOTIFY, &told),
    ];
    let sent = statements
        .iter()
        .filter(|(is_needed, ..)| *is_needed)
        .map(|(_, sql, parameters)| async move {
            let rows = client.query_typed(sql, parameters).await?;
            Ok::<usize, PostgresError>(rows.len())
        });
    // Only the inserts return rows: one for each record, unless another batch was first.
    let inserted: usize = try_join_all(sent).await?.into_iter().sum();
    if inserted == change.added.len() {
        Ok(())
    } else {
        Err(PostgresError::Raced)
    }
}

/// Returns a stored number. One below zero is none.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
