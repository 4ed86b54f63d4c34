//! The folder in which wrappers of one user tell each other of detached runs, and keep results that nobody has.
//!
//! `NAME.run` marks a detached run: its process holds a lock on the file, so that a mark whose process has ended is told
//! from others, whatever process has its id now. `NAME.json` keeps a result. A name is a keyed hash of server, tool and
//! input.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::relay::{FoundRun, KeptPlace, KeptResult, RESULT_BYTES_MAX, RunHash, ToolOutcome};
use crate::{
    auth::Secret, cli::sealing::SealingKey, clock, digest::keyed_digest_of, local_token::open_local_token,
    upstream::random_bytes,
};

/// Uses of the folder's key. Changing one makes kept results unreadable.
const RESULT_KEY: &str = "antiphon mcp: result, version 1";
const NAME_KEY: &str = "antiphon mcp: name, version 1";
const USER_KEY: &str = "antiphon mcp: user, version 1";
/// The file with the key.
const KEY_FILE: &str = "key";
/// The endings of marks and of kept results.
const MARK_ENDING: &str = "run";
const KEPT_ENDING: &str = "json";
/// Letters of a file's name that tell a call from others with the same input.
const CALL_LETTERS: usize = 16;
/// Most kept results.
const KEPT_MAX: usize = 64;
/// Most results that wait for their proxy. The oldest gives way to one more.
const DUE_MAX: usize = 256;
/// Tries to lock a mark that others look at.
const LOCK_TRIES: usize = 64;
/// Most marks that are listed.
const MARKS_MAX: usize = 4096;
/// Largest file that is read, in bytes: a result of 8 MiB, each byte of which may be escaped, in base64.
const FILE_BYTES_MAX: u64 = 24 * 1024 * 1024;
const _: () = assert!(FILE_BYTES_MAX > 2 * RESULT_BYTES_MAX as u64 / 3 * 4);
/// The time in which a retry gets a kept result.
const RETRY_TIME: Duration = Duration::from_secs(60 * 60);
/// The time in which a result is posted: the default of `ledger.ttl`.
pub(super) const POST_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The run and the call of a kept result.
type KeptKey = (RunHash, Option<String>);

/// The folder, or the memory of this process where there is none.
pub(super) struct RunFolder {
    place: Option<FolderPlace>,
    /// The marks of this process, with their locks.
    marks: BTreeMap<RunHash, File>,
    /// The mark of this process itself, which waits for its proxy.
    waiting: Option<File>,
    /// Results that are kept without a folder, and since when.
    in_memory: BTreeMap<KeptKey, (Instant, KeptResult)>,
}

struct FolderPlace {
    path: PathBuf,
    results: SealingKey,
    names: [u8; 32],
    /// The name of the folder's user among those of a service.
    user: String,
}

/// The file of a kept result.
pub(super) struct KeptFile {
    path: PathBuf,
    mark: PathBuf,
}

/// The use that others make of a kept result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptUse {
    Free,
    /// Another process gives it, or posts it.
    Held,
    /// Another process has given it.
    Gone,
}

impl KeptFile {
    /// Returns what others do with the result.
    pub(super) fn look(&self) -> KeptUse {
        // Another run of the same input may go on in this process.
        let is_own = || read_mark(&self.mark).is_some_and(|mark| mark.process == std::process::id());
        if !self.path.exists() {
            KeptUse::Gone
        } else if is_locked(&self.mark) && !is_own() {
            KeptUse::Held
        } else {
            KeptUse::Free
        }
    }
}

/// A mark of a living process.
#[derive(Debug)]
pub(super) struct RunMark {
    /// The beginning of the file's name.
    pub(super) id: String,
    pub(super) process: u32,
    pub(super) tool: String,
    pub(super) call_id: String,
    /// Seconds since 1970.
    pub(super) since: u64,
}

