//! The folders in which clients keep their sessions, and the names of the files in them.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use crate::{
    config::process_environment,
    sessions::{SessionClient, link_id::UUID_CHARS},
};

/// The ending of session files.
pub(super) const ENDING: &str = ".jsonl";
/// The ending of session files that Codex has compressed.
pub(super) const COMPRESSED_ENDING: &str = ".jsonl.zst";
/// The folder of the sessions of Copilot CLI, each of which has a folder of its own.
const COPILOT_FOLDER: &str = "session-state";
/// The file of a session of Copilot CLI in its folder.
pub(super) const COPILOT_EVENTS: &str = "events.jsonl";
/// Characters of the shortest id that is shown.
const SHOWN_CHARS: usize = 8;
/// The folder of the sessions of Claude Code, which Qwen Code has too.
const PROJECTS: &str = "projects";

/// The place of a client's sessions.
struct ClientPlace {
    client: SessionClient,
    /// Variables that name its folder. The first one that is set counts.
    variables: &'static [&'static str],
    /// The client's own folder in the one that a variable names. `None` if it is that one itself.
    below_variable: Option<&'static str>,
    /// Its folder in that of the user, without a variable.
    below_home: &'static str,
    /// The folders in it that have session files. A client with a database has none.
    folders: &'static [&'static str],
    /// The names by which a file below such a folder is one of its sessions.
    is_session: fn(&Path) -> bool,
}

/// The places of all clients. Of rows with one folder, the first one that knows a file counts.
const PLACES: [ClientPlace; 5] = [
    ClientPlace {
        client: SessionClient::Codex,
        variables: &["CODEX_HOME"],
        below_variable: None,
        below_home: ".codex",
        folders: &["sessions", "archived_sessions"],
        is_session: |path| file_name(path).starts_with("rollout-"),
    },
    ClientPlace {
        client: SessionClient::Copilot,
        variables: &["COPILOT_HOME"],
        below_variable: None,
        below_home: ".copilot",
        folders: &[COPILOT_FOLDER],
        is_session: |path| copilot_session(path).is_some(),
    },
    ClientPlace {
        client: SessionClient::QwenCode,
        variables: &["QWEN_RUNTIME_DIR", "QWEN_HOME"],
        below_variable: None,
        below_home: ".qwen",
        folders: &[PROJECTS],
        is_session: |path| is_below(path, "chats"),
    },
    ClientPlace {
        client: SessionClient::ClaudeCode,
        variables: &["CLAUDE_CONFIG_DIR"],
        below_variable: None,
        below_home: ".claude",
        folders: &[PROJECTS],
        is_session: |path| file_name(path).starts_with("agent-") || is_uuid(&named_id(path)),
    },
    ClientPlace {
        client: SessionClient::OpenCode,
        variables: &["XDG_DATA_HOME"],
        below_variable: Some("opencode"),
        below_home: ".local/share/opencode",
        folders: &[],
        is_session: |_| false,
    },
];

fn place_of(client: SessionClient) -> Option<&'static ClientPlace> {
    PLACES.iter().find(|place| place.client == client)
}

/// Returns the folder of a client. `None` without a home directory.
pub(super) fn client_home(client: SessionClient) -> Option<PathBuf> {
    let place = place_of(client)?;
    let mut variables = place.variables.iter();
    let Some(named) = variables.find_map(|variable| process_environment(variable)) else {
        return user_home().map(|home| home.join(place.below_home));
    };
    let named = PathBuf::from(named);
    Some(match place.below_variable {
        Some(below) => named.join(below),
        None => named,
    })
}

/// Returns the database that opencode is told to use. `None` if it is in its folder.
pub(super) fn named_database() -> Option<PathBuf> {
    let named = process_environment("OPENCODE_DB").filter(|named| named != ":memory:")?;
    Some(client_home(SessionClient::OpenCode)?.join(named))
}

/// Returns the user's home directory.
pub(super) fn user_home() -> Option<PathBuf> {
    let variable = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    process_environment(variable).map(PathBuf::from)
}

