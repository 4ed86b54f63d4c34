//! A client's file on the disk: read as a whole, and replaced at once beside a backup.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use crate::{printable::printable_text, server::regular_file::open_regular};

/// Largest file that is read, in bytes. Claude Code's user file had histories in it and grew to many megabytes.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Backups of one file.
const BACKUPS_MAX: usize = 99;
/// The end of the name of a backup, after that of the file.
const BACKUP_ENDING: &str = ".antiphon-backup";
/// The end of the name of a file that is not yet in its place.
const UNFINISHED_ENDING: &str = ".antiphon-new";

/// The reason why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum McpFileError {
    /// The system has refused it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Its text is in another encoding.
    #[error("it is not UTF-8 text: save it as UTF-8")]
    NotUtf8,
    /// It has another text than before.
    #[error(
        "it was changed while this command ran, so nothing is written: close the client that writes it, and run this again"
    )]
    Changed,
    /// It may not be written.
    #[error("it is read-only: chmod u+w it, or write what is printed without --write yourself")]
    ReadOnly,
    /// It has other names.
    #[error("it has more than one name (hard links), of which the others would keep the old text: write it yourself")]
    HardLinks,
    /// A command was stopped while it wrote.
    #[error("{} is left over from a command that was stopped: remove it, and run this again", printable_text(&.0.display().to_string()))]
    LeftOver(PathBuf),
    /// There are too many backups.
    #[error("there are {BACKUPS_MAX} backups beside it already: remove those that you do not need")]
    TooManyBackups,
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct McpFile {
    /// The file itself, behind all links.
    pub(super) target: PathBuf,
    pub(super) text: String,
}

impl McpFile {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, McpFileError> {
        let target = fs::canonicalize(path)?;
        let bytes = read_bytes(&target)?.0;
        let text = String::from_utf8(bytes).map_err(|_| McpFileError::NotUtf8)?;
        Ok(Self { target, text })
    }

    /// Replaces the text of the file at once, unless it has changed since. Returns the backup of its old text.
    pub(super) fn replace(&self, text: &str) -> Result<PathBuf, McpFileError> {
        let metadata = self.check_unchanged()?;
        if metadata.permissions().readonly() {
            return Err(McpFileError::ReadOnly);
        }
        if has_other_names(&metadata) {
            return Err(McpFileError::HardLinks);
        }
        let (backup, is_new) = self.keep_backup(&metadata)?;
        let written = self.write_over(text, &metadata);
        if written.is_err() && is_new {
            // Nothing was changed, so it is of no use.
            drop(fs::remove_file(&backup));
        }
        written.map(|()| backup)
    }

    /// Checks that the file has the text that was read.
    fn check_unchanged(&self) -> Result<Metadata, McpFileError> {
        let (bytes, metadata) = read_bytes(&self.target)?;
        if bytes == self.text.as_bytes() {
            Ok(metadata)
        } else {
            Err(McpFileError::Changed)
        }
    }

    fn write_over(&self, text: &str, metadata: &Metadata) -> Result<(), McpFileError> {
        let unfinished = self.beside(UNFINISHED_ENDING);
        create_like(&unfinished, text, metadata).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => McpFileError::LeftOver(unfinished.clone()),
            _ => error.into(),
        })?;
        // As late as possible: a client that runs may write at any time.
        let replaced = self
            .check_unchanged()
            .and_then(|_| Ok(fs::rename(&unfinished, &self.target)?));
        if replaced.is_err() {
            drop(fs::remove_file(&unfinished));
        }
        replaced?;
        // An error means that a loss of power may bring the old text back, which is whole, too.
        drop(sync_folder(&self.target));
        Ok(())
    }

    /// Keeps the old text beside the file. Returns the backup, and `true` if it is a new one.
    fn keep_backup(&self, metadata: &Metadata) -> Result<(PathBuf, bool), McpFileError> {
        for number in 1..=BACKUPS_MAX {
            let ending = match number {
                1 => BACKUP_ENDING.to_owned(),
                _ => format!("{BACKUP_ENDING}.{number}"),
            };
            let backup = self.beside(&ending);
            match create_like(&backup, &self.text, metadata) {
                Ok(()) => return Ok((backup, true)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            // One with the same text is enough.
            let is_same = read_bytes(&backup).is_ok_and(|(bytes, _)| bytes == self.text.as_bytes());
            if is_same {
                return Ok((backup, false));
            }
        }
        Err(McpFileError::TooManyBackups)
    }

    /// Returns the path of a file beside this one.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.target.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.target.with_file_name(name)
    }
}

fn read_bytes(path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
    let file = open_regular(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > BYTES_MAX) {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 64 MiB"));
    }
    Ok((bytes, metadata))
}

/// Creates a file with the owner and the mode of another one, and has the disk keep it.
fn create_like(path: &Path, text: &str, metadata: &Metadata) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    keep_private(&mut options);
    let mut file = options.open(path)?;
    let written = copy_owner(&file, metadata)
        .and_then(|()| file.set_permissions(metadata.permissions()))
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all());
    if written.is_err() {
        drop(fs::remove_file(path));
    }
    written
}

#[cfg(unix)]
fn keep_private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;

    options.mode(0o600);
}

#[cfg(not(unix))]
fn keep_private(_options: &mut OpenOptions) {}

/// Gives a new file the owner of another one.
#[cfg(unix)]
fn copy_owner(file: &File, metadata: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};

    let own = file.metadata()?;
    let owner = (own.uid() != metadata.uid()).then_some(metadata.uid());
    let group = (own.gid() != metadata.gid()).then_some(metadata.gid());
    if owner.is_some() || group.is_some() {
        fchown(file, owner, group)?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn copy_owner(_file: &File, _metadata: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn has_other_names(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    metadata.nlink() > 1
}

#[cfg(not(unix))]
fn has_other_names(_metadata: &Metadata) -> bool {
    false
}

/// Has the disk keep the name of a file.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_has_changed_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let file = McpFile::read(&path).unwrap();
        fs::write(&path, "of the client").unwrap();
        assert!(matches!(file.replace("new"), Err(McpFileError::Changed)));
        // After the backup, too.
        let metadata = fs::metadata(&path).unwrap();
        assert!(matches!(file.write_over("new", &metadata), Err(McpFileError::Changed)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "of the client");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn a_left_over_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "old").unwrap();
        fs::write(folder.path().join("a.json.antiphon-new"), "half").unwrap();
        let told = McpFile::read(&path).unwrap().replace("new").unwrap_err().to_string();
        assert!(told.contains("a.json.antiphon-new is left over"), "{told}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["a.json", "a.json.antiphon-new"]);
    }

    #[test]
    fn backups_are_kept_once_for_each_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "bare").unwrap();
        for _ in 0..3 {
            for (old, new) in [("bare", "wrapped"), ("wrapped", "bare")] {
                let backup = McpFile::read(&path).unwrap().replace(new).unwrap();
                assert_eq!(fs::read_to_string(backup).unwrap(), old);
                assert_eq!(fs::read_to_string(&path).unwrap(), new);
            }
        }
        assert_eq!(
            names(folder.path()),
            ["a.json", "a.json.antiphon-backup", "a.json.antiphon-backup.2"]
        );
    }
}