impl RunFolder {
    /// Opens the folder, and removes what is too old.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let random = random_bytes().map_err(|_| io::Error::other("the system has no random bytes"))?;
        let key = open_local_token(&path.join(KEY_FILE), random).map_err(io::Error::other)?;
        let folder = Self {
            place: Some(FolderPlace::of_key(path, &key)),
            ..Self::in_memory()
        };
        folder.remove_old();
        Ok(folder)
    }

    /// Returns a folder that only this process sees.
    pub(super) const fn in_memory() -> Self {
        Self {
            place: None,
            marks: BTreeMap::new(),
            waiting: None,
            in_memory: BTreeMap::new(),
        }
    }

    /// Marks a detached run of this process. Without a mark no other process joins it, which is no failure.
    pub(super) fn mark(&mut self, hash: RunHash, tool: &str, call_id: Option<&str>) {
        // Another process may have a run of the same input.
        drop(self.write_mark(hash, &mark_text(tool, call_id)));
    }

    /// Marks this process, whose run has ended and whose result others may take, so that it is listed and can be ended.
    pub(super) fn mark_waiting(&mut self, tool: &str, call_id: Option<&str>) {
        let Some(place) = self.place.as_ref().filter(|_| self.waiting.is_none()) else {
            return;
        };
        let path = place.path.join(format!("waits-{}.{MARK_ENDING}", std::process::id()));
        let write = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&path)?;
            file.try_lock()?;
            file.write_all(mark_text(tool, call_id).as_bytes())?;
            io::Result::Ok(file)
        };
        // Without it the process is not listed, which is no failure.
        self.waiting = write().ok();
    }

    /// Creates and locks the file of a mark. Returns `false` if another process has locked it.
    fn write_mark(&mut self, hash: RunHash, text: &str) -> io::Result<bool> {
        let Some(place) = &self.place else {
            return Ok(false);
        };
        let path = place.path_of(&hash, MARK_ENDING);
        for _ in 0..LOCK_TRIES {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let mut file = options.open(&path)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if self.marks.contains_key(&hash) => return Ok(false),
                // Somebody may only be looking at it.
                Err(TryLockError::WouldBlock) => thread::yield_now(),
                Err(TryLockError::Error(error)) => return Err(error),
                // Somebody may have removed it in between, as the mark of an ended process.
                Ok(()) if is_at(&file, &path) => {
                    file.set_len(0)?;
                    file.write_all(text.as_bytes())?;
                    self.marks.insert(hash, file);
                    return Ok(true);
                }
                Ok(()) => {}
            }
        }
        Ok(false)
    }

    /// Removes a mark of this process.
    pub(super) fn unmark(&mut self, hash: &RunHash) {
        if let (Some(lock), Some(place)) = (self.marks.remove(hash), &self.place) {
            drop(fs::remove_file(place.path_of(hash, MARK_ENDING)));
            drop(lock);
        }
    }

    /// Keeps a result. One that was posted stays as it is if somebody has taken it meanwhile.
    pub(super) fn keep(&mut self, hash: RunHash, kept: KeptResult) -> io::Result<()> {
        let Some(place) = &self.place else {
            let key = (hash, kept.call_id.clone());
            if self.in_memory.len() < KEPT_MAX || self.in_memory.contains_key(&key) {
                self.in_memory.insert(key, (clock::now(), kept));
                return Ok(());
            }
            return Err(io::Error::other("there are 64 kept results already"));
        };
        let path = place.kept_path(&hash, kept.call_id.as_deref());
        if kept.place == KeptPlace::Posted && !path.exists() {
            return Ok(());
        }
        if !path.exists() {
            place.make_room(kept.place);
        }
        let text = place.write_kept(&hash, &kept)?;
        let draft = path.with_extension(format!("draft-{}", std::process::id()));
        write_private(&draft, &text)?;
        fs::rename(&draft, &path)
    }

    /// Removes the kept result of a call.
    pub(super) fn forget(&mut self, hash: &RunHash, call_id: Option<&str>) {
        self.in_memory.remove(&(*hash, call_id.map(str::to_owned)));
        if let Some(place) = &self.place {
            drop(fs::remove_file(place.kept_path(hash, call_id)));
        }
    }

    /// Returns the name of the folder's user among those of a service. `None` without a folder.
    pub(super) fn user_name(&self) -> Option<String> {
        self.place.as_ref().map(|place| place.user.clone())
    }

    /// Returns the file of a kept result. `None` if there is none.
    pub(super) fn kept_file(&self, hash: &RunHash, call_id: Option<&str>) -> Option<KeptFile> {
        let place = self.place.as_ref()?;
        let path = place.kept_path(hash, call_id);
        let mark = place.path_of(hash, MARK_ENDING);
        path.exists().then_some(KeptFile { path, mark })
    }

    /// Looks for a run of another process, or for its result if it has ended. A result that was found stays where it is
    /// kept, with the mark of this process, until it is forgotten: if this process ends before, another one finds it.
    pub(super) fn look(&mut self, hash: &RunHash) -> FoundRun {
        let Some(place) = &self.place else {
            self.in_memory.retain(|_, (since, _)| since.elapsed() <= RETRY_TIME);
            let mut kept = self.in_memory.iter().filter(|((of, _), _)| of == hash);
            let found = kept.next().map(|(_, (_, kept))| kept.clone());
            return found.map_or(FoundRun::Nothing, FoundRun::Kept);
        };
        let is_marked = self.marks.contains_key(hash);
        // The mark goes after the result has come, so it is read first.
        if is_locked(&place.path_of(hash, MARK_ENDING)) && !is_marked {
            return FoundRun::Running;
        }
        if place.list_kept_of(hash).is_empty() {
            return FoundRun::Nothing;
        }
        // Without a place for marks, two processes may find it.
        if !is_marked && matches!(self.write_mark(*hash, ""), Ok(false)) {
            return FoundRun::Running;
        }
        let found = self.place.as_ref().and_then(|place| {
            let mut kept = place.list_kept_of(hash).into_iter();
            kept.find_map(|path| place.read_kept(&path))
        });
        match found {
            Some((_, kept)) => FoundRun::Kept(kept),
            None if is_marked => FoundRun::Nothing,
            None => {
                self.unmark(hash);
                FoundRun::Nothing
            }
        }
    }

    /// Lists the files of kept results.
    pub(super) fn list_kept(&self) -> Vec<PathBuf> {
        let place = self.place.as_ref();
        place.map_or_else(Vec::new, |place| list_files(&place.path, KEPT_ENDING))
    }

    /// Locks a result that an ended process has not posted. It stays where it is kept, and others wait for its mark, which
    /// names no process: `antiphon mcp stop` would end that.
    pub(super) fn lock_left_over(&mut self, path: &Path) -> Option<(RunHash, KeptResult)> {
        let read = |folder: &Self| {
            let found = folder.place.as_ref()?.read_kept(path)?;
            // A proxy that did not know the call may have seen it in a request meanwhile.
            (found.1.place != KeptPlace::Posted && found.1.call_id.is_some()).then_some(found)
        };
        let (hash, _) = read(self)?;
        if !self.write_mark(hash, "").is_ok_and(|is_locked| is_locked) {
            return None;
        }
        // Once more: it may have been taken before it was locked.
        let found = read(self);
        if found.is_none() {
            self.unmark(&hash);
        }
        found
    }

    /// Lists the marks of living processes.
    pub(super) fn list_marks(&self) -> Vec<RunMark> {
        let Some(place) = &self.place else {
            return Vec::new();
        };
        let files = list_files(&place.path, MARK_ENDING).into_iter().take(MARKS_MAX);
        files
            .filter(|path| is_locked(path))
            .filter_map(|path| read_mark(&path))
            .collect()
    }

    /// Returns the number of other processes that own runs without clients.
    pub(super) fn count_keepers(&self) -> usize {
        let own = std::process::id();
        let marks = self.list_marks().into_iter().map(|mark| mark.process);
        marks.filter(|process| *process != own).collect::<BTreeSet<u32>>().len()
    }

    /// Removes results that are too old, and drafts and marks of ended processes.
    fn remove_old(&self) {
        let Some(place) = &self.place else {
            return;
        };
        let now = clock::unix_time();
        for path in list_files(&place.path, KEPT_ENDING) {
            let document = read_document(&path).unwrap_or_default();
            if is_expired(&document, now) {
                drop(fs::remove_file(&path));
            }
        }
        for path in list_files(&place.path, MARK_ENDING) {
            // It removes the mark of an ended process.
            is_locked(&path);
        }
        let is_draft = |path: &PathBuf| path.extension().is_some_and(|end| end.to_string_lossy().contains('-'));
        let is_old = |path: &PathBuf| {
            let modified = fs::metadata(path).and_then(|file| file.modified()).ok();
            modified.is_none_or(|at| at.elapsed().is_ok_and(|age| age > RETRY_TIME))
        };
        for path in list_all(&place.path)
            .into_iter()
            .filter(|path| is_draft(path) && is_old(path))
        {
            drop(fs::remove_file(path));
        }
    }
}

