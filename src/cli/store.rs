//! `antiphon store ls | verify | gc`: inspects and cleans the file of the ledger.

use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{check::ReportFormat, success_if};
use crate::{
    clock,
    config::{self, default_ledger_path},
    ledger::{
        InspectedRow, Ledger as _, LedgerError, LedgerInspector, LedgerOpenError, LedgerSettings, Moment, RecordKind,
        SqliteLedger,
    },
    upstream::random_bytes,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
The file is --path, else $XDG_STATE_HOME/antiphon/ledger.db, else ~/.local/state/antiphon/ledger.db
(macOS: ~/Library/Application Support/antiphon/ledger.db). The content of records is never shown.

Exit codes:
  0    done, or nothing found
  1    a record or the file is damaged (verify), or a failure at run time
  2    the store is missing or unusable, or another process has it open (gc)";

/// Arguments of `antiphon store`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: StoreAction,
}

/// Subcommands of `antiphon store`.
#[derive(Debug, Subcommand)]
enum StoreAction {
    /// List the records without their content, newest last; works while a proxy has the store open
    #[command(after_help = AFTER_HELP)]
    Ls(StoreFlags),
    /// Read every record and check the whole file; exit 1 if anything is damaged
    #[command(after_help = AFTER_HELP)]
    Verify(StoreFlags),
    /// Remove expired and damaged records; no proxy may have the store open
    #[command(after_help = AFTER_HELP)]
    Gc(StoreFlags),
}

/// Flags of every subcommand.
#[derive(Debug, clap::Args)]
struct StoreFlags {
    /// File of the ledger [default: antiphon/ledger.db in the state directory]
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// Format of the report
    #[arg(long, value_name = "FORM", default_value = "text")]
    output: ReportFormat,
}

/// Error for a store that cannot be used. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// No path is given and no default path is known.
    #[error("no home directory to look for the ledger: name its file with --path")]
    NoPath,
    /// The file does not exist.
    #[error("{} does not exist: a running proxy creates it; name another file with --path", .0.display())]
    Missing(PathBuf),
    /// The file cannot be opened.
    #[error(transparent)]
    Open(#[from] LedgerOpenError),
}

impl StoreFlags {
    /// Returns the path of an existing file.
    fn existing_path(&self) -> Result<PathBuf, StoreError> {
        let path = self
            .path
            .clone()
            .or_else(|| default_ledger_path(&config::process_environment))
            .ok_or(StoreError::NoPath)?;
        // `gc` would otherwise create an empty ledger and report success.
        if path.try_exists().is_ok_and(|there| !there) {
            return Err(StoreError::Missing(path));
        }
        Ok(path)
    }

    /// Opens the file for reading. A proxy may have it open.
    fn open_inspector(&self) -> Result<LedgerInspector, StoreError> {
        Ok(LedgerInspector::open(&self.existing_path()?)?)
    }
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // A ledger may have many records, and stdout would be flushed after each line.
    let mut out = BufWriter::new(io::stdout().lock());
    let code = match &args.action {
        StoreAction::Ls(store) => list_records(&mut out, store, clock::unix_time()),
        StoreAction::Verify(store) => verify_store(&mut out, store),
        StoreAction::Gc(store) => remove_unusable(&mut out, store, clock::unix_time()),
    }?;
    out.flush()?;
    Ok(code)
}

/// Number of records, and bytes of their values.
#[derive(Clone, Copy, Debug, Default)]
struct RecordSum {
    records: u64,
    bytes: u64,
}

