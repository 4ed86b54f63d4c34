//! `--undo`, `--undo --to` and `--forget`.

use std::{fs, io::Write as _, path::Path};

use super::home::{CODEX, Home, damaged_codex, kept_facts, set_age};

/// Writes as a client does that goes on with the session.
fn append(path: &Path) {
    let mut file = fs::File::options().append(true).open(path).unwrap();
    file.write_all(b"{\"type\":\"summary\",\"summary\":\"x\",\"leafUuid\":\"y\"}\n")
        .unwrap();
}

#[test]
fn an_undo_is_exact() {
    let home = Home::new();
    let damaged = damaged_codex();
    let path = home.codex(CODEX, &damaged);
    let before = kept_facts(&path);
    for name in ["019a", path.to_str().unwrap()] {
        assert_eq!(home.run(&["--fix", name]).code, Some(0));
        assert_ne!(fs::read(&path).unwrap(), damaged);
        // The client may have touched the file without writing.
        set_age(&path, std::time::Duration::from_secs(90));
        let told = home.run(&["--undo", name]);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert!(told.out.contains("as it was before the fix"), "{told:?}");
        assert_eq!(fs::read(&path).unwrap(), damaged);
        assert_eq!(kept_facts(&path), before);
        // Each fix is taken back once.
        let told = home.run(&["--undo", name]);
        assert_eq!(told.code, Some(1), "{told:?}");
    }
}

#[test]
fn an_undo_writes_nothing_once_the_client_has_gone_on() {
    let home = Home::new();
    let damaged = damaged_codex();
    let path = home.codex(CODEX, &damaged);
    assert_eq!(home.run(&["--fix", "019a"]).code, Some(0));
    append(&path);
    let present = fs::read(&path).unwrap();
    let told = home.run(&["--undo", "019a"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.err.contains("has written to it since") && told.err.contains("--undo --to"),
        "{told:?}"
    );
    assert!(told.err.contains("original"), "{told:?}");
    assert_eq!(fs::read(&path).unwrap(), present);
    // The old file comes from the present bytes, with and without the copy.
    let folder = home.kept_fixes().remove(0);
    for (name, has_copy) in [("one.jsonl", true), ("two.jsonl", false)] {
        if !has_copy {
            fs::remove_file(folder.join("original")).unwrap();
        }
        let told = home.run(&["--undo", "019a", "--to", name]);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert_eq!(fs::read(home.folder.join(name)).unwrap(), damaged, "{name}");
        assert_eq!(fs::read(&path).unwrap(), present, "{name}");
    }
    let told = home.run(&["--undo", "019a", "--to", "one.jsonl"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains("exists"), "{told:?}");
}

/// A fix that is under way holds the lock of all fixes, and has no end mark yet either.
#[test]
fn a_fix_that_was_stopped_is_told_and_one_that_is_under_way_is_not() {
    let home = Home::new();
    home.codex(CODEX, &damaged_codex());
    assert_eq!(home.run(&["--fix", "019a"]).code, Some(0));
    let folder = home.kept_fixes().remove(0);
    assert_eq!(home.run(&[]).err, "");
    fs::remove_file(folder.join("ended")).unwrap();
    let lock = fs::File::open(home.fixes().join("lock")).unwrap();
    lock.try_lock_shared().unwrap();
    assert_eq!(home.run(&[]).err, "");
    drop(lock);
    let told = home.run(&[]);
    let wanted = format!("stopped midway: antiphon doctor --undo {CODEX} takes it back\n");
    assert!(told.err.ends_with(&wanted), "{told:?}");
}

#[test]
fn bytes_that_somebody_else_has_changed_are_never_lost() {
    let home = Home::new();
    let damaged = damaged_codex();
    let path = home.codex(CODEX, &damaged);
    assert_eq!(home.run(&["--fix", "019a"]).code, Some(0));
    let mut present = fs::read(&path).unwrap();
    present[20] ^= 1;
    fs::write(&path, &present).unwrap();
    let told = home.run(&["--undo", "019a"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains("another program has changed it"), "{told:?}");
    assert_eq!(fs::read(&path).unwrap(), present);
    // The copy has what the present bytes lack.
    assert_eq!(home.run(&["--undo", "019a", "--to", "old.jsonl"]).code, Some(0));
    assert_eq!(fs::read(home.folder.join("old.jsonl")).unwrap(), damaged);
    let folder = home.kept_fixes().remove(0);
    fs::write(folder.join("original"), "other").unwrap();
    let told = home.run(&["--undo", "019a", "--to", "new.jsonl"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(!home.folder.join("new.jsonl").exists());
    // A session that was cut, or that is gone, comes back from its copy.
    fs::write(folder.join("original"), &damaged).unwrap();
    fs::write(&path, &present[..30]).unwrap();
    assert_eq!(home.run(&["--undo", "019a", "--to", "cut.jsonl"]).code, Some(0));
    assert_eq!(fs::read(home.folder.join("cut.jsonl")).unwrap(), damaged);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        home.run(&["--undo", path.to_str().unwrap(), "--to", "new.jsonl"]).code,
        Some(0)
    );
    assert_eq!(fs::read(home.folder.join("new.jsonl")).unwrap(), damaged);
}

#[test]
fn copies_are_forgotten_on_demand_but_not_those_that_are_needed() {
    let home = Home::new();
    let path = home.codex(CODEX, &damaged_codex());
    assert_eq!(home.run(&["--fix", "019a"]).code, Some(0));
    let folder = home.kept_fixes().remove(0);
    // As if the fix had been stopped midway.
    fs::remove_file(folder.join("ended")).unwrap();
    let told = home.run(&[]);
    assert!(
        told.err.contains("stopped midway: antiphon doctor --undo 019a"),
        "{told:?}"
    );
    let told = home.run(&["--fix", "019a"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains("--undo 019a"), "{told:?}");
    for arguments in [&["--forget"][..], &["--forget", "019a"]] {
        let told = home.run(arguments);
        assert_eq!(told.code, Some(1), "{told:?}");
        assert!(folder.join("manifest.json").exists());
    }
    assert_eq!(home.run(&["--undo", "019a"]).code, Some(0));
    let told = home.run(&["--forget", "7777"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let told = home.run(&["--forget", "019a"]);
    assert_eq!(
        (told.code, told.out.as_str()),
        (Some(0), "removed the copies of 1 fix\n")
    );
    assert!(!folder.exists());
    // What was begun before the session was touched is of no use.
    fs::create_dir(home.fixes().join("20261102T030405Z-x")).unwrap();
    assert_eq!(home.run(&["--forget"]).code, Some(0));
    assert!(home.kept_fixes().is_empty());
    assert!(path.exists());
}
