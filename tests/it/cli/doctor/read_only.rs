//! Sessions of the clients that are only read: found in their folders, told, and never written.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::Connection;
use serde_json::{Value, json};

use super::home::{CANARY, CLAUDE, CODEX, Home, Told, claude_lines, codex_lines, file_of, set_age};

const ID: &str = "5e551001-0000-4000-8000-0000000000aa";
const STORED: &str = "ses_dd2113c9cffeqLsQkyxtphDaxJ";

/// Returns the lines of a session of Copilot CLI whose last call is open.
fn copilot_lines() -> Vec<String> {
    let event = |at: usize, kind: &str, data: Value| {
        let id = |at: usize| format!("5e551001-0000-4000-8000-{at:012}");
        let time = "2026-11-30T19:29:10.742Z";
        json!({"type": kind, "data": data, "id": id(at), "timestamp": time, "parentId": id(at - 1)}).to_string()
    };
    let call = json!([{"toolCallId": "call_1", "name": "bash", "arguments": {"command": CANARY}}]);
    vec![
        event(
            1,
            "session.start",
            json!({"sessionId": ID, "version": 1, "producer": "p", "copilotVersion": "1.0.102", "startTime": "t"}),
        ),
        event(2, "user.message", json!({"content": CANARY})),
        event(3, "assistant.turn_start", json!({"turnId": "0"})),
        event(
            4,
            "assistant.message",
            json!({"messageId": "m", "content": CANARY, "toolRequests": call}),
        ),
    ]
}

/// Returns the lines of a session of Qwen Code, one of which follows a record that is not there.
fn qwen_lines() -> Vec<String> {
    let record = |at: usize, parent: usize, kind: &str| {
        let id = |at: usize| format!("5e551001-0000-4000-8000-{at:012}");
        let message = json!({"role": kind, "parts": [{"text": CANARY}]});
        json!({
            "uuid": id(at), "parentUuid": (parent > 0).then(|| id(parent)), "sessionId": ID, "type": kind,
            "timestamp": "2026-11-30T19:29:57.783Z", "cwd": "/work/app", "version": "0.24.4", "message": message,
        })
        .to_string()
    };
    vec![
        record(1, 0, "user"),
        record(2, 1, "assistant"),
        record(4, 3, "user"),
        record(5, 4, "assistant"),
    ]
}

impl Home {
    fn copilot(&self) -> PathBuf {
        let path = self.folder.join(".copilot/session-state").join(ID).join("events.jsonl");
        Self::write_aged(&path, &file_of(&copilot_lines()))
    }

    fn qwen(&self) -> PathBuf {
        let path = self
            .folder
            .join(".qwen/projects/-work-app/chats")
            .join(format!("{ID}.jsonl"));
        Self::write_aged(&path, &file_of(&qwen_lines()))
    }

    /// Returns the path of opencode's database.
    fn database(&self) -> PathBuf {
        let folder = self.folder.join(".local/share/opencode");
        fs::create_dir_all(&folder).unwrap();
        folder.join("opencode.db")
    }
}

/// Creates the tables of opencode.
fn create_tables(path: &Path, journal: &str) -> Connection {
    let database = Connection::open(path).unwrap();
    let created = database.execute_batch(&format!(
        "PRAGMA journal_mode = {journal};
         CREATE TABLE session (id text PRIMARY KEY, title text, version text NOT NULL, revert text,
             time_updated integer NOT NULL);
         CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
             data text NOT NULL);
         CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
             data text NOT NULL);"
    ));
    created.unwrap();
    database
}

/// Adds a session with these parts: number of the message, data.
fn add_session(database: &Connection, id: &str, age: Duration, parts: &[(usize, Value)]) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let updated = i64::try_from(now.saturating_sub(age).as_millis()).unwrap();
    let session = "INSERT INTO session VALUES (?1, ?2, '1.18.33', NULL, ?3)";
    database.execute(session, (id, CANARY, updated)).unwrap();
    let last = parts.iter().map(|(message, _)| *message).max().unwrap_or_default();
    for at in 0..=last {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        let row = (
            format!("msg_{id}_{at}"),
            id,
            i64::try_from(at).unwrap(),
            json!({"role": role}).to_string(),
        );
        database
            .execute("INSERT INTO message VALUES (?1, ?2, ?3, ?4)", row)
            .unwrap();
    }
    for (at, (message, data)) in parts.iter().enumerate() {
        let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        let row = (format!("prt_{id}_{at:03}"), format!("msg_{id}_{message}"), id, data);
        database
            .execute("INSERT INTO part VALUES (?1, ?2, ?3, ?4)", row)
            .unwrap();
    }
}

