//! Opening a store. It is created if it does not exist, and opened only if its whole schema is as expected.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::files::{self, APPLICATION_ID, SCHEMA_VERSION, StorePresence, damaged_error, foreign_error, unusable_error};
use crate::ledger::LedgerOpenError;

/// The timeout for a statement while another program has locked the file, such as an operator's SQLite shell.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// Every table, with the exact SQL that the file contains.
const TABLES: [(&str, &str); 2] = [
    (
        "meta",
        "CREATE TABLE meta (id INTEGER PRIMARY KEY, secret BLOB NOT NULL, checksum BLOB NOT NULL) STRICT",
    ),
    (
        "records",
        "CREATE TABLE records (place INTEGER PRIMARY KEY, kind INTEGER NOT NULL, principal BLOB NOT NULL, \
         name BLOB NOT NULL, idx BLOB, version INTEGER NOT NULL, made_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, \
         checksum BLOB NOT NULL, value BLOB NOT NULL) STRICT",
    ),
];

/// Every index, with the exact SQL that the file contains.
pub(super) const INDEXES: [(&str, &str); 4] = [
    ("by_expiry", "CREATE INDEX by_expiry ON records (expires_at)"),
    (
        "by_index",
        "CREATE INDEX by_index ON records (kind, idx) WHERE idx IS NOT NULL",
    ),
    (
        "by_key",
        "CREATE UNIQUE INDEX by_key ON records (kind, principal, name)",
    ),
    ("by_principal", "CREATE INDEX by_principal ON records (kind, principal)"),
];

/// An open store that this process has locked.
#[derive(Debug)]
pub(super) struct OpenedStore {
    /// The canonical path.
    pub(super) path: PathBuf,
    /// The lock file. Dropping it releases the lock.
    pub(super) lock: File,
    /// The connection that writes.
    pub(super) connection: Connection,
    /// The secret key.
    pub(super) secret: [u8; 32],
}

