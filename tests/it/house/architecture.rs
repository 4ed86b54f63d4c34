//! Architecture rules: direction of imports, pure modules, and one place for each fact.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::support::repository::repository;

/// The folders of the packages' sources, lowest first.
const SOURCE_FOLDERS: [&str; 3] = ["crates/core/src", "crates/ledger/src", "src"];

/// Rooms, and parts of rooms, without I/O, clocks or async code.
const PURE: &[&str] = &[
    "work",
    "splice",
    "digest",
    "labels",
    "conversation",
    "wire",
    "repair",
    "invariant",
    "provider",
    "policy",
    "auth",
    "session",
    "keys/credential_source",
    "keys/rotation",
    "cli/mcp/relay",
];

/// Names that a pure room must not use.
const IMPURE: &[&str] = &[
    "tokio",
    "hyper",
    "moka",
    "DigestCache",
    "tracing",
    "rustls",
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
    "std::process",
    "std::io",
    "Instant::now",
    "SystemTime",
];

/// Literals that only one file or folder may contain: start of the literal, then the path.
const ONE_PLACE: &[(&str, &str)] = &[
    ("api.anthropic.com", "src/provider"),
    ("api.openai.com", "src/provider"),
    ("generativelanguage.googleapis.com", "src/provider"),
    ("/chat/completions", "src/provider"),
    ("/v1/messages", "src/provider"),
    ("findings_total", "src/telemetry/metrics"),
    ("ANTIPHON_", "src/config"),
];

/// The files of the exchange that know late results. The rest of its room meets them at two hooks.
const MEETS_LATE: [&str; 2] = ["src/proxy/late_results/", "src/proxy/data_path.rs"];
/// The file that gets the handle of late results from the application.
const HANDS_LATE_OVER: &str = "src/proxy/service.rs";

/// The features of late results: each a folder or a file of `src/late` with a state of its own.
const LATE_FEATURES: [&str; 11] = [
    "calls",
    "cancels",
    "compactions",
    "dispatching",
    "events",
    "feed",
    "intents",
    "lists",
    "outbox",
    "readers",
    "tasks",
];

/// The features of late results that name another one, with the reason. All others meet in records and in changes.
const NAMED_FEATURES: &[(&str, &str, &str)] = &[
    ("cancels", "outbox", "a cancel is a message"),
    ("dispatching", "cancels", "it asks what a message says when it is due"),
    ("dispatching", "events", "it asks what a message says when it is due"),
    ("dispatching", "outbox", "it sends the messages"),
    ("events", "outbox", "an event is a message"),
    ("intents", "calls", "a holder's result is the result of its call"),
    ("intents", "readers", "a claim depends on who reads results"),
    ("lists", "calls", "they list calls"),
];

/// Most lines of a file whose header does not say why it is one file.
const LINES_MAX: usize = 800;
/// The words with which the header of a longer file gives its reason.
const REASON_OF_LENGTH: &str = "//! One file, because ";

pub(crate) struct Source {
    pub(crate) path: String,
    room: String,
    /// Code without comments and without the tests at the end.
    pub(crate) code: String,
    pub(crate) text: String,
}

#[test]
fn every_file_has_a_header_and_a_long_one_a_reason() {
    for source in sources() {
        assert!(
            source.text.starts_with("//!"),
            "{} does not open with `//!`",
            source.path
        );
        let lines = source
            .text
            .lines()
            .take_while(|line| line.trim() != "#[cfg(test)]")
            .count();
        assert!(
            lines <= LINES_MAX || source.text.lines().any(|line| line.starts_with(REASON_OF_LENGTH)),
            "{} has {lines} lines, and no line `{REASON_OF_LENGTH}…`",
            source.path
        );
    }
}

/// Returns the rooms of the maps in each package's `lib.rs`, lowest first.
fn map() -> Vec<String> {
    let lib = |folder: &&str| fs::read_to_string(repository(folder).join("lib.rs")).unwrap();
    let room = |line: &str| {
        let row = line.strip_prefix("//! | ")?;
        let cell = row.split('|').next().unwrap_or_default();
        cell.split('`').nth(1).map(ToOwned::to_owned)
    };
    let rooms = |text: String| text.lines().filter_map(room).collect::<Vec<_>>();
    SOURCE_FOLDERS.iter().map(lib).flat_map(rooms).collect()
}

#[test]
fn every_room_is_on_the_map() {
    let mapped: BTreeSet<String> = map().into_iter().collect();
    let outside = ["main", "lib"];
    let rooms: BTreeSet<String> = sources().into_iter().map(|source| source.room).collect();
    let rooms: BTreeSet<String> = rooms
        .into_iter()
        .filter(|room| !outside.contains(&room.as_str()))
        .collect();
    assert_eq!(mapped, rooms, "the maps in lib.rs, and the rooms that there are");
}

