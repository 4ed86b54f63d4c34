//! `antiphon repair`: writes the repaired body to stdout and a report to stderr, offline.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::anyhow;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value, json};

use crate::{
    cli::{
        diff,
        findings::{add_in_order, findings_document},
        input::{self, BodyInput, InputError},
        output::{OutputFormat, write_document},
        style::Painter,
        success_if,
        wire_names::WireNames,
    },
    config::file::LeastName,
    printable::printable_text,
    repair::{self, Applicability, OnForeignThinking, RepairPolicy, RepairReport, Repaired},
    wire::Wire,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
On a terminal, --diff has colours unless NO_COLOR is set.

Exit codes:
  0  done; with --check: the body would not change
  1  with --check: the body would change; else a failure at run time
  2  wrong usage, or an input that cannot be read";

/// Arguments of `antiphon repair`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Request body; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Wire format of the body; detected if not given
    #[arg(long, value_name = "NAME", value_parser = WireNames)]
    wire: Option<Wire>,
    /// Write the repaired body to this file instead of stdout
    #[arg(short, long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write no body; exit 1 if the body would change
    #[arg(long)]
    check: bool,
    /// Write a diff instead of the body, with one line per block
    #[arg(long)]
    diff: bool,
    /// Least safe class of action to apply
    #[arg(long, value_name = "CLASS", default_value = "lossy", value_parser = least_parser())]
    least: Applicability,
    /// Format of the report on stderr
    #[arg(long, value_name = "FORM", default_value = "text")]
    output: OutputFormat,
}

/// Returns the parser of a class of action.
fn least_parser() -> impl TypedValueParser<Value = Applicability> {
    // Not a `ValueEnum`: the core, which defines the classes, does not know clap.
    let words = PossibleValuesParser::new(LeastName::WORDS.iter().map(|(word, _)| *word));
    words.try_map(|word| {
        let found = LeastName::from_word(&word).map(Applicability::from);
        found.ok_or("no class of action")
    })
}

/// Repairs one body and reports what was done.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = input::read_input(&args.file, args.wire)?;
    let policy = RepairPolicy {
        least_safe: args.least,
        // A file has no provider to confirm that thinking is foreign.
        foreign_thinking: OnForeignThinking::Report,
        ..RepairPolicy::default()
    };
    let unreadable = |cause| InputError::Unreadable {
        name: input.name.clone(),
        wire: input.wire,
        cause,
    };
    let mut repaired = repair::repair(&input.body, input.wire, &policy).map_err(unreadable)?;
    // Only an answer shows what a client has dropped since, so a file gets nothing back.
    let lost = repair::lost_values(&input.body, input.wire, &policy).map_err(unreadable)?;
    repaired.report.unrepairable += lost.documented.len();
    add_in_order(&mut repaired.report.findings, lost.documented);
    let report = &repaired.report;
    // The report comes first, so that it is complete even if the reader of stdout stops early.
    match args.output {
        OutputFormat::Text => writeln!(
            io::stderr().lock(),
            "antiphon: {}: {}",
            printable_text(&input.name),
            report_summary(report)
        )?,
        OutputFormat::Json => write_document(&mut io::stderr().lock(), report_document(report, &input))?,
    }
    if args.diff {
        diff::write_diff(&mut io::stdout().lock(), &input, &repaired, Painter::of_stdout())?;
    } else if !args.check {
        write_body(args, &repaired)?;
    }
    Ok(success_if(!args.check || repaired.body.is_original()))
}

/// Writes the repaired body to the file of `--out`, else to stdout.
fn write_body(args: &Args, repaired: &Repaired) -> anyhow::Result<()> {
    if let Some(path) = &args.out {
        // As text: an error of another file is none of standard output.
        let failed = |error| anyhow!("{}: {error}", printable_text(&path.display().to_string()));
        return fs::write(path, repaired.body.to_vec()).map_err(failed);
    }
    // Piece by piece: a large body need not be copied into one buffer.
    let mut out = io::stdout().lock();
    repaired.body.parts().iter().try_for_each(|part| out.write_all(part))?;
    Ok(out.flush()?)
}

/// Returns the report in one line.
fn report_summary(report: &RepairReport) -> String {
    let done = describe_actions(report);
    match report.unread {
        Some(cause) => format!("{done}; an entry could not be read: {cause}"),
        None => done,
    }
}

/// Returns the findings and what was done about them.
fn describe_actions(report: &RepairReport) -> String {
    if report.findings.is_empty() {
        return "nothing to repair: every byte unchanged".to_owned();
    }
    let mut done: Vec<String> = report
        .actions
        .iter()
        .map(|(action, count)| format!("{}={count}", action.label()))
        .collect();
    if report.deferred > 0 {
        done.push(format!("deferred={}", report.deferred));
    }
    if report.unrepairable > 0 {
        done.push(format!("unrepairable={}", report.unrepairable));
    }
    let count = report.findings.len();
    let done = if done.is_empty() {
        "nothing applied".to_owned()
    } else {
        done.join(", ")
    };
    format!("{count} finding{}: {done}", if count == 1 { "" } else { "s" })
}

/// Returns the report as JSON.
fn report_document(report: &RepairReport, input: &BodyInput) -> Value {
    let actions = report
        .actions
        .iter()
        .map(|(action, count)| (action.label().to_owned(), json!(count)));
    json!({
        "file": input.name,
        "wire": input.wire.to_string(),
        "findings": findings_document(&report.findings, input.wire),
        "actions": actions.collect::<Map<_, _>>(),
        "deferred": report.deferred,
        "unrepairable": report.unrepairable,
        "unread": report.unread.map(|cause| cause.to_string()),
    })
}