/// Opens a store for this process alone, and creates it with `new_secret` if it does not exist.
pub(super) fn open_store(path: &Path, new_secret: [u8; 32]) -> Result<OpenedStore, LedgerOpenError> {
    let path = files::canonical_path(path)?;
    // No process holds a store that has no lock file. A foreign file is rejected before anything is written beside it.
    if !files::sibling_path(&path, ".lock").exists() {
        files::read_presence(&path)?;
    }
    files::create_folder(&path)?;
    // The folder exists now, so links in its path can be resolved.
    let path = files::canonical_path(&path)?;
    let lock = files::lock_store(&path)?;
    // Checked again under the lock: another process may have created the store since.
    if files::read_presence(&path)? == StorePresence::Missing {
        create_store(&path, new_secret)?;
    }
    // SQLite copies these permissions to the files that it creates beside the store.
    files::restrict_access(&path)?;
    let connection = open_connection(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let secret = verify_store(&path, &connection)?;
    configure_writes(&connection).map_err(|error| open_error(&path, &error))?;
    // Once more, for the files that SQLite has opened in between.
    files::restrict_access(&path)?;
    Ok(OpenedStore {
        path,
        lock,
        connection,
        secret,
    })
}

/// Opens a read-only connection. Another process may hold the store. Returns the secret key, too.
pub(super) fn open_read_only(path: &Path) -> Result<(Connection, [u8; 32]), LedgerOpenError> {
    let path = files::canonical_path(path)?;
    let metadata = fs::metadata(&path).map_err(|error| unusable_error(&path, error.to_string()))?;
    // Opening a pipe or a device could block forever.
    if !metadata.is_file() {
        return Err(foreign_error(&path, "it is not a regular file"));
    }
    let connection = open_connection(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let secret = verify_store(&path, &connection)?;
    Ok((connection, secret))
}

fn open_connection(path: &Path, flags: OpenFlags) -> Result<Connection, LedgerOpenError> {
    let open = || {
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        // The file may be damaged or manipulated: its schema must not run code, and each page is checked before use.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(connection)
    };
    open().map_err(|error| open_error(path, &error))
}

/// Configures the write-ahead log. A commit returns when it is on disk.
fn configure_writes(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        let why = format!("its folder does not support a write-ahead log (journal mode {mode})");
        return Err(rusqlite::Error::SqliteFailure(error, Some(why)));
    }
    // With WAL, lower levels lose the latest commits in a power failure.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Overwrites removed values where that costs no additional write.
    connection.pragma_update(None, "secure_delete", "FAST")?;
    // Shrinks the log file to 64 MiB after a burst.
    connection.query_row("PRAGMA journal_size_limit = 67108864", [], |_| Ok(()))?;
    // Opens the log. If that fails, SQLite opens it read-only instead, and no later write would ever succeed.
    connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")
}

/// Creates a store under a temporary name and renames it when it is complete. No process ever sees a partial store.
fn create_store(path: &Path, secret: [u8; 32]) -> Result<(), LedgerOpenError> {
    let rough = files::sibling_path(path, ".new");
    // A crash may have left a partial file behind.
    for ending in ["", "-journal"] {
        drop(fs::remove_file(files::sibling_path(&rough, ending)));
    }
    let of_system = |error: std::io::Error| unusable_error(path, error.to_string());
    let file = files::open_private(&rough).map_err(of_system)?;
    let write = || {
        let connection = open_connection(&rough, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        create_tables(&connection, &secret).map_err(|error| open_error(path, &error))
    };
    let made = write().and_then(|()| {
        file.sync_all().map_err(of_system)?;
        fs::rename(&rough, path).map_err(of_system)?;
        files::sync_folder(path).map_err(of_system)
    });
    if made.is_err() {
        drop(fs::remove_file(&rough));
    }
    made
}

fn create_tables(connection: &Connection, secret: &[u8; 32]) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN EXCLUSIVE")?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    for (_, sql) in TABLES.iter().chain(&INDEXES) {
        connection.execute(sql, [])?;
    }
    let checksum: [u8; 32] = blake3::hash(secret).into();
    connection.execute(
        "INSERT INTO meta (id, secret, checksum) VALUES (1, ?1, ?2)",
        (secret, checksum),
    )?;
    connection.execute_batch("COMMIT")
}

/// Verifies header, schema and secret key of a store. Returns the secret key.
fn verify_store(path: &Path, connection: &Connection) -> Result<[u8; 32], LedgerOpenError> {
    let of_sqlite = |error: rusqlite::Error| open_error(path, &error);
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let application_id = number("PRAGMA application_id").map_err(of_sqlite)?;
    let version = number("PRAGMA user_version").map_err(of_sqlite)?;
    files::check_header(path, application_id, version)?;
    if read_schema(connection).map_err(of_sqlite)? != expected_schema() {
        return Err(damaged_error(path, "its tables differ from the expected schema"));
    }
    let read = connection.query_row("SELECT secret, checksum FROM meta WHERE id = 1", [], |row| {
        Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, [u8; 32]>(1)?))
    });
    match read {
        Ok((secret, checksum)) if blake3::hash(&secret) == checksum => Ok(secret),
        Err(error @ rusqlite::Error::SqliteFailure(..)) => Err(of_sqlite(error)),
        Ok(_) | Err(_) => Err(damaged_error(path, "its secret key is missing or wrong")),
    }
}

fn read_schema(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare(
        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

fn expected_schema() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = TABLES
        .iter()
        .chain(&INDEXES)
        .map(|(name, sql)| ((*name).to_owned(), (*sql).to_owned()))
        .collect();
    all.sort();
    all
}

/// Converts an SQLite error that occurred while opening the file.
pub(super) fn open_error(path: &Path, error: &rusqlite::Error) -> LedgerOpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => foreign_error(path, "it is not an SQLite file"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LedgerOpenError::InUse { path: path.to_owned() },
        Some(ErrorCode::DatabaseCorrupt) => damaged_error(path, error.to_string()),
        _ => unusable_error(path, error.to_string()),
    }
}
