//! The sign that Copilot CLI has a session in use: `inuse.<pid>.lock` in its folder, and a lock on `inuse.<pid>.hold`.
//! Both files stay after a kill, the lock does not.

use std::{fs, path::Path};

use super::{held_locks::listed_holder, processes::ProcessFacts, sign::LiveState};
use crate::server::regular_file::open_regular;

const SIGN: &str = "Copilot CLI has it open";

/// Returns the use of the session of a file.
pub(super) fn state_of(path: &Path, processes: &[ProcessFacts]) -> LiveState {
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(named_process);
        let Some(pid) = pid.filter(|pid| holds_session(&entry.path(), *pid, processes)) else {
            continue;
        };
        return LiveState::InUse {
            pid: Some(pid),
            sign: SIGN,
        };
    }
    LiveState::Idle
}

fn named_process(name: &str) -> Option<u32> {
    name.strip_prefix("inuse.")?.strip_suffix(".lock")?.parse().ok()
}

/// Returns `true` if the process that has left this note still holds the session.
fn holds_session(note: &Path, pid: u32, processes: &[ProcessFacts]) -> bool {
    let is_alive = processes.iter().any(|process| process.pid == pid);
    match open_regular(&note.with_extension("hold")) {
        // Another process may have got the same number since.
        Ok(hold) if cfg!(target_os = "linux") => is_alive && listed_holder(&hold).is_some(),
        _ => is_alive,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_session_is_in_use_while_its_process_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, pid) = (folder.path().join("events.jsonl"), std::process::id());
        let processes = [ProcessFacts {
            pid,
            ..ProcessFacts::default()
        }];
        let note = |pid: u32| folder.path().join(format!("inuse.{pid}.lock"));
        assert_eq!(state_of(&path, &processes), LiveState::Idle);
        fs::write(note(1), "1\n").unwrap();
        fs::write(folder.path().join("inuse.lock"), "").unwrap();
        assert_eq!(state_of(&path, &processes), LiveState::Idle);
        // Older versions have no second file.
        fs::write(note(pid), "").unwrap();
        let in_use = LiveState::InUse {
            pid: Some(pid),
            sign: SIGN,
        };
        assert_eq!(state_of(&path, &processes), in_use);
        let hold = File::create(note(pid).with_extension("hold")).unwrap();
        assert_eq!(state_of(&path, &processes), LiveState::Idle);
        hold.lock().unwrap();
        assert_eq!(state_of(&path, &processes), in_use);
    }
}
