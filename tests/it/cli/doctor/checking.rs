//! `antiphon check` and `antiphon repair` on sessions: the doctor reads them.

use std::{
    fs::File,
    process::{Command, Stdio},
    time::Duration,
};

use super::home::{
    CANARY, CLAUDE, CODEX, Home, Told, claude_lines, codex_lines, damaged_claude, damaged_codex, file_of, set_age,
};

/// Runs another subcommand in a home.
fn run_other(home: &Home, arguments: &[&str], stdin: Stdio) -> Told {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    home.surround(&mut command);
    Told::of(&command.args(arguments).stdin(stdin).output().unwrap())
}

/// The text, the entry of the document and the exit code are those of the doctor.
#[test]
fn check_reads_a_session_as_the_doctor_does() {
    let mut notes = claude_lines();
    notes.truncate(2);
    let mut old = codex_lines();
    old.remove(0);
    for (name, is_codex, bytes, code) in [
        ("sound", false, file_of(&claude_lines()), 0),
        ("damaged", false, damaged_claude(), 1),
        ("an open call", false, file_of(&notes), 0),
        ("cut at its end", false, file_of(&claude_lines())[..3000].to_vec(), 0),
        ("no record", false, Vec::new(), 1),
        ("sound", true, file_of(&codex_lines()), 0),
        ("damaged", true, damaged_codex(), 1),
        ("without its first record", true, file_of(&old), 1),
        (
            "no content",
            true,
            file_of(&[r#"{"timestamp":"t","type":"turn_context","payload":{}}"#.to_owned()]),
            2,
        ),
    ] {
        let home = Home::new();
        let path = if is_codex {
            home.codex(CODEX, &bytes)
        } else {
            home.claude(CLAUDE, &bytes)
        };
        // Its age is told in whole hours, so both commands tell the same.
        set_age(&path, Duration::from_secs(36 * 3600 + 1800));
        let path = path.to_str().unwrap();
        let (doctor, check) = (home.run(&[path]), run_other(&home, &["check", path], Stdio::null()));
        assert_eq!((doctor.code, check.code), (Some(code), Some(code)), "{name}: {check:?}");
        // The doctor says how many sessions were read.
        let told = doctor.out.rsplit_once("1 session read").map_or("", |(told, _)| told);
        assert_eq!(check.out, told, "{name}");
        let line = format!("antiphon: {path}: a session, read as `antiphon doctor {path}` reads it\n");
        assert_eq!(check.err == line, code < 2, "{name}: {check:?}");
        let doctor = home.run(&["--output", "json", path]).json();
        let check = run_other(&home, &["check", "--output", "json", path], Stdio::null()).json();
        let (doctor, check) = (&doctor["files"][0], &check["files"][0]);
        if code == 2 {
            assert!(check["error"].as_str().unwrap().starts_with(path), "{name}: {check}");
            continue;
        }
        for (key, value) in doctor.as_object().unwrap() {
            assert_eq!(&check[key], value, "{name}: {key}");
        }
        // The keys of every other entry are there too.
        for key in ["line", "wire", "transcript", "notes"] {
            assert!(check.get(key).is_some(), "{name}: {key}");
        }
    }
}

#[test]
fn check_reads_a_session_from_a_pipe() {
    for (is_codex, bytes) in [(false, damaged_claude()), (true, damaged_codex())] {
        let home = Home::new();
        let path = if is_codex {
            home.codex(CODEX, &bytes)
        } else {
            home.claude(CLAUDE, &bytes)
        };
        let open = || Stdio::from(File::open(&path).unwrap());
        let piped = run_other(&home, &["check"], open());
        assert_eq!(piped.code, Some(1), "{piped:?}");
        assert!(
            piped
                .err
                .starts_with("antiphon: -: a session, read as `antiphon doctor FILE`"),
            "{piped:?}"
        );
        let named = run_other(&home, &["check", path.to_str().unwrap()], Stdio::null());
        let findings = |told: &Told| -> Vec<String> {
            let lines = told.out.lines().filter(|line| line.starts_with("  :"));
            lines.map(str::to_owned).collect()
        };
        assert!(!findings(&piped).is_empty(), "{piped:?}");
        assert_eq!(findings(&piped), findings(&named));
        assert!(
            piped.out.starts_with("-  C") && !piped.out.contains(" ago"),
            "{piped:?}"
        );
        let document = run_other(&home, &["check", "--output", "json", "-"], open()).json();
        let file = &document["files"][0];
        assert_eq!((&file["file"], file["live"].is_null()), (&"-".into(), true), "{file}");
        assert!(!piped.all().contains(CANARY), "{piped:?}");
    }
}

/// Each finding is a line that begins with the name of the file, and nothing else is said.
#[test]
fn a_quiet_check_of_a_session_has_a_line_for_each_finding() {
    let mut open = claude_lines();
    open.truncate(2);
    let lines = claude_lines();
    // More findings than are shown.
    let many: Vec<String> = lines
        .iter()
        .chain(std::iter::repeat_n(&lines[7], 60))
        .map(|line| format!("\0{line}"))
        .collect();
    let foreign = br#"{"type":"user","uuid":"u1","sessionId":"s","message":{}}"#;
    for (name, bytes, code, first, count) in [
        ("sound", file_of(&lines), 0, "", 0),
        ("an open call", file_of(&open), 0, ":2: note: open_call: ", 1),
        ("damaged", damaged_claude(), 1, ":2: warning: unanswered: ", 2),
        ("many", file_of(&many), 1, ":1: warning: nul_bytes: ", 51),
        ("not read", foreign.to_vec(), 2, "", 0),
    ] {
        let home = Home::new();
        let path = home.claude(CLAUDE, &bytes);
        let path = path.to_str().unwrap();
        let told = run_other(&home, &["check", "-q", path], Stdio::null());
        assert_eq!(told.code, Some(code), "{name}: {told:?}");
        assert!(
            told.out.starts_with(&if count > 0 {
                format!("{path}{first}")
            } else {
                String::new()
            }),
            "{told:?}"
        );
        assert_eq!(told.out.lines().count(), count, "{name}: {told:?}");
        assert!(
            told.out.lines().all(|line| line.starts_with(&format!("{path}:"))),
            "{name}: {told:?}"
        );
        let is_error = told.err.starts_with(&format!("antiphon: {path}: not read")) && told.err.lines().count() == 1;
        assert_eq!(
            (told.err.is_empty(), is_error),
            (code < 2, code == 2),
            "{name}: {told:?}"
        );
        // The lines are those of the doctor.
        let doctor = home.run(&["--strict", path]).out;
        for line in told.out.lines().filter(|line| !line.contains(": and ")) {
            assert!(
                doctor.contains(&format!("\n  {}\n", &line[path.len()..])),
                "{name}: {line}: {doctor}"
            );
        }
    }
}

/// The worst of all files is the exit code, and each is told by its own reader.
#[test]
fn sessions_and_bodies_may_be_checked_together() {
    let home = Home::new();
    let session = home.claude(CLAUDE, &damaged_claude());
    let sound = home.codex(CODEX, &file_of(&codex_lines()));
    let body = Home::write_aged(
        &home.folder.join("body.json"),
        br#"{"model":"claude-x","messages":[{"role":"user","content":"go"}]}"#,
    );
    let other = Home::write_aged(&home.folder.join("other.json"), b"{\"a\":1}");
    let names = [&session, &body, &sound, &other].map(|path| path.to_str().unwrap());
    for (names, code) in [
        (&names[1..3], 0),
        (&names[..3], 1),
        (&names[..2], 1),
        (&names[..], 2),
        (&names[1..], 2),
    ] {
        let told = run_other(&home, &[&["check"], names].concat(), Stdio::null());
        assert_eq!(told.code, Some(code), "{names:?}: {told:?}");
        let told = run_other(&home, &[&["check", "--output", "json"], names].concat(), Stdio::null());
        let document = told.json();
        let files = document["files"].as_array().unwrap().iter();
        let seen: Vec<&str> = files.map(|file| file["file"].as_str().unwrap()).collect();
        assert_eq!(seen, names);
    }
    // A quiet check names what has findings alone.
    let told = run_other(&home, &["check", "-q", names[0], names[1], names[2]], Stdio::null());
    assert_eq!((told.code, told.err.as_str()), (Some(1), ""), "{told:?}");
    assert!(
        told.out.contains(CLAUDE) && !told.out.contains(CODEX) && !told.out.contains("body.json"),
        "{told:?}"
    );
    // What is about bodies has no effect.
    let told = run_other(&home, &["check", "--wire", "gemini", names[2]], Stdio::null());
    assert_eq!(told.code, Some(0), "{told:?}");
}

#[test]
fn repair_names_the_command_that_mends_a_session() {
    let home = Home::new();
    let path = home.claude(CLAUDE, &damaged_claude());
    let name = path.to_str().unwrap();
    for arguments in [&["repair", name][..], &["repair", "--check", name]] {
        let told = run_other(&home, arguments, Stdio::null());
        assert_eq!((told.code, told.out.as_str()), (Some(2), ""), "{told:?}");
        let wanted = format!(
            "antiphon: {name}: a session of Claude Code, and no request body: antiphon doctor --fix {name} mends it in place\n"
        );
        assert_eq!(told.err, wanted);
    }
}