fn tool(call: &str, status: &str) -> Value {
    json!({"type": "tool", "tool": "bash", "callID": call, "state": {"status": status, "input": {"command": CANARY}}})
}

fn text() -> Value {
    json!({"type": "text", "text": CANARY})
}

/// A session that has an open call inside and one at its end.
fn open_calls() -> Vec<(usize, Value)> {
    vec![
        (0, text()),
        (1, tool("call_1", "running")),
        (1, tool("call_2", "completed")),
        (2, text()),
        (3, tool("call_3", "error")),
        (3, tool("call_4", "pending")),
    ]
}

/// Returns code and row of each finding of the only file.
fn found(told: &Told) -> Vec<(String, u64)> {
    let document = told.json();
    let findings = document["files"][0]["findings"].as_array().unwrap().clone();
    let row = |finding: &Value| {
        let place = finding["row"].as_u64().or_else(|| finding["line"].as_u64());
        (finding["code"].as_str().unwrap().to_owned(), place.unwrap())
    };
    findings.iter().map(row).collect()
}

fn named(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(code, row)| ((*code).to_owned(), *row)).collect()
}

/// Returns name, bytes and time of each file of a folder.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let facts = |path: PathBuf| {
        (
            path.clone(),
            fs::read(&path).unwrap(),
            fs::metadata(&path).unwrap().modified().unwrap(),
        )
    };
    files.into_iter().map(facts).collect()
}

