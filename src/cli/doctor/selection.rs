//! The sessions that the arguments mean: all of the known clients, those below folders, files, and ids.

use std::{
    collections::BTreeSet,
    ops::Bound,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    arguments::Args,
    places::{named_id, session_folders, short_id, shown_path},
    walk::{FoundFile, FoundFiles, describe_fault, time_since_1970},
};
use crate::sessions::SessionClient;

/// Sessions that are listed if an id means several.
const LISTED_MAX: usize = 10;

/// The files that the arguments mean, newest first.
#[derive(Debug, Default)]
pub(super) struct SessionSelection {
    pub(super) files: Vec<FoundFile>,
    /// Names that mean no file, and why. Each makes the exit code 2.
    pub(super) unknown: Vec<(PathBuf, String)>,
    /// Paths below folders that could not be looked at, and why.
    pub(super) faults: Vec<(PathBuf, String)>,
    /// Links that were not followed.
    pub(super) links: usize,
    /// Sessions that are older than asked for.
    pub(super) older: usize,
    /// The ids of all sessions that were met, for short names.
    ids: BTreeSet<String>,
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
        selection
            .ids
            .extend(walked.files.iter().map(|file| named_id(&file.path)));
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
        selection.faults = walked.faults;
        selection.links = walked.links;
        selection.files.sort_by(|left, right| {
            let newest_first = right.modified.cmp(&left.modified);
            newest_first.then_with(|| left.path.cmp(&right.path))
        });
        selection.files.dedup_by(|second, first| second.path == first.path);
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
        selection
    }

    /// Adds the file of a path or an id.
    fn add_named(&mut self, name: &Path) {
        let error = match std::fs::metadata(name) {
            Ok(metadata) => {
                self.files.push(FoundFile {
                    path: name.to_owned(),
                    modified: time_since_1970(&metadata),
                    bytes: metadata.len(),
                    is_named: true,
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

    /// Finds the session of an id, or of the begin of one. Fails with the reason.
    fn find_id(&mut self, id: &str) -> Result<FoundFile, String> {
        let mut walked = FoundFiles::default();
        add_clients(&mut walked, |_| true);
        self.ids.extend(walked.files.iter().map(|file| named_id(&file.path)));
        let mut found: Vec<FoundFile> = walked.files;
        found.retain(|file| named_id(&file.path).starts_with(id));
        // A whole id may be the begin of another one.
        if found.iter().any(|file| named_id(&file.path) == id) {
            found.retain(|file| named_id(&file.path) == id);
        }
        if found.len() > 1 {
            found.sort_by_key(|file| std::cmp::Reverse(file.modified));
            let shown: Vec<String> = found
                .iter()
                .take(LISTED_MAX)
                .map(|file| shown_path(&file.path))
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

    /// Returns the name of a session for another command: the begin of its id, or its path.
    pub(super) fn command_name(&self, path: &Path) -> String {
        let id = named_id(path);
        if self.ids.contains(&id) {
            // Of all ids in order, its neighbors share the most letters with it.
            let before = self.ids.range(..id.clone()).next_back();
            let after = self.ids.range((Bound::Excluded(id.clone()), Bound::Unbounded)).next();
            let neighbors = before.into_iter().chain(after);
            return short_id(&id, neighbors.map(String::as_str)).to_owned();
        }
        quoted_path(path)
    }
}

/// Adds the sessions of clients whose folders are there.
fn add_clients(walked: &mut FoundFiles, is_wanted: impl Fn(SessionClient) -> bool) {
    let clients = SessionClient::ALL.into_iter().filter(|client| is_wanted(*client));
    let folders = clients.flat_map(session_folders);
    folders
        .filter(|folder| folder.is_dir())
        .for_each(|folder| walked.add_folder(&folder));
}

/// Returns a path as a shell reads it.
fn quoted_path(path: &Path) -> String {
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
