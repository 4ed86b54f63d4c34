//! `antiphon store migrate`: creates the tables of the ledger's database, or brings them to the version of this build.

use std::{io::Write, process::ExitCode};

use serde_json::json;

use super::{
    output::{OutputFlag, OutputFormat, write_document},
    store_database::DatabaseFlags,
    store_error::StoreError,
};
use crate::{
    ledger::{SchemaReport, inspect_database, migrate_database},
    upstream::random_bytes,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
The database is that of ledger.url. Set ledger.migrate = \"manual\" for processes
whose role may not change tables, and run this with another role before a new
version starts. The versions before and after a change run together.

Exit codes:
  0    the tables are, or would be, those of this version
  1    a failure at run time
  2    wrong usage or bad configuration, or the database is unusable";

/// Arguments of `antiphon store migrate`.
#[derive(Debug, clap::Args)]
pub(super) struct MigrateArgs {
    /// Print the statements, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    database: DatabaseFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// Runs the subcommand.
pub(super) fn migrate_store(out: &mut impl Write, args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let (runtime, database) = args.database.settings()?;
    let work = async {
        if args.dry_run {
            inspect_database(&database).await
        } else {
            migrate_database(&database, random_bytes().map_err(StoreError::Random)?).await
        }
        .map_err(StoreError::Database)
    };
    let SchemaReport {
        found,
        needed,
        statements,
    } = runtime.block_on(work)?;
    match args.output.format() {
        OutputFormat::Json => {
            let report = json!({ "found": found, "needed": needed, "statements": statements, "changed": !args.dry_run && !statements.is_empty() });
            write_document(out, report)?;
        }
        OutputFormat::Text if statements.is_empty() => writeln!(out, "schema version {found}: nothing to change")?,
        OutputFormat::Text if args.dry_run => {
            writeln!(
                out,
                "-- Without --dry-run, the version of the tables and a random secret are written, too."
            )?;
            for text in statements {
                let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
                writeln!(out, "{};", lines.join("\n").trim_end_matches(';'))?;
            }
        }
        OutputFormat::Text => writeln!(out, "schema version {found} changed to {needed}")?,
    }
    Ok(ExitCode::SUCCESS)
}
