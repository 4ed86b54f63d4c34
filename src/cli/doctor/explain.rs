//! `antiphon doctor --explain CODE`: the meaning of a code, what each client does, and what `--fix` does about it.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::sessions::{MEASURED, Measured, RecordLoss, SessionCode};

/// Writes the explanation for people.
pub(super) fn write_text(out: &mut impl Write, code: SessionCode) -> io::Result<()> {
    writeln!(out, "{}: {}", code.label(), code.explanation())?;
    writeln!(out, "--fix: {}", code.fix_text())?;
    let mut read_only: Vec<&str> = rows_of(code)
        .filter(|row| !row.client.is_mended())
        .map(|row| row.client.name())
        .collect();
    read_only.dedup();
    if !read_only.is_empty() {
        writeln!(
            out,
            "Sessions of {} are only read, whatever --fix does for others.",
            read_only.join(" and ")
        )?;
    }
    let mut rows = rows_of(code).peekable();
    if rows.peek().is_none() {
        return writeln!(out, "No client was measured with it, so it is at least a warning.");
    }
    for row in rows {
        let versions = versions_of(row);
        let case = row.loss.map(|loss| format!(", {}", loss.meaning())).unwrap_or_default();
        let (client, severity) = (row.client.name(), row.severity.label());
        writeln!(
            out,
            "  {client}, {versions}{case}: {severity}: {} (measured: {})",
            row.effect, row.measured
        )?;
    }
    Ok(())
}

/// Returns the explanation as JSON.
pub(super) fn document(code: SessionCode) -> Value {
    let rows: Vec<Value> = rows_of(code)
        .map(|row| {
            json!({
                "client": row.client.label(),
                "from": row.from.map(|version| version.to_string()),
                "until": row.until.map(|version| version.to_string()),
                "loss": row.loss.map(RecordLoss::label),
                "severity": row.severity.label(),
                "effect": row.effect,
                "measured": row.measured,
            })
        })
        .collect();
    json!({ "code": code.label(), "explanation": code.explanation(), "fix": code.fix_text(), "clients": rows })
}

fn rows_of(code: SessionCode) -> impl Iterator<Item = &'static Measured> {
    MEASURED.iter().filter(move |row| row.code == code)
}

fn versions_of(row: &Measured) -> String {
    match (row.from, row.until) {
        (None, None) => "every version".to_owned(),
        (Some(from), None) => format!("from {from} on"),
        (None, Some(until)) => format!("before {until}"),
        (Some(from), Some(until)) => format!("from {from} on, before {until}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained() {
        for code in SessionCode::all() {
            let name = code.label();
            let mut text = Vec::new();
            write_text(&mut text, code).unwrap();
            assert!(String::from_utf8(text).unwrap().lines().count() >= 3, "{name}");
            assert_eq!(document(code)["code"], name);
        }
    }
}
