//! The table of `antiphon result list`.

use std::io::{self, Write};

use super::rows::ListedRow;
use crate::{
    cli::{
        table::{column_widths, write_row},
        time_format::format_time,
    },
    printable::printable_text,
};

/// Names of the columns.
const COLUMNS: [&str; 6] = ["CALL", "TOOL", "SESSION", "STATE", "AGE", "DELIVERY"];

/// A table that is written page by page.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    /// Widths of the columns. `None` before the first page.
    widths: Option<Vec<usize>>,
}

impl CallTable {
    /// Writes one page. The first page sets the widths, since later ones are not read yet.
    pub(super) fn write_page(&mut self, out: &mut impl Write, rows: &[ListedRow]) -> io::Result<()> {
        let mut lines: Vec<Vec<String>> = rows.iter().map(row_cells).collect();
        if lines.is_empty() {
            return Ok(());
        }
        if self.widths.is_none() {
            lines.insert(0, COLUMNS.map(str::to_owned).to_vec());
        }
        let widths = self.widths.get_or_insert_with(|| column_widths(&lines));
        lines.iter().try_for_each(|line| write_row(out, line, widths))
    }
}

/// Returns the cells of a row.
fn row_cells(row: &ListedRow) -> Vec<String> {
    vec![
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
