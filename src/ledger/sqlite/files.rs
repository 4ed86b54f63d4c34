//! The files of a store: whose they are, who may read them, and who holds them. Nothing here writes to a store.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::ledger::OpenError;

/// `Anti`, in the header of every store of ours.
pub(super) const APPLICATION_ID: i32 = 0x416E_7469;
/// The schema that this version writes.
pub(super) const SCHEMA_VERSION: i64 = 1;

const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;

/// Whether there is a store yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// No file, or one without a byte.
    None,
    /// A file that calls itself ours.
    Ours,
}

/// `path` with an ending of ours behind its own.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

pub(super) fn unusable(path: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Unusable {
        path: path.to_owned(),
        why: why.into(),
    }
}

pub(super) fn foreign(path: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Foreign {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// The one path by which a store is known, whichever links lead to it: two locks of one store would be none.
pub(super) fn true_path(path: &Path) -> Result<PathBuf, OpenError> {
    let failed = |error: io::Error| unusable(path, error.to_string());
    // SQLite takes `file:` at the beginning of a path for more than a name.
    let whole = std::path::absolute(path).map_err(failed)?;
    if fs::symlink_metadata(&whole).is_ok() {
        return fs::canonicalize(&whole).map_err(failed);
    }
    let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(unusable(path, "it names no file"));
    };
    Ok(fs::canonicalize(folder).map_or_else(|_| whole.clone(), |folder| folder.join(name)))
}

/// Makes the folder of a store; those that were not there are for their owner alone.
pub(super) fn make_folder(path: &Path) -> Result<(), OpenError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(folder)
        .map_err(|error| unusable(path, error.to_string()))
}

/// A file for its owner alone, made if it is not there.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Takes from others what rights they have to a store. SQLite gives the files beside it the same.
pub(super) fn make_private(path: &Path) -> Result<(), OpenError> {
    #[cfg(unix)]
    for ending in ["", "-wal", "-shm"] {
        use std::os::unix::fs::PermissionsExt as _;
        let file = beside(path, ending);
        let Ok(metadata) = fs::metadata(&file) else { continue };
        if metadata.permissions().mode() & 0o777 != 0o600 {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))
                .map_err(|error| unusable(&file, error.to_string()))?;
        }
    }
    let _ = path;
    Ok(())
}

/// Holds a store for this process until the file is dropped.
pub(super) fn hold(path: &Path) -> Result<File, OpenError> {
    let name = beside(path, ".lock");
    let file = private(&name).map_err(|error| unusable(&name, error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(unusable(&name, error.to_string())),
    }
}

/// What the header says, read without SQLite, which may write when it opens a file.
///
/// Never while this process has the store open: closing any handle of a file gives up all locks that the process has on
/// it. [`hold`] tells.
pub(super) fn presence(path: &Path) -> Result<Presence, OpenError> {
    let failed = |error: io::Error| unusable(path, error.to_string());
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return absent(path),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_file() {
        return Err(foreign(path, "it is no regular file"));
    }
    if metadata.len() == 0 {
        return absent(path);
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let file = File::open(path).map_err(failed)?;
    file.take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .map_err(failed)?;
    if !header.starts_with(MAGIC) || header.len() < HEADER_BYTES {
        return Err(foreign(path, "it is no SQLite file"));
    }
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i32::from_be_bytes)
    };
    identify(path, i64::from(number(68)), i64::from(number(60)))?;
    Ok(Presence::Ours)
}

/// Whether these numbers of a header are those of a store that we can use.
pub(super) fn identify(path: &Path, application_id: i64, version: i64) -> Result<(), OpenError> {
    if application_id != i64::from(APPLICATION_ID) {
        return Err(foreign(path, "it is another program's SQLite file"));
    }
    match version {
        SCHEMA_VERSION => Ok(()),
        found if found > SCHEMA_VERSION => Err(OpenError::Version {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        }),
        found => Err(foreign(path, format!("it has no schema version of ours, but {found}"))),
    }
}

/// A log without its store would be played into a new one.
fn absent(path: &Path) -> Result<Presence, OpenError> {
    let log = beside(path, "-wal");
    match fs::metadata(&log) {
        Ok(metadata) if metadata.len() > 0 => Err(unusable(
            path,
            format!("there is {} without it; move that one away", log.display()),
        )),
        _ => Ok(Presence::None),
    }
}

/// Waits until the names in a store's folder are on the disk.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    let _ = path;
    Ok(())
}
