//! `antiphon repair`: writes a file with its bodies repaired to stdout and a report to stderr, offline.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::anyhow;
use bytes::Bytes;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value, json};

use crate::{
    cli::{
        diff,
        findings::{add_in_order, findings_document},
        input::{self, BodyInput, BodySource, InputError, InputFile},
        output::{OutputFlag, OutputFormat, ReportOutput, write_document, write_note},
        style::Painter,
        success_if,
        wire_names::WireNames,
    },
    labels::Labelled,
    printable::printable_text,
    repair::{self, Applicability, OnForeignThinking, RepairPolicy, RepairReport, Repaired},
    wire::Wire,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
A body may stand alone or in a line of a batch file, below `body`, `params` or
`modelInput`. Bytes outside of the histories stay as they are. Messages on lines
can only be checked, and a session is mended by antiphon doctor --fix.
The report is on stderr: --output json writes a document for each body.
On a terminal, --diff has colours unless NO_COLOR is set.

Exit codes:
  0  done; with --check: no body would change
  1  with --check: a body would change; else a failure at run time
  2  wrong usage, or an input that cannot be read";

/// Arguments of `antiphon repair`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Request body, list of messages, or JSONL with one body on each line; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Wire format of the bodies; detected if not given
    #[arg(long, value_name = "NAME", value_parser = WireNames)]
    wire: Option<Wire>,
    /// Write the repaired text to this file instead of stdout
    #[arg(short, long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Do not write the repaired text; exit 1 if a body would change
    #[arg(long)]
    check: bool,
    /// Write a diff of each changed body instead of the text, with one line per block
    #[arg(long)]
    diff: bool,
    /// Least safe class of action to apply
    #[arg(long, value_name = "CLASS", default_value = "lossy", value_parser = least_parser())]
    least: Applicability,
    #[command(flatten)]
    output: OutputFlag,
    /// Print no line about a body, only errors; no effect on --output json
    #[arg(short, long)]
    quiet: bool,
}

/// Returns the parser of a class of action.
fn least_parser() -> impl TypedValueParser<Value = Applicability> {
    // Not a `ValueEnum`: the core, which defines the classes, does not know clap.
    let words = PossibleValuesParser::new(Applicability::ALL.map(Applicability::label));
    words.try_map(|word| Applicability::from_label(&word).ok_or("no class of action"))
}

/// Repairs the bodies of a file, and reports what was done.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = input::read_input(&args.file, args.wire)?.into_bodies(&args.file)?;
    // Before the work, which would be in vain.
    file.bodies.iter().try_for_each(|body| body.place().map(drop))?;
    let policy = RepairPolicy {
        least_safe: args.least,
        // A file has no provider to confirm that thinking is foreign.
        foreign_thinking: OnForeignThinking::Report,
        ..RepairPolicy::default()
    };
    let repaired = file.bodies.iter().map(|input| repair_body(input, &policy));
    let repaired: Vec<Repaired> = repaired.collect::<Result<_, _>>()?;
    let rows = || file.bodies.iter().zip(&repaired);
    // The reports come first, so that they are complete even if the reader of stdout stops early.
    rows().for_each(|(input, repaired)| write_report(args, &repaired.report, input));
    if args.diff {
        let (mut out, painter) = (ReportOutput::default(), Painter::of_stdout());
        rows().try_for_each(|(input, repaired)| diff::write_diff(&mut out, input, repaired, painter))?;
        out.flush()?;
    } else if !args.check {
        write_text(args, &repaired_text(&file, &repaired)?)?;
    }
    let is_unchanged = repaired.iter().all(|repaired| repaired.body.is_original());
    Ok(success_if(!args.check || is_unchanged))
}

/// Repairs one body.
fn repair_body(input: &BodyInput, policy: &RepairPolicy) -> Result<Repaired, InputError> {
    let unreadable = |cause| InputError::Unreadable {
        name: input.name.clone(),
        wire: input.wire,
        cause,
    };
    let mut repaired = repair::repair(&input.body, input.wire, policy).map_err(unreadable)?;
    // Only an answer shows what a client has dropped since, so a file gets nothing back.
    let lost = repair::lost_values(&input.body, input.wire, policy).map_err(unreadable)?;
    repaired.report.unrepairable += lost.documented.len();
    add_in_order(&mut repaired.report.findings, lost.documented);
    Ok(repaired)
}

/// Writes the report about one body to standard error.
fn write_report(args: &Args, report: &RepairReport, input: &BodyInput) {
    match args.output.format() {
        OutputFormat::Text if args.quiet => {}
        OutputFormat::Text => write_note(&format!("antiphon: {}: {}", input.title(), report_summary(report))),
        // A closed standard error must not keep the body from being written.
        OutputFormat::Json => drop(write_document(&mut io::stderr().lock(), report_document(report, input))),
    }
}

/// Returns the text of the file with its bodies repaired, in pieces. All bytes around them stay.
fn repaired_text(file: &InputFile, repaired: &[Repaired]) -> anyhow::Result<Vec<Bytes>> {
    let (mut pieces, mut copied) = (Vec::new(), 0);
    for (input, repaired) in file.bodies.iter().zip(repaired) {
        let BodySource { span, key_bytes } = input.place()?;
        if repaired.body.is_original() {
            continue;
        }
        pieces.push(file.text.slice(copied..span.start));
        copied = span.end;
        if key_bytes == 0 {
            pieces.extend_from_slice(repaired.body.parts());
        } else {
            let body = Bytes::from(repaired.body.to_vec());
            let end = body.len().saturating_sub(1);
            let key = input.body.get(..key_bytes);
            // The list is all that the body has, so that nothing else can have changed.
            if key.is_none() || body.get(..key_bytes) != key || body.get(end..) != Some(b"}") {
                return Err(anyhow!(
                    "{}: the repair would add members around the list",
                    input.title()
                ));
            }
            pieces.push(body.slice(key_bytes..end));
        }
    }
    pieces.push(file.text.slice(copied..));
    Ok(pieces)
}

/// Writes the repaired text to the file of `--out`, else to stdout.
fn write_text(args: &Args, pieces: &[Bytes]) -> anyhow::Result<()> {
    if let Some(path) = &args.out {
        // As text, so that it is not taken for an error of standard output.
        let failed = |error| anyhow!("{}: {error}", printable_text(&path.display().to_string()));
        return fs::write(path, pieces.concat()).map_err(failed);
    }
    // Piece by piece: a large body need not be copied into one buffer.
    let mut out = io::stdout().lock();
    pieces.iter().try_for_each(|piece| out.write_all(piece))?;
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
        "line": input.line(),
        "wire": input.wire.to_string(),
        "findings": findings_document(&report.findings, input.wire),
        "actions": actions.collect::<Map<_, _>>(),
        "deferred": report.deferred,
        "unrepairable": report.unrepairable,
        "unread": report.unread.map(|cause| cause.to_string()),
    })
}
