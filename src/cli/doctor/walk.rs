//! Session files below folders. Links below a folder are not followed, so every walk ends.

use std::{
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    file_facts::{describe_fault, time_since_1970},
    places::{COPILOT_EVENTS, has_database_name, has_session_name, named_id},
};

/// Folders below a folder that are entered.
const DEPTH_MAX: usize = 16;
/// Files of one walk.
const FILES_MAX: usize = 1_000_000;

/// A file that may be a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    /// The last write, since 1970.
    pub(super) modified: Duration,
    /// Its length. 0 for a session in a database.
    pub(super) bytes: u64,
    /// `true` if the user has named this file.
    pub(super) is_named: bool,
    /// The id of the session, in a database that has several. `None` for a file of one session.
    pub(super) stored: Option<String>,
}

impl FoundFile {
    /// Returns the id of the session, as the database or the name of the file tells it.
    pub(super) fn id(&self) -> String {
        self.stored.clone().unwrap_or_else(|| named_id(&self.path))
    }
}

/// The files below some folders.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    pub(super) files: Vec<FoundFile>,
    /// Databases that have several sessions.
    pub(super) databases: Vec<PathBuf>,
    /// Paths that could not be looked at, and why.
    pub(super) faults: Vec<(PathBuf, String)>,
    /// Links that were not followed.
    pub(super) links: usize,
}

impl FoundFiles {
    /// Adds the session files below a folder, which may be a link itself.
    pub(super) fn add_folder(&mut self, folder: &Path) {
        let mut left = vec![(folder.to_owned(), 0)];
        while let Some((folder, depth)) = left.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.faults.push((folder, describe_fault(&error)));
                    continue;
                }
            };
            for entry in entries {
                if self.files.len() >= FILES_MAX {
                    self.faults.push((
                        folder,
                        format!("only the first {FILES_MAX} files are read: name a folder below it"),
                    ));
                    return;
                }
                match entry.and_then(|entry| self.add_entry(&entry)) {
                    Ok(Some(below)) if depth < DEPTH_MAX => left.push((below, depth + 1)),
                    Ok(Some(below)) => self
                        .faults
                        .push((below, "this folder is too deep: name it to have it read".to_owned())),
                    Ok(None) => {}
                    Err(error) => self.faults.push((folder.clone(), describe_fault(&error))),
                }
            }
        }
    }

    /// Adds the sessions of Copilot CLI in the folder of them all. A session's folder has files of the user beside it.
    pub(super) fn add_copilot_sessions(&mut self, folder: &Path) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.faults.push((folder.to_owned(), describe_fault(&error))),
        };
        for entry in entries.flatten().take(FILES_MAX) {
            let path = entry.path().join(COPILOT_EVENTS);
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            self.add_file(path, &metadata);
        }
    }

    fn add_file(&mut self, path: PathBuf, metadata: &fs::Metadata) {
        if metadata.is_symlink() {
            self.links = self.links.saturating_add(1);
        } else if !metadata.is_file() {
            self.faults
                .push((path, "it is no regular file, and was left alone".to_owned()));
        } else if has_database_name(&path) {
            self.databases.push(path);
        } else {
            self.files.push(FoundFile {
                path,
                modified: time_since_1970(metadata),
                bytes: metadata.len(),
                is_named: false,
                stored: None,
            });
        }
    }

    /// Adds an entry if it may be a session. Returns the path of a folder, to be entered.
    fn add_entry(&mut self, entry: &DirEntry) -> io::Result<Option<PathBuf>> {
        let (kind, path) = (entry.file_type()?, entry.path());
        if kind.is_dir() {
            return Ok(Some(path));
        }
        if !has_session_name(&path) && !has_database_name(&path) {
            return Ok(None);
        }
        // Of a link, these are the facts about the link.
        match entry.metadata() {
            Ok(metadata) => self.add_file(path, &metadata),
            // The client has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.faults.push((path, describe_fault(&error))),
        }
        Ok(None)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn links_below_a_folder_are_not_followed_and_loops_end() {
        let folder = tempfile::tempdir().unwrap();
        let (home, elsewhere) = (folder.path().join("home"), folder.path().join("elsewhere"));
        for made in [home.join("a/b"), elsewhere.clone()] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(home.join("a/b/one.jsonl"), "{}").unwrap();
        fs::write(home.join("a/notes.txt"), "").unwrap();
        fs::write(elsewhere.join("two.jsonl"), "{}").unwrap();
        symlink(&home, home.join("a/loop")).unwrap();
        symlink(elsewhere.join("two.jsonl"), home.join("two.jsonl")).unwrap();
        let _socket = UnixListener::bind(home.join("s.jsonl")).unwrap();
        // The folder itself may be a link.
        let link = folder.path().join("link");
        symlink(&home, &link).unwrap();
        let mut found = FoundFiles::default();
        found.add_folder(&link);
        let paths: Vec<&Path> = found.files.iter().map(|file| file.path.as_path()).collect();
        assert_eq!(paths, [link.join("a/b/one.jsonl")]);
        assert_eq!(found.links, 1);
        let faults: Vec<&Path> = found.faults.iter().map(|(path, _)| path.as_path()).collect();
        assert_eq!(faults, [link.join("s.jsonl")]);
    }
}