/// Returns the folders of a client that have session files.
pub(super) fn session_folders(client: SessionClient) -> Vec<PathBuf> {
    let home = client_home(client);
    home.iter()
        .flat_map(|home| folder_names(client).iter().map(|name| home.join(name)))
        .collect()
}

/// Returns the names of the folders with session files, in that of the client.
fn folder_names(client: SessionClient) -> &'static [&'static str] {
    place_of(client).map_or(&[], |place| place.folders)
}

/// Returns `true` if a file of this name may be a session.
pub(super) fn has_session_name(path: &Path) -> bool {
    let name = file_name(path);
    name.ends_with(ENDING) || name.ends_with(COMPRESSED_ENDING)
}

/// Returns `true` if a file of this name is opencode's database. It makes others for its test versions.
pub(super) fn has_database_name(path: &Path) -> bool {
    let name = file_name(path);
    let stem = name.strip_suffix(".db").and_then(|stem| stem.strip_prefix("opencode"));
    stem.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the id of the session that the name of a file tells.
pub(super) fn named_id(path: &Path) -> String {
    let name = file_name(path);
    let ending = [COMPRESSED_ENDING, ENDING]
        .iter()
        .find_map(|ending| name.strip_suffix(ending));
    let stem = ending.unwrap_or(&name);
    if let Some(session) = copilot_session(path) {
        return session;
    }
    let Some(rollout) = stem.strip_prefix("rollout-") else {
        return stem.to_owned();
    };
    let id = rollout.len().checked_sub(UUID_CHARS).and_then(|at| rollout.get(at..));
    id.filter(|id| is_uuid(id)).unwrap_or(stem).to_owned()
}

/// Returns the id of a session of Copilot CLI, which is the name of its folder. `None` for another file.
fn copilot_session(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|_| path.ends_with(COPILOT_EVENTS))?;
    let is_session = folder.parent()?.ends_with(COPILOT_FOLDER);
    is_session
        .then(|| folder.file_name())?
        .map(|name| name.to_string_lossy().into_owned())
}

/// Returns the client whose files have such a name in such a folder. `None` if the place tells nothing.
pub(super) fn client_by_place(path: &Path) -> Option<SessionClient> {
    let has_session = |place: &&ClientPlace| {
        let mut folders = place.folders.iter();
        folders.any(|folder| is_below(path, folder)) && (place.is_session)(path)
    };
    PLACES.iter().find(has_session).map(|place| place.client)
}

/// Returns `true` if a file is below a folder of this name.
fn is_below(path: &Path, folder: &str) -> bool {
    let mut above = path.ancestors().skip(1);
    above.any(|above| above.file_name().is_some_and(|name| name == folder))
}

/// Returns the name of a file.
fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Returns the folder of the client that a session file is in, by the folders above it. `None` for a file elsewhere.
pub(super) fn home_above(path: &Path, client: SessionClient) -> Option<PathBuf> {
    let names = folder_names(client);
    let is_root = |above: &&Path| {
        above
            .file_name()
            .is_some_and(|name| names.iter().any(|known| name == *known))
    };
    path.ancestors().skip(1).find(is_root)?.parent().map(Path::to_owned)
}

/// Returns the name of the folder of Claude Code's project that a session file is in. `None` for a file elsewhere.
pub(super) fn project_above(path: &Path) -> Option<String> {
    let is_project = |folder: &&Path| {
        let above = folder.parent().and_then(Path::file_name);
        above.is_some_and(|name| name == PROJECTS)
    };
    let project = path.ancestors().skip(1).find(is_project)?;
    Some(project.file_name()?.to_string_lossy().into_owned())
}

/// Returns the name that Claude Code gives to the folder of a project.
pub(super) fn project_name(working_folder: &Path) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    working_folder.to_string_lossy().chars().map(letter).collect()
}

/// Returns a path for people: the home directory is `~`.
pub(super) fn shown_path(path: &Path) -> String {
    let below = user_home().and_then(|home| path.strip_prefix(&home).ok().map(Path::to_owned));
    let shown = match below {
        Some(below) if !below.as_os_str().is_empty() => format!("~/{}", below.display()),
        _ => path.display().to_string(),
    };
    crate::printable::printable_text(&shown)
}

