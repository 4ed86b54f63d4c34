//! The store of a launched proxy's ledger: the configured file, or memory.

use std::{path::PathBuf, sync::Arc};

use super::{StartError, lasting_memory::LastingMemory};
use crate::{
    config::{LedgerConfig, default_ledger_path, process_environment},
    ledger::{Ledger, LedgerOpenError, MemoryLedger, SqliteLedger},
    upstream::random_bytes,
};

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
    /// The file. `None` if the ledger is in memory.
    pub(super) file: Option<PathBuf>,
}

impl OpenedLedger {
    fn in_memory(ledger: impl Ledger + 'static) -> Self {
        Self {
            ledger: Arc::new(ledger),
            file: None,
        }
    }
}

/// Opens the ledger.
///
/// If no file is configured and the default file cannot be created, the ledger is in memory. That is the case in a
/// container without a home directory.
pub(super) fn open_ledger(config: &LedgerConfig, store: LedgerStore) -> Result<OpenedLedger, StartError> {
    let secret = random_bytes().map_err(StartError::LedgerSecret)?;
    let in_memory = || OpenedLedger::in_memory(MemoryLedger::new(config.settings, secret));
    if store == LedgerStore::LastingMemory {
        let lasting = LastingMemory(MemoryLedger::new(config.settings, secret));
        return Ok(OpenedLedger::in_memory(lasting));
    }
    if !config.is_file {
        return Ok(in_memory());
    }
    let Some(path) = config
        .path
        .clone()
        .or_else(|| default_ledger_path(&process_environment))
    else {
        warn_of_memory_ledger("there is no home directory");
        return Ok(in_memory());
    };
    match SqliteLedger::open(&path, config.settings, secret) {
        Ok(ledger) => Ok(OpenedLedger {
            ledger: Arc::new(ledger),
            file: Some(path),
        }),
        // Only if the default file does not exist: an existing one has records that must not be ignored.
        Err(error @ LedgerOpenError::Unusable { .. }) if config.path.is_none() && !path.exists() => {
            warn_of_memory_ledger(&error.to_string());
            Ok(in_memory())
        }
        Err(why @ LedgerOpenError::InUse { .. })
            if config.path.is_none() && store == LedgerStore::ConfiguredOrMemory =>
        {
            tracing::warn!(%why, "the ledger's records will be lost when this command ends");
            Ok(in_memory())
        }
        Err(error) => Err(error.into()),
    }
}

/// Warns that the ledger is in memory only, although a file was expected.
fn warn_of_memory_ledger(why: &str) {
    tracing::warn!(
        why,
        "the ledger is in memory and lost at exit: set ledger.path to a writable file, or ledger.store to \"memory\""
    );
}
