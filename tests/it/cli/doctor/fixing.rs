//! `--fix`: what it writes, keeps and refuses.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Stdio,
};

use super::home::{
    CLAUDE, CODEX, Home, Told, claude_lines, codex_lines, damaged_claude, damaged_codex, file_of, kept_facts,
};

#[test]
fn a_fix_mends_in_place_and_keeps_everything_else() {
    let home = Home::new();
    let damaged = damaged_codex();
    let path = home.codex(CODEX, &damaged);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = home.folder.join("named.jsonl");
    symlink(&path, &link).unwrap();
    let (before, of_link) = (kept_facts(&path), kept_facts(&link));
    let told = home.run(&["019a"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.out.contains("nul_bytes") && told.out.contains("unanswered"),
        "{told:?}"
    );
    assert!(
        told.out.contains("2 can be mended: antiphon doctor --fix 019ab3c4\n"),
        "{told:?}"
    );
    let told = home.run(&["--fix", link.to_str().unwrap()]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.out.contains("mended") && told.out.contains("no findings remain"),
        "{told:?}"
    );
    assert_eq!((kept_facts(&path), kept_facts(&link)), (before, of_link));
    let mended = fs::read(&path).unwrap();
    assert!(mended.len() > damaged.len(), "a result was appended");
    assert!(mended.ends_with(b"\n"));
    // No byte has moved: what differs is overwritten in its place.
    let same = damaged.iter().zip(&mended).filter(|(old, new)| old == new).count();
    assert!(same > damaged.len() - 200, "{same} of {}", damaged.len());
    let told = home.run(&["019a"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    // Once more changes nothing, and keeps no second copy.
    let told = home.run(&["--fix", "019a"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.out.contains("nothing to mend"), "{told:?}");
    assert_eq!(fs::read(&path).unwrap(), mended);
    let mut kept = home.kept_fixes();
    assert_eq!(kept.len(), 1);
    let folder = kept.remove(0);
    assert!(
        folder.file_name().unwrap().to_str().unwrap().ends_with(CODEX),
        "{folder:?}"
    );
    assert_eq!(fs::read(folder.join("original")).unwrap(), damaged);
    for (path, mode) in [
        (home.fixes(), 0o700),
        (folder.clone(), 0o700),
        (folder.join("manifest.json"), 0o600),
    ] {
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            mode,
            "{path:?}"
        );
    }
}

#[test]
fn a_fix_that_is_only_shown_writes_nothing() {
    let home = Home::new();
    let damaged = damaged_codex();
    let path = home.codex(CODEX, &damaged);
    let before = kept_facts(&path);
    let told = home.run(&["--fix", "--dry-run", "019a"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.out.contains("would be changed") && told.out.contains("appended behind the end"),
        "{told:?}"
    );
    let document = home.run(&["--fix", "--dry-run", "--output", "json", "019a"]).json();
    let fix = &document["fixes"][0];
    assert_eq!(
        (fix["status"].as_str(), fix["journal"].as_str()),
        (Some("planned"), None),
        "{document}"
    );
    assert!(!fix["edits"].as_array().unwrap().is_empty(), "{document}");
    assert_eq!(fs::read(&path).unwrap(), damaged);
    assert_eq!(kept_facts(&path), before);
    assert!(!home.fixes().exists());
}

#[test]
fn a_told_finding_remains_and_the_exit_code_says_so() {
    let home = Home::new();
    let mut lines = codex_lines();
    lines[0] = format!("{}{}", "\0".repeat(9), lines[0]);
    // Two records have one number.
    lines[4] = lines[4].replace("\"ordinal\":4", "\"ordinal\":3");
    let path = home.codex(CODEX, &file_of(&lines));
    let told = home.run(&["--fix", "--output", "json", CODEX]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let document = told.json();
    assert_eq!(document["fixes"][0]["status"], "mended", "{document}");
    let findings = document["fixes"][0]["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["repair"] == "none"), "{document}");
    assert!(
        findings.iter().any(|finding| finding["code"] == "ordinal_twice"),
        "{document}"
    );
    assert!(!fs::read(&path).unwrap().contains(&0));
}

#[test]
fn what_must_not_be_written_is_refused_with_the_way_out() {
    let home = Home::new();
    let damaged = damaged_codex();
    let path = home.codex(CODEX, &damaged);
    let name = path.to_str().unwrap();
    let refuse = |word: &str| {
        let told = home.run(&["--fix", name]);
        assert_eq!(told.code, Some(1), "{word}: {told:?}");
        assert!(told.err.contains(word), "{word}: {told:?}");
        assert_eq!(fs::read(&path).unwrap(), damaged, "{word}");
        let document = home.run(&["--fix", "--output", "json", name]).json();
        assert_eq!(document["fixes"][0]["status"], "refused", "{document}");
    };
    let twin = home.folder.join("twin.jsonl");
    fs::hard_link(&path, &twin).unwrap();
    refuse("2 hard links");
    fs::remove_file(&twin).unwrap();
    // A second doctor is at work on it.
    let other = File::open(&path).unwrap();
    other.try_lock().unwrap();
    refuse("second antiphon doctor");
    drop(other);
    // The folder of the copies cannot be made.
    fs::create_dir_all(home.folder.join("state")).unwrap();
    fs::write(home.folder.join("state/antiphon"), "").unwrap();
    refuse("nothing is written");
    fs::remove_file(home.folder.join("state/antiphon")).unwrap();
    let told = home.run(&["--fix", name]);
    assert_eq!(told.code, Some(0), "{told:?}");
}

/// Without a process of its own that ends first: both begin at once.
#[test]
fn two_doctors_at_once_mend_once() {
    let home = Home::new();
    let damaged = damaged_codex();
    for _ in 0..4 {
        let path = home.codex(CODEX, &damaged);
        let spawn = || {
            let mut command = home.command(&["--fix", "019a"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [spawn(), spawn()];
        let told: Vec<Told> = both
            .into_iter()
            .map(|child| Told::of(&child.wait_with_output().unwrap()))
            .collect();
        let mended = told.iter().filter(|told| told.out.contains(": mended: ")).count();
        assert_eq!(mended, 1, "{told:?}");
        assert_eq!(home.run(&["019a"]).code, Some(0));
        let told = home.run(&["--undo", "019a"]);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
}

#[test]
fn a_sound_session_stays_as_it_is() {
    let home = Home::new();
    for (path, id) in [
        (home.claude(CLAUDE, &file_of(&claude_lines())), CLAUDE),
        (home.codex(CODEX, &file_of(&codex_lines())), CODEX),
    ] {
        let (bytes, before) = (fs::read(&path).unwrap(), kept_facts(&path));
        let told = home.run(&["--fix", id]);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert_eq!((fs::read(&path).unwrap(), kept_facts(&path)), (bytes, before));
    }
    assert!(home.kept_fixes().is_empty());
}

/// A call of Claude Code without its result gets one, and what follows the call follows the result.
#[test]
fn a_session_of_claude_code_gets_what_it_would_leave_out() {
    let home = Home::new();
    let damaged = damaged_claude();
    let path = home.claude(CLAUDE, &damaged);
    let sent = |told: &Told| told.json()["files"][0]["reachable"].as_u64().unwrap();
    let before = sent(&home.run(&["--output", "json", "8a52"]));
    let told = home.run(&["--fix", "8a52"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let after = sent(&home.run(&["--output", "json", "8a52"]));
    assert!(after > before, "{before} {after}");
    assert!(fs::read(&path).unwrap().len() > damaged.len());
    assert_eq!(home.run(&["--undo", "8a52"]).code, Some(0));
    assert_eq!(fs::read(&path).unwrap(), damaged);
}