#[test]
fn each_client_is_found_in_its_folder() {
    let home = Home::new();
    let (copilot, qwen, database) = (home.copilot(), home.qwen(), home.database());
    add_session(
        &create_tables(&database, "delete"),
        STORED,
        Duration::from_secs(60),
        &open_calls(),
    );
    // The user's own files beside a session are none.
    Home::write_aged(&copilot.with_file_name("files").join("own.jsonl"), b"{\"a\":1}\n");
    let told = home.run(&["--output", "json", "--strict"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let document = told.json();
    let files = document["files"].as_array().unwrap();
    let facts: Vec<(&str, &str, &str)> = files
        .iter()
        .map(|file| {
            let member = |name: &str| file[name].as_str().unwrap();
            (member("client"), member("client_version"), member("session"))
        })
        .collect();
    assert!(facts.contains(&("copilot", "1.0.102", ID)), "{facts:?}");
    assert!(facts.contains(&("qwen-code", "0.24.4", ID)), "{facts:?}");
    assert!(facts.contains(&("opencode", "1.18.33", STORED)), "{facts:?}");
    assert_eq!((files.len(), document["foreign"].as_u64()), (3, Some(0)));
    for (client, path) in [("copilot", &copilot), ("qwen-code", &qwen), ("opencode", &database)] {
        let told = home.run(&["--client", client, "--output", "json"]);
        let document = told.json();
        assert_eq!(document["files"].as_array().unwrap().len(), 1, "{client}: {told:?}");
        assert_eq!(document["files"][0]["file"].as_str(), path.to_str(), "{client}");
        // By its path, and below a folder.
        for name in [path.as_path(), path.parent().unwrap()] {
            let told = home.run(&["--output", "json", name.to_str().unwrap()]);
            assert_eq!(told.json()["files"][0]["client"].as_str(), Some(client), "{told:?}");
        }
    }
    let told = home.run(&["--output", "json", "ses_dd21"]);
    assert_eq!(told.json()["files"][0]["session"].as_str(), Some(STORED), "{told:?}");
}

#[test]
fn variables_name_the_folders_of_these_clients() {
    let home = Home::new();
    let database = home.database();
    add_session(
        &create_tables(&database, "delete"),
        STORED,
        Duration::ZERO,
        &open_calls(),
    );
    home.copilot();
    home.qwen();
    for (from, to) in [(".copilot", "a"), (".qwen", "b"), (".local/share", "c")] {
        fs::rename(home.folder.join(from), home.folder.join(to)).unwrap();
    }
    let count = |variables: &[(&str, &str)]| {
        let mut command = home.command(&["--output", "json"]);
        for (name, value) in variables {
            command.env(name, home.folder.join(value));
        }
        let told = Told::of(&command.output().unwrap());
        told.json()["files"].as_array().unwrap().len()
    };
    for (variables, files) in [
        (&[][..], 0),
        (&[("COPILOT_HOME", "a")], 1),
        (&[("QWEN_HOME", "b")], 1),
        (&[("QWEN_RUNTIME_DIR", "b"), ("QWEN_HOME", "none")], 1),
        (&[("XDG_DATA_HOME", "c")], 1),
        (&[("OPENCODE_DB", "c/opencode/opencode.db")], 1),
        (&[("COPILOT_HOME", "a"), ("QWEN_HOME", "b"), ("XDG_DATA_HOME", "c")], 3),
    ] {
        assert_eq!(count(variables), files, "{variables:?}");
    }
}

#[test]
fn sessions_that_are_only_read_are_told_and_never_written() {
    let home = Home::new();
    let (copilot, qwen, database) = (home.copilot(), home.qwen(), home.database());
    add_session(
        &create_tables(&database, "delete"),
        STORED,
        Duration::ZERO,
        &open_calls(),
    );
    for (path, client, code) in [
        (&copilot, "Copilot CLI", "open_call"),
        (&qwen, "Qwen Code", "lost_parent"),
        (&database, "opencode", "unanswered"),
    ] {
        let before = contents(path.parent().unwrap());
        let name = path.to_str().unwrap();
        let told = home.run(&[name, "--strict"]);
        assert_eq!(told.code, Some(1), "{told:?}");
        let only_read = format!("sessions of {client} are only read");
        assert!(told.out.contains(code) && told.out.contains(&only_read), "{told:?}");
        for arguments in [
            &["--fix", name][..],
            &["--fix", "--dry-run", name],
            &["--fix", "--force", name],
        ] {
            let told = home.run(arguments);
            assert_eq!(told.code, Some(1), "{told:?}");
            assert!(told.err.contains(&only_read), "{told:?}");
            assert_eq!(told.err.lines().count(), 1, "{told:?}");
        }
        let told = home.run(&["--fix", name, "--output", "json"]);
        assert_eq!(told.json()["fixes"][0]["status"], "refused", "{told:?}");
        let label = client
            .strip_suffix(" CLI")
            .unwrap_or(client)
            .to_lowercase()
            .replace(' ', "-");
        assert_eq!(
            told.json()["fixes"][0]["client"].as_str(),
            Some(label.as_str()),
            "{told:?}"
        );
        assert_eq!(contents(path.parent().unwrap()), before, "{client}");
        assert!(!format!("{told:?}").contains(CANARY));
    }
    let told = home.run(&["--fix", "ses_dd21"]);
    assert!(told.code == Some(1) && told.err.contains("only read"), "{told:?}");
    // Without another sign, the time of the last write is one.
    set_age(&qwen, Duration::from_secs(5));
    let told = home.run(&[qwen.to_str().unwrap()]);
    assert!(told.out.contains("may be in use"), "{told:?}");
    assert!(!told.out.contains(CANARY));
}

/// A session, its parts, its findings, and how many of its messages would be sent.
type StoredRow = (&'static str, Vec<(usize, Value)>, Vec<(&'static str, u64)>, (u64, u64));

fn stored_rows() -> Vec<StoredRow> {
    vec![
        (
            "ses_open",
            open_calls(),
            vec![("unanswered", 2), ("open_call", 6)],
            (4, 4),
        ),
        (
            "ses_twice",
            vec![(1, tool("a", "completed")), (3, tool("a", "completed"))],
            vec![("duplicate_call", 8)],
            (4, 4),
        ),
        (
            "ses_torn",
            vec![(0, text()), (1, json!("{\"type\":\"tool\",\"st"))],
            vec![("torn_record", 10)],
            (2, 2),
        ),
        (
            "ses_state",
            vec![(1, json!({"type": "tool", "callID": "a"}))],
            vec![("malformed_call", 11)],
            (2, 2),
        ),
        (
            "ses_lost",
            vec![(0, text()), (1, tool("a", "completed"))],
            vec![("lost_parent", 13)],
            (1, 1),
        ),
        (
            "ses_sum",
            vec![
                (1, tool("a", "running")),
                (2, json!({"type": "compaction"})),
                (3, text()),
            ],
            vec![],
            (2, 4),
        ),
        (
            "ses_back",
            vec![(0, text()), (1, tool("a", "running")), (2, text())],
            vec![],
            (1, 3),
        ),
        (
            "ses_unnamed",
            vec![
                (1, json!({"type": "tool", "state": {"status": "completed"}})),
                (1, tool("", "completed")),
            ],
            vec![("malformed_call", 20), ("malformed_call", 21)],
            (2, 2),
        ),
    ]
}

#[test]
fn each_damage_of_a_database_has_its_row() {
    let home = Home::new();
    let path = home.database();
    let summary =
        json!({"role": "assistant", "summary": true, "finish": "stop", "parentID": "msg_ses_sum_2"}).to_string();
    let rows = stored_rows();
    let database = create_tables(&path, "wal");
    for (id, parts, ..) in &rows {
        add_session(&database, id, Duration::ZERO, parts);
    }
    let changed = database.execute_batch(&format!(
        "DELETE FROM message WHERE id = 'msg_ses_lost_1';
         UPDATE message SET data = '{summary}' WHERE id = 'msg_ses_sum_3';
         UPDATE session SET revert = '{{\"messageID\":\"msg_ses_back_1\"}}' WHERE id = 'ses_back';"
    ));
    changed.unwrap();
    for (id, _, wanted, counts) in &rows {
        let told = home.run(&["--output", "json", id]);
        assert_eq!(found(&told), named(wanted), "{id}: {told:?}");
        let file = &told.json()["files"][0];
        assert_eq!(
            (file["reachable"].as_u64(), file["messages"].as_u64()),
            (Some(counts.0), Some(counts.1)),
            "{id}"
        );
        assert!(file["lines"].is_null(), "{id}");
        for finding in file["findings"].as_array().unwrap() {
            assert!(finding["line"].is_null() && finding["byte"].is_null(), "{finding}");
        }
        assert!(!format!("{told:?}").contains(CANARY));
    }
    let told = home.run(&["ses_twice"]);
    assert!(
        told.out.contains("row 8: error: duplicate_call") && told.out.contains("[see row 7]"),
        "{told:?}"
    );
}

/// What is only in the log of writes is read too, while opencode works and after it was killed.
#[test]
fn a_database_in_use_is_read_and_nothing_is_written_beside_it() {
    let home = Home::new();
    let path = home.database();
    let database = create_tables(&path, "wal");
    add_session(&database, STORED, Duration::ZERO, &open_calls());
    // A second process that writes, and has locked everything.
    database.execute_batch("BEGIN EXCLUSIVE; DELETE FROM part;").unwrap();
    let folder = path.parent().unwrap();
    let before = contents(folder);
    assert_eq!(before.len(), 3, "{before:?}");
    let temporary = home.folder.join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let run = || {
        let mut command = home.command(&["--output", "json", STORED]);
        Told::of(&command.env("TMPDIR", &temporary).output().unwrap())
    };
    let told = run();
    assert_eq!(found(&told), named(&[("unanswered", 2), ("open_call", 6)]), "{told:?}");
    assert_eq!(contents(folder), before);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "the copy stays");
    if cfg!(target_os = "linux") {
        assert_eq!(told.json()["files"][0]["live"], true, "{told:?}");
    }
    database.execute_batch("ROLLBACK").unwrap();
    // As a killed process leaves it: the log stays.
    let killed = home.folder.join("killed/opencode");
    fs::create_dir_all(&killed).unwrap();
    for ending in ["", "-wal"] {
        let name = format!("opencode.db{ending}");
        fs::copy(folder.join(&name), killed.join(&name)).unwrap();
    }
    let before = contents(&killed);
    let told = home.run(&["--output", "json", killed.join("opencode.db").to_str().unwrap()]);
    assert_eq!(found(&told).len(), 2, "{told:?}");
    assert_eq!(contents(&killed), before);
}

