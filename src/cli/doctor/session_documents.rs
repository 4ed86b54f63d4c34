//! Sessions and their findings as JSON. All keys are always there, so that a program needs no case for each.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    live::LiveState,
    reading::SessionReading,
    session_text::is_stored,
    weights::{message_of, weight_of},
};
use crate::{
    printable::printable_name,
    sessions::{SessionFinding, SessionReport},
};

/// Returns a session that was read. `live` is `None` if no file of it is known.
pub(super) fn session_document(path: &Path, reading: &SessionReading, live: Option<&LiveState>) -> Value {
    let report = &reading.report;
    json!({
        "file": path.display().to_string(),
        "client": report.client.label(),
        "client_version": report.version.map(|version| version.to_string()),
        "session": session_id(report),
        "bytes": report.bytes,
        "lines": (!is_stored(report)).then_some(report.lines),
        "messages": report.messages,
        "reachable": report.reachable,
        "live": live.and_then(LiveState::is_in_use),
        "findings": findings_document(report),
        "unlisted": report.unlisted,
        "error": null,
    })
}

/// Returns a file that was not read.
pub(super) fn unread_document(path: &Path, error: &str) -> Value {
    json!({
        "file": path.display().to_string(),
        "client": null,
        "client_version": null,
        "session": null,
        "bytes": null,
        "lines": null,
        "messages": null,
        "reachable": null,
        "live": null,
        "findings": [],
        "unlisted": 0,
        "error": error,
    })
}

/// Returns the id of a session, as its records tell it.
pub(super) fn session_id(report: &SessionReport) -> Option<String> {
    report.session.as_deref().map(|id| printable_name(id.as_bytes()))
}

/// Returns the findings of a file.
pub(super) fn findings_document(report: &SessionReport) -> Value {
    let document = |finding: &SessionFinding| {
        json!({
            "code": finding.code.label(),
            "severity": weight_of(report, finding).label(),
            "line": (!is_stored(report)).then_some(finding.line),
            "byte": (!is_stored(report)).then_some(finding.byte),
            "row": is_stored(report).then_some(finding.line),
            "id": printable_name(finding.id.as_bytes()),
            "lines": finding.lines,
            "message": message_of(report, finding),
            "repair": finding.fix.label(),
        })
    };
    Value::Array(report.findings.iter().map(document).collect())
}
