//! The report of `antiphon check`: lines for pipes, a short form for terminals, and JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::checked::{CheckedBody, CheckedFile};
use crate::{
    cli::{
        findings::findings_document,
        input::{BodyOrigin, ChainFault},
        output::write_note,
        style::{Painter, TextStyle},
    },
    conversation::Finding,
    printable::{printable_name, printable_text},
    refusals::BodyNote,
};

/// Words before a fault that only some servers refuse.
const NOTE_LEAD: &str = "note: some servers refuse this: ";
/// Words before a fault that the client of a transcript copes with.
const BRIDGED_LEAD: &str = "note: ";

/// Writes the result of one file as text.
pub(super) fn write_file(
    out: &mut impl Write,
    file: &CheckedFile<'_>,
    painter: Painter,
    is_quiet: bool,
) -> io::Result<()> {
    let bodies = match &file.verdict {
        Ok(bodies) => bodies,
        // Errors go to stderr, so that stdout contains findings only.
        Err(error) => {
            write_note(&format!("antiphon: {error}"));
            note_session(file);
            return Ok(());
        }
    };
    // A person reads the name once. A program finds it on each line.
    let shown = printable_text(&file.name);
    let name = if painter.is_for_people() { "" } else { &shown };
    let is_silent = is_quiet && bodies.iter().all(CheckedBody::has_no_rows);
    if painter.is_for_people() && !is_silent {
        writeln!(out, "{}", painter.paint(TextStyle::Bold, &shown))?;
    }
    for body in bodies {
        // First, since they are the cause of others.
        for fault in body.chain_faults() {
            write_row(out, name, &ReportRow::of_fault(fault), painter)?;
        }
        for finding in &body.findings {
            write_row(out, name, &ReportRow::of_finding(body, finding, ""), painter)?;
        }
        for note in &body.notes {
            write_row(out, name, &ReportRow::of_finding(body, note, NOTE_LEAD), painter)?;
        }
        for note in &body.row_notes {
            write_row(out, name, &ReportRow::of_row(body, note), painter)?;
        }
    }
    if is_quiet {
        return Ok(());
    }
    write_verdict(out, name, bodies, painter)?;
    note_session(file);
    Ok(())
}

/// Names the command that reads a session as its client does, lines that the client skips included.
fn note_session(file: &CheckedFile<'_>) {
    if file.is_session {
        let name = printable_text(&file.name);
        write_note(&format!(
            "antiphon: {name}: a session file: `antiphon doctor {name}` reads it as its client does"
        ));
    }
}

/// Writes the line about the whole file.
fn write_verdict(out: &mut impl Write, name: &str, bodies: &[CheckedBody<'_>], painter: Painter) -> io::Result<()> {
    let found: usize = bodies.iter().map(CheckedBody::count_findings).sum();
    let is_whole = bodies.iter().all(|body| body.chain_faults().is_empty());
    let verdict = match found {
        0 if is_whole => painter.paint(TextStyle::Green, "every tool call has its result"),
        0 => painter.paint(TextStyle::Green, "every tool call that the client sends has its result"),
        1 => painter.paint(TextStyle::Red, "1 finding"),
        count => painter.paint(TextStyle::Red, &format!("{count} findings")),
    };
    let kind = match bodies {
        [body] => match &body.origin {
            BodyOrigin::Transcript { source, .. } => format!("{}, {}", body.wire, source.label()),
            _ => body.wire.to_string(),
        },
        bodies => format!("{} bodies", bodies.len()),
    };
    if painter.is_for_people() {
        writeln!(
            out,
            "  {verdict} {}",
            painter.paint(TextStyle::Dim, &format!("({kind})"))
        )
    } else {
        // Standard output has one line for each finding, and no other.
        write_note(&format!("antiphon: {name}: {verdict} ({kind})"));
        Ok(())
    }
}

/// One line of the report.
struct ReportRow<'a> {
    place: String,
    /// Words before the kind: empty for what counts for the exit code.
    lead: &'static str,
    kind: &'a str,
    explanation: &'a str,
    detail: Option<&'a str>,
    /// Id of the call. Empty for what concerns no call with an id.
    id: String,
}

impl<'a> ReportRow<'a> {
    fn of_finding(body: &CheckedBody<'_>, finding: &'a Finding, lead: &'static str) -> Self {
        Self {
            place: body.place_of(finding),
            lead,
            kind: finding.kind.code(),
            explanation: finding.kind.explanation(),
            detail: finding.detail,
            id: printable_name(finding.id.as_bytes()),
        }
    }

