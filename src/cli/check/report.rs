//! The report of `antiphon check`: lines for pipes, a short form for terminals, and JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::checked::{CheckedBody, CheckedFile};
use crate::{
    cli::{
        findings::findings_document,
        input::BodyOrigin,
        style::{Painter, TextStyle},
    },
    conversation::Finding,
    printable::{printable_name, printable_text},
};

/// Words before a fault that only some servers refuse.
const NOTE_LEAD: &str = "note: some servers refuse this: ";

/// Writes the result of one file as text.
pub(super) fn write_file(out: &mut impl Write, file: &CheckedFile, painter: Painter) -> io::Result<()> {
    let bodies = match &file.verdict {
        Ok(bodies) => bodies,
        // Errors go to stderr, so that stdout contains findings only.
        Err(error) => return writeln!(io::stderr().lock(), "antiphon: {error}"),
    };
    // A person reads the name once. A program finds it on each line.
    let shown = printable_text(&file.name);
    let name = if painter.is_for_people() { "" } else { &shown };
    if painter.is_for_people() {
        writeln!(out, "{}", painter.paint(TextStyle::Bold, &shown))?;
    }
    for body in bodies {
        for finding in &body.findings {
            write_finding(out, name, body, finding, "", painter)?;
        }
        for note in &body.notes {
            write_finding(out, name, body, note, NOTE_LEAD, painter)?;
        }
    }
    write_verdict(out, name, bodies, painter)
}

/// Writes the line about the whole file.
fn write_verdict(out: &mut impl Write, name: &str, bodies: &[CheckedBody], painter: Painter) -> io::Result<()> {
    let found: usize = bodies.iter().map(|body| body.findings.len()).sum();
    let verdict = match found {
        0 => painter.paint(TextStyle::Green, "every tool call has its result"),
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
        writeln!(out, "{name}: {verdict} ({kind})")
    }
}

/// Writes one line about a finding, with `lead` before its kind.
fn write_finding(
    out: &mut impl Write,
    name: &str,
    body: &CheckedBody,
    finding: &Finding,
    lead: &str,
    painter: Painter,
) -> io::Result<()> {
    let place = body.place_of(finding);
    // Not every finding concerns a call with an id.
    let id = if finding.id.is_empty() {
        String::new()
    } else {
        format!(" ({})", printable_name(finding.id.as_bytes()))
    };
    let detail = finding.detail.map(|detail| format!(" [{detail}]")).unwrap_or_default();
    let (kind, explanation) = (finding.kind.code(), finding.kind.explanation());
    if !painter.is_for_people() {
        return writeln!(out, "{name}: {place}: {lead}{kind}: {explanation}{detail}{id}");
    }
    let colour = if lead.is_empty() {
        TextStyle::Red
    } else {
        TextStyle::Dim
    };
    let (place, kind) = (painter.paint(TextStyle::Cyan, &place), painter.paint(colour, kind));
    let id = painter.paint(TextStyle::Dim, &id);
    writeln!(out, "  {place}: {lead}{kind}: {explanation}{detail}{id}")
}

/// Returns the results of one file as JSON, one for each body.
pub(super) fn file_documents(file: &CheckedFile) -> Vec<Value> {
    match &file.verdict {
        // All keys are always there, so that a program needs no case for each.
        Err(error) => vec![json!({
            "file": file.name, "line": null, "wire": null, "transcript": false,
            "findings": [], "notes": [], "error": error.to_string(),
        })],
        Ok(bodies) => bodies.iter().map(|body| body_document(&file.name, body)).collect(),
    }
}

fn body_document(name: &str, body: &CheckedBody) -> Value {
    let line = match &body.origin {
        BodyOrigin::Line(line) => Some(*line),
        _ => None,
    };
    json!({
        "file": name,
        "line": line,
        "wire": body.wire.to_string(),
        "transcript": matches!(&body.origin, BodyOrigin::Transcript { source, .. } if source.is_agent()),
        "findings": located_document(&body.findings, body),
        "notes": located_document(&body.notes, body),
        "error": null,
    })
}

/// Returns findings as JSON, with the line of each if the file has lines.
fn located_document(findings: &[Finding], body: &CheckedBody) -> Value {
    let mut documents = findings_document(findings, body.wire);
    for (document, finding) in documents.as_array_mut().into_iter().flatten().zip(findings) {
        document["line"] = json!(body.line_of(finding));
    }
    documents
}
