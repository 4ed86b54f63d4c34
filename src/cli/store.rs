//! `antiphon store`: inspects, cleans and copies a ledger, and changes the tables of its database.

use std::{
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{
    output::{OutputFlag, OutputFormat, ReportOutput, write_document},
    store_copy::{self, CopyArgs, copy_store},
    store_database::DatabaseFlags,
    store_error::StoreError,
    store_list::{self, RecordListFlags, format_count, kind_label},
    store_migrate::{self, MigrateArgs, migrate_store},
    success_if,
};
use crate::{
    clock,
    config::{self, default_ledger_path},
    ledger::{
        DatabaseSettings, Ledger, LedgerError, LedgerInspector, LedgerSettings, Moment, PostgresLedger, SqliteLedger,
        StoreInspector,
    },
    upstream::random_bytes,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
The store is the file --path, else $XDG_STATE_HOME/antiphon/ledger.db, else
~/.local/state/antiphon/ledger.db (macOS: ~/Library/Application
Support/antiphon/ledger.db), or with --database the database of ledger.url,
which replicas may use meanwhile. The content of records is never shown.

Exit codes:
  0    done, or nothing found
  1    a record or the store is damaged (verify), or a failure at run time
  2    the store is missing or unusable, or another process has the file open
       (gc)";

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
    #[command(alias = "list", after_help = AFTER_HELP)]
    Ls(ListArgs),
    /// Read every record and check the whole file; exit 1 if anything is damaged
    #[command(after_help = AFTER_HELP)]
    Verify(StoreFlags),
    /// Remove expired and damaged records; no proxy may have the file open
    #[command(after_help = AFTER_HELP)]
    Gc(StoreFlags),
    /// Copy a whole ledger from one store into another, empty one, such as from a file into the database
    #[command(after_help = store_copy::AFTER_HELP)]
    Copy(CopyArgs),
    /// Create the tables of the ledger's database, or bring them to the version of this program
    #[command(after_help = store_migrate::AFTER_HELP)]
    Migrate(MigrateArgs),
}

/// Arguments of `antiphon store ls`.
#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    list: RecordListFlags,
}

/// Flags of the subcommands that read or clean one store.
#[derive(Debug, clap::Args)]
struct StoreFlags {
    /// File of the ledger [default: antiphon/ledger.db in the state directory]
    #[arg(long, value_name = "FILE", env = "ANTIPHON_LEDGER_PATH")]
    path: Option<PathBuf>,
    /// Use the database of ledger.url in place of a file
    #[arg(long)]
    database: bool,
    #[command(flatten)]
    of_database: DatabaseFlags,
    #[command(flatten)]
    output: OutputFlag,
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
    let mut out = BufWriter::new(ReportOutput::default());
    let code = match &args.action {
        StoreAction::Ls(args) => return list_store(args),
        StoreAction::Verify(store) if store.database => {
            verify_store(&mut out, &store.of_database.open_inspector()?, store.output.format())
        }
        StoreAction::Verify(store) => verify_store(&mut out, &store.open_inspector()?, store.output.format()),
        StoreAction::Copy(args) => copy_store(&mut out, args),
        StoreAction::Migrate(args) => migrate_store(&mut out, args),
        StoreAction::Gc(store) => remove_unusable(&mut out, store, clock::unix_time()),
    }?;
    out.flush()?;
    Ok(code)
}

/// Lists the records. Ends early if the reader of standard output does: the rest would be read in vain.
fn list_store(ListArgs { store, list }: &ListArgs) -> anyhow::Result<ExitCode> {
    let (mut out, now) = (BufWriter::new(io::stdout().lock()), clock::unix_time());
    if store.database {
        let inspector = store.of_database.open_inspector()?;
        store_list::list_records(&mut out, &inspector, list, store.output.format(), now)?;
    } else {
        store_list::list_records(&mut out, &store.open_inspector()?, list, store.output.format(), now)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Checks every record and the whole store.
fn verify_store(out: &mut impl Write, survey: &impl StoreInspector, output: OutputFormat) -> anyhow::Result<ExitCode> {
    let (mut records, mut damaged) = (0_u64, Vec::new());
    let read: Result<(), LedgerError> = survey.for_each_row(None, |entry, _| {
        records = records.saturating_add(1);
        if !entry.is_sound {
            damaged.push(entry);
        }
        Ok(ControlFlow::Continue(()))
    });
    // Even if reading the records fails, the check of the store may tell why.
    let mut flaws: Vec<String> = read.err().iter().map(format_error).collect();
    match survey.find_flaws() {
        Ok(found) => flaws.extend(found),
        Err(error) => flaws.push(format_error(&error)),
    }
    match output {
        OutputFormat::Text => {
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
                writeln!(out, "damaged: store: {flaw}")?;
            }
            let verdict = match damaged.len() + flaws.len() {
                0 => "all of them sound".to_owned(),
                found => format_count(found as u64, "finding"),
            };
            writeln!(out, "{}: {verdict}", format_count(records, "record"))?;
        }
        OutputFormat::Json => {
            let damaged: Vec<Value> = damaged.iter().map(store_list::row_document).collect();
            let report = json!({ "records": records, "damaged": damaged, "flaws": flaws });
            write_document(out, report)?;
        }
    }
    Ok(success_if(damaged.is_empty() && flaws.is_empty()))
}

/// Removes expired and damaged records.
fn remove_unusable(out: &mut impl Write, store: &StoreFlags, now: Moment) -> anyhow::Result<ExitCode> {
    let (settings, secret) = (LedgerSettings::default(), random_bytes()?);
    // The secret is only used for a new store, and this one exists.
    let (runtime, ledger): (_, Box<dyn Ledger>) = if store.database {
        let (runtime, database) = store.of_database.settings()?;
        let database = DatabaseSettings {
            migrates: false,
            ..database
        };
        let opened = runtime.block_on(PostgresLedger::open(&database, settings, secret));
        (runtime, Box::new(opened.map_err(StoreError::Database)?.0))
    } else {
        // The trait of ledgers is async, but nothing else runs here.
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let ledger = SqliteLedger::open(&store.existing_path()?, settings, secret).map_err(StoreError::from)?;
        (runtime, Box::new(ledger))
    };
    let cleared = runtime
        .block_on(ledger.remove_unusable(now))
        .context("the removal ended early")?;
    let left = runtime.block_on(ledger.usage())?;
    match store.output.format() {
        OutputFormat::Text => writeln!(
            out,
            "cleared {}, {} left",
            format_count(cleared, "record"),
            format_count(left.records, "record")
        )?,
        OutputFormat::Json => write_document(out, json!({ "cleared": cleared, "left": left.records }))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats an error with its source.
fn format_error(error: &LedgerError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
