//! Tables for people: columns as wide as their widest cell.

use std::io::{self, Write};

/// Writes lines of cells, the heads first.
pub(super) fn write_table(out: &mut impl Write, lines: &[Vec<String>]) -> io::Result<()> {
    let widths = column_widths(lines);
    lines.iter().try_for_each(|line| write_row(out, line, &widths))
}

/// Returns the width of each column in characters.
pub(super) fn column_widths(lines: &[Vec<String>]) -> Vec<usize> {
    (0..lines.first().map_or(0, Vec::len))
        .map(|column| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        })
        .collect()
}

/// Writes one line.
pub(super) fn write_row(out: &mut impl Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    let padded: Vec<String> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    writeln!(out, "{}", padded.join("  ").trim_end())
}
