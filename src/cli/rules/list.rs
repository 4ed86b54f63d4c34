//! `antiphon rules ls`: own and built-in rows as a table.

use std::{io::Write as _, process::ExitCode};

use serde_json::{Value, json};

use super::{
    arguments::ListArgs,
    row_text::{action_word, effect_of, fault_of, learning_of, mend_text, statuses_of},
};
use crate::{
    cli::{
        config::load_chosen,
        output::{OutputFormat, ReportOutput, write_document, write_note},
        table::{NO_VALUE, TextTable},
    },
    config::LoadedRules,
    refusals,
    wire::{RefusalRow, RefusalTable},
};

const HEADS: [&str; 7] = ["NAME", "SOURCE", "STATUS", "MEND OR FAULT", "HEADER", "LOSES", "LEARNS"];

/// Lists the rows.
pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let rules = load_chosen(args.config.clone())?.config.rules;
    let own = rules.checked.reader.own().into_iter().flat_map(RefusalTable::rows);
    let rows: Vec<&RefusalRow> = own.chain(refusals::table().rows()).collect();
    let mut out = ReportOutput::default();
    match args.output.format() {
        OutputFormat::Text => {
            rules
                .warnings
                .iter()
                .for_each(|warning| write_note(&format!("warning: {warning}")));
            let cells = rows.iter().map(|row| cells_of(row, &rules)).collect();
            TextTable::new(&HEADS).write_page(&mut out, cells)?;
        }
        OutputFormat::Json => {
            let rows: Vec<Value> = rows.iter().map(|row| document_of(row, &rules)).collect();
            write_document(&mut out, json!({ "rules": rows, "warnings": rules.warnings }))?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the file of an own row, or `config` for a row of the configuration.
fn source_of<'r>(row: &RefusalRow, rules: &'r LoadedRules) -> &'r str {
    let loaded = rules
        .rows
        .iter()
        .find(|loaded| row.is_own && loaded.rule.name == row.name);
    loaded.map_or("built-in", |loaded| loaded.file.as_deref().unwrap_or("config"))
}

fn cells_of(row: &RefusalRow, rules: &LoadedRules) -> Vec<String> {
    let word = |word: Option<&str>| word.unwrap_or(NO_VALUE).to_owned();
    vec![
        row.name.clone(),
        source_of(row, rules).to_owned(),
        statuses_of(row),
        effect_of(row),
        word(action_word(row)),
        if row.loses_content() { "yes" } else { "no" }.to_owned(),
        word(learning_of(row)),
    ]
}

fn document_of(row: &RefusalRow, rules: &LoadedRules) -> Value {
    json!({
        "name": row.name,
        "own": row.is_own,
        "source": source_of(row, rules),
        "statuses": row.statuses,
        "fault": fault_of(row),
        "mend": row.mend.as_ref().map(mend_text),
        "header": action_word(row),
        "loses": row.loses_content(),
        "learns": learning_of(row),
    })
}
