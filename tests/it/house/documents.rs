//! Rules of README.md and docs/: lengths, links, blocks that are not run, and lists that must name what the code has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use antiphon::{
    config::{ConfigFile, VARIABLES},
    conversation::FindingKind,
    policy::{Class, Observation, classify},
    repair::Action,
    upstream::NetworkCause,
    wire::json::quote_string,
};

use serde_json::Value;

use super::architecture::{sources, walk};
use crate::{
    frozen::{golden, words::CLASSES},
    support::refusals::TABLE,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Most lines of README.md.
const README_LINES_MAX: usize = 150;
/// Most characters of a line of README.md.
const README_COLUMNS_MAX: usize = 120;
/// Most words of README.md.
const README_WORDS_MAX: usize = 1_600;
/// Most characters of a line of other documents, apart from tables, headings and code.
const COLUMNS_MAX: usize = 120;

/// Returns the text of a file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the paths of `docs/*.md`.
fn documents() -> Vec<String> {
    let folder = fs::read_dir(Path::new(ROOT).join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = names
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    found.sort();
    found
}

/// Returns every document for people.
fn all_documents() -> Vec<String> {
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "tests/cases/README.md",
    ];
    others.map(str::to_owned).into_iter().chain(documents()).collect()
}

/// Returns the lines of a document outside of code blocks.
fn prose(document: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text(document).lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Returns the anchors of a document's headings, as GitHub makes them.
fn anchors(document: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let lines = prose(document);
    let headings = lines.iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
            let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 {
                anchor
            } else {
                format!("{anchor}-{}", *count - 1)
            }
        })
        .collect()
}

/// Returns the targets of a document's links. Code is skipped.
fn links(document: &str) -> Vec<String> {
    let text = prose(document).join("\n");
    let outside: String = text.split('`').step_by(2).collect::<Vec<_>>().join("``");
    let starts = outside.match_indices("](").map(|(at, _)| at + 2);
    starts
        .filter_map(|at| outside[at..].split_once(')').map(|(target, _)| target.to_owned()))
        .collect()
}

#[test]
fn the_readme_is_short() {
    let readme = text("README.md");
    let (lines, words) = (readme.lines().count(), readme.split_whitespace().count());
    assert!(lines <= README_LINES_MAX, "{lines} lines, {README_LINES_MAX} at most");
    assert!(words <= README_WORDS_MAX, "{words} words, {README_WORDS_MAX} at most");
    for line in readme.lines() {
        let columns = line.chars().count();
        assert!(columns <= README_COLUMNS_MAX, "{columns} columns: {line}");
    }
}

#[test]
fn the_readme_begins_with_the_errors() {
    let readme = text("README.md");
    let head: String = readme.lines().take(20).map(|line| format!("{line}\n")).collect();
    let found = head
        .lines()
        .filter_map(|line| line.split_once("  "))
        .filter(|(_, error)| TABLE.read(error_body(error.trim()).as_bytes()).is_some());
    assert_eq!(found.count(), 4, "one error of each format in the first 20 lines");
}

#[test]
fn lines_of_documents_fit() {
    for document in documents() {
        for line in prose(&document) {
            let is_prose = !line.starts_with('|') && !line.starts_with('#');
            let columns = line.chars().count();
            assert!(
                !is_prose || columns <= COLUMNS_MAX,
                "{document}: {columns} columns: {line}"
            );
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for document in all_documents() {
        let folder = Path::new(&document).parent().unwrap();
        for link in links(&document) {
            if link.starts_with("http://") || link.starts_with("https://") {
                continue;
            }
            let (path, anchor) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(path, at)| (path, Some(at)));
            let target = if path.is_empty() {
                PathBuf::from(&document)
            } else {
                normalized(&folder.join(path))
            };
            if !Path::new(ROOT).join(&target).exists() {
                dead.push(format!("{document}: {link}"));
            } else if let Some(anchor) = anchor
                && !anchors(target.to_str().unwrap()).contains(anchor)
            {
                dead.push(format!("{document}: {link}: no such heading"));
            }
        }
    }
    assert!(dead.is_empty(), "dead links: {dead:#?}");
}

/// Returns a path without `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(parts.pop()),
            std::path::Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

#[test]
fn the_readme_leads_to_every_document() {
    let readme: BTreeSet<String> = links("README.md").into_iter().collect();
    for document in documents() {
        assert!(readme.contains(&document), "README.md has no link to {document}");
    }
}

/// The maps name the files of the sources by the end of their paths.
#[test]
fn the_maps_name_files_that_exist() {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "fuzz"] {
        walk(&Path::new(ROOT).join(folder), &mut files);
    }
    let is_source = |name: &&str| Path::new(name).extension().is_some_and(|end| end == "rs");
    let mut missing = Vec::new();
    for map in [
        "ARCHITECTURE.md",
        "src/lib.rs",
        "crates/core/src/lib.rs",
        "crates/ledger/src/lib.rs",
    ] {
        for (at, line) in text(map).lines().enumerate() {
            // What stands between backticks is every second part. `wire/*/mod.rs` stands for several files.
            let named = line.split('`').skip(1).step_by(2);
            let named = named.filter(|name| is_source(name) && !name.contains(['*', '<', '{', ' ']));
            let unknown = named.filter(|name| !files.iter().any(|file| file.ends_with(name)));
            missing.extend(unknown.map(|name| format!("{map}:{}: {name}", at + 1)));
        }
    }
    assert!(missing.is_empty(), "no file has these names: {missing:#?}");
}

