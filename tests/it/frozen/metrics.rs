//! Pins the metrics page: names, types, labels, values of closed labels, and bucket bounds. Help texts are not pinned.

use std::{collections::BTreeSet, time::Duration};

use antiphon::{
    conversation::{Finding, FindingKind},
    policy::ProfileState,
    policy::{CooldownReason, Side, breaker},
    repair::{Action, RepairReport},
    session_table::{ClosedCalls, DetachReason, EnteredLane, SettledCall},
    telemetry::{
        BodyLoad, LATE_RESULT_EVENTS, LEDGER_ERRORS, LEDGER_OPS, POST_ANSWERS, Telemetry,
        events::{AnswerSummary, ExchangeEnded, ResultPosted, RowOutcome},
    },
    upstream::NetworkCause,
    wire::{Format, Unreadable, watch::stop_labels},
};

use crate::{frozen::golden::same_lines, frozen::words::CLASSES, telemetry::metrics::ended};

/// Labels whose values come from the configuration, from clients or from the build.
const OPEN_LABELS: [&str; 5] = ["upstream", "profile", "tool", "version", "revision"];

/// Returns `true` for a label of a metric whose values are not pinned.
pub(crate) fn is_open(name: &str, label: &str) -> bool {
    // The other metric with this label has a closed list of rows.
    OPEN_LABELS.contains(&label) || (name == "antiphon_refusal_rows_total" && label == "row")
}

/// Returns telemetry with one event of every kind.
pub(crate) fn exercised() -> Telemetry {
    let telemetry = Telemetry::new(["u"]);
    telemetry.set_ledger_usage_source(|| Some([1, 2]));
    telemetry.set_body_load_source(BodyLoad::default);
    telemetry.set_overdue_source(|| 1);
    telemetry.record_certificate_expiry(Duration::from_secs(1));
    for status in [0, 101, 200, 302, 404, 500] {
        exchanges(&telemetry, status);
    }
    for class in CLASSES {
        telemetry.count_attempt("u", class.label());
    }
    for cause in NetworkCause::ALL {
        telemetry.record_network_failure(cause);
    }
    for reason in CooldownReason::ALL
        .map(CooldownReason::label)
        .into_iter()
        .chain(["other"])
    {
        telemetry.record_rotation("u", "p", reason);
    }
    for state in ProfileState::ALL {
        telemetry.set_profile_state("u", "p", state.label(), true);
    }
    for standing in breaker::BreakerState::ALL {
        telemetry.set_breaker_count("u", standing.label(), 1);
    }
    for answer in POST_ANSWERS {
        telemetry.record_post(&ResultPosted {
            service: "s",
            answer,
            bytes: 1,
            source: None,
        });
    }
    for event in LATE_RESULT_EVENTS {
        telemetry.record_late_event(event);
    }
    for why in DetachReason::ALL {
        telemetry.record_detached_calls(why, 1);
    }
    for op in LEDGER_OPS {
        for kind in LEDGER_ERRORS {
            telemetry.record_ledger_op(op, Duration::from_millis(1), Some(kind));
        }
    }
    calls(&telemetry);
    telemetry
}

