//! The built-in rows, which are compiled when the first is needed.

use std::sync::LazyLock;

use crate::wire::{RefusalTable, RefusalTexts};

/// The file. Examples and headings are in it too: they are for tests and for `docs/errors.md`.
const ROWS: &str = include_str!("rows.toml");

static TABLE: LazyLock<RefusalTable> = LazyLock::new(|| {
    let compiled = parse_rows().and_then(|texts| RefusalTable::compile(&texts).map_err(|fault| fault.to_string()));
    // A test compiles the file, so it has no fault here. Without rows every refusal would go to the client.
    compiled.unwrap_or_else(|fault| {
        tracing::error!(fault, "the table of refusals is unreadable");
        RefusalTable::default()
    })
});

/// Returns the table of the built-in rows.
pub fn table() -> &'static RefusalTable {
    &TABLE
}

/// Returns the name of a built-in row. `None` if there is no row of that name.
pub fn built_in_name(row: &str) -> Option<&'static str> {
    let found = TABLE.rows().iter().find(|known| known.name == row);
    found.map(|known| &*known.name)
}

fn parse_rows() -> Result<RefusalTexts, String> {
    toml::from_str(ROWS).map_err(|fault| fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::{RefusalTable, parse_rows};

    #[test]
    fn the_file_compiles() {
        let texts = parse_rows().unwrap();
        RefusalTable::compile(&texts).unwrap();
    }
}