/// Returns the shortest prefix of an id that no other id shares, of 8 characters at least.
pub(super) fn short_id<'i>(id: &'i str, others: impl Iterator<Item = &'i str>) -> &'i str {
    let shared = |other: &str| {
        id.bytes()
            .zip(other.bytes())
            .take_while(|(left, right)| left == right)
            .count()
    };
    let longest = others
        .filter(|other| *other != id)
        .map(shared)
        .max()
        .unwrap_or_default();
    let chars = longest.saturating_add(1).max(SHOWN_CHARS);
    id.get(..chars).unwrap_or(id)
}

fn is_uuid(text: &str) -> bool {
    uuid::Uuid::try_parse(text).is_ok_and(|_| text.len() == UUID_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019ab3c4-0000-7000-8000-000000000001";

    #[test]
    fn every_client_has_a_place() {
        for client in SessionClient::ALL {
            assert!(place_of(client).is_some(), "{}", client.name());
        }
    }

    #[test]
    fn names_of_files_tell_ids_and_clients() {
        let claude = Some(SessionClient::ClaudeCode);
        for (path, id, client) in [
            (format!("/h/.claude/projects/-w/{ID}.jsonl"), ID, claude),
            (
                format!("/h/.claude/projects/-w/{ID}/subagents/agent-a1.jsonl"),
                "agent-a1",
                claude,
            ),
            (
                format!("/h/.codex/sessions/2026/01/02/rollout-2026-01-02T03-04-05-{ID}.jsonl"),
                ID,
                Some(SessionClient::Codex),
            ),
            (
                format!("/h/.codex/archived_sessions/rollout-x-{ID}.jsonl.zst"),
                ID,
                Some(SessionClient::Codex),
            ),
            (
                format!("/h/.copilot/session-state/{ID}/events.jsonl"),
                ID,
                Some(SessionClient::Copilot),
            ),
            ("/h/w/events.jsonl".to_owned(), "events", None),
            (
                format!("/h/.qwen/projects/-w/chats/{ID}.jsonl"),
                ID,
                Some(SessionClient::QwenCode),
            ),
            ("/h/rollout-größe.jsonl".to_owned(), "rollout-größe", None),
            ("/h/notes.jsonl".to_owned(), "notes", None),
        ] {
            assert_eq!(named_id(Path::new(&path)), id, "{path}");
            assert_eq!(client_by_place(Path::new(&path)), client, "{path}");
        }
    }

    #[test]
    fn the_database_is_known_by_its_name() {
        for (name, is_known) in [
            ("opencode.db", true),
            ("opencode-dev.db", true),
            ("opencode.db-wal", false),
            ("opencodex.db", false),
            ("session.db", false),
        ] {
            assert_eq!(has_database_name(Path::new(name)), is_known, "{name}");
        }
    }

    #[test]
    fn folders_above_a_session_are_its_home_and_its_project() {
        let path = format!("/h/.claude/projects/-home-u-app/{ID}/subagents/agent-a1.jsonl");
        let path = Path::new(&path);
        assert_eq!(home_above(path, SessionClient::ClaudeCode), Some("/h/.claude".into()));
        assert_eq!(project_above(path).as_deref(), Some("-home-u-app"));
        assert_eq!(project_name(Path::new("/home/u/app")), "-home-u-app");
        assert_eq!(project_name(Path::new("/home/u/my_app.v2")), "-home-u-my-app-v2");
        let rollout = Path::new("/h/.codex/sessions/2026/01/02/rollout-x.jsonl");
        assert_eq!(home_above(rollout, SessionClient::Codex), Some("/h/.codex".into()));
        assert_eq!(home_above(Path::new("/tmp/x.jsonl"), SessionClient::Codex), None);
    }

    #[test]
    fn a_short_id_is_of_one_session_alone() {
        let ids = [
            ID,
            "019ab3c4-0000-7000-8000-000000000002",
            "8a52aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee",
        ];
        let short = |id| short_id(id, ids.into_iter());
        assert_eq!(short(ids[2]), "8a52aaaa");
        assert_eq!(short(ID), ID);
        assert_eq!(short_id("a1", ids.into_iter()), "a1");
    }
}
