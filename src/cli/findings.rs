//! Findings as `check` and `repair` report them.

use serde_json::{Value, json};

use crate::{conversation::Finding, wire::Wire};

/// Adds findings in document order.
pub(super) fn add_in_order(findings: &mut Vec<Finding>, more: Vec<Finding>) {
    findings.extend(more);
    // The sort is stable, so the findings of one message keep their order.
    findings.sort_by_key(|finding| finding.message);
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