impl FolderPlace {
    fn of_key(path: &Path, key: &Secret) -> Self {
        Self {
            path: path.to_owned(),
            results: SealingKey::of_token(RESULT_KEY, key),
            names: blake3::derive_key(NAME_KEY, key.reveal().as_bytes()),
            user: blake3::Hash::from_bytes(blake3::derive_key(USER_KEY, key.reveal().as_bytes()))
                .to_hex()
                .to_string(),
        }
    }

    fn name_of(&self, hash: &RunHash) -> String {
        blake3::Hash::from_bytes(keyed_digest_of(&self.names, [&hash[..]]))
            .to_hex()
            .to_string()
    }

    fn path_of(&self, hash: &RunHash, ending: &str) -> PathBuf {
        self.path.join(format!("{}.{ending}", self.name_of(hash)))
    }

    /// Returns the file of a call's result. Two runs of one input may have one each.
    fn kept_path(&self, hash: &RunHash, call_id: Option<&str>) -> PathBuf {
        let call = keyed_digest_of(&self.names, [&hash[..], call_id.unwrap_or_default().as_bytes()]);
        let call = blake3::Hash::from_bytes(call).to_hex();
        let call = call.get(..CALL_LETTERS).unwrap_or_default();
        self.path.join(format!("{}-{call}.{KEPT_ENDING}", self.name_of(hash)))
    }

