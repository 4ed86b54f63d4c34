//! The health of a store: the outcome of its last write, and the identity of its file.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicU8, Ordering},
};

use crate::ledger::LedgerFault;

const GOOD: u8 = 0;
const FAILED: u8 = 1;
const FULL: u8 = 2;

/// The outcome of a transaction, as far as it concerns health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteHealth {
    /// It is on disk.
    Stored,
    /// It is on disk, apart from a commit for which the whole ledger has no room.
    Full,
    /// The disk or SQLite failed.
    Failed,
}

/// The health that the writer thread notes, and that any thread reads.
#[derive(Debug)]
pub(super) struct StoreHealth {
    /// The file that was opened. `None` if the system does not tell.
    opened: Option<FileIdentity>,
    last_write: AtomicU8,
}

impl StoreHealth {
    /// Creates the health of the store at `path`, which was just opened.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            opened: FileIdentity::of_path(path).ok(),
            last_write: AtomicU8::new(GOOD),
        }
    }

    /// Notes the outcome of a transaction.
    pub(super) fn note_write(&self, health: WriteHealth) {
        let state = match health {
            WriteHealth::Stored => GOOD,
            WriteHealth::Full => FULL,
            WriteHealth::Failed => FAILED,
        };
        self.last_write.store(state, Ordering::Relaxed);
    }

    /// Returns the present fault. Blocks the thread for one look at the folder.
    pub(super) fn find_fault(&self, path: &Path) -> Option<LedgerFault> {
        // `stat` opens no handle: closing one would release the locks that SQLite has on the file.
        let found = FileIdentity::of_path(path);
        let is_gone = match (found, self.opened) {
            (Ok(found), Some(opened)) => found != opened,
            (Err(error), _) => error.kind() == io::ErrorKind::NotFound,
            (Ok(_), None) => false,
        };
        match self.last_write.load(Ordering::Relaxed) {
            _ if is_gone => Some(LedgerFault::FileGone),
            FAILED => Some(LedgerFault::WriteFailed),
            FULL => Some(LedgerFault::Full),
            _ => None,
        }
    }
}

/// The device and the number of a file. Other systems than Unix only tell if it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity(u64, u64);

impl FileIdentity {
    fn of_path(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            Ok(Self(metadata.dev(), metadata.ino()))
        }
        #[cfg(not(unix))]
        {
            let _ = metadata;
            Ok(Self(0, 0))
        }
    }
}
