//! The report of `antiphon check`: lines for pipes, a short form for terminals, and JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::checked::{CheckedBody, CheckedContent, CheckedFile};
use crate::{
    cli::{
        doctor::GivenSession,
        findings::findings_document,
        input::BodyOrigin,
        output::write_note,
        style::{Painter, TextStyle},
    },
    conversation::Finding,
    printable::{printable_name, printable_text},
    refusals::BodyNote,
};

/// Words before a fault that only some servers refuse.
const NOTE_LEAD: &str = "note: some servers refuse this: ";

/// Writes the result of one file as text.
pub(super) fn write_file(
    out: &mut impl Write,
    file: &CheckedFile<'_>,
    painter: Painter,
    is_quiet: bool,
) -> io::Result<()> {
    match &file.verdict {
        Ok(CheckedContent::Bodies(bodies)) => write_bodies(out, &file.name, bodies, painter, is_quiet),
        Ok(CheckedContent::Session(session)) if is_quiet => session.write_findings(out, painter),
        Ok(CheckedContent::Session(session)) => {
            session.write_text(out, painter)?;
            note_session(&file.name, session);
            Ok(())
        }
        // Errors go to stderr, so that stdout contains findings only.
        Err(error) => {
            write_note(&format!("antiphon: {error}"));
            Ok(())
        }
    }
}

/// Names the command that has read a session.
fn note_session(name: &str, session: &GivenSession) {
    let command = session.command_name().unwrap_or_else(|| "FILE".to_owned());
    write_note(&format!(
        "antiphon: {}: a session, read as `antiphon doctor {command}` reads it",
        printable_text(name)
    ));
}

/// Writes the faults of bodies, and a line about their file.
fn write_bodies(
    out: &mut impl Write,
    name: &str,
    bodies: &[CheckedBody<'_>],
    painter: Painter,
    is_quiet: bool,
) -> io::Result<()> {
    // A person reads the name once. A program finds it on each line.
    let shown = printable_text(name);
    let name = if painter.is_for_people() { "" } else { &shown };
    let is_silent = is_quiet && bodies.iter().all(CheckedBody::has_no_rows);
    if painter.is_for_people() && !is_silent {
        writeln!(out, "{}", painter.paint(TextStyle::Bold, &shown))?;
    }
    for body in bodies {
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
    write_verdict(out, name, bodies, painter)
}

/// Writes the line about the whole file.
fn write_verdict(out: &mut impl Write, name: &str, bodies: &[CheckedBody<'_>], painter: Painter) -> io::Result<()> {
    let found: usize = bodies.iter().map(|body| body.findings.len()).sum();
    let verdict = match found {
        0 => painter.paint(TextStyle::Green, "every tool call has its result"),
        1 => painter.paint(TextStyle::Red, "1 finding"),
        count => painter.paint(TextStyle::Red, &format!("{count} findings")),
    };
    let kind = match bodies {
        [body] => match &body.origin {
            BodyOrigin::Lines { source, .. } => format!("{}, {}", body.wire, source.label()),
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
        Ok(CheckedContent::Bodies(bodies)) => bodies.iter().map(|body| body_document(&file.name, body)).collect(),
        Ok(CheckedContent::Session(session)) => vec![session_document(session)],
    }
}

/// Returns the doctor's document of a session, with the other keys that every entry has.
fn session_document(session: &GivenSession) -> Value {
    let mut document = session.document();
    for (key, value) in [
        ("line", Value::Null),
        ("wire", Value::Null),
        ("transcript", json!(true)),
        // Notes are findings with a severity there.
        ("notes", json!([])),
    ] {
        document[key] = value;
    }
    document
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
        "transcript": body.origin.is_of_agent(),
        "findings": located_document(&body.findings, body),
        "notes": notes_document(body),
        "error": null,
    })
}

/// Returns the notes as JSON: first those of findings, then those of rows.
fn notes_document(body: &CheckedBody<'_>) -> Value {
    let mut notes = located_document(&body.notes, body);
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

/// Returns findings as JSON, with the line of each if the file has lines.
fn located_document(findings: &[Finding], body: &CheckedBody<'_>) -> Value {
    let mut documents = findings_document(findings, body.wire);
    for (document, finding) in documents.as_array_mut().into_iter().flatten().zip(findings) {
        document["line"] = json!(body.line_of(finding.message));
    }
    documents
}
