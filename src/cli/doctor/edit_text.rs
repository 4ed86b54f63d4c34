//! The edits of a plan as text. Their bytes are shown to people alone, who have the file before them anyway.

use std::io::{self, Write};

use super::changes::{FileChanges, sample_of, sample_of_run};
use crate::cli::style::{Painter, TextStyle};

/// Edits of one fix that are shown.
const EDITS_MAX: usize = 200;

/// Writes each edit of a plan.
pub(super) fn write_edits(out: &mut impl Write, changes: &FileChanges, painter: Painter) -> io::Result<()> {
    for change in changes.overwrites.iter().take(EDITS_MAX) {
        let (at, len) = (change.at, change.new.count_bytes());
        writeln!(
            out,
            "  byte {at}: {} overwritten",
            format_count(len, "byte is", "bytes are")
        )?;
        if painter.is_for_people() {
            writeln!(
                out,
                "    - {}",
                painter.paint(TextStyle::Red, &sample_of_run(&change.old))
            )?;
            writeln!(
                out,
                "    + {}",
                painter.paint(TextStyle::Green, &sample_of_run(&change.new))
            )?;
        }
    }
    if let more @ 1.. = changes.overwrites.len().saturating_sub(EDITS_MAX) {
        writeln!(out, "  and {more} more places")?;
    }
    if !changes.appended.is_empty() {
        let len = u64::try_from(changes.appended.len()).unwrap_or(u64::MAX);
        let (at, count) = (changes.size_before, format_count(len, "byte is", "bytes are"));
        writeln!(out, "  byte {at}: {count} appended behind the end")?;
        if painter.is_for_people() {
            let sample = sample_of(&changes.appended);
            writeln!(out, "    + {}", painter.paint(TextStyle::Green, &sample))?;
        }
    }
    Ok(())
}

fn format_count(count: u64, one: &str, many: &str) -> String {
    let word = if count == 1 { one } else { many };
    format!("{count} {word}")
}
