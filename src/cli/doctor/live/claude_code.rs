//! Signs that Claude Code has a session in use: its own notes in `sessions/<pid>.json`, and a process in the folder of
//! the project.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use super::{
    processes::ProcessFacts,
    sign::{LiveState, LiveTarget},
};
use crate::{
    cli::doctor::{
        file_facts::time_since_1970,
        places::{project_above, project_name},
    },
    server::regular_file::open_regular,
};

/// Bytes of a note that are read.
const NOTE_BYTES: u64 = 64 * 1024;
/// Time by which a note may be older than its process.
const NOTE_SLACK: Duration = Duration::from_secs(2);

/// The note of a process about its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionNote {
    pid: u32,
    session: Option<String>,
    working_folder: Option<PathBuf>,
    /// The start of the process, as the note tells it.
    start: Option<String>,
    /// The last write of the note, since 1970.
    written_at: Duration,
}

/// Reads the notes in the folder of the client. Fails with the reason.
pub(super) fn read_notes(home: &Path) -> Result<Vec<SessionNote>, String> {
    let folder = home.join("sessions");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        // Versions before 2.1 write none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{} cannot be read: {error}", folder.display())),
    };
    let mut notes = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|error| format!("{} cannot be read: {error}", folder.display()))?
            .path();
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.parse().ok());
        let (Some(pid), true) = (stem, path.extension().is_some_and(|ending| ending == "json")) else {
            continue;
        };
        match read_note(pid, &path) {
            Ok(note) => notes.push(note),
            // Its process has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        }
    }
    Ok(notes)
}

fn read_note(pid: u32, path: &Path) -> io::Result<SessionNote> {
    let file = open_regular(path)?;
    let written_at = time_since_1970(&file.metadata()?);
    let mut text = Vec::new();
    file.take(NOTE_BYTES).read_to_end(&mut text)?;
    // Of a note that is being written, only the name of its file is known.
    let note: Value = serde_json::from_slice(&text).unwrap_or_default();
    let text_of = |key: &str| match &note[key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    Ok(SessionNote {
        pid,
        session: text_of("sessionId"),
        working_folder: text_of("cwd").map(PathBuf::from),
        start: text_of("procStart"),
        written_at,
    })
}

/// Returns the use of a session, from the notes and the processes.
pub(super) fn state_of(target: &LiveTarget, notes: &[SessionNote], processes: &[ProcessFacts]) -> LiveState {
    let project = project_above(&target.path);
    let is_project = |folder: &Option<PathBuf>| {
        let name = folder.as_deref().map(project_name);
        name.is_some() && name == project
    };
    // A note stays after a kill, and its id may be another process by now.
    for note in notes {
        let Some(process) = processes.iter().find(|process| is_writer(note, process)) else {
            continue;
        };
        let names_session = note.session.as_ref().is_none_or(|id| target.ids.contains(id));
        if names_session {
            let sign = "Claude Code notes it as the process of this session";
            return LiveState::InUse {
                pid: Some(process.pid),
                sign,
            };
        }
        if is_project(&note.working_folder) {
            return in_project(process.pid);
        }
    }
    // Older versions write no note, and `/resume` does not change it.
    let in_folder = processes
        .iter()
        .find(|process| process.is_claude && is_project(&process.working_folder));
    in_folder.map_or(LiveState::Idle, |process| in_project(process.pid))
}

const fn in_project(pid: u32) -> LiveState {
    let sign = "Claude Code runs in the folder of this session, and may have resumed it";
    LiveState::InUse { pid: Some(pid), sign }
}

/// Returns `true` if the process has written the note.
fn is_writer(note: &SessionNote, process: &ProcessFacts) -> bool {
    if note.pid != process.pid {
        return false;
    }
    match (process.started_at, &note.start) {
        // The note tells the start in another form.
        (Some(started_at), _) => started_at <= note.written_at.saturating_add(NOTE_SLACK),
        (None, Some(start)) => *start == process.start,
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::SessionClient;

    fn process(pid: u32, start: &str, folder: &str) -> ProcessFacts {
        ProcessFacts {
            pid,
            start: start.to_owned(),
            is_claude: true,
            working_folder: Some(folder.into()),
            ..ProcessFacts::default()
        }
    }

    #[test]
    fn a_note_counts_while_its_process_lives() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("sessions")).unwrap();
        let note = r#"{"pid":7,"sessionId":"s1","cwd":"/w/app","procStart":"100"}"#;
        fs::write(home.path().join("sessions/7.json"), note).unwrap();
        fs::write(home.path().join("sessions/readme.txt"), "").unwrap();
        let notes = read_notes(home.path()).unwrap();
        let target = |id: &str, project: &str| LiveTarget {
            client: SessionClient::ClaudeCode,
            path: format!("/h/.claude/projects/{project}/{id}.jsonl").into(),
            ids: vec![id.to_owned()],
        };
        for (processes, id, project, pid) in [
            (vec![process(7, "100", "/elsewhere")], "s1", "-w-app", Some(7)),
            // The session was resumed inside of another one, or is of another project.
            (vec![process(7, "100", "/elsewhere")], "s2", "-w-app", Some(7)),
            (vec![process(7, "100", "/elsewhere")], "s2", "-w-other", None),
            // Another process has this id by now.
            (vec![process(7, "101", "/elsewhere")], "s1", "-w-app", None),
            (vec![], "s1", "-w-app", None),
            // No note, but a process in the folder.
            (vec![process(9, "1", "/w/other")], "s3", "-w-other", Some(9)),
        ] {
            let state = state_of(&target(id, project), &notes, &processes);
            let found = match state {
                LiveState::InUse { pid, .. } => pid,
                _ => None,
            };
            assert_eq!(found, pid, "{id} {project} {processes:?}");
        }
    }

    #[test]
    fn a_note_that_cannot_be_read_in_full_counts_for_every_session() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("sessions")).unwrap();
        fs::write(home.path().join("sessions/7.json"), r#"{"pid":7,"sess"#).unwrap();
        let notes = read_notes(home.path()).unwrap();
        let target = LiveTarget {
            client: SessionClient::ClaudeCode,
            path: "/tmp/s1.jsonl".into(),
            ids: vec!["s1".to_owned()],
        };
        let state = state_of(&target, &notes, &[process(7, "1", "/x")]);
        assert!(matches!(state, LiveState::InUse { pid: Some(7), .. }), "{state:?}");
        // A folder in the place of a note cannot be read at all.
        fs::create_dir(home.path().join("sessions/8.json")).unwrap();
        assert!(read_notes(home.path()).is_err());
        assert_eq!(read_notes(Path::new("/no/such/home")), Ok(Vec::new()));
    }
}
