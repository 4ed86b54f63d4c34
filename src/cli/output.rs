//! Format of what commands print: text for people, or JSON for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// Version of all JSON documents. It rises when a key changes its meaning or goes away.
pub(super) const DOCUMENT_VERSION: u64 = 1;

/// Format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Text for people
    #[default]
    Text,
    /// One JSON document for programs, with the key `version`
    Json,
}

/// Writes a JSON document, with its version as the first key.
pub(super) fn write_document(out: &mut impl Write, members: Value) -> io::Result<()> {
    let mut document = Map::from_iter([("version".to_owned(), json!(DOCUMENT_VERSION))]);
    if let Value::Object(members) = members {
        document.extend(members);
    }
    writeln!(out, "{:#}", Value::Object(document))
}
