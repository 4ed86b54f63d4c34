//! The use of sessions: each client's own signs, and the processes that have a file open.

mod claude_code;
mod codex;
mod copilot;
mod held_locks;
mod processes;
mod sign;

#[cfg(unix)]
use std::fs::File;
use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
};

pub(super) use sign::{LiveState, LiveTarget};

use super::places::{client_home, home_above};
use crate::sessions::SessionClient;
use claude_code::SessionNote;
use processes::{ProcessFacts, list_processes};

/// Files whose last write is younger may be in use, where nothing else tells it, in seconds.
#[cfg(unix)]
const RECENT_SECONDS: u64 = 60;

/// Notes by the folder of their client.
type NotesByHome = HashMap<PathBuf, Result<Vec<SessionNote>, String>>;

/// The signs as they are at one moment.
#[derive(Debug)]
pub(super) struct LiveSigns {
    processes: Result<Vec<ProcessFacts>, String>,
    notes: RefCell<NotesByHome>,
}

impl LiveSigns {
    /// Reads the processes of this machine.
    pub(super) fn gather() -> Self {
        Self {
            processes: list_processes(),
            notes: RefCell::default(),
        }
    }

    /// Returns the use of a session.
    pub(super) fn state_of(&self, target: &LiveTarget) -> LiveState {
        self.read_signs(target, false)
    }

    /// Returns the use of a session whose own locks this process holds.
    #[cfg(unix)]
    pub(super) fn state_while_held(&self, target: &LiveTarget) -> LiveState {
        self.read_signs(target, true)
    }

    fn read_signs(&self, target: &LiveTarget, has_locks: bool) -> LiveState {
        let processes = match &self.processes {
            Ok(processes) => processes,
            Err(why) => return LiveState::Unreadable(why.clone()),
        };
        if let Some(pid) = writer_of(&target.path, processes) {
            let sign = "it has the file open for writing";
            return LiveState::InUse { pid: Some(pid), sign };
        }
        let homes = homes_of(target);
        for home in &homes {
            let state = match target.client {
                SessionClient::ClaudeCode => self.claude_state(home, target, processes),
                SessionClient::Codex if has_locks => LiveState::Idle,
                SessionClient::Codex => codex::state_of(home, target),
                SessionClient::Copilot => copilot::state_of(&target.path, processes),
                // They have no sign of their own.
                SessionClient::QwenCode | SessionClient::OpenCode => LiveState::Idle,
            };
            if state != LiveState::Idle {
                return state;
            }
        }
        time_sign(target, &homes)
    }

    /// Returns the use of a session, and takes the client's own lock, which is held as long as the files live.
    #[cfg(unix)]
    pub(super) fn take_session(&self, target: &LiveTarget) -> Result<(LiveState, Vec<File>), LiveState> {
        let mut held = Vec::new();
        if target.client == SessionClient::Codex {
            for home in homes_of(target) {
                held.extend(codex::take_locks(&home, target)?);
            }
        }
        Ok((self.state_while_held(target), held))
    }

    fn claude_state(&self, home: &Path, target: &LiveTarget, processes: &[ProcessFacts]) -> LiveState {
        let mut known = self.notes.borrow_mut();
        let notes = known
            .entry(home.to_owned())
            .or_insert_with(|| claude_code::read_notes(home));
        match notes {
            Ok(notes) => claude_code::state_of(target, notes, processes),
            Err(why) => LiveState::Unreadable(why.clone()),
        }
    }
}

/// Returns the folders of the client that may have signs: that of the file, and that of this user.
fn homes_of(target: &LiveTarget) -> Vec<PathBuf> {
    let above = home_above(&target.path, target.client);
    let homes = above.into_iter().chain(client_home(target.client));
    // Two paths to one folder would meet the lock that this process holds itself.
    let mut homes: Vec<PathBuf> = homes.map(|home| home.canonicalize().unwrap_or(home)).collect();
    homes.dedup();
    homes
}

/// Returns the process that has a file open for writing, other than this one.
#[cfg(unix)]
fn writer_of(path: &Path, processes: &[ProcessFacts]) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;

    let metadata = std::fs::metadata(path).ok()?;
    let file = (metadata.dev(), metadata.ino());
    let is_writer =
        |process: &&ProcessFacts| process.pid != std::process::id() && process.written_files.contains(&file);
    processes.iter().find(is_writer).map(|process| process.pid)
}

#[cfg(not(unix))]
fn writer_of(_path: &Path, _processes: &[ProcessFacts]) -> Option<u32> {
    None
}

/// Returns the sign of the last write, where no other sign could have told that the session is in use.
#[cfg(unix)]
fn time_sign(target: &LiveTarget, homes: &[PathBuf]) -> LiveState {
    let has_own_sign = match target.client {
        SessionClient::ClaudeCode | SessionClient::Copilot => true,
        // It opens the file for each record alone.
        SessionClient::QwenCode => false,
        SessionClient::OpenCode => cfg!(target_os = "linux"),
        // On Linux open files are seen.
        SessionClient::Codex => cfg!(target_os = "linux") || homes.iter().any(|home| codex::has_locks(home)),
    };
    let Ok(file) = File::open(&target.path) else {
        return LiveState::Idle;
    };
    // The process that writes may run on another machine.
    if has_own_sign && !is_on_network(&file) {
        return LiveState::Idle;
    }
    let written = file
        .metadata()
        .map(|metadata| super::file_facts::time_since_1970(&metadata));
    let age = crate::clock::system_time().saturating_sub(written.unwrap_or_default());
    if age.as_secs() < RECENT_SECONDS {
        LiveState::Recent(age)
    } else {
        LiveState::Idle
    }
}

#[cfg(not(unix))]
fn time_sign(_target: &LiveTarget, _homes: &[PathBuf]) -> LiveState {
    LiveState::Idle
}

#[cfg(target_os = "linux")]
fn is_on_network(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == rustix::fs::NFS_SUPER_MAGIC)
}

#[cfg(all(unix, not(target_os = "linux")))]
const fn is_on_network(_file: &File) -> bool {
    false
}
