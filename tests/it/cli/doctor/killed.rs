//! A fix that is killed between any two writes, or whose disk fails. `strace` does both; without it these tests are skipped.

use std::{fs, os::unix::process::ExitStatusExt as _, process::Command};

use super::home::{CODEX, Home, Told, damaged_codex, kept_facts};
use crate::ledger::disk_faults::has_strace;

/// Calls by which a fix writes.
const WRITES: &str = "write,pwrite64,fsync,ftruncate,utimensat,rename";
/// More calls than a fix makes.
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

#[test]
fn a_fix_that_is_killed_anywhere_can_be_taken_back() {
    if !has_strace() {
        return;
    }
    let damaged = damaged_codex();
    let (mut kills, mut unfinished) = (0, 0);
    for nth in 1..CALLS_MAX {
        let home = Home::new();
        let path = home.codex(CODEX, &damaged);
        let before = kept_facts(&path);
        let fault = format!("signal=KILL:when={nth}");
        let status = traced(&home, &["--fix", "019a"], WRITES, &fault, &[])
            .output()
            .unwrap()
            .status;
        if status.signal().is_none() {
            assert_eq!(status.code(), Some(0), "{nth}");
            break;
        }
        kills += 1;
        let is_changed = fs::read(&path).unwrap() != damaged;
        let told = home.run(&["--fix", "019a"]);
        let is_unfinished = told.err.contains("stopped midway");
        unfinished += usize::from(is_unfinished);
        // A file that differs is always one whose fix can be taken back.
        assert!(is_unfinished || told.code == Some(0), "{nth}: {told:?}");
        assert!(
            !is_changed || is_unfinished || told.out.contains("nothing to mend"),
            "{nth}: {told:?}"
        );
        let told = home.run(&["--undo", "019a"]);
        assert_eq!(told.code, Some(0), "{nth}: {told:?}");
        assert_eq!(fs::read(&path).unwrap(), damaged, "{nth}");
        assert_eq!(kept_facts(&path), before, "{nth}");
        // After that the session is mended as if nothing had been.
        assert_eq!(home.run(&["--fix", "019a"]).code, Some(0), "{nth}");
    }
    println!("{kills} kills, {unfinished} of them in the middle of a fix");
    assert!(unfinished > 4 && kills < CALLS_MAX - 1, "{unfinished} of {kills}");
}

#[test]
fn an_undo_that_is_killed_anywhere_can_be_repeated() {
    if !has_strace() {
        return;
    }
    let damaged = damaged_codex();
    for nth in 1..CALLS_MAX {
        let home = Home::new();
        let path = home.codex(CODEX, &damaged);
        let before = kept_facts(&path);
        assert_eq!(home.run(&["--fix", "019a"]).code, Some(0));
        let fault = format!("signal=KILL:when={nth}");
        let status = traced(&home, &["--undo", "019a"], WRITES, &fault, &[])
            .output()
            .unwrap()
            .status;
        if status.signal().is_none() {
            assert_eq!(status.code(), Some(0), "{nth}");
            assert!(nth > 4, "{nth}");
            break;
        }
        let told = home.run(&["--undo", "019a"]);
        // The undo that was killed may have noted its end.
        assert!(
            told.code == Some(0) || told.err.contains("no fix of this session"),
            "{nth}: {told:?}"
        );
        assert_eq!(fs::read(&path).unwrap(), damaged, "{nth}");
        assert_eq!(kept_facts(&path), before, "{nth}");
    }
}

/// The session is as it was, or mended, and the output says which.
#[test]
fn a_disk_that_fails_once_leaves_the_old_session_or_the_mended_one() {
    if !has_strace() {
        return;
    }
    let damaged = damaged_codex();
    for (calls, error) in [("write,pwrite64", "ENOSPC"), ("fsync", "EIO"), ("utimensat", "EPERM")] {
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
    let left = fs::read_dir(home.fixes())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .count();
    assert_eq!(left, 0);
}
