//! `--explain`, and wrong usage.

use antiphon::sessions::{MEASURED, SessionClient, SessionCode};

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
        (&["--fix"][..], "needs a session: its file"),
        (&["--undo"], "needs a session: its file"),
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

/// Returns the cell of a code and a client: what counts for the newest version first, then other cases and older versions.
fn cell_of(code: SessionCode, client: SessionClient) -> String {
    let rows = || MEASURED.iter().filter(|row| row.code == code && row.client == client);
    let newest = rows().find(|row| row.until.is_none() && row.loss.is_none());
    let newest = newest.map(|row| row.severity.label());
    let mut cells: Vec<String> = newest.map(str::to_owned).into_iter().collect();
    for row in rows().filter(|row| Some(row.severity.label()) != newest) {
        let case = row.loss.map(|loss| format!("{}: ", loss.meaning())).unwrap_or_default();
        let until = row.until.map(|until| format!("before {until}: ")).unwrap_or_default();
        cells.push(format!("{case}{until}{}", row.severity.label()));
    }
    if cells.is_empty() {
        "–".to_owned()
    } else {
        cells.join("; ")
    }
}

/// The table of the document is that of the damages, and what was measured.
#[test]
fn the_document_has_every_damage_with_its_severities_and_its_fix() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/doctor.md");
    let document = std::fs::read_to_string(path).unwrap();
    let measured = |code: &SessionCode| MEASURED.iter().any(|row| row.code == *code);
    let is_told = |code: &SessionCode| matches!(code, SessionCode::Damage(_)) || measured(code);
    let rows = SessionCode::all().filter(is_told).map(|code| {
        let [claude, codex] = [SessionClient::ClaudeCode, SessionClient::Codex].map(|client| cell_of(code, client));
        let (name, meaning, fix) = (code.label(), code.explanation(), code.fix_text());
        format!("| `{name}` | {meaning} | {claude} | {codex} | {fix} |")
    });
    let lines: Vec<&str> = document.lines().collect();
    let lacking: Vec<String> = rows.filter(|row| !lines.contains(&row.as_str())).collect();
    assert!(
        lacking.is_empty(),
        "docs/doctor.md lacks these rows:\n{}",
        lacking.join("\n")
    );
}
