//! A home with sessions of Claude Code and Codex, and the command run in it.

use std::{
    fs::{self, File, FileTimes, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use crate::support::state;

/// The ids of the sessions of these tests.
pub(super) const CLAUDE: &str = "8a52aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";
pub(super) const CODEX: &str = "019ab3c4-0000-7000-8000-000000000001";
/// The working folder of the sessions.
pub(super) const PROJECT: &str = "/work/app";
/// A word of each text of the conversations, which no output may contain.
pub(super) const CANARY: &str = "zebrafinch";

/// A home directory.
pub(super) struct Home {
    pub(super) folder: PathBuf,
}

impl Home {
    pub(super) fn new() -> Self {
        Self {
            folder: state::directory(),
        }
    }

    /// Returns the folder of Claude Code's project.
    pub(super) fn project(&self) -> PathBuf {
        self.folder.join(".claude/projects/-work-app")
    }

    /// Writes a session of Claude Code.
    pub(super) fn claude(&self, id: &str, bytes: &[u8]) -> PathBuf {
        Self::write_aged(&self.project().join(format!("{id}.jsonl")), bytes)
    }

    /// Writes a rollout of Codex.
    pub(super) fn codex(&self, id: &str, bytes: &[u8]) -> PathBuf {
        Self::write_aged(&self.rollout(id), bytes)
    }

    /// Returns the path of a rollout of Codex.
    pub(super) fn rollout(&self, id: &str) -> PathBuf {
        let folder = self.folder.join(".codex/sessions/2026/11/02");
        folder.join(format!("rollout-2026-11-02T03-04-05-{id}.jsonl"))
    }

    /// Writes a file that is some minutes old.
    pub(super) fn write_aged(path: &Path, bytes: &[u8]) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        set_age(path, Duration::from_secs(600));
        path.to_owned()
    }

    /// Returns the folder of all fixes.
    pub(super) fn fixes(&self) -> PathBuf {
        self.folder.join("state/antiphon/doctor")
    }

    /// Returns the folders of the fixes that are kept, oldest first.
    pub(super) fn kept_fixes(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.fixes()).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
        self.surround(&mut command);
        command.arg("doctor").args(arguments);
        command
    }

    /// Gives a command this home.
    pub(super) fn surround(&self, command: &mut Command) {
        command
            .env("HOME", &self.folder)
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env_remove("CLAUDE_CONFIG_DIR")
            .env_remove("CODEX_HOME")
            .env_remove("COPILOT_HOME")
            .env_remove("QWEN_HOME")
            .env_remove("QWEN_RUNTIME_DIR")
            .env_remove("OPENCODE_DB")
            .env_remove("XDG_DATA_HOME")
            .env_remove("CLAUDE_CODE_CHILD_SESSION")
            .current_dir(&self.folder)
            .stdin(Stdio::null());
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Told {
        Told::of(&self.command(arguments).output().unwrap())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Told {
    pub(super) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns all output.
    pub(super) fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

/// Sets the time of the last write to an age, with nanoseconds.
pub(super) fn set_age(path: &Path, age: Duration) {
    let modified = SystemTime::now() - age + Duration::from_nanos(123_456_789);
    let times = FileTimes::new().set_modified(modified);
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_times(times)
        .unwrap();
}

/// Everything about a file that a fix must keep, but its size and bytes.
pub(super) fn kept_facts(path: &Path) -> impl PartialEq + std::fmt::Debug {
    let of = |metadata: &Metadata| {
        let times = (metadata.mtime(), metadata.mtime_nsec());
        (
            metadata.dev(),
            metadata.ino(),
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            times,
        )
    };
    of(&fs::symlink_metadata(path).unwrap())
}

/// Returns a record of Claude Code. `number` is its place in the chain.
fn claude_record(number: usize, parent: Option<usize>, kind: &str, message: &Value) -> String {
    let uuid = |number: usize| format!("00000000-0000-4000-8000-{number:012}");
    json!({
        "parentUuid": parent.map(uuid), "isSidechain": false, "userType": "external", "cwd": PROJECT,
        "sessionId": CLAUDE, "version": "2.1.332", "gitBranch": "main", "type": kind, "message": message,
        "uuid": uuid(number), "timestamp": format!("2026-11-02T03:04:{number:02}.000Z"),
    })
    .to_string()
}

fn asks(number: usize, call: &str) -> Value {
    json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": CANARY}}],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    })
}

fn answers(call: &str) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": CANARY}]})
}

fn says(number: usize) -> Value {
    json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": CANARY}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    })
}

/// Returns the lines of a sound session of Claude Code: a prompt, two calls with their results, an answer, and a prompt.
pub(super) fn claude_lines() -> Vec<String> {
    let prompt = json!({"role": "user", "content": CANARY});
    vec![
        claude_record(1, None, "user", &prompt),
        claude_record(2, Some(1), "assistant", &asks(2, "toolu_01A")),
        claude_record(3, Some(2), "user", &answers("toolu_01A")),
        claude_record(4, Some(3), "assistant", &asks(4, "toolu_01B")),
        claude_record(5, Some(4), "user", &answers("toolu_01B")),
        claude_record(6, Some(5), "assistant", &says(6)),
        claude_record(7, Some(6), "user", &prompt),
        claude_record(8, Some(7), "assistant", &says(8)),
    ]
}

/// Returns the lines of a sound rollout of Codex.
pub(super) fn codex_lines() -> Vec<String> {
    let record = |ordinal: usize, kind: &str, payload: Value| {
        let time = format!("2026-11-02T03:04:{ordinal:02}.000Z");
        json!({"timestamp": time, "ordinal": ordinal, "type": kind, "payload": payload}).to_string()
    };
    let message =
        |role: &str, kind: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": CANARY}]});
    vec![
        record(
            0,
            "session_meta",
            json!({
                "id": CODEX, "timestamp": "2026-11-02T03:04:05.000Z", "cwd": PROJECT, "originator": "codex_cli_rs",
                "cli_version": "0.171.0", "source": "cli", "model_provider": "openai", "history_mode": "paginated",
            }),
        ),
        record(1, "response_item", message("user", "input_text")),
        record(
            2,
            "response_item",
            json!({
                "type": "function_call", "name": "shell", "arguments": format!("{{\"command\":\"{CANARY}\"}}"), "call_id": "call_1",
            }),
        ),
        record(
            3,
            "response_item",
            json!({"type": "function_call_output", "call_id": "call_1", "output": CANARY}),
        ),
        record(4, "response_item", message("assistant", "output_text")),
    ]
}

/// Returns the bytes of a file with these lines.
pub(super) fn file_of(lines: &[String]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [line.as_bytes(), b"\n"].concat())
        .collect()
}

/// Returns a session of Claude Code whose fix overwrites and appends: NUL bytes in front of a record, a call without
/// its result, and no end of the last line.
pub(super) fn damaged_claude() -> Vec<u8> {
    let mut lines = claude_lines();
    lines.remove(2);
    // The next record follows the call, so that no parent is missing.
    lines[2] = lines[2].replacen("000000000003", "000000000002", 1);
    lines[4] = format!("{}{}", "\0".repeat(40), lines[4]);
    let mut bytes = file_of(&lines);
    bytes.pop();
    bytes
}

/// Returns a rollout of Codex whose fix overwrites and appends: NUL bytes in front of a call, a call at the end without
/// its output, and no end of the last line.
pub(super) fn damaged_codex() -> Vec<u8> {
    let mut lines = codex_lines();
    lines[2] = format!("{}{}", "\0".repeat(40), lines[2]);
    let call = json!({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "call_2"});
    let record =
        json!({"timestamp": "2026-11-02T03:04:05.000Z", "ordinal": 5, "type": "response_item", "payload": call});
    lines.push(record.to_string());
    let mut bytes = file_of(&lines);
    bytes.pop();
    bytes
}
