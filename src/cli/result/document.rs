//! A JSON document of rows, written while the pages arrive.

use std::io::{self, Write};

use super::rows::ListedRow;
use crate::cli::output::DOCUMENT_VERSION;

/// A document that is not complete yet.
#[derive(Debug)]
pub(super) struct RowDocument {
    /// Text between two rows. Empty before the first.
    separator: &'static str,
}

impl RowDocument {
    /// Begins the document with its version and the list of this name.
    pub(super) fn begin(out: &mut impl Write, list: &str) -> io::Result<Self> {
        write!(out, "{{\"version\":{DOCUMENT_VERSION},\"{list}\":[")?;
        Ok(Self { separator: "" })
    }

    /// Writes a row, with the bytes that it came with.
    pub(super) fn write_row(&mut self, out: &mut impl Write, row: &ListedRow) -> io::Result<()> {
        let separator = std::mem::replace(&mut self.separator, ",");
        write!(out, "{separator}\n{}", row.json_line())
    }

    /// Completes the document with the cursor of the next page, if there is one.
    pub(super) fn finish(self, out: &mut impl Write, next: Option<u64>) -> io::Result<()> {
        let next = next.map_or_else(|| "null".to_owned(), |next| next.to_string());
        let line_end = if self.separator.is_empty() { "" } else { "\n" };
        writeln!(out, "{line_end}],\"next\":{next}}}")?;
        out.flush()
    }
}
