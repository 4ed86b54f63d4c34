//! Golden files of outside contracts: names, codes, keys and bytes that clients, operators and stored data rely on.
//!
//! Each test computes facts from the running code and compares them with one file under `tests/frozen/`.
//! `FREEZE=write cargo test --test it frozen` rewrites the files. Read the difference before you commit it.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use serde_json::Value;
use similar::TextDiff;

/// Every golden file. A file that is not listed here is stale.
const FILES: &[&str] = &[
    "admin-codes.txt",
    "cli.txt",
    "config-defaults.toml",
    "config-schema.json",
    "documents-not-run.txt",
    "error-answers.txt",
    "error-codes.txt",
    "exit-codes.txt",
    "headers-answered.txt",
    "headers-read.txt",
    "headers-relayed.txt",
    "health.txt",
    "ledger-api.txt",
    "ledger-openapi.json",
    "ledger-v1-bodies.txt",
    "ledger-v1-memory.txt",
    "ledger-v1-records.txt",
    "ledger-v1-written.txt",
    "ledger-v1.db",
    "log-lines.txt",
    "lost-results.txt",
    "machine-output.txt",
    "metrics.txt",
    "openapi.json",
    "profile-choice.txt",
    "routes.txt",
    "texts.txt",
    "traces.txt",
    "words.txt",
];

/// Returns the path of a golden file.
pub(crate) fn path(name: &str) -> PathBuf {
    assert!(
        FILES.contains(&name),
        "list {name} in FILES of tests/it/frozen/golden.rs"
    );
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/frozen")
        .join(name)
}

/// Returns the value of `FREEZE`, or an empty text if it is not set.
pub(crate) fn freeze() -> String {
    env::var("FREEZE").unwrap_or_default()
}

/// Compares `actual` with a golden file. With `FREEZE=write` it writes the file instead.
pub(crate) fn same(name: &str, actual: &str) {
    let path = path(name);
    if freeze() == "write" {
        fs::write(&path, actual).unwrap();
        return;
    }
    let frozen = fs::read_to_string(&path).unwrap_or_default();
    if frozen == actual {
        return;
    }
    let diff = TextDiff::from_lines(frozen.as_str(), actual);
    let diff = diff
        .unified_diff()
        .context_radius(0)
        .header("frozen", "now")
        .to_string();
    panic!(
        "tests/frozen/{name} does not hold any more.\n\
         It pins an OUTSIDE CONTRACT: clients, operators or stored data rely on each line.\n\
         Change the code back. If the change is on purpose, run with FREEZE=write and review the difference.\n\n{diff}"
    );
}

/// Compares lines, sorted and without duplicates, with a golden file.
pub(crate) fn same_lines(name: &str, lines: impl IntoIterator<Item = String>) {
    let lines: BTreeSet<String> = lines.into_iter().collect();
    let lines: Vec<String> = lines.into_iter().map(|line| line + "\n").collect();
    same(name, &lines.concat());
}

/// Returns an indented document without texts for people.
pub(crate) fn without_prose(mut document: Value) -> String {
    strip(&mut document);
    format!("{document:#}\n")
}

/// Removes texts for people. A property named `description` is an object, and stays.
fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|key, value| {
                !(value.is_string() && ["description", "summary", "title"].contains(&key.as_str()))
            });
            members.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Returns each path of a document with the type of its value, one per line. List elements share the path `[]`.
pub(crate) fn keys(at: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => {
            let below = members
                .iter()
                .flat_map(|(key, value)| keys(&format!("{at}.{key}"), value));
            [format!("{at}: object")].into_iter().chain(below).collect()
        }
        Value::Array(items) => {
            let below = items.iter().flat_map(|item| keys(&format!("{at}[]"), item));
            [format!("{at}: array")].into_iter().chain(below).collect()
        }
        Value::String(_) => vec![format!("{at}: string")],
        Value::Number(_) => vec![format!("{at}: number")],
        Value::Bool(_) => vec![format!("{at}: boolean")],
        Value::Null => vec![format!("{at}: null")],
    }
}

#[test]
fn every_golden_file_is_compared_by_a_test() {
    if !freeze().is_empty() {
        // With `FREEZE=write`, other tests are writing the files.
        return;
    }
    let folder = fs::read_dir(path(FILES[0]).parent().unwrap()).unwrap();
    let found: BTreeSet<String> = folder
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let listed: BTreeSet<String> = FILES.iter().map(ToString::to_string).collect();
    assert_eq!(found, listed, "tests/frozen/ holds other files than FILES lists");
}

#[test]
fn texts_are_removed_but_properties_are_not() {
    let document = serde_json::json!({
        "title": "prose",
        "properties": {"title": {"type": "string", "description": "prose"}, "a": {"enum": ["description"]}},
    });
    let frozen: Value = serde_json::from_str(&without_prose(document)).unwrap();
    let wanted = serde_json::json!({"properties": {"title": {"type": "string"}, "a": {"enum": ["description"]}}});
    assert_eq!(frozen, wanted);
}