/// Records exchanges with this status, in every format and with every side.
fn exchanges(telemetry: &Telemetry, status: u16) {
    let finding = |kind| Finding {
        kind,
        message: 0,
        part: None,
        id: String::new(),
        within: String::new(),
        detail: None,
    };
    let report = RepairReport {
        findings: FindingKind::ALL.map(finding).into(),
        actions: Action::ALL.map(|action| (action, 1)).into(),
        ..RepairReport::default()
    };
    for (at, format) in Format::ALL.map(Some).into_iter().chain([None]).enumerate() {
        // Every side with one format alone: all combinations have no room on the page.
        let sides = Side::ALL.map(Side::label).map(Some).into_iter().filter(|_| at == 0);
        for side in sides.chain([None]) {
            telemetry.record_exchange(&ExchangeEnded {
                upstream: Some("u".to_owned()),
                format,
                status,
                side,
                is_rejected: true,
                is_stalled: true,
                report: format.map(|_| report.clone()),
                ..ended()
            });
        }
    }
    let mut refused = ended();
    // Backwards, since an explanation takes the place of a refusal that was relayed.
    for outcome in RowOutcome::ALL.into_iter().rev() {
        refused.record_row("developer_not_one_of_roles", outcome);
    }
    telemetry.record_exchange(&refused);
    for reason in Unreadable::ALL {
        let unreadable = Some(reason);
        telemetry.record_exchange(&ExchangeEnded { unreadable, ..ended() });
    }
    for format in Format::ALL {
        for stop in stop_labels(format) {
            let watched = Some(watched(format, stop));
            telemetry.record_exchange(&ExchangeEnded {
                answer_summary: watched,
                ..ended()
            });
        }
    }
}

fn watched(format: Format, stop: &'static str) -> AnswerSummary {
    AnswerSummary {
        format,
        is_stream: true,
        stop,
        calls: 1,
        server_tools: 1,
        input_tokens: 1,
        output_tokens: 1,
        truncated: 1,
    }
}

/// Records tool calls that ended in every way.
fn calls(telemetry: &Telemetry) {
    let settled = |attached| SettledCall {
        tool: "t".into(),
        open_for: Duration::from_secs(60),
        attached,
        is_overrun: !attached,
    };
    telemetry.record_lane_request(&EnteredLane {
        closed: ClosedCalls {
            settled: [true, false].map(settled).into(),
            placeholder: 1,
            abandoned: 1,
            detached: DetachReason::ALL.into(),
        },
        forks: 1,
        ..EnteredLane::default()
    });
    telemetry.record_late_delivery(Duration::from_secs(1), None);
    for row in ["moved", "restored", "placeholder"] {
        telemetry.record_pinned_result(row);
    }
    for op in ["read", "write"] {
        telemetry.record_ledger_timeout(op);
    }
    for what in ["reasoning_content", "thought_signature", "container"] {
        for source in ["noted", "neutral"] {
            telemetry.record_continued(what, source);
        }
    }
    for why in ["pairing", "binding", "continuity", "foreign"] {
        telemetry.record_resend(why);
        telemetry.record_refused_resend(why);
    }
    telemetry.record_connect(Duration::from_secs(1));
    telemetry.record_first_byte(Duration::from_secs(1));
}

/// Returns the facts of one sample: its name with its labels, and each value of a closed label.
fn sample(line: &str) -> Vec<String> {
    let (series, _) = line.rsplit_once(' ').unwrap();
    let Some((name, labels)) = series.split_once('{') else {
        return vec![format!("sample {series}")];
    };
    let labels = labels.strip_suffix('}').unwrap();
    let pairs: Vec<(&str, &str)> = labels
        .split("\",")
        .map(|pair| pair.trim_end_matches('"').split_once("=\"").unwrap())
        .collect();
    let names: Vec<&str> = pairs.iter().map(|(label, _)| *label).collect();
    let mut facts = vec![format!("sample {name}{{{}}}", names.join(","))];
    let closed = pairs.iter().filter(|(label, _)| !is_open(name, label));
    facts.extend(closed.map(|(label, value)| format!("value {name} {label}={value}")));
    facts
}

#[test]
fn metric_names_types_and_labels_are_pinned() {
    let page = exercised().encode_metrics();
    let mut facts = BTreeSet::new();
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            facts.insert(format!("family {family}"));
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            facts.insert(format!("unit {unit}"));
        } else if !line.starts_with('#') {
            facts.extend(sample(line));
        }
    }
    // Process metrics exist only on Linux.
    facts.retain(|fact| !fact.contains(" process_"));
    same_lines("metrics.txt", facts);
}
