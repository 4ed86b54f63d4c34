//! The sessions that the arguments mean: all of the known clients, those below folders, files, and ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    arguments::Args,
    database::is_database,
    file_facts::{describe_fault, time_since_1970},
    opencode::SessionDatabase,
    places::{client_home, has_database_name, named_database, named_id, session_folders, short_id, shown_path},
    reading::{SessionReading, UnreadFile},
    walk::{FoundFile, FoundFiles},
};
use crate::sessions::SessionClient;

/// Sessions that are listed if an id means several.
const LISTED_MAX: usize = 10;
/// The beginning of the ids of sessions in a database.
const STORED_ID: &str = "ses";

/// The files that the arguments mean, newest first.
#[derive(Debug, Default)]
pub(super) struct SessionSelection {
    pub(super) files: Vec<FoundFile>,
    /// Names that mean no file, and why. Each makes the exit code 2.
    pub(super) unknown: Vec<(PathBuf, String)>,
    /// Paths below folders that could not be looked at, and why.
    pub(super) faults: Vec<(PathBuf, String)>,
    /// Databases of which not every session is read, and how to read the others.
    pub(super) notes: BTreeMap<PathBuf, String>,
    /// Links that were not followed.
    pub(super) links: usize,
    /// Sessions that are older than asked for.
    pub(super) older: usize,
    /// The ids of all sessions that were met, for short names.
    ids: BTreeSet<String>,
    /// The databases of the sessions that are in one.
    databases: BTreeMap<PathBuf, SessionDatabase>,
    /// Those that were named.
    named_databases: BTreeSet<PathBuf>,
}

impl SessionSelection {
    /// Finds the files. `now` is the time since 1970.
    pub(super) fn of_arguments(args: &Args, now: Duration) -> Self {
        let (mut selection, mut walked) = (Self::default(), FoundFiles::default());
        if args.names.is_empty() {
            add_clients(&mut walked, |client| args.includes_client(client));
        }
        for name in &args.names {
            if name.is_dir() {
                walked.add_folder(name);
            } else {
                selection.add_named(name);
            }
        }
        selection.open_databases(&mut walked, args.includes_client(SessionClient::OpenCode), "");
        selection.ids.extend(walked.files.iter().map(FoundFile::id));
        for file in walked.files {
            let is_old = args
                .oldest()
                .is_some_and(|oldest| now.saturating_sub(file.modified) > oldest);
            if is_old {
                selection.older = selection.older.saturating_add(1);
            } else {
                selection.files.push(file);
            }
        }
        selection.faults.extend(walked.faults);
        selection.links = walked.links;
        selection.files.sort_by(|left, right| {
            let newest_first = right.modified.cmp(&left.modified);
            newest_first.then_with(|| (&left.path, &left.stored).cmp(&(&right.path, &right.stored)))
        });
        selection
            .files
            .dedup_by(|second, first| (&second.path, &second.stored) == (&first.path, &first.stored));
        selection
    }

    /// Finds the sessions that are named, in the order of their names. A folder is none.
    pub(super) fn of_names(names: &[PathBuf]) -> Self {
        let mut selection = Self::default();
        for name in names {
            if name.is_dir() {
                let told = "this is a folder: name a session in it".to_owned();
                selection.unknown.push((name.clone(), told));
            } else {
                selection.add_named(name);
            }
        }
        // Two names may mean one file, which is mended once.
        let mut seen = BTreeSet::new();
        selection.files.retain(|file| {
            let path = file.path.canonicalize().unwrap_or_else(|_| file.path.clone());
            seen.insert((path, file.stored.clone()))
        });
        selection
    }

    /// Adds the sessions of the databases that were met.
    fn open_databases(&mut self, walked: &mut FoundFiles, is_wanted: bool, id: &str) {
        for path in std::mem::take(&mut walked.databases).into_iter().filter(|_| is_wanted) {
            match self.open_database(&path, id) {
                Ok(found) => walked.files.extend(found),
                Err(told) => walked.faults.push((path, told)),
            }
        }
    }

    /// Returns the sessions of a database, with that of an id, if the list has no room for it. Fails with the reason.
    fn open_database(&mut self, path: &Path, id: &str) -> Result<Vec<FoundFile>, String> {
        if !self.databases.contains_key(path) {
            self.databases.insert(path.to_owned(), SessionDatabase::open(path)?);
        }
        if let Some(database) = self.databases.get_mut(path) {
            database.add_left_out(id)?;
            // Who names one session does not ask for the others.
            let note = database.describe_left_out().filter(|_| id.is_empty());
            self.notes.extend(note.map(|note| (path.to_owned(), note)));
        }
        let sessions = self.databases.get(path).into_iter().flat_map(SessionDatabase::sessions);
        let found = sessions.map(|(id, modified)| FoundFile {
            path: path.to_owned(),
            modified,
            bytes: 0,
            is_named: false,
            stored: Some(id.to_owned()),
        });
        Ok(found.collect())
    }

    /// Returns `true` if a session was named, by itself or by its database.
    pub(super) fn is_named(&self, file: &FoundFile) -> bool {
        file.is_named || self.named_databases.contains(&file.path)
    }

    /// Reads a session that is in a database.
    pub(super) fn read_stored(&self, path: &Path, id: &str) -> Result<SessionReading, UnreadFile> {
        let database = self.databases.get(path);
        database.ok_or(UnreadFile::NoContent)?.read_session(id)
    }

