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
    check_bytes(file, manifest)?;
    cut_appended(file, manifest)?;
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

/// Checks that the bytes from before the fix are there, under the changes of the fix.
fn check_bytes(file: &File, manifest: &FixManifest) -> Result<(), RestoreFault> {
    let mut input = file;
    input.rewind()?;
    let digest = DigestReader::new(manifest.changes.view(input, ChangeSide::Old)).finish()?;
    (digest == manifest.digest_before)
        .then_some(())
        .ok_or(RestoreFault::Changed)
}

/// Cuts off what the fix has appended. Fails if anything else stands there.
///
/// The check of the bytes may take minutes, in which a client may append: the end is looked at last.
fn cut_appended(file: &File, manifest: &FixManifest) -> Result<(), RestoreFault> {
    let changes = &manifest.changes;
    let mut input = file;
    input.seek(SeekFrom::Start(changes.size_before))?;
    // One byte more shows that something follows.
    let limit = u64::try_from(changes.appended.len())
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut tail = Vec::new();
    let read = input.take(limit).read_to_end(&mut tail)?;
    let end = changes
        .size_before
        .saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    if !changes.appended.starts_with(&tail) || file.metadata()?.len() > end {
        return Err(RestoreFault::Appended);
    }
    file.set_len(changes.size_before)?;
    Ok(file.sync_all()?)
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::{cli::doctor::changes::FileChanges, sessions::SessionClient};

    #[test]
    fn what_a_client_appends_after_the_check_stays() {
        let (before, record, new) = (&b"{}\n"[..], &b"{\"end\":1}\n"[..], &b"{\"new\":1}\n"[..]);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[before, record].concat()).unwrap();
        let manifest = FixManifest {
            path: "/h/s1.jsonl".into(),
            client: SessionClient::Codex,
            session: None,
            made_at: String::new(),
            device: 0,
            inode: 0,
            modified: (0, 0),
            digest_before: DigestReader::new(before).finish().unwrap(),
            digest_after: String::new(),
            changes: FileChanges {
                appended: record.to_vec(),
                size_before: before.len() as u64,
                ..FileChanges::default()
            },
        };
        check_bytes(&file, &manifest).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(new).unwrap();
        assert!(matches!(cut_appended(&file, &manifest), Err(RestoreFault::Appended)));
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [before, record, new].concat());
        file.set_len((before.len() + record.len()) as u64).unwrap();
        restore_file(&file, &manifest).unwrap();
        assert_eq!(file.metadata().unwrap().len(), before.len() as u64);
    }
}
