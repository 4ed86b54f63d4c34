//! Tables on a terminal or in Markdown.

/// A table. Its first column is text, the others are figures.
#[derive(Debug)]
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table without rows.
    pub fn new(title: impl Into<String>, head: &[&str]) -> Self {
        Self {
            title: title.into(),
            rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, first: impl Into<String>, figures: impl IntoIterator<Item = String>) {
        self.rows.push(std::iter::once(first.into()).chain(figures).collect());
    }

    /// Prints the table.
    pub fn print(&self, markdown: bool) {
        println!("\n{}{}\n", if markdown { "### " } else { "" }, self.title);
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            let cells: Vec<String> = cells.collect();
            if !markdown {
                println!("{}", cells.join("  "));
                continue;
            }
            println!("| {} |", cells.join(" | "));
            if index == 0 {
                let rule = |(column, &width): (usize, &usize)| {
                    if column == 0 {
                        "-".repeat(width + 2)
                    } else {
                        format!("{}:", "-".repeat(width + 1))
                    }
                };
                println!(
                    "|{}|",
                    widths.iter().enumerate().map(rule).collect::<Vec<_>>().join("|")
                );
            }
        }
    }
}

/// Formats a number with three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
