//! Metrics of what was found in request bodies, and what was done about it.

use prometheus_client::metrics::counter::Counter;

use super::{family::CounterFamily, label_sets::LabelSpace, page::metric_table};
use crate::{
    conversation::FindingKind,
    repair::{Action, RepairReport},
    telemetry::events::ExchangeEnded,
    wire::{Format, Unreadable},
};

/// Reasons for a retry with another repair.
const SECOND_REPAIR_REASONS: [&str; 2] = ["pairing", "binding"];
/// Kinds of answers that a call keeps for good.
const FROZEN_ANSWERS: [&str; 3] = ["moved", "restored", "placeholder"];

metric_table! {
    /// Metrics of repairs.
    RepairMetrics(page) {
        findings: CounterFamily<2> = page.counters(
            "findings",
            "Violations of the pairing rules that were found in request bodies",
            LabelSpace::closed([("kind", &FindingKind::ALL.map(FindingKind::code)), ("format", &Format::ALL.map(Format::label))]),
        );
        repairs: CounterFamily<2> = page.counters(
            "repairs",
            "Repair actions that were applied to request bodies",
            LabelSpace::closed([("action", &Action::ALL.map(Action::label)), ("format", &Format::ALL.map(Format::label))]),
        );
        unreadable: CounterFamily<1> = page.counters(
            "unreadable",
            "Request bodies that could not be read and were forwarded unchanged",
            LabelSpace::closed([("reason", &Unreadable::ALL.map(Unreadable::code))]),
        );
        rejections: CounterFamily<1> = page.counters(
            "rejections",
            "Requests that were rejected in strict mode",
            LabelSpace::closed([("format", &Format::ALL.map(Format::label))]),
        );
        second_repairs: CounterFamily<1> = page.counters(
            "second_repairs",
            "Requests that were repaired again and retried because the provider refused the first attempt",
            LabelSpace::closed([("why", &SECOND_REPAIR_REASONS)]),
        );
        second_repairs_refused: CounterFamily<1> = page.counters(
            "second_repairs_refused",
            "Requests that the provider refused again on the retry with a second repair",
            LabelSpace::closed([("why", &SECOND_REPAIR_REASONS)]),
        );
        deferred: Counter = page.counter(
            "deferred",
            "Results that were left out because no message of the history can hold them yet",
        );
        unrepairable: Counter = page.counter("unrepairable", "Findings that no repair action is allowed to change");
        frozen_answers: CounterFamily<1> = page.counters(
            "frozen_answers",
            "Answers that were given to tool calls for good, by kind",
            LabelSpace::closed([("row", &FROZEN_ANSWERS)]),
        );
    }
}

impl RepairMetrics {
    /// Counts what an exchange that ended had in its body.
    pub(super) fn record_exchange(&self, event: &ExchangeEnded) {
        let format = event.format_label();
        if let Some(report) = &event.report {
            self.record_report(report, format);
        }
        if let Some(reason) = event.unreadable {
            self.unreadable.count([reason.code()]);
        }
        if event.rejected {
            self.rejections.count([format]);
        }
    }

    fn record_report(&self, report: &RepairReport, format: &'static str) {
        // Content and ids of findings are never labels, only their kinds.
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