    /// Lists the results of an input that a retry may get.
    fn list_kept_of(&self, hash: &RunHash) -> Vec<PathBuf> {
        let (name, now) = (self.name_of(hash), clock::unix_time());
        let is_of = |path: &PathBuf| {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            stem.starts_with(&name)
        };
        // One that waits for its proxy is older perhaps, and the tool would have another result by now.
        let is_fresh = |path: &PathBuf| {
            let at = read_document(path).and_then(|document| document["at"].as_u64());
            at.is_some_and(|at| now.saturating_sub(Duration::from_secs(at)) <= RETRY_TIME)
        };
        let mut files = list_files(&self.path, KEPT_ENDING);
        files.retain(|path| is_of(path) && is_fresh(path));
        files
    }

    fn write_kept(&self, hash: &RunHash, kept: &KeptResult) -> io::Result<String> {
        let inside = json!({
            "hash": blake3::Hash::from_bytes(*hash).to_hex().as_str(),
            "is_failure": kept.outcome.is_failure,
            "body": kept.outcome.body,
        });
        let path = self.kept_path(hash, kept.call_id.as_deref());
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let sealed = self.results.seal(inside.to_string().into_bytes(), &name);
        let sealed = sealed.ok_or_else(|| io::Error::other("the system has no random bytes"))?;
        let document = json!({
            "at": clock::unix_time().as_secs(),
            "tool": kept.tool,
            "call_id": kept.call_id,
            "place": place_name(kept.place),
            "sealed": sealed,
        });
        Ok(document.to_string())
    }

    /// Reads a kept result from its file.
    fn read_kept(&self, file: &Path) -> Option<(RunHash, KeptResult)> {
        let document = read_document(file)?;
        if is_expired(&document, clock::unix_time()) {
            return None;
        }
        let name = file.file_stem()?.to_str()?;
        let inside = self.results.open(document["sealed"].as_str()?, name)?;
        let inside: Value = serde_json::from_slice(&inside).ok()?;
        let hash = blake3::Hash::from_hex(inside["hash"].as_str()?).ok()?;
        let kept = KeptResult {
            tool: document["tool"].as_str()?.to_owned(),
            call_id: document["call_id"].as_str().map(str::to_owned),
            place: named_place(&document),
            outcome: ToolOutcome {
                is_failure: inside["is_failure"] == true,
                body: inside["body"].as_str()?.to_owned(),
            },
        };
        Some((*hash.as_bytes(), kept))
    }

