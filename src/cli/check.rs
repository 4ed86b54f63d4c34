//! `antiphon check`: reports what breaks the pairing rules in request bodies, offline. A session is read by the doctor.

mod checked;
mod report;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::{Value, json};

use self::checked::{CheckedBody, CheckedContent, CheckedFile};
use crate::{
    cli::{
        EXIT_USAGE,
        findings::add_in_order,
        input::{self, BodyInput, InputContent, InputError},
        output::{OutputFlag, OutputFormat, ReportOutput, write_document, write_note},
        style::Painter,
        wire_names::WireNames,
    },
    config::{ConfigProblem, load_rules},
    refusals::{RefusalReader, body_notes},
    repair::{self, PairingContext, RepairPolicy},
    server::regular_file::read_regular,
    wire::Wire,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
A file contains one request body, a list of messages, or JSONL with one body or
one message on each line, such as the output of claude --output-format
stream-json.
In a pipe each finding is one line of standard output, FILE: PLACE: KIND: TEXT,
and a line about each file goes to standard error. On a terminal, colours are
used unless NO_COLOR is set.
The session file of an agent is read and reported as by antiphon doctor, which
also finds and mends it. --wire and --rules are about bodies alone.

Exit codes:
  0  every tool call has its result; in a session, nothing above a note
  1  findings
  2  wrong usage, or an input that cannot be read";

/// Arguments of `antiphon check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Request bodies or sessions; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Wire format of the bodies; detected if not given
    #[arg(long, value_name = "NAME", value_parser = WireNames)]
    wire: Option<Wire>,
    /// File with own rows of refusals: those with `note` are noted too
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlag,
    /// Print no line about a file as a whole, only its findings and errors
    #[arg(short, long)]
    quiet: bool,
}

/// Checks every file and reports the findings. Exits with the worst result of all files.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let reader = match args.rules.as_deref().map(read_rows).transpose() {
        Ok(reader) => reader.unwrap_or_default(),
        Err(problem) => {
            write_note(&format!("antiphon: {problem}"));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    let files = args.files.iter();
    let seen: Vec<CheckedFile<'_>> = files.map(|path| check_file(path, args.wire, &reader)).collect();
    let mut out = ReportOutput::default();
    match args.output.format() {
        OutputFormat::Text => {
            let painter = Painter::of_stdout();
            seen.iter()
                .try_for_each(|file| report::write_file(&mut out, file, painter, args.quiet))?;
        }
        OutputFormat::Json => {
            let files: Vec<Value> = seen.iter().flat_map(report::file_documents).collect();
            write_document(&mut out, json!({ "files": files }))?;
        }
    }
    out.flush()?;
    // An unreadable file weighs more than findings: nothing is known about its calls.
    let unreadable = seen.iter().any(|file| file.verdict.is_err());
    let mut read = seen.iter().filter_map(|file| file.verdict.as_ref().ok());
    let found = read.any(CheckedContent::has_findings);
    Ok(match (unreadable, found) {
        (true, _) => ExitCode::from(EXIT_USAGE),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Reads a file of own rows. Fails with its first problem.
fn read_rows(path: &Path) -> Result<RefusalReader, ConfigProblem> {
    let (rules, problems) = load_rules(&path.display().to_string(), &read_regular)?;
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(rules.checked.reader),
    }
}

/// Reads and checks one file.
fn check_file<'r>(path: &Path, wire: Option<Wire>, reader: &'r RefusalReader) -> CheckedFile<'r> {
    let verdict = input::read_input(path, wire).and_then(|content| match content {
        InputContent::Session(session) => Ok(CheckedContent::Session(session)),
        InputContent::Bodies(file) => {
            let bodies = file.bodies.into_iter().map(|body| check_body(body, reader));
            Ok(CheckedContent::Bodies(bodies.collect::<Result<_, _>>()?))
        }
    });
    CheckedFile {
        name: path.display().to_string(),
        verdict,
    }
}

/// Checks one body.
fn check_body(input: BodyInput, reader: &RefusalReader) -> Result<CheckedBody<'_>, InputError> {
    let (name, wire) = (input.name, input.wire);
    // `check` reads no configuration, so it reports what the default policy finds.
    let policy = RepairPolicy::default();
    let unreadable = |cause| InputError::Unreadable {
        name: name.clone(),
        wire,
        cause,
    };
    let parsed = repair::parse(&input.body, wire).map_err(unreadable)?;
    if let Some(cause) = parsed.unread_entry() {
        return Err(InputError::UnreadableEntry { name, wire, cause });
    }
    let check = || {
        let mut findings = parsed.pair(PairingContext::new(&policy)).findings()?;
        let mut notes = repair::possible_findings(&input.body, wire, &policy)?;
        let lost = repair::lost_values(&input.body, wire, &policy)?;
        add_in_order(&mut findings, lost.documented);
        add_in_order(&mut notes, lost.possible);
        let row_notes = body_notes(reader, &input.body, wire)?;
        Ok((findings, notes, row_notes))
    };
    let (findings, notes, row_notes) = check().map_err(unreadable)?;
    Ok(CheckedBody {
        wire,
        origin: input.origin,
        findings,
        notes,
        row_notes,
    })
}
