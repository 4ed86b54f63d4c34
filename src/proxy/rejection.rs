//! The findings in a strict route's answer: one message for people, one list for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{conversation::Finding, wire::Format};

/// Maximum findings that the message names. Others are only counted.
const MESSAGE_FINDINGS_MAX: usize = 50;
/// Maximum findings in the list.
const LIST_FINDINGS_MAX: usize = 1000;

/// The findings of a rejected body.
#[derive(Debug)]
pub struct Rejection {
    /// Every breach, in document order.
    pub findings: Vec<Finding>,
    /// The body's format, which decides the notation of places.
    pub format: Format,
}

impl Rejection {
    /// Returns one message that names each finding by place and id.
    pub fn to_message(&self) -> String {
        // The limit keeps the message readable. The list below has more.
        let named = self.findings.iter().take(MESSAGE_FINDINGS_MAX).map(|finding| {
            let id = if finding.id.is_empty() {
                String::new()
            } else {
                format!(" ({})", finding.id)
            };
            let detail = finding.detail.map(|detail| format!(" [{detail}]")).unwrap_or_default();
            format!(
                "{}: {}{detail}{id}",
                self.format.finding_path(finding),
                finding.kind.explanation()
            )
        });
        let mut message = named.collect::<Vec<_>>().join("; ");
        let more = self.findings.len().saturating_sub(MESSAGE_FINDINGS_MAX);
        if more > 0 {
            // Writing to a string cannot fail.
            let _ = write!(message, "; and {more} more");
        }
        message
    }

    /// Returns the findings as JSON.
    pub fn findings_json(&self) -> Value {
        let list = self.findings.iter().take(LIST_FINDINGS_MAX).map(|finding| {
            json!({
                "kind": finding.kind.code(),
                "within": finding.within,
                "message": finding.message,
                "part": finding.part,
                "id": finding.id,
                "detail": finding.detail,
            })
        });
        json!({ "findings": list.collect::<Vec<_>>() })
    }
}