    /// Removes the oldest results that wait for the same, until there is room for one more.
    fn make_room(&self, place: KeptPlace) {
        let is_due = |place| place == KeptPlace::Due;
        let mut kept: Vec<(u64, PathBuf)> = list_files(&self.path, KEPT_ENDING)
            .into_iter()
            .map(|path| (read_document(&path).unwrap_or_default(), path))
            .filter(|(document, _)| is_due(named_place(document)) == is_due(place))
            .map(|(document, path)| (document["at"].as_u64().unwrap_or_default(), path))
            .collect();
        kept.sort_unstable();
        let most = if is_due(place) { DUE_MAX } else { KEPT_MAX };
        let surplus = kept.len().saturating_add(1).saturating_sub(most);
        for (_, path) in kept.into_iter().take(surplus) {
            drop(fs::remove_file(path));
        }
    }
}

fn mark_text(tool: &str, call_id: Option<&str>) -> String {
    let mark = json!({
        "pid": std::process::id(),
        "tool": tool,
        "call_id": call_id,
        "since": clock::unix_time().as_secs(),
    });
    mark.to_string()
}

const fn place_name(place: KeptPlace) -> &'static str {
    match place {
        KeptPlace::RetryOnly => "retry_only",
        KeptPlace::Due => "due",
        KeptPlace::Posted => "posted",
    }
}

fn named_place(document: &Value) -> KeptPlace {
    let places = [KeptPlace::Due, KeptPlace::Posted];
    let named = places.into_iter().find(|place| document["place"] == place_name(*place));
    named.unwrap_or(KeptPlace::RetryOnly)
}

fn is_expired(document: &Value, now: Duration) -> bool {
    let at = Duration::from_secs(document["at"].as_u64().unwrap_or_default());
    let time = match named_place(document) {
        KeptPlace::Due => POST_TIME,
        KeptPlace::RetryOnly | KeptPlace::Posted => RETRY_TIME,
    };
    now.saturating_sub(at) > time
}

fn read_mark(path: &Path) -> Option<RunMark> {
    let document = read_document(path)?;
    let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    Some(RunMark {
        id: path.file_stem()?.to_str()?.chars().take(12).collect(),
        process: u32::try_from(document["pid"].as_u64()?).ok()?,
        tool: text("tool"),
        call_id: text("call_id"),
        since: document["since"].as_u64()?,
    })
}

/// Returns `true` if a living process holds a mark. The mark of an ended one is removed.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    // Shared, so that of two who look neither takes the other for the owner.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => return true,
        Err(TryLockError::Error(_)) => return false,
        Ok(()) => {}
    }
    // Another process may have made a new mark in its place.
    if is_at(&file, path) {
        drop(fs::remove_file(path));
    }
    false
}

/// Returns `true` if a path still names this file.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |found: io::Result<fs::Metadata>| found.map(|file| (file.dev(), file.ino())).ok();
    number(file.metadata()).is_some_and(|found| Some(found) == number(fs::metadata(path)))
}

fn read_document(path: &Path) -> Option<Value> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

fn list_files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files = list_all(folder);
    files.retain(|path| path.extension().is_some_and(|end| end == ending));
    files
}

