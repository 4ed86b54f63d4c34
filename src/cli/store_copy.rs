//! `antiphon store copy`: copies a whole ledger from one store into another.

use std::{io::Write, path::PathBuf, process::ExitCode, str::FromStr};

use serde_json::json;

use super::{
    output::{OutputFlag, OutputFormat, write_document},
    store_database::DatabaseFlags,
    store_error::StoreError,
    store_list::format_count,
    success_if,
};
use crate::ledger::{
    CopyError, CopyReport, DatabaseCopyTarget, FileCopyTarget, LedgerInspector, StoreInspector, copy_records,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
A store is the file of a ledger, or the word `database` for that of ledger.url.
Stop every proxy that uses one of them:
what it writes meanwhile is not copied. The copy has every record with its
times, and the secret, so that callers and their names stay the same. It is
permanent only once each record was compared with the original.

Exit codes:
  0    every record was copied
  1    damaged records were left out; or a failure at run time, and nothing was
       copied
  2    wrong usage or bad configuration, or a store is unusable, in use or not
       empty";

/// Arguments of `antiphon store copy`.
#[derive(Debug, clap::Args)]
pub(super) struct CopyArgs {
    /// Store to be copied: FILE or `database`
    #[arg(long, value_name = "STORE")]
    from: StorePlace,
    /// Empty store to be filled: a new FILE or `database`
    #[arg(long, value_name = "STORE")]
    to: StorePlace,
    #[command(flatten)]
    database: DatabaseFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// The place of a store on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StorePlace {
    Database,
    File(PathBuf),
}

impl FromStr for StorePlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        {
            return Err(
                "other users of this machine see a password on a command line: set ANTIPHON_LEDGER_URL to the \
                        URL, and write `database`",
            );
        }
        Ok(match text {
            "database" => Self::Database,
            file => Self::File(file.into()),
        })
    }
}

/// Runs the subcommand.
pub(super) fn copy_store(out: &mut impl Write, args: &CopyArgs) -> anyhow::Result<ExitCode> {
    let report = match &args.from {
        StorePlace::Database if args.to == StorePlace::Database => return Err(StoreError::SameStore.into()),
        StorePlace::Database => fill(&args.database.open_inspector()?, args)?,
        StorePlace::File(path) if path.try_exists().is_ok_and(|there| !there) => {
            return Err(StoreError::NoSource(path.clone()).into());
        }
        StorePlace::File(path) => fill(&LedgerInspector::open_locked(path).map_err(StoreError::from)?, args)?,
    };
    match args.output.format() {
        OutputFormat::Json => {
            let CopyReport {
                records,
                bytes,
                damaged,
            } = &report;
            write_document(out, json!({ "copied": records, "bytes": bytes, "damaged": damaged }))?;
        }
        OutputFormat::Text => {
            for place in &report.damaged {
                writeln!(out, "damaged, and left out: row {place}")?;
            }
            let records = format_count(report.records, "record");
            writeln!(
                out,
                "copied {records}, {} bytes: each of these is as in the original",
                report.bytes
            )?;
        }
    }
    Ok(success_if(report.damaged.is_empty()))
}

/// Fills the target from a source.
fn fill(source: &impl StoreInspector, args: &CopyArgs) -> anyhow::Result<CopyReport> {
    let copied = match &args.to {
        StorePlace::Database => {
            let (runtime, database) = args.database.settings()?;
            DatabaseCopyTarget::create(runtime, &database, source.secret())
                .and_then(|target| copy_records(source, target))
        }
        StorePlace::File(path) => {
            FileCopyTarget::create(path, source.secret()).and_then(|target| copy_records(source, target))
        }
    };
    copied.map_err(|error| match error {
        CopyError::Differs(_) | CopyError::Store(_) => error.into(),
        unusable => StoreError::Copy(unusable).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_or_the_database_and_never_a_password() {
        assert_eq!("database".parse(), Ok(StorePlace::Database));
        assert_eq!("./database".parse(), Ok(StorePlace::File("./database".into())));
        for url in ["postgres://a:b@h/n", "postgresql://h"] {
            assert!(url.parse::<StorePlace>().is_err());
        }
    }
}
