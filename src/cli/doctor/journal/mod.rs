//! The private folder of each fix: its manifest, the original, and the marks of its end.
//!
//! A folder is `<time>-<id>` with `manifest.json` and, up to 256 MiB, `original`. The manifest is complete before the
//! session is touched. The empty file `ended` is the end mark, and `undone` says that the fix was taken back.

mod manifest;

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, BufReader, BufWriter, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde_json::Value;

pub(super) use manifest::FixManifest;

use super::places::named_id;

/// Files above this size are not copied: the manifest is enough to take a fix back.
const COPY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Folders of one session and one second.
const FOLDERS_MAX: usize = 9;
/// Characters of an id in the name of a folder.
const ID_CHARS_MAX: usize = 80;

const MANIFEST: &str = "manifest.json";
const UNFINISHED_MANIFEST: &str = "manifest.json.new";
/// The copy of the session file before the fix.
pub(super) const ORIGINAL: &str = "original";
const ENDED: &str = "ended";
const UNDONE: &str = "undone";
const LOCK: &str = "lock";

/// The folder of one fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FixJournal {
    pub(super) folder: PathBuf,
}

impl FixJournal {
    /// Creates the folder with its manifest and the copy, and has the disk keep both.
    pub(super) fn create(root: &Path, manifest: &FixManifest, session: &File) -> io::Result<Self> {
        let document = manifest.document().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "its path is no UTF-8: rename the folder, or mend a copy",
            )
        })?;
        let journal = Self {
            folder: create_folder(root, manifest)?,
        };
        let written = journal.write_files(&document, manifest, session);
        if written.is_err() {
            // Nothing was changed yet, so the folder is of no use.
            drop(fs::remove_dir_all(&journal.folder));
        }
        written.map(|()| journal)
    }

    fn write_files(&self, document: &Value, manifest: &FixManifest, session: &File) -> io::Result<()> {
        if manifest.changes.size_before <= COPY_BYTES_MAX {
            let mut copy = create_private(&self.folder.join(ORIGINAL))?;
            copy_file(session, &mut copy)?;
            copy.sync_all()?;
        }
        let unfinished = self.folder.join(UNFINISHED_MANIFEST);
        let mut out = BufWriter::new(create_private(&unfinished)?);
        serde_json::to_writer(&mut out, document)?;
        out.write_all(b"\n")?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        // A manifest that is there is complete.
        fs::rename(&unfinished, self.folder.join(MANIFEST))?;
        sync_folder(&self.folder)?;
        self.folder.parent().map_or(Ok(()), sync_folder)
    }

    /// Reads the manifest.
    pub(super) fn read_manifest(&self) -> io::Result<FixManifest> {
        let path = self.folder.join(MANIFEST);
        let document: Value = serde_json::from_reader(BufReader::new(File::open(&path)?))?;
        FixManifest::from_document(&document).ok_or_else(|| {
            let told = format!("{} is not a manifest of this version", path.display());
            io::Error::new(io::ErrorKind::InvalidData, told)
        })
    }

    /// Writes the end mark.
    pub(super) fn mark_ended(&self) -> io::Result<()> {
        self.write_mark(ENDED)
    }

    /// Notes that the fix was taken back.
    pub(super) fn mark_undone(&self) -> io::Result<()> {
        self.write_mark(UNDONE)
    }

    fn write_mark(&self, name: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        keep_private(&mut options);
        options.open(self.folder.join(name))?.sync_all()?;
        sync_folder(&self.folder)
    }

    /// Returns `true` if the fix was neither ended nor taken back.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.has_file(ENDED) && !self.has_file(UNDONE)
    }

    /// Returns `true` if the fix was taken back.
    pub(super) fn is_undone(&self) -> bool {
        self.has_file(UNDONE)
    }

    /// Returns the copy of the session. `None` if there is none.
    pub(super) fn original(&self) -> Option<PathBuf> {
        Some(self.folder.join(ORIGINAL)).filter(|path| path.is_file())
    }

    fn has_file(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// Returns the id of the session in the name of the folder.
    pub(super) fn id(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let id = name.split_once('-').map_or("", |(_, id)| id);
        id.split('.').next().unwrap_or(id).to_owned()
    }
}

/// Returns the id of a session as names of folders have it.
pub(super) fn folder_id(path: &Path) -> String {
    let letter = |letter: char| {
        let is_kept = letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if is_kept { letter } else { '-' }
    };
    named_id(path).chars().map(letter).take(ID_CHARS_MAX).collect()
}

/// Lists the fixes whose manifest is complete, oldest first. An empty list if the folder of all fixes is not there.
pub(super) fn list_journals(root: &Path) -> io::Result<Vec<FixJournal>> {
    let folders = list_folders(root)?.into_iter();
    let journals = folders.map(|folder| FixJournal { folder });
    Ok(journals.filter(|journal| journal.has_file(MANIFEST)).collect())
}

