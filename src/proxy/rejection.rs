//! What a strict route says about findings: one message for people, one list for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{conversation::Finding, wire::Format};

/// Findings named in the message; the rest is counted.
const MESSAGE_FINDINGS_MAX: usize = 50;
/// Findings in the list.
const LIST_FINDINGS_MAX: usize = 1000;

/// The findings of a rejected body.
#[derive(Debug)]
pub struct Rejection {
    /// Every breach, in document order.
    pub findings: Vec<Finding>,
    /// How the body names its places.
    pub format: Format,
}

impl Rejection {
    /// One message that names every finding by place and id.
    pub fn message(&self) -> String {
        let named = self.findings.iter().take(MESSAGE_FINDINGS_MAX).map(|finding| {
            let id = if finding.id.is_empty() {
                String::new()
            } else {
                format!(" ({})", finding.id)
            };
            let detail = finding.detail.map(|detail| format!(" [{detail}]")).unwrap_or_default();
            format!(
                "{}: {}{detail}{id}",
                self.format.place(finding),
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

    /// The same for machines.
    pub fn findings(&self) -> Value {
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