    /// Adds the file of a path or an id.
    fn add_named(&mut self, name: &Path) {
        if has_database_name(name) && name.is_file() || is_database(name) {
            match self.open_database(name, "") {
                Ok(found) => {
                    self.named_databases.insert(name.to_owned());
                    self.files.extend(found);
                }
                Err(told) => self.unknown.push((name.to_owned(), told)),
            }
            return;
        }
        let error = match std::fs::metadata(name) {
            Ok(metadata) => {
                self.files.push(FoundFile {
                    path: name.to_owned(),
                    modified: time_since_1970(&metadata),
                    bytes: metadata.len(),
                    is_named: true,
                    stored: None,
                });
                return;
            }
            Err(error) => error,
        };
        let is_path = name.components().count() > 1 || error.kind() != std::io::ErrorKind::NotFound;
        let found = if is_path {
            Err(describe_fault(&error))
        } else {
            self.find_id(&name.to_string_lossy())
        };
        match found {
            Ok(file) => self.files.push(file),
            Err(told) => self.unknown.push((name.to_owned(), told)),
        }
    }

    /// Finds the session of an id, or of the beginning of one. Fails with the reason.
    fn find_id(&mut self, id: &str) -> Result<FoundFile, String> {
        let mut walked = FoundFiles::default();
        add_clients(&mut walked, |_| true);
        // A database may be large, and the ids of its sessions begin like no others.
        self.open_databases(&mut walked, id.starts_with(STORED_ID), id);
        self.ids.extend(walked.files.iter().map(FoundFile::id));
        let mut found: Vec<FoundFile> = walked.files;
        found.retain(|file| file.id().starts_with(id));
        // A whole id may be the beginning of another one.
        if found.iter().any(|file| file.id() == id) {
            found.retain(|file| file.id() == id);
        }
        if found.len() > 1 {
            found.sort_by_key(|file| std::cmp::Reverse(file.modified));
            let shown: Vec<String> = found
                .iter()
                .take(LISTED_MAX)
                .map(|file| match &file.stored {
                    Some(id) => format!("{} ({id})", shown_path(&file.path)),
                    None => shown_path(&file.path),
                })
                .collect();
            let more = if found.len() > LISTED_MAX { ", and others" } else { "" };
            return Err(format!(
                "{} sessions have an id that begins like this, so name one by more letters or by its path: {}{more}",
                found.len(),
                shown.join(", ")
            ));
        }
        let file = found.pop().ok_or_else(|| {
            "no file has this name, and no session an id that begins like this: antiphon doctor --since all lists the \
             damaged ones"
                .to_owned()
        })?;
        Ok(FoundFile { is_named: true, ..file })
    }

    /// Returns the name of a session for another command: the beginning of its id, or its path.
    pub(super) fn command_name(&self, path: &Path) -> String {
        self.short_name(path, &named_id(path))
    }

    /// Returns the name of a session that was found, for another command.
    pub(super) fn name_of(&self, file: &FoundFile) -> String {
        self.short_name(&file.path, &file.id())
    }

    fn short_name(&self, path: &Path, id: &str) -> String {
        // An id names only what is in the folder of a client.
        if self.ids.contains(id) && is_in_client_folder(path) {
            // Of all ids in order, its neighbors share the most letters with it.
            let before = self
                .ids
                .range::<str, _>((Bound::Unbounded, Bound::Excluded(id)))
                .next_back();
            let after = self.ids.range::<str, _>((Bound::Excluded(id), Bound::Unbounded)).next();
            let neighbors = before.into_iter().chain(after);
            return short_id(id, neighbors.map(String::as_str)).to_owned();
        }
        quoted_path(path)
    }
}

/// Returns `true` if a session is where an id is looked for.
fn is_in_client_folder(path: &Path) -> bool {
    let mut folders = SessionClient::ALL.into_iter().flat_map(session_folders);
    folders.any(|folder| path.starts_with(folder))
}

/// Adds the sessions of clients whose folders are there.
fn add_clients(walked: &mut FoundFiles, is_wanted: impl Fn(SessionClient) -> bool) {
    for client in SessionClient::ALL.into_iter().filter(|client| is_wanted(*client)) {
        for folder in session_folders(client).iter().filter(|folder| folder.is_dir()) {
            if client == SessionClient::Copilot {
                walked.add_copilot_sessions(folder);
            } else {
                walked.add_folder(folder);
            }
        }
        if client == SessionClient::OpenCode {
            add_databases(walked);
        }
    }
}

/// Adds the databases of opencode.
fn add_databases(walked: &mut FoundFiles) {
    let folder = client_home(SessionClient::OpenCode);
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let found = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let found = found.filter(|path| has_database_name(path)).chain(named_database());
    walked.databases.extend(found.filter(|path| path.is_file()));
}

/// Returns a path as a shell reads it.
pub(super) fn quoted_path(path: &Path) -> String {
    let shown = crate::printable::printable_line(&path.display().to_string());
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@".contains(letter);
    if shown.chars().all(is_plain) {
        shown
    } else {
        format!("'{}'", shown.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        for (path, quoted) in [
            ("/h/a.jsonl", "/h/a.jsonl"),
            ("/h/a b", "'/h/a b'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted_path(Path::new(path)), quoted);
        }
    }
}