fn list_all(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const HASH: RunHash = [7; 32];

    fn folder_at(path: &Path) -> RunFolder {
        RunFolder::open(path).unwrap()
    }

    fn kept(call_id: Option<&str>, place: KeptPlace, body: &str) -> KeptResult {
        KeptResult {
            tool: "render".to_owned(),
            call_id: call_id.map(str::to_owned),
            place,
            outcome: ToolOutcome {
                is_failure: false,
                body: body.to_owned(),
            },
        }
    }

    /// While a result is given, other processes wait for it. If that one ends before it has given it, they get it.
    #[test]
    fn a_result_that_is_given_is_not_lost_with_its_process() {
        let place = tempfile::tempdir().unwrap();
        folder_at(place.path())
            .keep(HASH, kept(Some("a"), KeptPlace::Due, "{}"))
            .unwrap();
        let (mut giver, mut other) = (folder_at(place.path()), folder_at(place.path()));
        assert!(matches!(giver.look(&HASH), FoundRun::Kept(_)));
        assert!(matches!(other.look(&HASH), FoundRun::Running));
        assert!(other.lock_left_over(&other.list_kept()[0]).is_none());
        drop(giver);
        assert!(matches!(other.look(&HASH), FoundRun::Kept(_)));
        other.forget(&HASH, Some("a"));
        other.unmark(&HASH);
        assert!(matches!(folder_at(place.path()).look(&HASH), FoundRun::Nothing));
    }

    #[test]
    fn the_help_says_how_long_a_result_is_kept() {
        assert_eq!(RETRY_TIME, Duration::from_secs(3600));
        assert!(crate::cli::mcp::AFTER_HELP.contains("kept for 1 hour"));
    }

    /// A result that waits in the memory of a process for long is no answer to a new call either.
    #[tokio::test(start_paused = true)]
    async fn an_old_result_in_memory_is_no_answer() {
        for (age, is_answer) in [(RETRY_TIME, true), (RETRY_TIME + Duration::from_secs(1), false)] {
            let mut folder = RunFolder::in_memory();
            folder.keep(HASH, kept(Some("a"), KeptPlace::RetryOnly, "{}")).unwrap();
            tokio::time::advance(age).await;
            assert_eq!(matches!(folder.look(&HASH), FoundRun::Kept(_)), is_answer);
        }
    }

    /// Two calls with one input have a result each, and a retry gets one of them.
    #[test]
    fn two_results_of_one_input_are_kept() {
        let place = tempfile::tempdir().unwrap();
        for mut folder in [folder_at(place.path()), RunFolder::in_memory()] {
            for id in ["a", "b"] {
                folder.keep(HASH, kept(Some(id), KeptPlace::Due, id)).unwrap();
            }
            folder.forget(&HASH, Some("a"));
            let FoundRun::Kept(found) = folder.look(&HASH) else {
                panic!("both are gone");
            };
            assert_eq!(found.call_id.as_deref(), Some("b"));
            folder.forget(&HASH, Some("b"));
            assert!(matches!(folder.look(&HASH), FoundRun::Nothing));
        }
    }

    /// A result that waits for its proxy for long is no answer to a new call, and still waits.
    #[test]
    fn an_old_result_is_no_answer_to_a_new_call() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = folder_at(place.path());
        folder.keep(HASH, kept(Some("a"), KeptPlace::Due, "{}")).unwrap();
        let path = folder.list_kept().remove(0);
        let mut document = read_document(&path).unwrap();
        document["at"] = (clock::unix_time().as_secs() - 2 * 3600).into();
        write_private(&path, &document.to_string()).unwrap();
        assert!(matches!(folder.look(&HASH), FoundRun::Nothing));
        assert!(folder_at(place.path()).lock_left_over(&path).is_some());
    }

    /// The newest of the results that wait for their proxy are kept.
    #[test]
    fn results_that_wait_are_bounded() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = folder_at(place.path());
        for number in 0..DUE_MAX + 9 {
            let id = format!("call {number}");
            folder.keep(HASH, kept(Some(&id), KeptPlace::Due, "{}")).unwrap();
        }
        assert_eq!(folder.list_kept().len(), DUE_MAX);
    }

    /// A mark that was made is seen while others look at marks, and a removed one is not.
    #[test]
    fn a_mark_is_seen_whoever_looks_at_it() {
        let place = tempfile::tempdir().unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let folder = folder_at(place.path());
                    while !is_over.load(Ordering::Relaxed) {
                        drop(folder.list_marks());
                    }
                });
            }
            let (mut owner, mut other) = (folder_at(place.path()), folder_at(place.path()));
            for _ in 0..200 {
                owner.mark(HASH, "render", None);
                assert!(matches!(other.look(&HASH), FoundRun::Running));
                owner.unmark(&HASH);
                assert!(matches!(other.look(&HASH), FoundRun::Nothing));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
