//! Sessions that are found and read, and files that are not.

use std::{fs, os::unix::fs::symlink, process::Command, time::Duration};

use super::home::{CLAUDE, CODEX, Home, claude_lines, codex_lines, damaged_claude, file_of, set_age};

/// Returns the files of a document, by the ends of their paths.
fn files_of(document: &serde_json::Value) -> Vec<String> {
    let files = document["files"].as_array().unwrap().iter();
    let name = |file: &serde_json::Value| file["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    files.map(name).collect()
}

#[test]
fn the_sessions_of_every_client_are_read_newest_first() {
    let home = Home::new();
    home.claude(CLAUDE, &file_of(&claude_lines()));
    let rollout = home.codex(CODEX, &file_of(&codex_lines()));
    let old = home.claude("11111111-2222-4333-8444-555555555555", &file_of(&claude_lines()));
    set_age(&rollout, Duration::from_secs(60));
    set_age(&old, Duration::from_secs(40 * 24 * 3600));
    let told = home.run(&["--output", "json"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let document = told.json();
    assert_eq!(
        files_of(&document),
        [
            rollout.file_name().unwrap().to_str().unwrap(),
            &format!("{CLAUDE}.jsonl")
        ]
    );
    assert_eq!(
        (document["version"].as_u64(), document["older"].as_u64()),
        (Some(1), Some(1))
    );
    let first = &document["files"][0];
    assert_eq!(first["client"], "codex");
    assert_eq!(
        (first["live"].as_bool(), first["lines"].as_u64()),
        (Some(false), Some(5))
    );
    let second = &document["files"][1];
    assert_eq!(
        (second["client_version"].as_str(), second["session"].as_str()),
        (Some("2.1.332"), Some(CLAUDE))
    );
    assert_eq!(
        (second["messages"].as_u64(), second["reachable"].as_u64()),
        (Some(8), Some(8))
    );
    for (arguments, count) in [
        (&["--since", "all"][..], 3),
        (&["--since", "5m"], 1),
        (&["--client", "codex"], 1),
        (&["--client", "codex,claude-code"], 2),
        (&[".claude"], 2),
        (&[".codex"], 1),
    ] {
        let told = home.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(files_of(&told.json()).len(), count, "{arguments:?}");
    }
    let told = home.run(&[]);
    assert_eq!(
        told.out,
        "2 sessions read, none damaged, 1 file older, which --since all reads too\n"
    );
}

#[test]
fn variables_name_the_folders_of_clients() {
    let home = Home::new();
    let (claude, codex) = (
        home.claude(CLAUDE, &damaged_claude()),
        home.codex(CODEX, &file_of(&codex_lines())),
    );
    let elsewhere = home.folder.join("elsewhere");
    fs::create_dir_all(elsewhere.join("c")).unwrap();
    fs::rename(home.folder.join(".claude"), elsewhere.join("a")).unwrap();
    fs::rename(home.folder.join(".codex"), elsewhere.join("b")).unwrap();
    assert!(!claude.exists() && !codex.exists());
    // A client's folder may be a link.
    symlink(elsewhere.join("a"), home.folder.join("link")).unwrap();
    let mut command = home.command(&["--output", "json"]);
    command
        .env("CLAUDE_CONFIG_DIR", home.folder.join("link"))
        .env("CODEX_HOME", elsewhere.join("b"));
    let told = super::home::Told::of(&command.output().unwrap());
    assert_eq!(files_of(&told.json()).len(), 2, "{told:?}");
}

#[test]
fn an_id_may_be_short_and_is_listed_if_it_means_several() {
    let home = Home::new();
    let (one, two) = (
        "8a52aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee",
        "8a52aaaa-bbbb-4ccc-8ddd-ffffffffffff",
    );
    home.claude(one, &file_of(&claude_lines()));
    home.claude(two, &damaged_claude());
    home.codex(CODEX, &file_of(&codex_lines()));
    let told = home.run(&["019a"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.out.contains(CODEX) && told.out.contains("nothing is damaged"),
        "{told:?}"
    );
    let told = home.run(&["8a52"]);
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.err.contains(one) && told.err.contains(two), "{told:?}");
    assert_eq!(home.run(&[one]).code, Some(0));
    let told = home.run(&[]);
    // The advice names one session alone.
    assert!(told.out.contains("--fix 8a52aaaa-bbbb-4ccc-8ddd-f\n"), "{told:?}");
    let told = home.run(&["8a52aaaa-bbbb-4ccc-8ddd-f"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let told = home.run(&["7777"]);
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.err.contains("no session"), "{told:?}");
}

/// An id is looked for in the folders of clients alone, so a copy elsewhere is named by its path.
#[test]
fn the_advised_command_names_the_session_that_was_read() {
    let home = Home::new();
    let path = home.claude(CLAUDE, &damaged_claude());
    let copies = home.folder.join("copies of today");
    let copy = Home::write_aged(&copies.join(format!("{CLAUDE}.jsonl")), &damaged_claude());
    let [path, copy, copies] = [&path, &copy, &copies].map(|path| path.to_str().unwrap());
    let projects = home.project();
    for (arguments, name) in [
        (&[][..], "8a52aaaa".to_owned()),
        (&["8a52"], "8a52aaaa".to_owned()),
        (&[projects.to_str().unwrap()], "8a52aaaa".to_owned()),
        (&[path], path.to_owned()),
        (&[copy], format!("'{copy}'")),
        (&[copies], format!("'{copy}'")),
    ] {
        let told = home.run(arguments);
        assert_eq!(told.code, Some(1), "{arguments:?}: {told:?}");
        let advice = format!(" can be mended: antiphon doctor --fix {name}\n");
        assert!(told.out.contains(&advice), "{arguments:?}: {told:?}");
    }
    // Both are read, and each has a name of its own.
    let told = home.run(&[copies, "8a52"]);
    for name in ["8a52aaaa", &format!("'{copy}'")] {
        assert!(
            told.out.contains(&format!("antiphon doctor --fix {name}\n")),
            "{told:?}"
        );
    }
}

/// Each file has its own clear line, and the rest goes on.
#[test]
fn what_cannot_be_read_is_told_and_the_rest_goes_on() {
    let home = Home::new();
    home.claude(CLAUDE, &file_of(&claude_lines()));
    let project = home.project();
    let write = |name: &str, bytes: &[u8]| Home::write_aged(&project.join(name), bytes);
    write("gzip.jsonl", b"\x1f\x8b\x08\0\0\0\0\0");
    write("binary.jsonl", b"\x7fELF\x02\x01\x01\0\x03");
    write("other.jsonl", b"{\"a\":1}\n{\"b\":2}\n");
    write("text.jsonl", b"once upon a time\n");
    let made = Command::new("mkfifo").arg(project.join("pipe.jsonl")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(project.join("socket.jsonl")).unwrap();
    symlink(&project, project.join("loop")).unwrap();
    symlink(project.join("other.jsonl"), project.join("link.jsonl")).unwrap();
    let told = home.run(&[]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(
        told.out,
        "1 session read, none damaged, 4 files of other programs, 1 file behind links, which are not followed, 2 files \
         not read\n"
    );
    assert_eq!(told.err.matches("it is no regular file").count(), 2, "{told:?}");
    for (name, word) in [
        ("gzip.jsonl", "gunzip"),
        ("binary.jsonl", "binary"),
        ("other.jsonl", "no known client"),
        ("text.jsonl", "no known client"),
        ("pipe.jsonl", "no regular file"),
        ("socket.jsonl", "no regular file"),
        ("missing.jsonl", "no such file"),
    ] {
        let path = project.join(name);
        let told = home.run(&[path.to_str().unwrap()]);
        assert_eq!(told.code, Some(2), "{name}: {told:?}");
        assert!(told.err.contains(word) && told.err.contains(name), "{name}: {told:?}");
        // The rest is read all the same.
        let both = home.run(&["--output", "json", path.to_str().unwrap(), CLAUDE]);
        assert_eq!(both.code, Some(2), "{name}");
        let document = both.json();
        let files = document["files"].as_array().unwrap();
        assert_eq!(files.len(), 2, "{name}: {both:?}");
        assert_eq!(files.iter().filter(|file| file["error"].is_null()).count(), 1, "{name}");
        // Every entry has every key.
        let keys = |index: usize| files[index].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(0), keys(1), "{name}");
    }
    // A named file may be a link.
    let link = home.folder.join("named.jsonl");
    symlink(project.join(format!("{CLAUDE}.jsonl")), &link).unwrap();
    assert_eq!(home.run(&[link.to_str().unwrap()]).code, Some(0));
}

#[test]
fn a_compressed_rollout_is_read_and_never_mended() {
    let home = Home::new();
    let mut lines = codex_lines();
    lines[3] = format!("{}{}", "\0".repeat(9), lines[3]);
    let packed = zstd::stream::encode_all(&file_of(&lines)[..], 3).unwrap();
    let path = Home::write_aged(&home.rollout(CODEX).with_extension("jsonl.zst"), &packed);
    let told = home.run(&[path.to_str().unwrap()]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.out.contains("nul_bytes") && told.out.contains("only read"),
        "{told:?}"
    );
    let told = home.run(&["--fix", path.to_str().unwrap()]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.err.contains("unzstd"), "{told:?}");
    // A file that is cut is not read, and not told healthy.
    fs::write(&path, &packed[..packed.len() / 2]).unwrap();
    assert_eq!(home.run(&[path.to_str().unwrap()]).code, Some(2));
    // Nor is one that would take the whole disk if it was unpacked.
    let bytes = [file_of(&codex_lines()), vec![b'\n'; 16 << 20]].concat();
    let packed = zstd::stream::encode_all(&bytes[..], 3).unwrap();
    Home::write_aged(&path, &packed);
    assert!(packed.len() * 2000 < bytes.len(), "{}", packed.len());
    let told = home.run(&[path.to_str().unwrap()]);
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.err.contains("more than 2000 times its size"), "{told:?}");
    let told = home.run(&[]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.out.contains("1 file not read"), "{told:?}");
}