/// Makes a database that cannot be read.
type SpoilDatabase = fn(&Path);

/// A name, the fault, and a word of the line about it.
fn spoiled_databases() -> [(&'static str, SpoilDatabase, &'static str); 7] {
    [
        ("empty", |path| fs::write(path, "").unwrap(), "empty"),
        (
            "no database",
            |path| fs::write(path, "once upon a time\n".repeat(9)).unwrap(),
            "no database",
        ),
        (
            "damaged",
            |path| {
                add_session(&create_tables(path, "delete"), STORED, Duration::ZERO, &open_calls());
                let mut bytes = fs::read(path).unwrap();
                bytes[100..].fill(0x5a);
                fs::write(path, bytes).unwrap();
            },
            "damaged",
        ),
        (
            "another schema",
            |path| {
                let database = Connection::open(path).unwrap();
                database
                    .execute_batch("CREATE TABLE session (id text, name text)")
                    .unwrap();
            },
            "not one of opencode",
        ),
        (
            "views in place of tables",
            |path| {
                let database = Connection::open(path).unwrap();
                let views = "CREATE VIEW session AS SELECT 1 AS id, 2 AS version, 3 AS time_updated, 4 AS revert;";
                database.execute_batch(views).unwrap();
            },
            "not one of opencode",
        ),
        (
            "huge",
            |path| {
                drop(create_tables(path, "delete"));
                fs::File::options()
                    .write(true)
                    .open(path)
                    .unwrap()
                    .set_len(3 << 30)
                    .unwrap();
                fs::write(path.with_extension("db-wal"), "x").unwrap();
            },
            "3221225473 bytes",
        ),
        (
            "values of other types",
            |path| {
                let database = create_tables(path, "delete");
                database
                    .execute_batch("INSERT INTO session VALUES ('ses_x', '', '1', NULL, 'noon')")
                    .unwrap();
            },
            "a type that this version does not know",
        ),
    ]
}