#[test]
fn imports_go_up_the_map() {
    let order = map();
    let place = |room: &str| order.iter().position(|found| found == room);
    let mut imports = 0;
    for source in sources() {
        let Some(own) = place(&source.room) else { continue };
        for room in named_rooms(&source.code, &order) {
            imports += usize::from(room != source.room);
            assert!(
                place(&room) <= Some(own),
                "{} imports {room}, which comes after it on the map",
                source.path
            );
        }
    }
    assert!(imports > 100, "the reader of imports sees nothing");
}

#[test]
fn the_pure_band_is_pure() {
    let is_in = |source: &Source, place: &str| {
        let (_, inner) = source.path.rsplit_once("src/").unwrap();
        let rest = inner.strip_prefix(place);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    for place in PURE {
        assert!(
            sources().iter().any(|source| is_in(source, place)),
            "{place} is no place"
        );
    }
    let pure = |source: &Source| PURE.iter().any(|place| is_in(source, place));
    for source in sources().iter().filter(|source| pure(source)) {
        for word in IMPURE {
            assert!(!names(&source.code, word), "{} names {word}", source.path);
        }
    }
}

#[test]
fn each_literal_has_one_place() {
    for source in sources() {
        for (literal, place) in ONE_PLACE {
            let at_home = source.path.starts_with(place) || source.room == "cli";
            assert!(
                at_home || !source.code.contains(literal),
                "{} holds {literal:?}, which belongs to {place}",
                source.path
            );
        }
    }
}

#[test]
fn lower_rooms_do_not_use_the_configuration() {
    for source in sources() {
        let may = ["config", "app", "demo", "cli", "lib", "main"].contains(&source.room.as_str());
        assert!(
            may || !source.code.contains("crate::config"),
            "{} imports config",
            source.path
        );
    }
}

#[test]
fn the_exchange_meets_late_results_at_its_hooks() {
    let all = ["late".to_owned()];
    let in_exchange = |source: &Source| source.path.starts_with("src/proxy/");
    let mut meetings: Vec<String> = Vec::new();
    for source in sources().into_iter().filter(in_exchange) {
        if !named_rooms(&source.code, &all).is_empty() {
            meetings.push(source.path);
        }
    }
    let is_known = |path: &String| MEETS_LATE.iter().any(|place| path.starts_with(place)) || path == HANDS_LATE_OVER;
    assert!(meetings.iter().all(is_known), "{meetings:?}");
    assert!((3..=6).contains(&meetings.len()), "{meetings:?}");
}

#[test]
fn the_features_of_late_results_name_no_other() {
    let mut named = BTreeSet::new();
    for source in sources().iter().filter(|source| source.room == "late") {
        let inner = source.path.trim_start_matches("src/late/");
        let own = inner.split('/').next().unwrap().trim_end_matches(".rs");
        if !LATE_FEATURES.contains(&own) {
            continue;
        }
        // In a feature's own file, and in the `mod.rs` of its folder, `super` is the room.
        let is_top = !inner.contains('/') || inner.ends_with("/mod.rs");
        let uses = source
            .code
            .split("use ")
            .skip(1)
            .filter_map(|rest| rest.split_once(';'));
        let of_room = uses.map(|(path, _)| path).filter(|path| {
            let is_room = path.contains("late::") || (is_top && path.starts_with("super::"));
            is_room || path.starts_with("super::super::")
        });
        for path in of_room {
            let others = LATE_FEATURES.iter().filter(|feature| **feature != own);
            named.extend(
                others
                    .filter(|feature| names(path, feature))
                    .map(|feature| (own.to_owned(), *feature)),
            );
        }
    }
    let known: BTreeSet<(String, &str)> = NAMED_FEATURES
        .iter()
        .map(|(own, other, _)| ((*own).to_owned(), *other))
        .collect();
    assert_eq!(
        named, known,
        "a feature of late results meets another one in records and changes"
    );
}

pub(crate) fn sources() -> Vec<Source> {
    let root = repository("");
    let mut files = Vec::new();
    for folder in SOURCE_FOLDERS {
        walk(&root.join(folder), &mut files);
    }
    files.sort();
    let source = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        let path = file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        let (_, inner) = path.rsplit_once("src/").unwrap();
        let room = inner.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        let body = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = body
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        Source { path, room, code, text }
    };
    files.iter().map(source).collect()
}

pub(super) fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
}

/// Returns the rooms that `crate::…` paths name, including grouped imports.
fn named_rooms(code: &str, all: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let mut heads = Vec::new();
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut item = String::new();
            for letter in group.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => heads.push(std::mem::take(&mut item)),
                    _ if depth == 0 => item.push(letter),
                    _ => {}
                }
            }
            heads.push(item);
        } else {
            heads.push(rest.to_owned());
        }
        for head in heads {
            let name: String = head
                .trim()
                .chars()
                .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
                .collect();
            if all.contains(&name) {
                found.insert(name);
            }
        }
    }
    found
}

fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let edge = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
        edge(code[..at].chars().next_back()) && edge(code[at + word.len()..].chars().next())
    })
}
