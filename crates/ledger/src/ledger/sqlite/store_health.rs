//! The health of a store: the outcome of its last write, and the identity of its file.
//!
//! A store that has failed is tried again when its health is asked for: otherwise a mended disk would look failed until
//! the next write of an exchange.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{clock, ledger::LedgerFault};

/// Time from a failed write to a trial. Until then only the success of another write clears the fault.
const TRIAL_DELAY: Duration = Duration::from_secs(5);

const GOOD: u8 = 0;
const FAILED: u8 = 1;
const FULL: u8 = 2;
const UNCHECKED: u8 = 3;
const DAMAGED: u8 = 4;

/// The outcome of a transaction or of the first check, as far as it concerns health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteHealth {
    /// It is on disk.
    Stored,
    /// It is on disk, apart from a commit for which the whole ledger has no room.
    Full,
    /// The disk or SQLite failed.
    Failed,
    /// The disk or SQLite failed in the first check, which is repeated.
    Unchecked,
    /// The first check has found damage that no rebuild of the indexes mends.
    Damaged,
}

/// The health that the writer thread notes, and that any thread reads.
#[derive(Debug)]
pub(super) struct StoreHealth {
    /// The file that was opened. `None` if the system does not tell.
    opened: Option<FileIdentity>,
    last_write: AtomicU8,
    trials: Mutex<Trials>,
}

/// The trial writes to a store that has failed.
#[derive(Debug, Default)]
struct Trials {
    /// Set while one is under way: on a disk that does not answer, they must not pile up.
    is_running: bool,
    /// The time of the last failed write, also of a trial. `None` if none has failed.
    failed_at: Option<Instant>,
}

/// A trial write that is under way. Its drop ends it, whoever drops it.
#[derive(Debug)]
pub(super) struct RunningTrial(Arc<StoreHealth>);

impl Drop for RunningTrial {
    fn drop(&mut self) {
        self.0.lock_trials().is_running = false;
    }
}

impl StoreHealth {
    /// Creates the health of the store at `path`, which was just opened.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            opened: FileIdentity::of_path(path).ok(),
            last_write: AtomicU8::new(GOOD),
            trials: Mutex::default(),
        }
    }

    /// Begins a trial write. `None` if another one is under way, or if a write has just failed.
    pub(super) fn begin_trial(self: &Arc<Self>) -> Option<RunningTrial> {
        let mut trials = self.lock_trials();
        let is_early = |failed_at| clock::now().duration_since(failed_at) < TRIAL_DELAY;
        if trials.is_running || trials.failed_at.is_some_and(is_early) {
            return None;
        }
        trials.is_running = true;
        Some(RunningTrial(Arc::clone(self)))
    }

    fn lock_trials(&self) -> MutexGuard<'_, Trials> {
        self.trials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the outcome of a transaction, or of the first check before all of them.
    pub(super) fn note_write(&self, health: WriteHealth) {
        if health == WriteHealth::Failed {
            self.lock_trials().failed_at = Some(clock::now());
        }
        let state = match health {
            WriteHealth::Stored => GOOD,
            WriteHealth::Full => FULL,
            WriteHealth::Failed => FAILED,
            WriteHealth::Unchecked => UNCHECKED,
            WriteHealth::Damaged => DAMAGED,
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
            UNCHECKED => Some(LedgerFault::Unchecked),
            DAMAGED => Some(LedgerFault::Damaged),
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
