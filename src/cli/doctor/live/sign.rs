//! The signs by which a session is in use.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{cli::doctor::places::named_id, sessions::SessionClient};

/// A session whose use is asked about.
#[derive(Clone, Debug)]
pub(in crate::cli::doctor) struct LiveTarget {
    pub(in crate::cli::doctor) client: SessionClient,
    pub(in crate::cli::doctor) path: PathBuf,
    /// The ids that its records, its name and its folder tell.
    pub(in crate::cli::doctor) ids: Vec<String>,
}

impl LiveTarget {
    /// Returns the session of a file, with the id that its records tell.
    pub(in crate::cli::doctor) fn of_file(client: SessionClient, path: &Path, session: Option<&str>) -> Self {
        // The file of a sub-agent is in the folder of its session.
        let folders = || path.ancestors().skip(1).filter_map(Path::file_name);
        let of_folder = folders().zip(folders().skip(1)).find(|(name, _)| *name == "subagents");
        let of_folder = of_folder.map(|(_, session)| session.to_string_lossy().into_owned());
        let told = session
            .map(str::to_owned)
            .into_iter()
            .chain([named_id(path)])
            .chain(of_folder);
        let mut ids: Vec<String> = Vec::new();
        for id in told {
            // A lock that was taken for an id cannot be taken for it once more.
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Self {
            client,
            path: path.to_owned(),
            ids,
        }
    }
}

/// The use of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::doctor) enum LiveState {
    /// No client has it open.
    Idle,
    /// A client has it open.
    InUse {
        /// The client's process. `None` if the system does not tell it.
        pid: Option<u32>,
        /// The sign that says so.
        sign: &'static str,
    },
    /// Nothing but the time of the last write says that it may be in use.
    Recent(Duration),
    /// The signs cannot be read, and why.
    Unreadable(String),
}

impl LiveState {
    /// Returns the value for JSON. `None` if it is not known.
    pub(in crate::cli::doctor) const fn is_in_use(&self) -> Option<bool> {
        match self {
            Self::Idle => Some(false),
            Self::InUse { .. } => Some(true),
            Self::Recent(_) | Self::Unreadable(_) => None,
        }
    }

    /// Returns the reason to write nothing now. `None` if the session may be mended.
    pub(in crate::cli::doctor) fn refusal(&self, is_forced: bool) -> Option<String> {
        match self {
            Self::Idle => None,
            Self::InUse { pid: Some(pid), sign } => {
                Some(format!("in use by process {pid} ({sign}): end it, then run this again"))
            }
            Self::InUse { pid: None, sign } => Some(format!("in use ({sign}): end the client, then run this again")),
            Self::Recent(_) if is_forced => None,
            Self::Recent(age) => Some(format!(
                "written {} s ago, so it may be in use: end the client, and wait a minute or add --force",
                age.as_secs()
            )),
            Self::Unreadable(why) => Some(format!(
                "it is not known if the session is in use ({why}), so nothing is written; --force does not help"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_of_a_subagent_is_in_its_path() {
        let path = Path::new("/h/.claude/projects/-w/s1/subagents/agent-a.jsonl");
        let target = LiveTarget::of_file(SessionClient::ClaudeCode, path, Some("s0"));
        assert_eq!(target.ids, ["s0", "agent-a", "s1"]);
        let target = LiveTarget::of_file(SessionClient::Codex, Path::new("/h/s0.jsonl"), Some("s0"));
        assert_eq!(target.ids, ["s0"]);
    }

    #[test]
    fn force_helps_only_where_the_sign_is_a_time() {
        let sign = "a sign";
        for (state, refused, refused_by_force) in [
            (LiveState::Idle, false, false),
            (LiveState::InUse { pid: Some(7), sign }, true, true),
            (LiveState::InUse { pid: None, sign }, true, true),
            (LiveState::Recent(Duration::from_secs(3)), true, false),
            (LiveState::Unreadable("no /proc".to_owned()), true, true),
        ] {
            assert_eq!(state.refusal(false).is_some(), refused, "{state:?}");
            assert_eq!(state.refusal(true).is_some(), refused_by_force, "{state:?}");
        }
        let told = LiveState::InUse { pid: Some(7), sign }.refusal(true);
        assert!(told.is_some_and(|text| text.contains("process 7")));
    }
}
