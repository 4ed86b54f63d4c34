//! A fix that is killed between any two writes, or whose disk fails. `strace` does both; without it these tests are skipped.

use std::{fs, os::unix::process::ExitStatusExt as _, path::Path, process::Command, time::Duration};

use super::home::{CODEX, Home, Told, damaged_codex};
use crate::ledger::disk_faults::has_strace;

/// Calls by which a fix and an undo write.
const WRITES: [&str; 7] = [
    "write",
    "pwrite64",
    "copy_file_range",
    "fsync",
    "ftruncate",
    "utimensat",
    "rename",
];
/// More calls of one kind than they make.
const CALLS_MAX: usize = 200;

/// Returns a fix or an undo under `strace`, with a fault at the n-th of some calls.
fn traced(home: &Home, arguments: &[&str], calls: &str, fault: &str, paths: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(home.folder.join("calls"));
    command.args([
        "-e",
        &format!("trace={calls}"),
        "-e",
        &format!("inject={calls}:{fault}"),
    ]);
    for path in paths {
        command.args(["-P", path]);
    }
    command
        .arg(env!("CARGO_BIN_EXE_antiphon"))
        .arg("doctor")
        .args(arguments);
    home.surround(&mut command);
    command
}

/// Runs `each` with the command killed at each of its writes, until it is no longer killed.
fn for_each_kill(arguments: &[&str], prepare: impl Fn(&Home), mut each: impl FnMut(&Home, &str)) {
    for call in WRITES {
        for nth in 1..CALLS_MAX {
            let home = Home::new();
            prepare(&home);
            let fault = format!("signal=KILL:when={nth}");
            let status = traced(&home, arguments, call, &fault, &[]).output().unwrap().status;
            if status.signal().is_none() {
                assert_eq!(status.code(), Some(0), "{call} {nth}");
                break;
            }
            each(&home, &format!("{call} {nth}"));
            assert!(nth < CALLS_MAX - 1, "{call}");
        }
    }
}

#[test]
fn a_fix_that_is_killed_anywhere_can_be_taken_back() {
    if !has_strace() {
        return;
    }
    let damaged = damaged_codex();
    let (mut kills, mut unfinished) = (0, 0);
    let prepare = |home: &Home| drop(home.codex(CODEX, &damaged));
    for_each_kill(&["--fix", "019a"], prepare, |home, at| {
        let path = home.rollout(CODEX);
        kills += 1;
        let is_changed = fs::read(&path).unwrap() != damaged;
        let told = home.run(&["--fix", "019a"]);
        let is_unfinished = told.err.contains("stopped midway");
        unfinished += usize::from(is_unfinished);
        // A file that differs is always one whose fix can be taken back.
        assert!(is_unfinished || told.code == Some(0), "{at}: {told:?}");
        assert!(
            !is_changed || is_unfinished || told.out.contains("nothing to mend"),
            "{at}: {told:?}"
        );
        let told = home.run(&["--undo", "019a"]);
        assert_eq!(told.code, Some(0), "{at}: {told:?}");
        assert_eq!(fs::read(&path).unwrap(), damaged, "{at}");
        assert!(is_old(&path), "{at}");
        // After that the session is mended as if nothing had been.
        assert_eq!(home.run(&["--fix", "019a"]).code, Some(0), "{at}");
    });
    println!("{kills} kills, {unfinished} of them in the middle of a fix");
    assert!(unfinished > 4, "{unfinished} of {kills}");
}

/// Returns `true` if the time of the last write is the one that the test has set.
fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    modified.elapsed().unwrap() > Duration::from_secs(500)
}

#[test]
fn an_undo_that_is_killed_anywhere_can_be_repeated() {
    if !has_strace() {
        return;
    }
    let damaged = damaged_codex();
    let mut kills = 0;
    let prepare = |home: &Home| {
        home.codex(CODEX, &damaged);
        assert_eq!(home.run(&["--fix", "019a"]).code, Some(0));
    };
    for_each_kill(&["--undo", "019a"], prepare, |home, at| {
        let path = home.rollout(CODEX);
        kills += 1;
        let told = home.run(&["--undo", "019a"]);
        // The undo that was killed may have noted its end.
        assert!(
            told.code == Some(0) || told.err.contains("no fix of this session"),
            "{at}: {told:?}"
        );
        assert_eq!(fs::read(&path).unwrap(), damaged, "{at}");
        assert!(is_old(&path), "{at}");
    });
    assert!(kills > 4, "{kills}");
}

/// The session is as it was, or mended, and the output says which.
#[test]
fn a_disk_that_fails_once_leaves_the_old_session_or_the_mended_one() {
    if !has_strace() {
        return;
    }
    let damaged = damaged_codex();
    for (calls, error) in [
        ("write", "ENOSPC"),
        ("pwrite64", "ENOSPC"),
        ("fsync", "EIO"),
        ("utimensat", "EPERM"),
    ] {
        for nth in 1..CALLS_MAX {
            let home = Home::new();
            let path = home.codex(CODEX, &damaged);
            let fault = format!("error={error}:when={nth}");
            // Only calls on the session itself: what comes before it is told by the kills.
            let output = traced(&home, &["--fix", "019a"], calls, &fault, &[path.to_str().unwrap()])
                .output()
                .unwrap();
            let told = Told::of(&output);
            let is_injected = fs::read_to_string(home.folder.join("calls"))
                .unwrap()
                .contains("INJECTED");
            if !is_injected {
                assert_eq!(told.code, Some(0), "{told:?}");
                assert!(nth > 1, "no call failed: {calls}");
                break;
            }
            assert_eq!(told.code, Some(1), "{calls} {nth}: {told:?}");
            assert!(
                told.err.contains("everything was taken back"),
                "{calls} {nth}: {told:?}"
            );
            assert_eq!(fs::read(&path).unwrap(), damaged, "{calls} {nth}");
            assert_eq!(home.run(&["--fix", "019a"]).code, Some(0), "{calls} {nth}");
        }
    }
}

/// Without room for the copy nothing is written.
#[test]
fn a_full_disk_stops_before_the_session_is_touched() {
    if !has_strace() {
        return;
    }
    let damaged = damaged_codex();
    let home = Home::new();
    let path = home.codex(CODEX, &damaged);
    let fault = "error=ENOSPC:when=1+";
    let output = traced(&home, &["--fix", "019a"], "copy_file_range,sendfile,splice", fault, &[])
        .output()
        .unwrap();
    let told = Told::of(&output);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains("the disk is full"), "{told:?}");
    assert_eq!(fs::read(&path).unwrap(), damaged);
    assert!(home.kept_fixes().is_empty());
}
