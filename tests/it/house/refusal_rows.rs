//! The headings of `docs/errors.md` are those of the rows of refusals.
//!
//! `FREEZE=write cargo test --test it refusal_rows` writes them.

use std::fs;

use crate::{
    frozen::golden::freeze,
    support::refusals::{DocumentedRow, ROWS},
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
/// The comment before the headings of some faults, which it names.
const BEGIN: &str = "<!-- rows: ";
const END: &str = "<!-- end of rows -->";

/// Returns the headings of rows of these faults, with what is said about each.
fn headings_of(faults: &[&str]) -> String {
    let of_faults = |row: &&DocumentedRow| faults.contains(&row.fault.as_str());
    let headings = ROWS.iter().filter(of_faults).flat_map(|row| &row.heading);
    headings
        .map(|heading| format!("### {}\n\n{}\n\n", heading.text, heading.about.trim()))
        .collect()
}

/// Returns the document with the headings of the rows in the places that comments mark, and the faults of the comments.
fn written(document: &str) -> (String, Vec<String>) {
    let (mut text, mut faults) = (String::new(), Vec::new());
    let mut pieces = document.split(BEGIN);
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (named, rest) = piece.split_once(" -->\n").expect("the end of a comment");
        let (_, after) = rest.split_once(END).expect("the end of the rows");
        let names: Vec<&str> = named.split(", ").collect();
        text.push_str(&format!("{BEGIN}{named} -->\n\n{}{END}{after}", headings_of(&names)));
        faults.extend(names.iter().map(|name| (*name).to_owned()));
    }
    (text, faults)
}

#[test]
fn the_error_page_is_written_from_the_rows() {
    let document = fs::read_to_string(PATH).unwrap();
    let (text, faults) = written(&document);
    for row in &*ROWS {
        let places = faults.iter().filter(|fault| **fault == row.fault).count();
        assert_eq!(
            places, 1,
            "docs/errors.md needs one comment for the fault {:?}",
            row.fault
        );
    }
    if freeze() == "write" {
        fs::write(PATH, text).unwrap();
        return;
    }
    assert!(
        text == document,
        "docs/errors.md differs from src/refusals/rows.toml: FREEZE=write cargo test --test it refusal_rows"
    );
}
