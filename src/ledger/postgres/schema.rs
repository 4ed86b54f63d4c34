//! The tables, their version, and the secret of the ledger.

use deadpool_postgres::Object;
use tokio_postgres::types::Type;

use super::error::PostgresError;

/// The version of the tables that this build writes.
const SCHEMA_VERSION: i32 = 1;
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

/// Creates the tables and brings them to the version of this build, once for all replicas. Returns the secret of the
/// ledger, which is `new_secret` if this call has created it.
pub(super) async fn prepare(client: &mut Object, new_secret: &[u8; 32]) -> Result<Prepared, PostgresError> {
    let transaction = client.transaction().await?;
    transaction
        .query_typed("SELECT pg_advisory_xact_lock($1)", &[(&SCHEMA_LOCK, Type::INT8)])
        .await?;
    transaction
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS antiphon_meta (id smallint PRIMARY KEY, version integer NOT NULL, \
             secret bytea NOT NULL)",
        )
        .await?;
    let rows = transaction
        .query_typed("SELECT version, secret FROM antiphon_meta WHERE id = 1", &[])
        .await?;
    let (found, secret) = match rows.first() {
        Some(row) => (row.try_get::<_, i32>(0)?, row.try_get::<_, Vec<u8>>(1)?),
        None => (0, new_secret.to_vec()),
    };
    if found > SCHEMA_VERSION {
        return Ok(Prepared::Later {
            found,
            known: SCHEMA_VERSION,
        });
    }
    let Ok(secret) = <[u8; 32]>::try_from(&secret[..]) else {
        return Ok(Prepared::Foreign);
    };
    for statements in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or_default()) {
        transaction.batch_execute(statements).await?;
    }
    if found < SCHEMA_VERSION {
        transaction
            .query_typed(
                "INSERT INTO antiphon_meta (id, version, secret) VALUES (1, $1, $2) \
                 ON CONFLICT (id) DO UPDATE SET version = excluded.version",
                &[(&SCHEMA_VERSION, Type::INT4), (&&secret[..], Type::BYTEA)],
            )
            .await?;
    }
    transaction.commit().await?;
    Ok(Prepared::Ready(secret))
}

/// The state of the tables.
pub(super) enum Prepared {
    /// They have the version of this build. This is the secret of the ledger.
    Ready([u8; 32]),
    /// A later version of Antiphon has changed them.
    Later {
        /// Their version.
        found: i32,
        /// The version of this build.
        known: i32,
    },
    /// They are not those of a ledger.
    Foreign,
}