/// Lists the records, then the totals by kind.
fn list_records(out: &mut impl Write, store: &StoreFlags, now: Moment) -> anyhow::Result<ExitCode> {
    let survey = store.open_inspector()?;
    let mut sums: BTreeMap<&str, RecordSum> = BTreeMap::new();
    let mut records = Vec::new();
    survey.for_each_row(|entry| {
        let sum = sums.entry(kind_or_damaged(&entry)).or_default();
        sum.records = sum.records.saturating_add(1);
        sum.bytes = sum.bytes.saturating_add(entry.bytes);
        match store.output {
            ReportFormat::Text => write_line(out, &entry, now)?,
            // One JSON document needs all records at once. Text is written while reading.
            ReportFormat::Json => records.push(record_document(&entry)),
        }
        anyhow::Ok(())
    })?;
    match store.output {
        ReportFormat::Text => {
            for (kind, sum) in &sums {
                writeln!(
                    out,
                    "total: {kind}: {}, {} bytes",
                    format_count(sum.records, "record"),
                    sum.bytes
                )?;
            }
            if sums.is_empty() {
                writeln!(out, "total: no records")?;
            }
        }
        ReportFormat::Json => {
            let of = |(kind, sum): (&&str, &RecordSum)| {
                ((*kind).to_owned(), json!({"records": sum.records, "bytes": sum.bytes}))
            };
            let totals: serde_json::Map<String, Value> = sums.iter().map(of).collect();
            writeln!(out, "{:#}", json!({ "records": records, "totals": totals }))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks every record and the whole file.
fn verify_store(out: &mut impl Write, store: &StoreFlags) -> anyhow::Result<ExitCode> {
    let survey = store.open_inspector()?;
    let (mut records, mut damaged) = (0_u64, Vec::new());
    let read: Result<(), LedgerError> = survey.for_each_row(|entry| {
        records = records.saturating_add(1);
        if !entry.is_sound {
            damaged.push(entry);
        }
        Ok(())
    });
    // Even if reading the records fails, the check of the file may tell why.
    let mut flaws: Vec<String> = read.err().iter().map(format_error).collect();
    match survey.file_problems() {
        Ok(found) => flaws.extend(found),
        Err(error) => flaws.push(format_error(&error)),
    }
    match store.output {
        ReportFormat::Text => {
            for entry in &damaged {
                writeln!(
                    out,
                    "damaged: row {}: {} {}",
                    entry.place,
                    kind_label(entry),
                    entry.name
                )?;
            }
            for flaw in &flaws {
                writeln!(out, "damaged: file: {flaw}")?;
            }
            let verdict = match damaged.len() + flaws.len() {
                0 => "all of them sound".to_owned(),
                found => format_count(found as u64, "finding"),
            };
            writeln!(out, "{}: {verdict}", format_count(records, "record"))?;
        }
        ReportFormat::Json => {
            let damaged: Vec<Value> = damaged.iter().map(record_document).collect();
            let report = json!({ "records": records, "damaged": damaged, "flaws": flaws });
            writeln!(out, "{report:#}")?;
        }
    }
    Ok(success_if(damaged.is_empty() && flaws.is_empty()))
}

/// Removes expired and damaged records.
fn remove_unusable(out: &mut impl Write, store: &StoreFlags, now: Moment) -> anyhow::Result<ExitCode> {
    // The secret is only used for a new file, and this one exists.
    let ledger = SqliteLedger::open(&store.existing_path()?, LedgerSettings::default(), random_bytes()?)
        .map_err(StoreError::from)?;
    // The trait of ledgers is async, but nothing else runs here.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let cleared = runtime
        .block_on(ledger.remove_unusable(now))
        .context("clearing ended early")?;
    let left = runtime.block_on(ledger.usage())?;
    match store.output {
        ReportFormat::Text => writeln!(
            out,
            "cleared {}, {} left",
            format_count(cleared, "record"),
            format_count(left.records, "record")
        )?,
        ReportFormat::Json => writeln!(out, "{:#}", json!({ "cleared": cleared, "left": left.records }))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes one record as a line.
fn write_line(out: &mut impl Write, entry: &InspectedRow, now: Moment) -> io::Result<()> {
    let ends = match entry.expires_at.checked_sub(now) {
        Some(left) if !left.is_zero() => format!("expires in {}", format_time(left)),
        // A running proxy removes expired records only once an hour.
        _ => "expired".to_owned(),
    };
    writeln!(
        out,
        "{:<9} {} {} {:>9} bytes, {} old, {ends}",
        kind_or_damaged(entry),
        entry.principal,
        entry.name,
        entry.bytes,
        format_time(now.saturating_sub(entry.made_at)),
    )
}

/// Returns the kind of a record, or `damaged`.
fn kind_or_damaged(entry: &InspectedRow) -> &'static str {
    // The kind of a damaged record may be wrong as well.
    if entry.is_sound { kind_label(entry) } else { "damaged" }
}

/// Returns the kind of a record.
fn kind_label(entry: &InspectedRow) -> &'static str {
    entry.kind.map_or("unknown", RecordKind::label)
}

/// Returns a record as JSON, without its content.
fn record_document(entry: &InspectedRow) -> Value {
    json!({
        "row": entry.place,
        "sound": entry.is_sound,
        "kind": entry.kind.map(RecordKind::label),
        "principal": entry.principal.to_string(),
        "name": entry.name.to_string(),
        "bytes": entry.bytes,
        "made_at": entry.made_at.as_secs(),
        "expires_at": entry.expires_at.as_secs(),
    })
}

/// Formats a number with its noun.
fn format_count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// Formats a time in its largest unit.
pub(super) fn format_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats an error with its source.
fn format_error(error: &LedgerError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
