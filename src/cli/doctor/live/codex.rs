//! The sign that Codex has a session in use: a lock on `thread-writer-locks/<id>.lock`. After a kill the file stays, and
//! the lock does not.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{
    held_locks::listed_holder,
    sign::{LiveState, LiveTarget},
};
use crate::{cli::doctor::places::shown_path, server::regular_file::open_regular};

/// The folder of the locks.
const LOCKS: &str = "thread-writer-locks";
const SIGN: &str = "Codex holds its lock";

/// Characters of the longest id that names a lock. Codex' ids have 36.
const ID_CHARS_MAX: usize = 128;

/// Returns `true` if the client of this folder makes locks. Older versions do not.
pub(super) fn has_locks(home: &Path) -> bool {
    home.join(LOCKS).is_dir()
}

fn lock_paths(home: &Path, target: &LiveTarget) -> impl Iterator<Item = PathBuf> {
    // An id may be from a record of the file, and must not lead out of the folder.
    let is_plain = |id: &&String| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !id.is_empty() && id.len() <= ID_CHARS_MAX && id.bytes().all(is_letter)
    };
    let ids = target.ids.iter().filter(is_plain);
    ids.map(move |id| home.join(LOCKS).join(format!("{id}.lock")))
}

/// Takes the client's own locks of a session, so that it does not begin to write meanwhile. Returns the locks held.
///
/// Creates those that are not there, as the client does: it would create and lock them itself otherwise.
pub(super) fn take_locks(home: &Path, target: &LiveTarget) -> Result<Vec<File>, LiveState> {
    let mut held = Vec::new();
    if !has_locks(home) {
        return Ok(held);
    }
    for path in lock_paths(home, target) {
        let file = match open_lock(&path)? {
            Some(file) => file,
            None => create_lock(&path).map_err(|error| unreadable(&path, &error))?,
        };
        match file.try_lock() {
            Ok(()) => held.push(file),
            Err(TryLockError::WouldBlock) => return Err(in_use(&file)),
            Err(TryLockError::Error(error)) => return Err(unreadable(&path, &error)),
        }
    }
    Ok(held)
}

/// Returns the use of a session, and takes no lock that a starting client could meet, where the system tells the locks.
pub(super) fn state_of(home: &Path, target: &LiveTarget) -> LiveState {
    for path in lock_paths(home, target) {
        let file = match open_lock(&path) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(state) => return state,
        };
        if let Some(pid) = listed_holder(&file) {
            return LiveState::InUse {
                pid: Some(pid),
                sign: SIGN,
            };
        }
        if cfg!(target_os = "linux") {
            continue;
        }
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return LiveState::InUse { pid: None, sign: SIGN },
            Err(TryLockError::Error(error)) => return unreadable(&path, &error),
        }
    }
    LiveState::Idle
}

fn open_lock(path: &Path) -> Result<Option<File>, LiveState> {
    match open_regular(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn create_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        // The client was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_regular(path),
        created => created,
    }
}

fn unreadable(path: &Path, error: &io::Error) -> LiveState {
    LiveState::Unreadable(format!("{}: {error}", shown_path(path)))
}

fn in_use(file: &File) -> LiveState {
    LiveState::InUse {
        pid: listed_holder(file),
        sign: SIGN,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::sessions::SessionClient;

    #[test]
    fn a_lock_counts_while_it_is_held() {
        let home = tempfile::tempdir().unwrap();
        let target = LiveTarget {
            client: SessionClient::Codex,
            path: home.path().join("sessions/rollout-x.jsonl"),
            ids: vec!["s1".to_owned()],
        };
        assert!(!has_locks(home.path()));
        assert_eq!(state_of(home.path(), &target), LiveState::Idle);
        std::fs::create_dir(home.path().join(LOCKS)).unwrap();
        let path = home.path().join(LOCKS).join("s1.lock");
        let holder = File::create(&path).unwrap();
        assert_eq!(state_of(home.path(), &target), LiveState::Idle);
        holder.try_lock().unwrap();
        let state = take_locks(home.path(), &target).unwrap_err();
        let own = Some(std::process::id());
        assert!(
            matches!(state, LiveState::InUse { pid, .. } if pid == own || pid.is_none()),
            "{state:?}"
        );
        drop(holder);
        // The file stays, the lock does not.
        let held = take_locks(home.path(), &target).unwrap();
        assert_eq!(held.len(), 1);
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err(), "the client is kept out meanwhile");
    }

    #[test]
    fn a_lock_that_is_not_there_is_created_and_held() {
        let home = tempfile::tempdir().unwrap();
        let target = |id: &str| LiveTarget {
            client: SessionClient::Codex,
            path: home.path().join("sessions/rollout-x.jsonl"),
            ids: vec![id.to_owned()],
        };
        assert!(
            take_locks(home.path(), &target("s1")).unwrap().is_empty(),
            "an older client makes none"
        );
        std::fs::create_dir(home.path().join(LOCKS)).unwrap();
        let held = take_locks(home.path(), &target("s1")).unwrap();
        assert_eq!(held.len(), 1);
        let client = File::create(home.path().join(LOCKS).join("s1.lock")).unwrap();
        assert!(client.try_lock().is_err());
        // An id is from the file, and names no other path.
        File::create(home.path().join("other.lock")).unwrap();
        for id in ["../other", "", "a\0b", &"x".repeat(300)] {
            assert!(take_locks(home.path(), &target(id)).unwrap().is_empty(), "{id}");
            assert_eq!(state_of(home.path(), &target(id)), LiveState::Idle, "{id}");
        }
    }
}
