//! `antiphon check`: reports what breaks the pairing rules in request bodies, offline.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::{
    cli::{EXIT_USAGE, input},
    conversation::Finding,
    repair::{self, RepairPolicy},
    wire::Wire,
};

/// Arguments of `antiphon check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Request bodies, one per file; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// Wire format of the bodies (anthropic, openai-chat, openai-chat-mistral, …); detected if not given
    #[arg(long, value_name = "NAME")]
    wire: Option<Wire>,
    /// Format of the report
    #[arg(long, value_name = "FORM", default_value = "text")]
    output: ReportFormat,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// Lines of text, for people
    Text,
    /// One JSON document, for programs
    Json,
}

/// Result for one file.
struct CheckedFile {
    name: String,
    verdict: Result<CheckedBody, input::InputError>,
}

/// The faults of one body.
struct CheckedBody {
    wire: Wire,
    findings: Vec<Finding>,
    /// Faults that only some servers of the format refuse. They never count for the exit code.
    notes: Vec<Finding>,
}

/// Checks every file and reports the findings. Exits with the worst result of all files.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let seen: Vec<CheckedFile> = args.files.iter().map(|path| check_file(path, args.wire)).collect();
    let mut out = io::stdout().lock();
    match args.output {
        ReportFormat::Text => seen.iter().try_for_each(|file| write_text(&mut out, file))?,
        ReportFormat::Json => writeln!(
            out,
            "{:#}",
            Value::from(seen.iter().map(file_document).collect::<Vec<_>>())
        )?,
    }
    // An unreadable file weighs more than findings: nothing is known about its calls.
    let unreadable = seen.iter().any(|file| file.verdict.is_err());
    let found = seen
        .iter()
        .any(|file| matches!(&file.verdict, Ok(body) if !body.findings.is_empty()));
    Ok(match (unreadable, found) {
        (true, _) => ExitCode::from(EXIT_USAGE),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Reads and checks one file.
fn check_file(path: &std::path::Path, wire: Option<Wire>) -> CheckedFile {
    let name = path.display().to_string();
    let verdict = input::read_input(path, wire).and_then(|input| {
        let (name, wire) = (input.name, input.wire);
        // `check` reads no configuration, so it reports what the default policy finds.
        let policy = RepairPolicy::default();
        let check = || {
            let mut findings = repair::check(&input.body, wire, &policy)?;
            let mut notes = repair::possible_findings(&input.body, wire, &policy)?;
            let lost = repair::lost_values(&input.body, wire, &policy)?;
            add_in_order(&mut findings, lost.documented);
            add_in_order(&mut notes, lost.possible);
            Ok(CheckedBody { wire, findings, notes })
        };
        check().map_err(|source| input::InputError::Unreadable { name, wire, source })
    });
    CheckedFile { name, verdict }
}

/// Adds findings in document order.
pub(super) fn add_in_order(findings: &mut Vec<Finding>, more: Vec<Finding>) {
    findings.extend(more);
    // The sort is stable, so the findings of one message keep their order.
    findings.sort_by_key(|finding| finding.message);
}

/// Writes the result of one file as text.
fn write_text(out: &mut impl Write, file: &CheckedFile) -> io::Result<()> {
    let CheckedBody { wire, findings, notes } = match &file.verdict {
        Ok(body) => body,
        // Errors go to stderr, so that stdout contains findings only.
        Err(error) => return writeln!(io::stderr().lock(), "antiphon: {error}"),
    };
    for finding in findings {
        write_finding(out, &file.name, *wire, finding, "")?;
    }
    for note in notes {
        write_finding(out, &file.name, *wire, note, "note: some servers refuse this: ")?;
    }
    let count = match findings.len() {
        0 => "every tool call has its result".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    writeln!(out, "{}: {count} ({wire})", file.name)
}

/// Writes one line about a finding, with `lead` before its kind.
fn write_finding(out: &mut impl Write, file: &str, wire: Wire, finding: &Finding, lead: &str) -> io::Result<()> {
    let place = wire.format.finding_path(finding);
    // Not every finding concerns a call with an id.
    let id = if finding.id.is_empty() {
        String::new()
    } else {
        format!(" ({})", finding.id)
    };
    let detail = finding.detail.map(|detail| format!(" [{detail}]")).unwrap_or_default();
    let (kind, explanation) = (finding.kind.code(), finding.kind.explanation());
    writeln!(out, "{file}: {place}: {lead}{kind}: {explanation}{detail}{id}")
}

/// Returns the result of one file as JSON.
fn file_document(file: &CheckedFile) -> Value {
    match &file.verdict {
        Err(error) => json!({ "file": file.name, "error": error.to_string() }),
        Ok(CheckedBody { wire, findings, notes }) => {
            let (findings, notes) = (findings_document(findings, *wire), findings_document(notes, *wire));
            json!({ "file": file.name, "wire": wire.to_string(), "findings": findings, "notes": notes })
        }
    }
}

/// Returns findings as JSON. `check`, `repair` and the answers of strict mode use the same keys.
pub(super) fn findings_document(findings: &[Finding], wire: Wire) -> Value {
    let document = |finding: &Finding| {
        json!({
            "kind": finding.kind.code(),
            "place": wire.format.finding_path(finding),
            "message": finding.message,
            "part": finding.part,
            "id": finding.id,
            "detail": finding.detail,
            "explanation": finding.kind.explanation(),
        })
    };
    findings.iter().map(document).collect()
}
