//! `antiphon store ls`: the records of the ledger in pages, readable and without their content.

use std::{io::Write, ops::ControlFlow};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};

use super::{
    output::{OutputFormat, write_document},
    table::{NO_VALUE, TextTable},
    time_format::format_time,
};
use crate::{
    late::{RecordSummary, call_of_record, summarize_record},
    ledger::{InspectedRow, KindTotal, LedgerError, Moment, Record, RecordKind, StoreInspector},
};

/// Names of the columns.
const HEADS: [&str; 11] = [
    "KIND", "STATE", "CALL", "TOOL", "CALLER", "SESSION", "AGE", "SIZE", "EXPIRES", "ROW", "NAME",
];
/// The number of columns without `--verbose`.
const SHORT_HEADS: usize = 9;

/// Flags of `antiphon store ls`.
#[derive(Debug, clap::Args)]
pub(super) struct RecordListFlags {
    /// Records to list at most
    #[arg(long, value_name = "NUMBER", default_value = "1000", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Begin after this row: the `next` of the page before
    #[arg(long, value_name = "ROW", value_parser = clap::value_parser!(i64).range(0..))]
    after: Option<i64>,
    /// List the records of one kind only
    #[arg(long, value_name = "KIND", value_parser = kind_parser())]
    kind: Option<RecordKind>,
    /// Also show the row and the hash of the record's name
    #[arg(short, long)]
    verbose: bool,
}

fn kind_parser() -> impl TypedValueParser<Value = RecordKind> {
    PossibleValuesParser::new(RecordKind::ALL.map(RecordKind::label)).try_map(|label| {
        let known = RecordKind::ALL.into_iter().find(|kind| kind.label() == label);
        known.ok_or("no kind of record")
    })
}

/// A row with its summary.
type ListedRecord = (InspectedRow, RecordSummary);

/// Lists one page of the records, then the totals of the whole store by kind.
pub(super) fn list_records(
    out: &mut impl Write,
    store: &impl StoreInspector,
    flags: &RecordListFlags,
    format: OutputFormat,
    now: Moment,
) -> anyhow::Result<()> {
    let (rows, next) = read_page(store, flags)?;
    let totals = store.kind_totals()?;
    match format {
        OutputFormat::Text => {
            let heads = if flags.verbose {
                &HEADS[..]
            } else {
                &HEADS[..SHORT_HEADS]
            };
            let cells = rows.iter().map(|listed| row_cells(listed, flags.verbose, now));
            TextTable::new(heads).write_page(out, cells.collect())?;
            for total in &totals {
                let (kind, records) = (label_or_unknown(total.kind), format_count(total.records, "record"));
                writeln!(out, "total: {kind}: {records}, {} bytes", total.bytes)?;
            }
            if totals.is_empty() {
                writeln!(out, "total: no records")?;
            }
            if let Some(next) = next {
                writeln!(out, "next: --after {next}")?;
            }
        }
        OutputFormat::Json => {
            let records: Vec<Value> = rows.iter().map(listed_document).collect();
            let of = |total: &KindTotal| {
                let sum = json!({"records": total.records, "bytes": total.bytes});
                (label_or_unknown(total.kind).to_owned(), sum)
            };
            let totals: serde_json::Map<String, Value> = totals.iter().map(of).collect();
            let page = json!({ "records": records, "totals": totals, "next": next });
            write_document(out, page)?;
        }
    }
    Ok(())
}

/// Reads one page. Returns its rows, and the row after which the next page begins: `None` if this is the last.
fn read_page(store: &impl StoreInspector, flags: &RecordListFlags) -> anyhow::Result<(Vec<ListedRecord>, Option<i64>)> {
    let limit = usize::try_from(flags.limit).unwrap_or(usize::MAX);
    let (mut rows, mut has_more) = (Vec::new(), false);
    store.for_each_row(flags.after, |row, record| {
        if flags.kind.is_some_and(|kind| row.kind != Some(kind)) {
            return Ok(ControlFlow::Continue(()));
        }
        // One record more than wanted tells that there is a next page.
        if rows.len() == limit {
            has_more = true;
            return Ok(ControlFlow::Break(()));
        }
        let summary = record.map(|record| summarize_row(store, &record)).transpose()?;
        rows.push((row, summary.unwrap_or_default()));
        anyhow::Ok(ControlFlow::Continue(()))
    })?;
    let next = rows.last().map(|(row, _)| row.place).filter(|_| has_more);
    Ok((rows, next))
}

fn summarize_row(store: &impl StoreInspector, record: &Record) -> Result<RecordSummary, LedgerError> {
    let key = call_of_record(record);
    let call = key.map(|key| store.find_record(&key)).transpose()?.flatten();
    Ok(summarize_record(record, call.as_ref()))
}

/// Returns the cells of one line.
fn row_cells((row, summary): &ListedRecord, is_verbose: bool, now: Moment) -> Vec<String> {
    let text = |value: Option<&str>| value.unwrap_or(NO_VALUE).to_owned();
    let expires = match row.expires_at.checked_sub(now) {
        Some(left) if !left.is_zero() => format!("in {}", format_time(left)),
        // A running proxy removes expired records only once an hour.
        _ => "expired".to_owned(),
    };
    let mut cells = vec![
        kind_or_damaged(row).to_owned(),
        text(summary.state),
        text(summary.call_id.as_deref()),
        text(summary.tool.as_deref()),
        match summary.service.as_deref().filter(|_| summary.is_of_service) {
            Some(service) => format!("({service})"),
            None => row.principal.to_string(),
        },
        text(summary.session.as_deref()),
        format_time(now.saturating_sub(row.made_at)),
        format!("{} B", row.bytes),
        expires,
    ];
    if is_verbose {
        cells.extend([row.place.to_string(), row.name.to_string()]);
    }
    cells
}

/// Returns the kind of a record, or `damaged`.
fn kind_or_damaged(row: &InspectedRow) -> &'static str {
    // The kind of a damaged record may be wrong as well.
    if row.is_sound { kind_label(row) } else { "damaged" }
}

/// Returns the kind of a record.
pub(super) fn kind_label(row: &InspectedRow) -> &'static str {
    label_or_unknown(row.kind)
}

fn label_or_unknown(kind: Option<RecordKind>) -> &'static str {
    kind.map_or("unknown", RecordKind::label)
}

/// Returns a row as JSON, without the content of its record.
pub(super) fn row_document(row: &InspectedRow) -> Value {
    json!({
        "row": row.place,
        "sound": row.is_sound,
        "kind": row.kind.map(RecordKind::label),
        "principal": row.principal.to_string(),
        "name": row.name.to_string(),
        "bytes": row.bytes,
        "made_at": row.made_at.as_secs(),
        "expires_at": row.expires_at.as_secs(),
    })
}

/// Returns a row with its summary as JSON.
fn listed_document((row, summary): &ListedRecord) -> Value {
    let mut document = row_document(row);
    let more = [
        ("state", json!(summary.state)),
        ("call_id", json!(summary.call_id)),
        ("tool", json!(summary.tool)),
        ("session", json!(summary.session)),
        ("service", json!(summary.service)),
    ];
    if let Value::Object(members) = &mut document {
        members.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    document
}

/// Formats a number with its noun.
pub(super) fn format_count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}
