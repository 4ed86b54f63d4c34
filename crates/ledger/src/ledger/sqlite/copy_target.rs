//! A new file that a copy of a ledger fills. It gets its name once it is complete.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use super::{
    files::{self, StorePresence},
    rows::{self, StoredRow, select},
    schema::{OpenedStore, open_store},
    store_error,
};
use crate::ledger::{CopyError, CopyTarget, LedgerError, PlacedCopy};

/// The most rows of a page.
const PAGE: u32 = 512;
/// The bytes of values after which a page ends. They are in memory together.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// A new file, under a temporary name until the copy is complete.
#[derive(Debug)]
pub struct FileCopyTarget {
    path: PathBuf,
    temporary: PathBuf,
    /// `None` once the copy was finished.
    store: Option<OpenedStore>,
    /// The lock of `path`, until the copy has its name.
    _lock: File,
}

impl FileCopyTarget {
    /// Creates the file beside `path`, which must not exist, for a ledger with this secret.
    pub fn create(path: &Path, secret: [u8; 32]) -> Result<Self, CopyError> {
        let path = files::canonical_path(path)?;
        files::create_folder(&path)?;
        let path = files::canonical_path(&path)?;
        // No proxy and no other copy creates the file meanwhile.
        let lock = files::lock_store(&path)?;
        if files::read_presence(&path)? == StorePresence::Present {
            return Err(CopyError::FileExists(path.display().to_string()));
        }
        let temporary = files::sibling_path(&path, ".copy");
        // An earlier copy may have been killed.
        remove_store(&temporary);
        let store = open_store(&temporary, secret)?;
        store
            .connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(|error| store_error(&error))?;
        Ok(Self {
            path,
            temporary,
            store: Some(store),
            _lock: lock,
        })
    }

    fn store(&self) -> Result<&OpenedStore, LedgerError> {
        self.store.as_ref().ok_or(LedgerError::Closed)
    }
}

impl CopyTarget for FileCopyTarget {
    fn add_records(&mut self, records: &[PlacedCopy]) -> Result<(), CopyError> {
        let connection = &self.store()?.connection;
        for (place, record) in records {
            rows::insert_row(connection, *place, record).map_err(|error| store_error(&error))?;
        }
        Ok(())
    }

    fn read_records(&mut self, after: i64) -> Result<Vec<PlacedCopy>, CopyError> {
        let connection = &self.store()?.connection;
        let read = || {
            let mut statement =
                connection.prepare_cached(select!("NOT INDEXED WHERE place > ?1 ORDER BY place LIMIT ?2"))?;
            let (mut page, mut bytes) = (Vec::new(), 0_usize);
            for row in statement.query_map((after, PAGE), StoredRow::read_row)? {
                let row = row?;
                bytes = bytes.saturating_add(row.record.as_ref().map_or(0, |record| record.value.len()));
                page.push(row);
                if bytes >= PAGE_BYTES {
                    break;
                }
            }
            rusqlite::Result::Ok(page)
        };
        let rows = read().map_err(|error| store_error(&error))?;
        let placed = |row: StoredRow| {
            row.record
                .map(|record| (row.place, record))
                .ok_or(CopyError::Differs(row.place))
        };
        rows.into_iter().map(placed).collect()
    }

    fn finish(mut self) -> Result<(), CopyError> {
        let Some(store) = self.store.take() else {
            return Err(LedgerError::Closed.into());
        };
        let end = "COMMIT; PRAGMA wal_checkpoint(TRUNCATE)";
        store
            .connection
            .execute_batch(end)
            .map_err(|error| store_error(&error))?;
        drop(store);
        let named = fs::rename(&self.temporary, &self.path).and_then(|()| files::sync_folder(&self.path));
        named.map_err(|error| files::unusable_error(&self.path, error.to_string()).into())
    }
}

impl Drop for FileCopyTarget {
    fn drop(&mut self) {
        self.store = None;
        // Nothing of a copy that was not finished stays, and only the lock file of one that was.
        remove_store(&self.temporary);
    }
}

fn remove_store(path: &Path) {
    for ending in ["", "-wal", "-shm", ".lock"] {
        drop(fs::remove_file(files::sibling_path(path, ending)));
    }
}
