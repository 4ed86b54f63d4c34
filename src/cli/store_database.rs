//! The database of the configuration, for the subcommands of `antiphon store`.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::path::PathBuf;

use tokio::runtime::Runtime;

use super::{config::load_chosen, store_error::StoreError};
use crate::{
    config::LedgerPlace,
    ledger::{DatabaseInspector, DatabaseSettings},
};

/// Flags of the subcommands that use the database.
#[derive(Debug, clap::Args)]
pub(super) struct DatabaseFlags {
    /// Configuration file with the URL of the database [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl DatabaseFlags {
    /// Returns the database of the configuration, and a runtime for its connections.
    pub(super) fn settings(&self) -> anyhow::Result<(Runtime, DatabaseSettings)> {
        let loaded = load_chosen(self.config.clone())?;
        let LedgerPlace::Database(database) = loaded.config.ledger.place else {
            return Err(StoreError::NoDatabase.into());
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok((runtime, database))
    }

    /// Opens the database for reading. Replicas may use it.
    pub(super) fn open_inspector(&self) -> anyhow::Result<DatabaseInspector> {
        let (runtime, database) = self.settings()?;
        Ok(DatabaseInspector::open(runtime, &database).map_err(StoreError::Database)?)
    }
}