/// Lists the fixes that were stopped midway, oldest first. An empty list while a fix is under way: it has not ended
/// either, and holds the lock.
pub(super) fn list_stopped(root: &Path) -> Vec<FixJournal> {
    let mut stopped = list_journals(root).unwrap_or_default();
    stopped.retain(FixJournal::is_unfinished);
    if stopped.is_empty() {
        return stopped;
    }
    let locked = lock_root(root, true);
    let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
    // A fix may have ended between both looks.
    stopped.retain(|journal| journal.is_unfinished() && !locked.as_ref().is_err_and(is_busy));
    stopped
}

/// Lists the folders of all fixes, also of those that have touched no session, oldest first.
pub(super) fn list_folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    // Their names begin with the time.
    folders.sort();
    Ok(folders)
}

/// Locks the folder of all fixes, until the file is dropped. A removal needs it alone.
pub(super) fn lock_root(root: &Path, is_alone: bool) -> io::Result<File> {
    create_folders(root)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    keep_private(&mut options);
    let file = options.open(root.join(LOCK))?;
    let locked = if is_alone {
        file.try_lock()
    } else {
        file.try_lock_shared()
    };
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let told = "another antiphon doctor is at work: wait for it, then run this again";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, told))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn create_folder(root: &Path, manifest: &FixManifest) -> io::Result<PathBuf> {
    create_folders(root)?;
    let time: String = manifest.made_at.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("{time}-{}", folder_id(&manifest.path));
    for number in 1..=FOLDERS_MAX {
        let ending = if number == 1 {
            String::new()
        } else {
            format!(".{number}")
        };
        let folder = root.join(format!("{name}{ending}"));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let told = "this session was mended too often in this second, so nothing is written: run this again";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, told))
}

fn create_folders(root: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(root)
}

/// Creates a file that only this user may read.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    keep_private(&mut options);
    options.open(path)
}

fn keep_private(options: &mut OpenOptions) {
    options.mode(0o600);
}

/// Copies a file. Where the disk can, both share their blocks.
fn copy_file(session: &File, copy: &mut File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if rustix::fs::ioctl_ficlone(&*copy, session).is_ok() {
        return Ok(());
    }
    let mut input = session;
    io::Seek::rewind(&mut input)?;
    io::copy(&mut input, copy).map(drop)
}

/// Has the disk keep the names in a folder.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::{cli::doctor::changes::FileChanges, sessions::SessionClient};

    fn manifest(path: &Path, size_before: u64) -> FixManifest {
        FixManifest {
            path: path.to_owned(),
            client: SessionClient::Codex,
            session: None,
            made_at: "2026-11-30T16:30:00Z".to_owned(),
            device: 1,
            inode: 2,
            modified: (3, 4),
            digest_before: String::new(),
            digest_after: String::new(),
            changes: FileChanges {
                size_before,
                ..FileChanges::default()
            },
        }
    }

    #[test]
    fn a_journal_is_private_and_has_its_marks() {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("state/doctor"), folder.path().join("a b.jsonl"));
        fs::write(&path, "{}\n").unwrap();
        let session = File::open(&path).unwrap();
        let made = manifest(&path, 3);
        let journal = FixJournal::create(&root, &made, &session).unwrap();
        let second = FixJournal::create(&root, &made, &session).unwrap();
        assert_eq!((journal.id().as_str(), second.id().as_str()), ("a-b", "a-b"));
        assert_ne!(journal, second);
        assert_eq!(list_journals(&root).unwrap(), [journal.clone(), second]);
        assert_eq!(journal.read_manifest().unwrap(), made);
        assert_eq!(fs::read(journal.original().unwrap()).unwrap(), b"{}\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&root), mode(&journal.folder)), (0o700, 0o700));
        assert_eq!(mode(&journal.folder.join(ORIGINAL)), 0o600);
        assert_eq!(mode(&journal.folder.join(MANIFEST)), 0o600);
        assert!(journal.is_unfinished() && !journal.is_undone());
        journal.mark_ended().unwrap();
        assert!(!journal.is_unfinished() && !journal.is_undone());
        journal.mark_undone().unwrap();
        assert!(!journal.is_unfinished() && journal.is_undone());
    }

    #[test]
    fn a_large_session_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        fs::write(&path, "{}\n").unwrap();
        let session = File::open(&path).unwrap();
        for (size, is_copied) in [(COPY_BYTES_MAX, true), (COPY_BYTES_MAX + 1, false)] {
            let journal = FixJournal::create(folder.path(), &manifest(&path, size), &session).unwrap();
            assert_eq!(journal.original().is_some(), is_copied, "{size}");
        }
    }

    #[test]
    fn a_removal_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock_root(folder.path(), false).unwrap();
        let second = lock_root(folder.path(), false).unwrap();
        let error = lock_root(folder.path(), true).unwrap_err();
        assert!(error.to_string().contains("another antiphon doctor"), "{error}");
        drop((first, second));
        let _alone = lock_root(folder.path(), true).unwrap();
        assert!(lock_root(folder.path(), false).is_err());
    }
}
