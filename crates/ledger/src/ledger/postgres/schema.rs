//! The tables, their version, and the secret of the ledger.

use tokio_postgres::{Client, GenericClient, IsolationLevel, error::SqlState, types::Type};

use super::{DatabaseOpenError, error::PostgresError};

/// The version of the tables that this build writes.
pub(super) const SCHEMA_VERSION: i32 = 1;
/// The number of rows among which the size of the ledger is divided, so that its writers do not wait for each other.
pub(super) const SIZE_SHARDS: i16 = 16;
/// The lock under which tables are created and changed: the bytes of `antiphon`.
const SCHEMA_LOCK: i64 = 0x616e_7469_7068_6f6e;

/// The statements of each version, in order. One that was released is never changed.
const MIGRATIONS: [&str; 1] = ["
    CREATE SEQUENCE antiphon_places;
    CREATE TABLE antiphon_records (
        kind smallint NOT NULL,
        principal bytea NOT NULL,
        name bytea NOT NULL,
        place bigint NOT NULL,
        idx bytea,
        version bigint NOT NULL,
        made_at bigint NOT NULL,
        expires_at bigint NOT NULL,
        checksum bytea NOT NULL,
        value bytea NOT NULL,
        PRIMARY KEY (kind, principal, name)
    );
    ALTER TABLE antiphon_records ALTER COLUMN value SET STORAGE EXTERNAL;
    CREATE UNIQUE INDEX antiphon_by_place ON antiphon_records (place);
    CREATE INDEX antiphon_by_principal ON antiphon_records (kind, principal, place);
    CREATE INDEX antiphon_by_index ON antiphon_records (kind, idx, place) WHERE idx IS NOT NULL;
    CREATE INDEX antiphon_by_expiry ON antiphon_records (expires_at);
    CREATE TABLE antiphon_principals (principal bytea PRIMARY KEY, bytes bigint NOT NULL);
    CREATE TABLE antiphon_sizes (shard smallint PRIMARY KEY, bytes bigint NOT NULL, records bigint NOT NULL);
    INSERT INTO antiphon_sizes SELECT shard, 0, 0 FROM generate_series(0, 15) shard;
"];

/// The table that tells the version of the others, the oldest version of a build that may use them, and the secret.
const META: &str = "CREATE TABLE IF NOT EXISTS antiphon_meta (id smallint PRIMARY KEY, version integer NOT NULL, \
     oldest_version integer NOT NULL, secret bytea NOT NULL)";
/// The oldest version of a build that may use the tables of this one: during a rollout both run.
const OLDEST_VERSION: i32 = 1;

/// The state of the tables.
pub(super) enum Prepared {
    /// This build can use them. This is the secret of the ledger.
    Ready([u8; 32]),
    /// They do not exist, or those of an older version have to be changed first.
    Old {
        /// Their version. 0 if they do not exist.
        found: i32,
        /// The version of this build.
        needed: i32,
    },
    /// A later version of Antiphon has changed them, so that this build cannot use them.
    Later {
        /// Their version.
        found: i32,
        /// The version of this build.
        known: i32,
    },
    /// They are not those of a ledger.
    Foreign,
}

impl Prepared {
    /// Returns `false` if these are certainly not the tables of a ledger with this secret.
    pub(super) fn may_belong_to(&self, secret: [u8; 32]) -> bool {
        match self {
            Self::Ready(found) => *found == secret,
            Self::Old { found, .. } => *found > 0,
            Self::Later { .. } => true,
            Self::Foreign => false,
        }
    }

    /// Returns the secret of the ledger, or the reason why this build cannot use the tables.
    pub(super) fn into_secret(self) -> Result<[u8; 32], DatabaseOpenError> {
        match self {
            Self::Ready(secret) => Ok(secret),
            Self::Old { found, needed } => Err(DatabaseOpenError::Old { found, needed }),
            Self::Later { found, known } => Err(DatabaseOpenError::Later { found, known }),
            Self::Foreign => Err(DatabaseOpenError::Foreign),
        }
    }
}

/// The row of the table about the tables.
struct Meta {
    version: i32,
    oldest_version: i32,
    secret: Vec<u8>,
}

impl Meta {
    async fn read(client: &impl GenericClient) -> Result<Option<Self>, PostgresError> {
        let sql = "SELECT version, oldest_version, secret FROM antiphon_meta WHERE id = 1";
        let rows = client.query_typed(sql, &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Self {
            version: row.try_get(0)?,
            oldest_version: row.try_get(1)?,
            secret: row.try_get(2)?,
        }))
    }

    fn judge(&self) -> Prepared {
        let Ok(secret) = <[u8; 32]>::try_from(&self.secret[..]) else {
            return Prepared::Foreign;
        };
        let (found, known) = (self.version, SCHEMA_VERSION);
        match found {
            found if found < known => Prepared::Old { found, needed: known },
            found if found > known && self.oldest_version > known => Prepared::Later { found, known },
            _ => Prepared::Ready(secret),
        }
    }
}

/// Reads the state of the tables, and changes nothing.
pub(super) async fn inspect(client: &impl GenericClient) -> Result<Prepared, PostgresError> {
    let absent = Prepared::Old {
        found: 0,
        needed: SCHEMA_VERSION,
    };
    // A query of the catalog, since `to_regclass` may answer from a cache that is older than the lock of a migration.
    let sql = "SELECT count(*) > 0 FROM pg_class WHERE relname = 'antiphon_meta' AND pg_table_is_visible(oid)";
    let rows = client.query_typed(sql, &[]).await?;
    if !rows.first().map_or(Ok(false), |row| row.try_get(0))? {
        return Ok(absent);
    }
    match Meta::read(client).await {
        Ok(meta) => Ok(meta.map_or(absent, |meta| meta.judge())),
        Err(PostgresError::Failed { state: Some(state), .. }) if state == SqlState::UNDEFINED_COLUMN => {
            Ok(Prepared::Foreign)
        }
        Err(error) => Err(error),
    }
}

/// Returns the statements that bring tables of version `found` to that of this build.
pub(super) fn pending_statements(found: i32) -> Vec<&'static str> {
    let migrations = MIGRATIONS
        .iter()
        .skip(usize::try_from(found).unwrap_or_default())
        .copied();
    let meta = (found == 0).then_some(META);
    meta.into_iter().chain(migrations).collect()
}

/// Creates the tables and brings them to the version of this build, once for all replicas. `new_secret` becomes the secret
/// of a new ledger.
pub(super) async fn migrate(client: &mut Client, new_secret: &[u8; 32]) -> Result<Prepared, PostgresError> {
    // Each statement sees what others have committed: another replica may have created the tables meanwhile.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted);
    let transaction = transaction.start().await?;
    transaction
        .query_typed("SELECT pg_advisory_xact_lock($1)", &[(&SCHEMA_LOCK, Type::INT8)])
        .await?;
    // Another replica may have changed them while this one waited for the lock.
    let Prepared::Old { found, .. } = inspect(&transaction).await? else {
        transaction.rollback().await?;
        return inspect(client).await;
    };
    for statements in pending_statements(found) {
        transaction.batch_execute(statements).await?;
    }
    transaction
        .query_typed(
            "INSERT INTO antiphon_meta (id, version, oldest_version, secret) VALUES (1, $1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET version = excluded.version, oldest_version = excluded.oldest_version",
            &[
                (&SCHEMA_VERSION, Type::INT4),
                (&OLDEST_VERSION, Type::INT4),
                (&&new_secret[..], Type::BYTEA),
            ],
        )
        .await?;
    transaction.commit().await?;
    inspect(client).await
}
