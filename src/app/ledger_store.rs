//! The store of a launched proxy's ledger: the configured file or database, or memory.

use std::{path::Path, sync::Arc, time::Duration};

use super::{StartError, lasting_memory::LastingMemory};
use crate::{
    clock,
    config::{LedgerConfig, LedgerPlace, default_ledger_path, process_environment},
    ledger::{
        DatabaseSettings, Ledger, LedgerOpenError, LedgerSettings, MemoryLedger, PostgresLedger, PostgresWorker,
        SqliteLedger,
    },
    upstream::random_bytes,
};

/// Time that a start waits for a database that cannot be reached.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two tries to reach it.
const DATABASE_RETRY: Duration = Duration::from_secs(1);

/// Choice of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerStore {
    /// The configured store.
    Configured,
    /// The configured store, or memory if another process uses the default file.
    ConfiguredOrMemory,
    /// Memory that counts as lasting, for a process that nobody starts anew.
    LastingMemory,
}

/// An open ledger, and its place.
pub(super) struct OpenedLedger {
    pub(super) ledger: Arc<dyn Ledger>,
    /// The file or the database, for operators. `None` if the ledger is in memory.
    pub(super) place: Option<String>,
    /// The writers of a database, which have to run.
    pub(super) database_worker: Option<PostgresWorker>,
}

impl OpenedLedger {
    fn in_memory(ledger: impl Ledger + 'static) -> Self {
        Self {
            ledger: Arc::new(ledger),
            place: None,
            database_worker: None,
        }
    }
}

/// Opens the ledger. Waits for a database that cannot be reached, for [`DATABASE_TIMEOUT`] at most.
pub(super) async fn open_ledger(config: &LedgerConfig, store: LedgerStore) -> Result<OpenedLedger, StartError> {
    let secret = random_bytes().map_err(StartError::LedgerSecret)?;
    if store == LedgerStore::LastingMemory {
        let lasting = LastingMemory(MemoryLedger::new(config.settings, secret));
        return Ok(OpenedLedger::in_memory(lasting));
    }
    match &config.place {
        LedgerPlace::Memory => Ok(OpenedLedger::in_memory(MemoryLedger::new(config.settings, secret))),
        LedgerPlace::File(path) => open_file(path.as_deref(), config.settings, secret, store),
        LedgerPlace::Database(database) => open_database(database, config.settings, secret).await,
    }
}

/// Opens a file.
///
/// If no file is configured and the default file cannot be created, the ledger is in memory. That is the case in a
/// container without a home directory.
fn open_file(
    configured: Option<&Path>,
    settings: LedgerSettings,
    secret: [u8; 32],
    store: LedgerStore,
) -> Result<OpenedLedger, StartError> {
    let in_memory = || OpenedLedger::in_memory(MemoryLedger::new(settings, secret));
    let path = configured.map(Path::to_owned);
    let Some(path) = path.or_else(|| default_ledger_path(&process_environment)) else {
        warn_of_memory_ledger("there is no home directory");
        return Ok(in_memory());
    };
    match SqliteLedger::open(&path, settings, secret) {
        Ok(ledger) => Ok(OpenedLedger {
            ledger: Arc::new(ledger),
            place: Some(path.display().to_string()),
            database_worker: None,
        }),
        // Only if the default file does not exist: an existing one has records that must not be ignored.
        Err(error @ LedgerOpenError::Unusable { .. }) if configured.is_none() && !path.exists() => {
            warn_of_memory_ledger(&error.to_string());
            Ok(in_memory())
        }
        Err(why @ LedgerOpenError::InUse { .. })
            if configured.is_none() && store == LedgerStore::ConfiguredOrMemory =>
        {
            tracing::warn!(%why, "the ledger's records will be lost when this command ends");
            Ok(in_memory())
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a database. One that cannot be reached may be about to start, or to change its primary: it is tried again.
async fn open_database(
    database: &DatabaseSettings,
    settings: LedgerSettings,
    secret: [u8; 32],
) -> Result<OpenedLedger, StartError> {
    let deadline = clock::now() + DATABASE_TIMEOUT;
    let mut was_logged = false;
    loop {
        match PostgresLedger::open(database, settings, secret).await {
            Ok((ledger, worker)) => {
                let place = ledger.place().to_owned();
                return Ok(OpenedLedger {
                    ledger: Arc::new(ledger),
                    place: Some(place),
                    database_worker: Some(worker),
                });
            }
            Err(error) if error.is_temporary() && clock::now() < deadline => {
                if !was_logged {
                    tracing::warn!(%error, "waiting for the database of the ledger");
                    was_logged = true;
                }
                tokio::time::sleep(DATABASE_RETRY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Warns that the ledger is in memory only, although a file was expected.
fn warn_of_memory_ledger(why: &str) {
    tracing::warn!(
        why,
        "the ledger is in memory and lost at exit: set ledger.path to a writable file, or ledger.store to \"memory\""
    );
}
