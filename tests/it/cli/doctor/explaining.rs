//! `--explain`, and wrong usage.

use super::home::{CLAUDE, Home, claude_lines, file_of};

#[test]
fn a_code_is_explained_for_people_and_programs() {
    let home = Home::new();
    let told = home.run(&["--explain", "joined_records"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    for word in [
        "joined_records: several records stand on one line",
        "--fix",
        "Claude Code",
        "Codex",
        "warning",
    ] {
        assert!(told.out.contains(word), "{word}: {told:?}");
    }
    let document = home.run(&["--explain", "joined_records", "--output", "json"]).json();
    assert_eq!(document["code"], "joined_records");
    assert!(!document["clients"].as_array().unwrap().is_empty(), "{document}");
    let told = home.run(&["--explain", "no_such_code"]);
    assert_eq!(told.code, Some(2));
    assert!(
        told.err.contains("joined_records") && told.err.contains("unanswered"),
        "{told:?}"
    );
}

#[test]
fn wrong_usage_says_what_to_write() {
    let home = Home::new();
    let path = home.claude(CLAUDE, &file_of(&claude_lines()));
    let folder = path.parent().unwrap().to_str().unwrap();
    for (arguments, word) in [
        (&["--fix"][..], "needs the name of a session"),
        (&["--undo"], "needs the name of a session"),
        (&["--fix", folder], "name a session in it"),
        (&["--fix", "no/such.jsonl"], "no such file"),
        (&["--dry-run"], "--fix"),
        (&["--force", CLAUDE], "--fix"),
        (&["--undo", "--to", "x", "a", "b"], "name one session"),
        (&["--since", "soon"], "30d"),
        (&["--client", "vim"], "codex"),
    ] {
        let told = home.run(arguments);
        assert_eq!(told.code, Some(2), "{arguments:?}: {told:?}");
        assert!(told.err.contains(word), "{arguments:?}: {told:?}");
    }
    let told = home.run(&["--undo", CLAUDE]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains("no fix of this session"), "{told:?}");
}
