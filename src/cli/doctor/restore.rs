//! A session file as it was before a fix: put back in place, or written to another file.

use std::{
    fs::{File, FileTimes},
    io::{self, Read, Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
    time::{Duration, SystemTime},
};

use super::{changes::ChangeSide, file_digest::DigestReader, journal::FixManifest};

/// The reason why a file is not put back.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestoreFault {
    /// Somebody has appended to it.
    #[error("the client has written to it since the fix")]
    Appended,
    /// Its bytes are neither those before the fix nor those after it.
    #[error("another program has changed it since the fix")]
    Changed,
    /// It cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Puts the bytes from before a fix back, wherever the fix was stopped. Writes nothing if the result would differ.
pub(super) fn restore_file(file: &File, manifest: &FixManifest) -> Result<(), RestoreFault> {
    let changes = &manifest.changes;
    check_restorable(file, manifest)?;
    file.set_len(changes.size_before)?;
    file.sync_all()?;
    changes.write_side(ChangeSide::Old, |at, bytes| file.write_all_at(bytes, at))?;
    file.sync_all()?;
    let mut input = file;
    input.rewind()?;
    if DigestReader::new(input).finish()? != manifest.digest_before {
        return Err(RestoreFault::Changed);
    }
    restore_times(file, manifest)?;
    Ok(())
}

/// Sets the time of the last write to that before the fix.
pub(super) fn restore_times(file: &File, manifest: &FixManifest) -> io::Result<()> {
    let (seconds, nanoseconds) = manifest.modified;
    let since_1970 = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanoseconds)));
    let modified = SystemTime::UNIX_EPOCH.checked_add(since_1970);
    let modified = modified.ok_or(io::ErrorKind::InvalidData)?;
    file.set_times(FileTimes::new().set_modified(modified))?;
    file.sync_all()
}

/// Checks that nothing but the fix has changed the file.
fn check_restorable(file: &File, manifest: &FixManifest) -> Result<(), RestoreFault> {
    let changes = &manifest.changes;
    if file.metadata()?.len() < changes.size_before {
        return Err(RestoreFault::Changed);
    }
    let mut input = file;
    input.seek(SeekFrom::Start(changes.size_before))?;
    // One byte more shows that something follows.
    let limit = u64::try_from(changes.appended.len())
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut tail = Vec::new();
    input.take(limit).read_to_end(&mut tail)?;
    if !changes.appended.starts_with(&tail) {
        return Err(RestoreFault::Appended);
    }
    input.rewind()?;
    let digest = DigestReader::new(changes.view(input, ChangeSide::Old)).finish()?;
    (digest == manifest.digest_before)
        .then_some(())
        .ok_or(RestoreFault::Changed)
}

/// Writes the file from before a fix to a new file: from the present bytes, or from the copy if those differ.
pub(super) fn write_old_file(
    session: io::Result<File>,
    original: Option<File>,
    new: &mut File,
    manifest: &FixManifest,
) -> Result<(), RestoreFault> {
    let from_present = match session {
        Ok(file) if file.metadata()?.len() >= manifest.changes.size_before => {
            copy_checked(manifest.changes.view(file, ChangeSide::Old), new, manifest)?
        }
        // The client has removed the session, or cut it.
        Ok(_) | Err(_) => false,
    };
    let is_written = match original {
        Some(original) if !from_present => copy_checked(original, new, manifest)?,
        _ => from_present,
    };
    if !is_written {
        return Err(RestoreFault::Changed);
    }
    restore_times(new, manifest)?;
    Ok(())
}

/// Copies a file. Returns `true` if it is the one from before the fix.
fn copy_checked(input: impl Read, new: &mut File, manifest: &FixManifest) -> io::Result<bool> {
    new.set_len(0)?;
    new.rewind()?;
    let mut input = DigestReader::new(input);
    io::copy(&mut input, new)?;
    Ok(input.finish()? == manifest.digest_before)
}
