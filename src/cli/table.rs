//! Tables for people: columns as wide as their widest cell.

use std::io::{self, Write};

/// Text of a cell without a value.
pub(super) const NO_VALUE: &str = "-";

/// A table that is written page by page.
#[derive(Debug)]
pub(super) struct TextTable<'h> {
    heads: &'h [&'h str],
    /// Widths of the columns. `None` before the first row.
    widths: Option<Vec<usize>>,
}

impl<'h> TextTable<'h> {
    /// Creates a table with these heads.
    pub(super) const fn new(heads: &'h [&'h str]) -> Self {
        Self { heads, widths: None }
    }

    /// Writes the rows of one page, behind the heads if they are the first. A table without rows has no heads.
    ///
    /// The first page sets the widths, since later ones are not read yet.
    pub(super) fn write_page(&mut self, out: &mut impl Write, mut rows: Vec<Vec<String>>) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if self.widths.is_none() {
            rows.insert(0, self.heads.iter().map(|head| (*head).to_owned()).collect());
        }
        let widths = self.widths.get_or_insert_with(|| column_widths(&rows));
        rows.iter().try_for_each(|row| write_row(out, row, widths))
    }
}

/// Returns the width of each column in characters.
fn column_widths(rows: &[Vec<String>]) -> Vec<usize> {
    (0..rows.first().map_or(0, Vec::len))
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        })
        .collect()
}

fn write_row(out: &mut impl Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    let padded: Vec<String> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    writeln!(out, "{}", padded.join("  ").trim_end())
}