#[test]
fn sources_name_documents_that_exist() {
    for source in sources() {
        for (at, _) in source.text.match_indices("docs/") {
            let name = source.text[at..].split(|letter: char| !letter.is_alphanumeric() && !"-/.".contains(letter));
            let name = name.into_iter().next().unwrap_or_default().trim_end_matches('.');
            let is_document = Path::new(name).extension().is_some_and(|end| end == "md");
            assert!(
                !is_document || Path::new(ROOT).join(name).exists(),
                "{} names {name}",
                source.path
            );
        }
    }
}

/// Pins the blocks that `tests/docs/run.py` does not run, each with its reason.
#[test]
fn blocks_that_are_not_run_are_listed() {
    let documents = documents().into_iter().chain(["README.md".to_owned()]);
    let marks = documents.flat_map(|document| {
        let lines = prose(&document).into_iter();
        let reasons = lines.filter_map(|line| {
            let reason = line.strip_prefix("<!-- not run: ")?.strip_suffix(" -->")?;
            assert!(!reason.is_empty(), "{document}: a mark without its reason");
            Some(format!("{document}: {reason}"))
        });
        reasons.collect::<Vec<_>>()
    });
    golden::same_lines("documents-not-run.txt", marks);
}

/// Returns an error body with a message.
fn error_body(message: &str) -> String {
    format!(r#"{{"error":{{"message":{}}}}}"#, quote_string(message))
}

/// Asserts that a document has each of these words as code.
fn assert_names<'a>(document: &str, words: impl IntoIterator<Item = &'a str>) {
    let text = text(document);
    for word in words {
        let is_named = text.split('`').skip(1).step_by(2).any(|code| {
            code.split(|letter: char| !letter.is_alphanumeric() && !"_-".contains(letter))
                .any(|part| part == word)
        });
        assert!(is_named, "{document} does not name `{word}`");
    }
}

#[test]
fn documents_name_what_clients_and_operators_see() {
    assert_names("docs/repairs.md", Action::ALL.map(Action::label));
    assert_names("docs/repairs.md", FindingKind::ALL.map(FindingKind::code));
    assert_names(
        "docs/operations.md",
        VARIABLES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| name.starts_with("ANTIPHON_")),
    );
    let answers = text("tests/frozen/error-answers.txt");
    let codes: BTreeSet<&str> = answers
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("code="))
        .collect();
    assert_names("docs/errors.md", codes);
    let headers = text("tests/frozen/headers-answered.txt") + &text("tests/frozen/headers-read.txt");
    let headers: BTreeSet<&str> = headers
        .split(|letter: char| !letter.is_alphanumeric() && letter != '-')
        .filter(|word| word.starts_with("x-antiphon-"))
        .collect();
    assert_names("docs/headers-and-logs.md", headers);
}

/// The document lists what the rows of the keys say.
#[test]
fn the_keys_that_need_a_restart_are_listed() {
    let document = text("docs/apis.md");
    let (_, list) = document.split_once("These keys need a restart").unwrap();
    let (list, _) = list.split_once("`. ").unwrap();
    let listed: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    let rows = ConfigFile::rows();
    let fixed = rows.iter().filter(|row| row.needs_restart);
    let mut fixed: Vec<&str> = fixed.map(|row| row.key.as_str()).collect();
    fixed.sort_unstable();
    assert_eq!(listed, fixed);
}

