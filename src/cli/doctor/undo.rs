//! `antiphon doctor --undo` and `--forget`: a fix is taken back, or its private copies are removed.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{
    journal::{FixJournal, FixManifest, create_private, list_folders, list_journals, lock_root},
    live::{LiveSigns, LiveTarget},
    places::shown_path,
    restore::{RestoreFault, restore_file, write_old_file},
};

/// A fix that was taken back, or written to another file.
#[derive(Debug)]
pub(super) struct UndoneFix {
    /// The session file.
    pub(super) path: PathBuf,
    /// The date of the fix.
    pub(super) made_at: String,
    /// The new file. `None` if the session itself was put back.
    pub(super) new: Option<PathBuf>,
}

/// Takes the last fix of a session back, or writes the old file to `to`. Fails with a text for the user.
pub(super) fn undo_fix(root: &Path, name: &Path, to: Option<&Path>) -> Result<UndoneFix, String> {
    let _root = lock_root(root, false).map_err(|error| error.to_string())?;
    let last = KeptFix::find_last(root, name)?;
    match to {
        Some(new) => last.write_to(new)?,
        None => last.put_back(name)?,
    }
    Ok(UndoneFix {
        path: last.manifest.path,
        made_at: last.manifest.made_at,
        new: to.map(Path::to_owned),
    })
}

/// A fix that was not taken back.
struct KeptFix {
    journal: FixJournal,
    manifest: FixManifest,
}

impl KeptFix {
    /// Returns the last fix of a session that was not taken back.
    fn find_last(root: &Path, name: &Path) -> Result<Self, String> {
        let mut found: Vec<Self> = Vec::new();
        for journal in matching_journals(root, name)?
            .into_iter()
            .filter(|journal| !journal.is_undone())
        {
            let manifest = journal.read_manifest().map_err(|error| unreadable(&journal, &error))?;
            found.push(Self { journal, manifest });
        }
        let mut paths: Vec<&Path> = found.iter().map(|fix| fix.manifest.path.as_path()).collect();
        paths.sort();
        paths.dedup();
        if paths.len() > 1 {
            let shown: Vec<String> = paths.iter().map(|path| shown_path(path)).collect();
            return Err(format!(
                "several sessions have this name, so name one by its path: {}",
                shown.join(", ")
            ));
        }
        let last = found.pop();
        last.ok_or_else(|| format!("no fix of this session is kept in {}", shown_path(root)))
    }

    /// Puts the session back as it was.
    fn put_back(&self, name: &Path) -> Result<(), String> {
        let Self { journal, manifest } = self;
        let opened = OpenOptions::new().read(true).write(true).open(&manifest.path);
        let file = opened.map_err(|error| {
            let way = self.other_way(name);
            format!("it cannot be opened for writing ({error}), so nothing is written; {way}")
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err("another program has locked it, such as a second antiphon doctor: wait for it".to_owned());
            }
            Err(TryLockError::Error(error)) => return Err(error.to_string()),
        }
        let target = LiveTarget::of_file(manifest.client, &manifest.path, manifest.session.as_deref());
        let (state, _locks) = match LiveSigns::gather().take_session(&target) {
            Ok(taken) => taken,
            Err(state) => (state, Vec::new()),
        };
        // A time as the only sign is that of the fix itself, if it was stopped midway.
        if let Some(told) = state.refusal(true) {
            return Err(told);
        }
        match restore_file(&file, manifest) {
            Ok(()) => journal
                .mark_undone()
                .map_err(|error| format!("it is as before, but that could not be noted: {error}")),
            Err(fault @ (RestoreFault::Appended | RestoreFault::Changed)) => {
                Err(format!("{fault}, so nothing is written; {}", self.other_way(name)))
            }
            Err(RestoreFault::Io(error)) => Err(format!(
                "it could not be put back ({error}): run the same command again"
            )),
        }
    }

