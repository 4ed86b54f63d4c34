//! The rules of the house that a test can keep: direction of imports, the pure band, one place for each fact.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The rooms from the ground up; a room may use its own floor, without loops, and every floor below.
const FLOORS: &[&[&str]] = &[
    &["splice", "clock", "digest"],
    &["conversation"],
    &["wire"],
    &["provider", "repair", "session"],
    &["policy"],
    &["auth"],
    &["ledger", "session_table", "telemetry", "upstream"],
    &["callers", "late", "profiles"],
    &["recall"],
    &["admin", "ledger_api", "proxy", "server"],
    &["config"],
    &["app"],
    &["demo"],
    &["cli"],
    &["main", "lib"],
];

/// Rooms that take values and give values.
const PURE: &[&str] = &[
    "splice",
    "digest",
    "conversation",
    "wire",
    "repair",
    "provider",
    "policy",
    "auth",
    "session",
];

/// What a pure room never names.
const IMPURE: &[&str] = &[
    "tokio",
    "hyper",
    "moka",
    "tracing",
    "rustls",
    "axum",
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
    "std::process",
    "std::io",
    "Instant::now",
    "SystemTime",
];

/// Literals that only these files may hold: (start of the literal, file or folder).
const ONE_PLACE: &[(&str, &str)] = &[
    ("api.anthropic.com", "src/provider"),
    ("api.openai.com", "src/provider"),
    ("generativelanguage.googleapis.com", "src/provider"),
    ("/chat/completions", "src/provider"),
    ("/v1/messages", "src/provider"),
    ("findings_total", "src/telemetry/metrics"),
    ("ANTIPHON_", "src/config"),
];

/// Soft limit: a file is divided by responsibility, and this many lines say that it has two.
const LINES_MAX: usize = 500;

struct Source {
    path: String,
    room: String,
    /// Without the tests at its end, without comments.
    code: String,
    text: String,
}

#[test]
fn every_file_opens_with_its_job_and_is_short() {
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
            lines <= LINES_MAX,
            "{} has {lines} lines, {LINES_MAX} at most",
            source.path
        );
    }
}

/// Doc comments whose first line opens with a question word. The number only goes down.
const QUESTIONS_MAX: usize = 1118;

/// Doc comments open with a verb or a noun phrase: a reader should not have to answer a question first.
#[test]
fn fewer_and_fewer_doc_comments_open_with_a_question_word() {
    const OPENERS: [&str; 12] = [
        "What", "Who", "Whose", "Which", "Whom", "Whether", "Where", "When", "How", "Why", "Of", "As",
    ];
    let mut found = 0;
    for source in sources() {
        let mut is_first = true;
        let lines = source.text.lines().map(str::trim);
        for line in lines.take_while(|line| *line != "#[cfg(test)]") {
            let Some(doc) = line.strip_prefix("///") else {
                is_first = true;
                continue;
            };
            let word = doc.split_whitespace().next().unwrap_or_default();
            let word = word.trim_matches(|letter: char| !letter.is_alphabetic());
            found += usize::from(is_first && (OPENERS.contains(&word) || word == "None"));
            is_first = false;
        }
    }
    assert!(
        found <= QUESTIONS_MAX,
        "{found} doc comments open with a question word, {QUESTIONS_MAX} at most: python3 tests/house/measure.py --list"
    );
}

#[test]
fn every_room_has_its_floor() {
    let floors: BTreeSet<&str> = FLOORS.iter().flat_map(|floor| floor.iter().copied()).collect();
    let rooms: BTreeSet<String> = sources().into_iter().map(|source| source.room).collect();
    let missing: Vec<&String> = rooms.iter().filter(|room| !floors.contains(room.as_str())).collect();
    assert!(missing.is_empty(), "rooms without a floor: {missing:?}");
    let empty: Vec<&&str> = floors.iter().filter(|room| !rooms.contains(**room)).collect();
    assert!(empty.is_empty(), "floors name rooms that are not there: {empty:?}");
}

#[test]
fn imports_go_down_and_never_round() {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.room != "lib") {
        for room in named_rooms(&source.code) {
            if room == source.room {
                continue;
            }
            assert!(
                floor(&room) <= floor(&source.room),
                "{} imports {room}, which is above it",
                source.path
            );
            uses.entry(source.room.clone()).or_default().insert(room);
        }
    }
    for room in uses.keys() {
        assert!(
            !reaches(&uses, room, room, &mut BTreeSet::new()),
            "{room} imports itself in a round"
        );
    }
    assert!(
        uses.get("repair").is_some_and(|rooms| rooms.contains("wire")),
        "the reader of imports sees nothing"
    );
}

#[test]
fn the_pure_band_is_pure() {
    for source in sources().iter().filter(|source| PURE.contains(&source.room.as_str())) {
        for word in IMPURE {
            assert!(!names(&source.code, word), "{} names {word}", source.path);
        }
    }
}

#[test]
fn each_fact_has_one_place() {
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
fn nobody_below_holds_the_configuration() {
    for source in sources() {
        let may = ["config", "app", "demo", "cli", "lib", "main"].contains(&source.room.as_str());
        assert!(
            may || !source.code.contains("crate::cli::configuration"),
            "{} imports config",
            source.path
        );
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    walk(&root.join("src"), &mut files);
    files.sort();
    let source = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        let path = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let room = path.split('/').nth(1).unwrap().trim_end_matches(".rs").to_owned();
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

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
}

/// The rooms that `crate::…` paths name, grouped imports included.
fn named_rooms(code: &str) -> BTreeSet<String> {
    let all: BTreeSet<&str> = FLOORS.iter().flat_map(|floor| floor.iter().copied()).collect();
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
            if all.contains(name.as_str()) {
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

fn floor(room: &str) -> usize {
    FLOORS
        .iter()
        .position(|floor| floor.contains(&room))
        .unwrap_or(usize::MAX)
}

fn reaches(uses: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str, seen: &mut BTreeSet<String>) -> bool {
    uses.get(from).is_some_and(|rooms| {
        rooms
            .iter()
            .any(|room| room == to || (seen.insert(room.clone()) && reaches(uses, room, to, seen)))
    })
}