/// Returns the words that the first columns of a document's tables have as code.
fn first_columns(document: &str) -> BTreeSet<String> {
    let lines = prose(document);
    let cells = lines
        .iter()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned))
        .collect()
}

#[test]
fn every_cause_of_a_network_failure_has_a_row() {
    let rows = first_columns("docs/errors.md");
    for cause in NetworkCause::ALL.map(NetworkCause::label) {
        assert!(rows.contains(cause), "docs/errors.md has no row for `{cause}`");
    }
}

/// Returns the paths of a table of requests, such as `GET repairs` and `POST tasks/links`, each with `{}` for an id.
fn tabled_requests(document: &str, heading: &str) -> BTreeSet<String> {
    let lines = prose(document);
    let table = lines.iter().skip_while(|line| *line != heading).skip(1);
    let rows = table.take_while(|line| !line.starts_with('#'));
    let cells = rows.filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let requests = cells.flat_map(|cell| cell.trim_end_matches('`').split("`, `"));
    let is_id = |part: &str| part.bytes().all(|byte| byte.is_ascii_uppercase());
    let path = |request: &str| {
        let (method, path) = request.split_once(' ').unwrap();
        let parts = path.split('/').map(|part| if is_id(part) { "{}" } else { part });
        format!("{method} {}", parts.collect::<Vec<_>>().join("/"))
    };
    requests.map(path).collect()
}

#[test]
fn the_table_of_the_admin_api_is_complete() {
    let described: Value = serde_json::from_str(&text("tests/frozen/openapi.json")).unwrap();
    let mut wanted = BTreeSet::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let Some(path) = path.strip_prefix("/admin/v1/") else {
            continue;
        };
        let parts = path
            .split('/')
            .map(|part| if part.starts_with('{') { "{}" } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        let methods = methods.as_object().unwrap().keys();
        wanted.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    assert_eq!(tabled_requests("docs/apis.md", "## Admin API"), wanted);
}

/// Returns the text of an alert, up to the next one.
fn alert<'a>(rules: &'a str, name: &str) -> &'a str {
    let (_, rest) = rules.split_once(&format!("- alert: {name}\n")).unwrap();
    rest.split("- alert: ").next().unwrap()
}

#[test]
fn runbooks_name_every_fault_of_the_proxy() {
    let rules = text("deploy/prometheus/antiphon.rules.yml");
    let answers = text("tests/frozen/error-answers.txt");
    let faults = answers.lines().filter(|line| line.contains(": side=proxy "));
    let codes: BTreeSet<&str> = faults
        .filter_map(|line| line.rsplit_once("code="))
        .map(|(_, code)| code)
        .collect();
    assert!(codes.len() > 8, "{codes:?}");
    let names = |text: &str, code: &str| {
        let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words.into_iter().any(|word| word == code)
    };
    for code in codes {
        // Keys that rest are no fault of the proxy.
        let is_of_keys = code == "exhausted";
        let (own, pool) = (
            alert(&rules, "AntiphonOwnFaults"),
            alert(&rules, "AntiphonNoProfileReady"),
        );
        assert_eq!(names(own, code), !is_of_keys, "AntiphonOwnFaults: {code}");
        assert_eq!(names(pool, code), is_of_keys, "AntiphonNoProfileReady: {code}");
    }
    let count = rules.matches("- alert: ").count();
    let operations = text("docs/operations.md");
    let sentence = format!("| {count} alerts, each with a runbook |");
    assert!(operations.contains(&sentence), "docs/operations.md: {sentence}");
    assert_eq!(rules.matches("runbook: ").count(), count);
}

#[test]
fn every_code_and_class_of_an_outcome_has_a_row() {
    let rows = first_columns("docs/errors.md");
    let words = text("tests/frozen/words.txt");
    let codes = words
        .lines()
        .filter_map(|line| line.strip_prefix("code of a class: ")?.split(' ').next());
    let redirect = classify(Observation::NoAnswer { is_redirect: true }).code;
    for word in codes.chain([redirect]).chain(CLASSES.map(Class::label)) {
        assert!(rows.contains(word), "docs/errors.md has no row for `{word}`");
    }
}
