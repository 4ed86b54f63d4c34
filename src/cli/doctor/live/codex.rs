//! The sign of a live Codex: a lock on `thread-writer-locks/<id>.lock`. The file stays, the lock does not.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::sign::{LiveState, LiveTarget};
use crate::server::regular_file::open_regular;

/// The folder of the locks.
const LOCKS: &str = "thread-writer-locks";
const SIGN: &str = "Codex holds its lock";

/// Returns `true` if the client of this folder makes locks. Older versions do not.
pub(super) fn has_locks(home: &Path) -> bool {
    home.join(LOCKS).is_dir()
}

fn lock_paths(home: &Path, target: &LiveTarget) -> impl Iterator<Item = PathBuf> {
    target
        .ids
        .iter()
        .map(move |id| home.join(LOCKS).join(format!("{id}.lock")))
}

/// Takes the client's own lock of a session, so that it does not begin to write meanwhile. Returns the locks held.
pub(super) fn take_locks(home: &Path, target: &LiveTarget) -> Result<Vec<File>, LiveState> {
    let mut held = Vec::new();
    for path in lock_paths(home, target) {
        let Some(file) = open_lock(&path)? else { continue };
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

fn unreadable(path: &Path, error: &io::Error) -> LiveState {
    LiveState::Unreadable(format!("{}: {error}", path.display()))
}

fn in_use(file: &File) -> LiveState {
    LiveState::InUse {
        pid: listed_holder(file),
        sign: SIGN,
    }
}

/// Returns the process that holds a lock of this file, as `/proc/locks` lists it.
#[cfg(target_os = "linux")]
pub(super) fn listed_holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;

    let inode = file.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| read_holder(line, inode))
}

/// Returns the process that holds a lock of this file.
#[cfg(not(target_os = "linux"))]
pub(super) const fn listed_holder(_file: &File) -> Option<u32> {
    None
}

/// Reads a line such as `2: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`, without those who wait.
#[cfg(target_os = "linux")]
fn read_holder(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?;
    let place = words.next()?;
    let is_file = place.rsplit(':').next()?.parse() == Ok(inode);
    is_file.then(|| pid.parse().ok())?
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
    fn lines_of_proc_locks_are_read() {
        for (line, pid) in [
            ("2: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", Some(4711)),
            ("2: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", None),
            ("2: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", None),
            ("2: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF", None),
            ("", None),
        ] {
            assert_eq!(read_holder(line, 1234), pid, "{line}");
        }
    }
}