#[test]
fn a_database_that_cannot_be_read_has_one_line_and_the_rest_goes_on() {
    for (name, spoil, word) in spoiled_databases() {
        let home = Home::new();
        home.claude(CLAUDE, &file_of(&claude_lines()));
        let path = home.database();
        spoil(&path);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let told = home.run(&[]);
        assert_eq!(told.code, Some(0), "{name}: {told:?}");
        assert!(
            told.err.contains(word) && told.err.lines().count() == 1,
            "{name}: {told:?}"
        );
        assert!(
            told.out.starts_with("1 session read, none damaged, 1 file not read"),
            "{name}: {told:?}"
        );
        let told = home.run(&[path.to_str().unwrap()]);
        assert_eq!(told.code, Some(2), "{name}: {told:?}");
        assert!(told.err.contains(word), "{name}: {told:?}");
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before, "{name}");
    }
    // A database of another program, under another name.
    let home = Home::new();
    let path = home.folder.join("notes.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE a (b)")
        .unwrap();
    let told = home.run(&[path.to_str().unwrap()]);
    assert!(
        told.code == Some(2) && told.err.contains("not one of opencode"),
        "{told:?}"
    );
}

/// A list that is behind is brought up to date at Codex' next start, and one that is ahead passes over new turns.
#[test]
fn a_list_of_codex_that_is_ahead_of_its_file_is_told() {
    let home = Home::new();
    let rollout = home.codex(CODEX, &file_of(&codex_lines()));
    let list = home.folder.join(".codex/thread_history_1.sqlite");
    let told = |next: i64| {
        drop(fs::remove_file(&list));
        let database = Connection::open(&list).unwrap();
        let made = database.execute_batch(&format!(
            "CREATE TABLE thread_history_projection_state (thread_id TEXT PRIMARY KEY,
                 next_rollout_byte_offset INTEGER NOT NULL, next_rollout_ordinal INTEGER NOT NULL);
             INSERT INTO thread_history_projection_state VALUES ('{CODEX}', 1, {next}), ('other', 1, 99);"
        ));
        made.unwrap();
        home.run(&["--output", "json", rollout.to_str().unwrap()])
    };
    for (next, wanted) in [(5, &[][..]), (2, &[]), (-1, &[]), (6, &[("projection_ahead", 5)])] {
        let told = told(next);
        assert_eq!(found(&told), named(wanted), "{next}: {told:?}");
        assert_eq!(told.code, Some(i32::from(!wanted.is_empty())), "{next}: {told:?}");
    }
    // Nothing of the list is written, and it is not mended.
    let before = contents(list.parent().unwrap());
    let fixed = home.run(&["--fix", rollout.to_str().unwrap()]);
    assert!(fixed.out.contains("1 finding, nothing to mend"), "{fixed:?}");
    assert_eq!(fixed.code, Some(1), "{fixed:?}");
    assert_eq!(contents(list.parent().unwrap()), before);
    // A live client may be about to write what its list has already.
    if cfg!(target_os = "linux") {
        let locks = home.folder.join(".codex/thread-writer-locks");
        fs::create_dir_all(&locks).unwrap();
        let lock = fs::File::create(locks.join(format!("{CODEX}.lock"))).unwrap();
        lock.lock().unwrap();
        assert_eq!(found(&told(6)), named(&[]));
    }
    fs::write(&list, "no database, but some words").unwrap();
    let told = home.run(&["--output", "json", rollout.to_str().unwrap()]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.err.contains("thread_history_1.sqlite") && told.err.lines().count() == 1,
        "{told:?}"
    );
}
