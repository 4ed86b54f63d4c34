//! The files of a store: identification, permissions and locking. Nothing here writes to a store.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::ledger::LedgerOpenError;

/// The SQLite application id of every Antiphon store: the ASCII letters `Anti`.
pub(super) const APPLICATION_ID: i32 = 0x416E_7469;
/// The schema version that this build writes.
pub(super) const SCHEMA_VERSION: i64 = 1;

const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;

/// The presence of a store at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorePresence {
    /// No file, or an empty one.
    Missing,
    /// A file with the header of an Antiphon store.
    Present,
}

/// Returns `path` with `ending` appended to its file name.
pub(super) fn sibling_path(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

pub(super) fn unusable_error(path: &Path, why: impl Into<String>) -> LedgerOpenError {
    LedgerOpenError::Unusable {
        path: path.to_owned(),
        why: why.into(),
    }
}

pub(super) fn damaged_error(path: &Path, why: impl Into<String>) -> LedgerOpenError {
    LedgerOpenError::Damaged {
        path: path.to_owned(),
        why: why.into(),
    }
}

pub(super) fn foreign_error(path: &Path, why: impl Into<String>) -> LedgerOpenError {
    LedgerOpenError::Foreign {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// Returns the canonical path of a store, with all links resolved. Two paths of one store would get two locks.
pub(super) fn canonical_path(path: &Path) -> Result<PathBuf, LedgerOpenError> {
    let failed = |error: io::Error| unusable_error(path, error.to_string());
    // SQLite parses a path that begins with `file:` as a URI.
    let whole = std::path::absolute(path).map_err(failed)?;
    // A dangling link counts as existing and fails: the lock would be beside the link, and not beside its target.
    if fs::symlink_metadata(&whole).is_ok() {
        return fs::canonicalize(&whole).map_err(failed);
    }
    let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(unusable_error(path, "it does not name a file"));
    };
    Ok(fs::canonicalize(folder).map_or_else(|_| whole.clone(), |folder| folder.join(name)))
}

/// Creates the folder of a store. Folders that did not exist are accessible to their owner only.
pub(super) fn create_folder(path: &Path) -> Result<(), LedgerOpenError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(folder)
        .map_err(|error| unusable_error(path, error.to_string()))
}

/// Opens a file that only its owner may access, and creates it if it does not exist.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes the access of other users to a store. SQLite gives new files beside it the same permissions.
pub(super) fn restrict_access(path: &Path) -> Result<(), LedgerOpenError> {
    #[cfg(unix)]
    for ending in ["", "-wal", "-shm"] {
        use std::os::unix::fs::PermissionsExt as _;
        let file = sibling_path(path, ending);
        let Ok(metadata) = fs::metadata(&file) else { continue };
        if metadata.permissions().mode() & 0o777 != 0o600 {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
                .map_err(|error| unusable_error(&file, error.to_string()))?;
        }
    }
    let _ = path;
    Ok(())
}

/// Locks a store for this process until the returned file is dropped.
pub(super) fn lock_store(path: &Path) -> Result<File, LedgerOpenError> {
    // The lock has a file of its own: closing any handle of the store itself would drop SQLite's locks on it.
    let name = sibling_path(path, ".lock");
    let file = open_private(&name).map_err(|error| unusable_error(&name, error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LedgerOpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(unusable_error(&name, error.to_string())),
    }
}

/// Reads the header of a store without SQLite, which may write when it opens a file.
///
/// Must not be called while this process has the store open. Closing any handle of a file releases all locks that the
/// process has on it. Callers ensure this with [`lock_store`].
pub(super) fn read_presence(path: &Path) -> Result<StorePresence, LedgerOpenError> {
    let failed = |error: io::Error| unusable_error(path, error.to_string());
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return check_no_log(path),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_file() {
        return Err(foreign_error(path, "it is not a regular file"));
    }
    // SQLite treats an empty file as a new database.
    if metadata.len() == 0 {
        return check_no_log(path);
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let file = File::open(path).map_err(failed)?;
    file.take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .map_err(failed)?;
    if !header.starts_with(MAGIC) || header.len() < HEADER_BYTES {
        return Err(foreign_error(path, "it is not an SQLite file"));
    }
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i32::from_be_bytes)
    };
    // The offsets of the application id and of the user version in the SQLite header.
    check_header(path, i64::from(number(68)), i64::from(number(60)))?;
    Ok(StorePresence::Present)
}

/// Checks the application id and the schema version of a store.
pub(super) fn check_header(path: &Path, application_id: i64, version: i64) -> Result<(), LedgerOpenError> {
    if application_id != i64::from(APPLICATION_ID) {
        return Err(foreign_error(path, "it is another program's SQLite file"));
    }
    match version {
        SCHEMA_VERSION => Ok(()),
        found if found > SCHEMA_VERSION => Err(LedgerOpenError::Version {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        }),
        found => Err(foreign_error(
            path,
            format!("its schema version {found} is not one of Antiphon's"),
        )),
    }
}

/// Returns [`StorePresence::Missing`], or an error if a write-ahead log exists without its store. SQLite would replay it into
/// a new store.
fn check_no_log(path: &Path) -> Result<StorePresence, LedgerOpenError> {
    let log = sibling_path(path, "-wal");
    match fs::metadata(&log) {
        Ok(metadata) if metadata.len() > 0 => {
            Err(damaged_error(path, format!("there is {} without it", log.display())))
        }
        _ => Ok(StorePresence::Missing),
    }
}

/// Waits until the directory entries of a store's folder are on disk.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    // Without it a power failure may undo the rename that put a new store in its place.
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    let _ = path;
    Ok(())
}
