//! No text of a conversation is in any output.

use std::fs;

use super::home::{CANARY, CLAUDE, CODEX, Home, Told, claude_lines, codex_lines, damaged_claude, file_of};

/// Returns sessions in which each kind of damage cuts through a text.
fn damaged_sessions() -> Vec<Vec<u8>> {
    let mut sessions = vec![damaged_claude()];
    for lines in [claude_lines(), codex_lines()] {
        let with = |index: usize, line: Vec<u8>| {
            let mut bytes = file_of(&lines[..index]);
            bytes.extend_from_slice(&line);
            bytes.push(b'\n');
            bytes.extend_from_slice(&file_of(&lines[index + 1..]));
            bytes
        };
        let line = lines[2].as_bytes();
        let inside = lines[2].find(CANARY).unwrap() + CANARY.len();
        let next = lines[3].as_bytes();
        sessions.extend([
            with(2, line[..inside].to_vec()),
            with(2, [&line[..inside], next].concat()),
            with(2, [line, line].concat()),
            with(2, [line, b"\n", line].concat()),
            with(2, [&line[..inside], b"\n", &line[inside..]].concat()),
            with(2, [&line[..inside], b"\xff", &line[inside..]].concat()),
            with(2, [&line[..inside], b"\\ud83d", &line[inside..]].concat()),
            with(2, [b"\xef\xbb\xbf", line].concat()),
            // An id that is a text.
            with(
                2,
                lines[2]
                    .replace("toolu_01A", &format!("{CANARY} ").repeat(30))
                    .into_bytes(),
            ),
            line[..inside].to_vec(),
            format!("{CANARY}\n").into_bytes(),
            format!("{{\"type\":\"{CANARY}\",\"{CANARY}\":[\"{CANARY}\"]}}\n").into_bytes(),
        ]);
    }
    sessions
}

#[test]
fn no_text_of_a_conversation_is_in_any_output() {
    for (index, bytes) in damaged_sessions().iter().enumerate() {
        let home = Home::new();
        let is_codex = index > 12;
        let path = if is_codex {
            home.codex(CODEX, bytes)
        } else {
            home.claude(CLAUDE, bytes)
        };
        let name = path.to_str().unwrap();
        let text = String::from_utf8_lossy(bytes);
        // Ids are told, also strange ones.
        let has_id = text.contains(&format!("{CANARY} {CANARY}"));
        for arguments in [
            &[name][..],
            &["--output", "json", "--strict", name],
            &["--fix", "--dry-run", name],
            &["--fix", "--dry-run", "--output", "json", name],
            &["--fix", name],
            &["--output", "json", "--fix", name],
            &["--undo", name],
            &["--undo", name, "--output", "json"],
            &["--undo", name, "--to", name],
            &["--forget"],
            &[],
        ] {
            let told: Told = home.run(arguments);
            assert!(matches!(told.code, Some(0..=2)), "{index} {arguments:?}: {told:?}");
            assert!(!told.err.contains("panicked"), "{index} {arguments:?}: {told:?}");
            let shown = told.all();
            assert!(has_id || !shown.contains(CANARY), "{index} {arguments:?}: {told:?}");
        }
        assert_eq!(&fs::read(&path).unwrap(), bytes, "{index}: taken back");
    }
}
