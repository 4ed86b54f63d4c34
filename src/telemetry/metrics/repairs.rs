//! Metrics of findings in request bodies, and of repairs.

use prometheus_client::metrics::counter::Counter;

use super::{
    family::CounterFamily,
    label_sets::{LabelSpace, LabelValue},
    page::metric_table,
};
use crate::{
    conversation::FindingKind,
    refusals,
    repair::{Action, ContinuityKind, RepairReport},
    telemetry::events::{ExchangeEnded, RowOutcome},
    wire::{Format, Unreadable},
};

/// Reasons for a resend: the provider refused the pairing of the history or its signed thinking, missed a value, or has
/// lost the response that the request continues from.
const RESEND_REASONS: [&str; 8] = [
    "pairing",
    "binding",
    "continuity",
    "foreign",
    "dead_response",
    "demand",
    "posted",
    "rule",
];
/// Sources of values that were put back.
const VALUE_SOURCES: [&str; 2] = ["noted", "neutral"];
/// Kinds of pinned results.
const PINNED_ANSWERS: [&str; 5] = ["moved", "restored", "earlier_run", "placeholder", "unread"];
/// Limit of label sets of `refusal_rows`. A process meets few servers, and few rows: 20 of them have room with two outcomes
/// each.
const ROW_SETS_MAX: usize = 40;
/// The label of rows that an operator has added. Their names come from a file, which may have any number.
const OWN_ROW: &str = "own";

metric_table! {
    /// Metrics of repairs.
    RepairMetrics(page) {
        findings: CounterFamily<2> = page.counters(
            "findings",
            "Breaches of the rules for tool calls and results, found in request bodies",
            LabelSpace::closed([
                ("kind", &FindingKind::ALL.map(FindingKind::code)),
                ("format", &Format::ALL.map(Format::label)),
            ]),
        );
        repairs: CounterFamily<2> = page.counters(
            "repairs",
            "Repair actions that were applied to request bodies",
            LabelSpace::closed([
                ("action", &Action::ALL.map(Action::label)),
                ("format", &Format::ALL.map(Format::label)),
            ]),
        );
        unreadable: CounterFamily<1> = page.counters(
            "unreadable",
            "Request bodies that the proxy failed to read and forwarded unchanged, by reason",
            LabelSpace::closed([("reason", &Unreadable::ALL.map(Unreadable::code))]),
        );
        rejections: CounterFamily<1> = page.counters(
            "rejections",
            "Requests that were rejected in strict mode",
            LabelSpace::closed([("format", &Format::ALL.map(Format::label))]),
        );
        second_repairs: CounterFamily<1> = page.counters(
            "second_repairs",
            "Requests that were repaired again and retried because the provider refused the history, by reason",
            LabelSpace::closed([("why", &RESEND_REASONS)]),
        );
        second_repairs_refused: CounterFamily<1> = page.counters(
            "second_repairs_refused",
            "Requests that the provider refused again after a second repair and a retry",
            LabelSpace::closed([("why", &RESEND_REASONS)]),
        );
        refusal_rows: CounterFamily<2> = page.counters(
            "refusal_rows",
            "Refusals in known words, by the row that has matched and what became of them; own is a row of the operator",
            LabelSpace::open(["row", "outcome"], ROW_SETS_MAX).folding(["row"], RowOutcome::ALL.len()),
        );
        deferred: Counter = page.counter(
            "deferred",
            "Results that were left out of a request because no message of its history can contain them yet",
        );
        unrepairable: Counter = page.counter("unrepairable", "Findings that no allowed repair action could repair");
        frozen_answers: CounterFamily<1> = page.counters(
            "frozen_answers",
            "Answers that the proxy gave to tool calls, by kind; each is pinned, so that every later request contains the same \
             one, except unread: a placeholder for a call about which the ledger did not answer",
            LabelSpace::closed([("row", &PINNED_ANSWERS)]),
        );
        continued: CounterFamily<2> = page.counters(
            "continued",
            "Values of earlier answers that the client had dropped and the proxy put back, by kind and source",
            LabelSpace::closed([
                ("what", &ContinuityKind::ALL.map(ContinuityKind::label)),
                ("source", &VALUE_SOURCES),
            ]),
        );
    }
}

impl RepairMetrics {
    /// Counts the findings and repairs of an exchange's body.
    pub(super) fn record_exchange(&self, event: &ExchangeEnded) {
        let format = event.format_label();
        if let Some(report) = &event.report {
            self.record_report(report, format);
        }
        if let Some(reason) = event.unreadable {
            self.unreadable.count([reason.code()]);
        }
        if event.is_rejected {
            self.rejections.count([format]);
        }
        for refusal in &event.row_refusals {
            let row = refusals::built_in_name(&refusal.row).unwrap_or(OWN_ROW);
            let labels = [row, refusal.outcome.label()].map(LabelValue::Borrowed);
            self.refusal_rows.count(labels);
        }
    }

    fn record_report(&self, report: &RepairReport, format: &'static str) {
        // Only the kind of a finding becomes a label, because ids come from clients.
        for finding in &report.findings {
            self.findings.count([finding.kind.code(), format]);
        }
        for (action, times) in &report.actions {
            self.repairs.add([action.label(), format], *times as u64);
        }
        self.deferred.inc_by(report.deferred as u64);
        self.unrepairable.inc_by(report.unrepairable as u64);
    }
}
