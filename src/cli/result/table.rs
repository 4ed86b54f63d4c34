//! The table of `antiphon result list`.

use std::io::{self, Write};

use super::rows::ListedRow;
use crate::cli::time_format::format_time;
use crate::printable::printable_text;

/// Names of the columns.
const COLUMNS: [&str; 6] = ["CALL", "TOOL", "SESSION", "STATE", "AGE", "DELIVERY"];

/// A table that is written page by page.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    /// Widths of the columns. `None` before the first page.
    widths: Option<[usize; COLUMNS.len()]>,
}

impl CallTable {
    /// Writes one page. The first page sets the widths, since later ones are not read yet.
    pub(super) fn write_page(&mut self, out: &mut impl Write, rows: &[ListedRow]) -> io::Result<()> {
        let rows: Vec<[String; COLUMNS.len()]> = rows.iter().map(row_cells).collect();
        if rows.is_empty() {
            return Ok(());
        }
        if self.widths.is_none() {
            let heads = COLUMNS.map(str::to_owned);
            let widths = column_widths(&heads, &rows);
            write_row(out, &heads, &widths)?;
            self.widths = Some(widths);
        }
        let widths = self.widths.unwrap_or_default();
        rows.iter().try_for_each(|row| write_row(out, row, &widths))
    }
}

/// Returns the cells of a row.
fn row_cells(row: &ListedRow) -> [String; COLUMNS.len()] {
    [
        printable_text(&row.call_id),
        printable_text(&row.tool),
        row.session.as_deref().map_or_else(|| "-".to_owned(), printable_text),
        printable_text(&describe_state(row)),
        format_time(row.age),
        printable_text(&row.delivery),
    ]
}

/// Returns the state of a call, with the properties of its result that need attention.
pub(super) fn describe_state(row: &ListedRow) -> String {
    let mut state = row.state.clone();
    for (is_so, word) in [(row.is_error, ", error"), (row.is_withheld, ", withheld")] {
        if is_so {
            state.push_str(word);
        }
    }
    state
}

/// Returns the width of each column in characters.
fn column_widths(heads: &[String; COLUMNS.len()], rows: &[[String; COLUMNS.len()]]) -> [usize; COLUMNS.len()] {
    let mut widths = [0; COLUMNS.len()];
    for cells in rows.iter().chain([heads]) {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    widths
}

/// Writes one line.
fn write_row(out: &mut impl Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    let padded: Vec<String> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    writeln!(out, "{}", padded.join("  ").trim_end())
}
