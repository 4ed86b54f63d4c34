//! The checks of the fuzz targets on a stable toolchain (`tests/support/mutations.rs`).

use std::fs;

use crate::support::{checks, mutations::run_check, repository::repository};

fn fuzzed(name: &str) {
    let known = checks::TARGETS.iter().find(|(known, _)| *known == name);
    run_check(name, known.expect("a check of this name").1);
}

#[test]
fn arbitrary_bytes_give_nested_spans() {
    fuzzed("read");
}

#[test]
fn arbitrary_bytes_are_read_as_by_the_oracle() {
    fuzzed("agree");
}

#[test]
fn repairing_arbitrary_bytes_is_idempotent() {
    fuzzed("repair");
}

#[test]
fn repairing_arbitrary_conversations_is_idempotent() {
    fuzzed("conversations");
}

#[test]
fn arbitrary_edits_equal_a_plain_copy() {
    fuzzed("splice");
}

#[cfg(debug_assertions)]
#[test]
fn arbitrary_bodies_take_a_bounded_number_of_steps() {
    fuzzed("steps");
}

#[test]
fn arbitrary_streams_give_the_same_events_for_every_chunking() {
    fuzzed("frames");
}

/// Every target must be in `TARGETS`: otherwise it would only run under libFuzzer. `headers` is checked with the proxy.
#[test]
fn checks_and_fuzz_targets_are_the_same() {
    let mut files: Vec<String> = fs::read_dir(repository("fuzz/fuzz_targets"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "headers")
        .collect();
    files.sort();
    let mut names: Vec<&str> = checks::TARGETS.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(files, names);
}
