//! The report of a body that is not edited: rejected in strict mode, and only counted in observe mode.

use http::HeaderValue;

use crate::{
    conversation::FindingKind,
    proxy::{error::ProxyError, exchange_log::ExchangeLog, rejection::Rejection},
    repair::{Mode, RepairReport},
    wire::Wire,
};

/// Logs the findings of a body that is sent unedited, or rejects it.
///
/// Strict: a body with findings is an error for the client, never sent and never edited.
pub(super) fn report_unedited(
    report: RepairReport,
    mode: Mode,
    is_signed: bool,
    wire: Wire,
    log: &mut ExchangeLog,
) -> Result<(), ProxyError> {
    if mode == Mode::Strict && !report.findings.is_empty() {
        return Err(reject_findings(report, wire, log));
    }
    log.event.report = Some(report.without_actions());
    let words = match (mode, is_signed) {
        (Mode::Observe, true) => "observed; reason=signed",
        (Mode::Observe, false) => "observed",
        // Strict, and without findings.
        _ => "none",
    };
    log.repair_header = Some(HeaderValue::from_static(words));
    Ok(())
}

/// Logs the findings of a body in strict mode, and returns the error for its client.
pub(super) fn reject_findings(report: RepairReport, wire: Wire, log: &mut ExchangeLog) -> ProxyError {
    log.event.is_rejected = true;
    log.repair_header = Some(HeaderValue::from_static("rejected"));
    let findings = report.findings.clone();
    log.event.report = Some(report.without_actions());
    ProxyError::Rejected(Rejection {
        findings,
        format: wire.format,
    })
}

/// Returns `true` if unanswered calls are the only findings of a body, so that posted results could complete it.
pub(super) fn lacks_results_only(report: &RepairReport) -> bool {
    let mut findings = report.findings.iter();
    !report.findings.is_empty() && findings.all(|finding| finding.kind == FindingKind::Unanswered)
}