    fn of_row(body: &CheckedBody<'_>, note: &BodyNote<'a>) -> Self {
        Self {
            place: body.place_of_note(note),
            lead: NOTE_LEAD,
            kind: &note.row.name,
            explanation: &note.row.first_text,
            detail: None,
            id: String::new(),
        }
    }

    fn of_fault(fault: &ChainFault) -> Self {
        Self {
            place: format!("line {}", fault.line),
            lead: if fault.is_bridged { BRIDGED_LEAD } else { "" },
            kind: fault.kind.code(),
            explanation: fault.kind.explanation(),
            detail: None,
            id: String::new(),
        }
    }
}

/// Writes one line of the report.
fn write_row(out: &mut impl Write, name: &str, row: &ReportRow<'_>, painter: Painter) -> io::Result<()> {
    let ReportRow {
        place,
        lead,
        kind,
        explanation,
        ..
    } = row;
    let id = if row.id.is_empty() {
        String::new()
    } else {
        format!(" ({})", row.id)
    };
    let detail = row.detail.map(|detail| format!(" [{detail}]")).unwrap_or_default();
    if !painter.is_for_people() {
        return writeln!(out, "{name}: {place}: {lead}{kind}: {explanation}{detail}{id}");
    }
    let colour = if lead.is_empty() {
        TextStyle::Red
    } else {
        TextStyle::Dim
    };
    let (place, kind) = (painter.paint(TextStyle::Cyan, place), painter.paint(colour, kind));
    let id = painter.paint(TextStyle::Dim, &id);
    writeln!(out, "  {place}: {lead}{kind}: {explanation}{detail}{id}")
}

/// Returns the results of one file as JSON, one for each body.
pub(super) fn file_documents(file: &CheckedFile<'_>) -> Vec<Value> {
    match &file.verdict {
        // All keys are always there, so that a program needs no case for each.
        Err(error) => vec![json!({
            "file": file.name, "line": null, "wire": null, "transcript": false,
            "findings": [], "notes": [], "error": error.to_string(),
        })],
        Ok(bodies) => bodies.iter().map(|body| body_document(&file.name, body)).collect(),
    }
}

fn body_document(name: &str, body: &CheckedBody<'_>) -> Value {
    let line = match &body.origin {
        BodyOrigin::Line(line) => Some(*line),
        _ => None,
    };
    json!({
        "file": name,
        "line": line,
        "wire": body.wire.to_string(),
        "transcript": matches!(&body.origin, BodyOrigin::Transcript { source, .. } if source.is_agent()),
        "findings": located_document(&body.findings, false, body),
        "notes": notes_document(body),
        "error": null,
    })
}

/// Returns the notes as JSON: first those of findings, then those of rows.
fn notes_document(body: &CheckedBody<'_>) -> Value {
    let mut notes = located_document(&body.notes, true, body);
    let of_rows = body.row_notes.iter().map(|note| {
        json!({
            "kind": note.row.name,
            "place": body.wire.format.message_path(note.message),
            "message": note.message,
            "part": null,
            "id": "",
            "detail": null,
            "explanation": note.row.first_text,
            "line": body.line_of(note.message),
        })
    });
    if let Value::Array(list) = &mut notes {
        list.extend(of_rows);
    }
    notes
}

/// Returns findings as JSON, with the line of each if the file has lines. Faults in the links come first.
fn located_document(findings: &[Finding], is_bridged: bool, body: &CheckedBody<'_>) -> Value {
    let mut documents = findings_document(findings, body.wire);
    for (document, finding) in documents.as_array_mut().into_iter().flatten().zip(findings) {
        document["line"] = json!(body.line_of(finding.message));
    }
    let faults = body.chain_faults().iter();
    let faults = faults.filter(|fault| fault.is_bridged == is_bridged);
    faults
        .map(|fault| fault_document(fault, body))
        .chain(documents.as_array_mut().into_iter().flat_map(std::mem::take))
        .collect()
}

/// Returns a fault in the links as JSON, with the keys of a finding.
fn fault_document(fault: &ChainFault, body: &CheckedBody<'_>) -> Value {
    json!({
        "kind": fault.kind.code(),
        "place": format!("line {}", fault.line),
        "message": body.message_from(fault.line),
        "part": null,
        "id": "",
        "detail": null,
        "explanation": fault.kind.explanation(),
        "line": fault.line,
    })
}
