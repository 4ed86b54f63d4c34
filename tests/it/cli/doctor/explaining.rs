//! `--explain`, and wrong usage.

use antiphon::{
    conversation::FindingKind,
    sessions::{Damage, MEASURED, SessionClient, SessionCode},
};

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

/// Returns the cell of a code and a client: the newest version first, then older ones that differ.
fn cell_of(code: SessionCode, client: SessionClient) -> String {
    let rows = || MEASURED.iter().filter(|row| row.code == code && row.client == client);
    let newest = rows().find(|row| row.until.is_none()).map(|row| row.severity.label());
    let mut cells: Vec<String> = newest.map(str::to_owned).into_iter().collect();
    for row in rows().filter(|row| Some(row.severity.label()) != newest) {
        let until = row.until.map(|until| format!("before {until}: ")).unwrap_or_default();
        cells.push(format!("{until}{}", row.severity.label()));
    }
    if cells.is_empty() {
        "–".to_owned()
    } else {
        cells.join("; ")
    }
}

/// The table of the document is what was measured.
#[test]
fn the_document_has_every_damage_with_its_severities() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/doctor.md");
    let document = std::fs::read_to_string(path).unwrap();
    let damages = Damage::ALL.into_iter().map(SessionCode::Damage);
    let measured = |kind: &FindingKind| MEASURED.iter().any(|row| row.code == SessionCode::Pairing(*kind));
    let pairings = FindingKind::ALL.into_iter().filter(measured).map(SessionCode::Pairing);
    let rows = damages.chain(pairings).map(|code| {
        let clients = [SessionClient::ClaudeCode, SessionClient::Codex].map(|client| cell_of(code, client));
        let [claude, codex] = clients;
        format!("| `{}` | {} | {claude} | {codex} | ", code.label(), code.explanation())
    });
    let lacking: Vec<String> = rows.filter(|row| !document.contains(row.as_str())).collect();
    assert!(
        lacking.is_empty(),
        "docs/doctor.md lacks these rows:\n{}",
        lacking.join("\n")
    );
}