    /// Says how the old file can be had all the same.
    fn other_way(&self, name: &Path) -> String {
        let copy = self
            .journal
            .original()
            .map(|path| format!(" (its copy is {})", shown_path(&path)));
        format!(
            "antiphon doctor --undo --to NEW.jsonl {} writes the old file to a new one{}",
            shown_path(name),
            copy.unwrap_or_default()
        )
    }

    /// Writes the old file to a new one.
    fn write_to(&self, new: &Path) -> Result<(), String> {
        let Self { journal, manifest } = self;
        let mut file = create_private(new).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!("{} exists: name a new file", shown_path(new)),
            _ => format!("{} cannot be written: {error}", shown_path(new)),
        })?;
        let original = journal.original().and_then(|path| File::open(path).ok());
        let written = write_old_file(File::open(&manifest.path), original, &mut file, manifest);
        written.map_err(|fault| {
            drop(fs::remove_file(new));
            match fault {
                RestoreFault::Io(error) => format!("{} cannot be written: {error}", shown_path(new)),
                RestoreFault::Appended | RestoreFault::Changed => {
                    format!("{fault}, and no copy was kept, so the old file is lost")
                }
            }
        })
    }
}

/// Returns the fixes of a session that is named by its path or the beginning of its id, oldest first.
fn matching_journals(root: &Path, name: &Path) -> Result<Vec<FixJournal>, String> {
    let listed = list_journals(root).map_err(|error| format!("{} cannot be read: {error}", shown_path(root)))?;
    let is_path = name.components().count() > 1 || name.exists();
    if !is_path {
        let id = name.to_string_lossy();
        return Ok(listed
            .into_iter()
            .filter(|journal| journal.id().starts_with(&*id))
            .collect());
    }
    // The session may be gone, and its folder too.
    let path = name
        .canonicalize()
        .or_else(|_| std::path::absolute(name))
        .unwrap_or_else(|_| name.to_owned());
    let is_of_path = |journal: &FixJournal| journal.read_manifest().is_ok_and(|manifest| manifest.path == path);
    Ok(listed.into_iter().filter(is_of_path).collect())
}

fn unreadable(journal: &FixJournal, error: &io::Error) -> String {
    format!(
        "the manifest in {} cannot be read ({error})",
        shown_path(&journal.folder)
    )
}

/// The folders of fixes that were removed, and those that stay.
#[derive(Debug, Default)]
pub(super) struct ForgottenFixes {
    pub(super) removed: Vec<PathBuf>,
    /// Fixes that were stopped midway, whose session is still there.
    pub(super) kept: Vec<PathBuf>,
}

/// Removes what is kept of the fixes of the named sessions, or of all. Fails with a text for the user.
pub(super) fn forget_fixes(root: &Path, names: &[PathBuf]) -> Result<ForgottenFixes, String> {
    let failed = |error: io::Error| format!("{} cannot be cleared: {error}", shown_path(root));
    let _root = lock_root(root, true).map_err(failed)?;
    let mut folders = Vec::new();
    if names.is_empty() {
        // Also those that have touched no session, because the fix was stopped before.
        folders = list_folders(root).map_err(failed)?;
    }
    for name in names {
        let found = matching_journals(root, name)?;
        if found.is_empty() {
            return Err(format!(
                "no fix of {} is kept in {}",
                shown_path(name),
                shown_path(root)
            ));
        }
        folders.extend(found.into_iter().map(|journal| journal.folder));
    }
    folders.sort();
    folders.dedup();
    let mut forgotten = ForgottenFixes::default();
    for folder in folders {
        if is_needed(&folder) {
            forgotten.kept.push(folder);
        } else {
            fs::remove_dir_all(&folder).map_err(failed)?;
            forgotten.removed.push(folder);
        }
    }
    Ok(forgotten)
}

/// Returns `true` if a fix was stopped midway and its session is still there: nothing else can put it back.
fn is_needed(folder: &Path) -> bool {
    let journal = FixJournal {
        folder: folder.to_owned(),
    };
    journal.is_unfinished() && journal.read_manifest().is_ok_and(|manifest| manifest.path.exists())
}
