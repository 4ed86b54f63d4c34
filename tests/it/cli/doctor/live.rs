//! Sessions that are in use: they are named with their process, and nothing is written.
#![cfg(target_os = "linux")]

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::home::{CLAUDE, CODEX, Home, codex_lines, damaged_claude, file_of};

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// Starts `sleep` under another name.
    fn start(name: &Path, folder: &Path) -> Self {
        let sleep = ["/bin/sleep", "/usr/bin/sleep"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .unwrap();
        fs::create_dir_all(folder).unwrap();
        if !name.exists() {
            fs::copy(sleep, name).unwrap();
        }
        let mut command = Command::new(name);
        Self(
            command
                .arg("600")
                .current_dir(folder)
                .stdin(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns field 22 of its line in `/proc`.
    fn start_of(&self) -> String {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_ascii_whitespace().nth(19).unwrap().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Asserts that a session is told as in use, and that its fix is refused with the process.
fn assert_refused(home: &Home, id: &str, path: &Path, pid: u32) {
    let bytes = fs::read(path).unwrap();
    let told = home.run(&["--output", "json", id]);
    assert_eq!(told.json()["files"][0]["live"], true, "{told:?}");
    let told = home.run(&[id]);
    assert!(told.out.contains(&format!("in use by process {pid}")), "{told:?}");
    for arguments in [&["--fix", id][..], &["--fix", "--force", id]] {
        let told = home.run(arguments);
        assert_eq!(told.code, Some(1), "{told:?}");
        assert!(told.err.contains(&format!("process {pid}")), "{told:?}");
        assert_eq!(fs::read(path).unwrap(), bytes);
    }
    // A plan disturbs nobody.
    assert_eq!(home.run(&["--fix", "--dry-run", id]).code, Some(1));
}

#[test]
fn a_session_that_claude_code_notes_as_its_own_is_not_mended() {
    let home = Home::new();
    let path = home.claude(CLAUDE, &damaged_claude());
    let running = Running::start(&home.folder.join("node"), &home.folder.join("elsewhere"));
    let notes = home.folder.join(".claude/sessions");
    fs::create_dir_all(&notes).unwrap();
    let note = |start: &str| {
        let note =
            serde_json::json!({"pid": running.id(), "sessionId": CLAUDE, "cwd": "/elsewhere", "procStart": start});
        fs::write(notes.join(format!("{}.json", running.id())), note.to_string()).unwrap();
    };
    note(&running.start_of());
    assert_refused(&home, "8a52", &path, running.id());
    // The note of a process that is gone, whose id another one has by now.
    note("1");
    assert_eq!(home.run(&["--fix", "8a52"]).code, Some(0));
    note(&running.start_of());
    let told = home.run(&["--undo", "8a52"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains(&format!("process {}", running.id())), "{told:?}");
    note("1");
    assert_eq!(home.run(&["--undo", "8a52"]).code, Some(0));
    // A note that cannot be read is no leave to write, also not by force.
    fs::create_dir(notes.join("1.json")).unwrap();
    for arguments in [&["--fix", "8a52"][..], &["--fix", "--force", "8a52"]] {
        let told = home.run(arguments);
        assert_eq!(told.code, Some(1), "{told:?}");
        assert!(
            told.err.contains("it is not known if the session is in use"),
            "{told:?}"
        );
    }
}

#[test]
fn a_claude_in_the_folder_of_the_project_counts_too() {
    let home = Home::new();
    let project = home.folder.join("app");
    let name: String = project
        .to_str()
        .unwrap()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let path = home.folder.join(format!(".claude/projects/{name}/{CLAUDE}.jsonl"));
    Home::write_aged(&path, &damaged_claude());
    let other = Running::start(&home.folder.join("claude"), &home.folder.join("other"));
    let there = Running::start(&home.folder.join("claude"), &project);
    assert_refused(&home, "8a52", &path, there.id());
    drop(there);
    assert_eq!(home.run(&["--fix", "8a52"]).code, Some(0));
    drop(other);
}

#[test]
fn a_rollout_that_codex_has_locked_or_open_is_not_mended() {
    let home = Home::new();
    let mut lines = codex_lines();
    lines[3] = format!("{}{}", "\0".repeat(9), lines[3]);
    let path = home.codex(CODEX, &file_of(&lines));
    let locks = home.folder.join(".codex/thread-writer-locks");
    fs::create_dir_all(&locks).unwrap();
    let lock = File::create(locks.join(format!("{CODEX}.lock"))).unwrap();
    lock.try_lock().unwrap();
    assert_refused(&home, CODEX, &path, std::process::id());
    // The file stays when Codex ends, and the lock does not.
    drop(lock);
    let written = File::options().append(true).open(&path).unwrap();
    assert_refused(&home, CODEX, &path, std::process::id());
    drop(written);
    // Somebody who only reads is no client.
    let _read = File::open(&path).unwrap();
    let told = home.run(&["--fix", CODEX]);
    assert_eq!(told.code, Some(0), "{told:?}");
}
