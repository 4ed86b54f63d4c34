//! The reasons why `antiphon store` cannot use a store.

use std::path::PathBuf;

use crate::{
    ledger::{CopyError, DatabaseOpenError, LedgerOpenError},
    upstream::RandomError,
};

/// Error for a store that cannot be used. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// No path is given and no default path is known.
    #[error("no home directory to look for the ledger: name its file with --path")]
    NoPath,
    /// The file does not exist.
    #[error("{} does not exist: a running proxy creates it; name another file with --path", .0.display())]
    Missing(PathBuf),
    /// The file cannot be opened.
    #[error(transparent)]
    Open(#[from] LedgerOpenError),
    /// The file to be copied does not exist.
    #[error("{} does not exist: name the file of a ledger, or `database`", .0.display())]
    NoSource(PathBuf),
    /// A ledger is to be copied into itself.
    #[error("--from and --to are the same database: name a file in one of them")]
    SameStore,
    /// The ledger is not in a database.
    #[error(
        "ledger.store is not \"postgres\": set it and ledger.url, or ANTIPHON_LEDGER_STORE and ANTIPHON_LEDGER_URL"
    )]
    NoDatabase,
    /// A store cannot be copied, or cannot take the copy.
    #[error(transparent)]
    Copy(CopyError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(DatabaseOpenError),
    /// No secret could be generated for a new ledger.
    #[error(transparent)]
    Random(RandomError),
}
