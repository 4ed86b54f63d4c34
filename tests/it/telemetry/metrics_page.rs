//! The metrics page before any traffic: every name, help text, unit and closed label list.

use antiphon::{
    conversation::FindingKind,
    ledger::RecordKind,
    repair::Action,
    telemetry::{
        BodyLoad, CLAIM_ANSWERS, LATE_RESULT_EVENTS, LEDGER_ERRORS, LEDGER_OPS, POST_ANSWERS, events::RowOutcome,
    },
    wire::{Format, Unreadable, watch::stop_labels},
};

use crate::telemetry::metrics::{ended, has, telemetry};

#[test]
fn closed_label_values_start_at_zero() {
    let page = telemetry().encode_metrics();
    for format in Format::ALL.map(Format::label) {
        for kind in FindingKind::ALL {
            has(
                &page,
                &format!(
                    "antiphon_findings_total{{kind=\"{}\",format=\"{format}\"}} 0",
                    kind.code()
                ),
            );
        }
        for action in Action::ALL {
            has(
                &page,
                &format!(
                    "antiphon_repairs_total{{action=\"{}\",format=\"{format}\"}} 0",
                    action.label()
                ),
            );
        }
        for name in ["rejections", "calls_emitted", "server_tools"] {
            has(&page, &format!("antiphon_{name}_total{{format=\"{format}\"}} 0"));
        }
        for direction in ["input", "output"] {
            let labels = format!("format=\"{format}\",direction=\"{direction}\"");
            has(&page, &format!("antiphon_tokens_total{{{labels}}} 0"));
        }
    }
    for reason in Unreadable::ALL {
        has(
            &page,
            &format!("antiphon_unreadable_total{{reason=\"{}\"}} 0", reason.code()),
        );
    }
    for format in Format::ALL {
        for stop in stop_labels(format) {
            let labels = format!("format=\"{}\",stop=\"{stop}\"", format.label());
            has(&page, &format!("antiphon_stream_ends_total{{{labels}}} 0"));
        }
    }
    for answer in POST_ANSWERS {
        has(&page, &format!("antiphon_ledger_posts_total{{answer=\"{answer}\"}} 0"));
    }
    for answer in CLAIM_ANSWERS {
        has(&page, &format!("antiphon_ledger_claims_total{{answer=\"{answer}\"}} 0"));
    }
    for event in LATE_RESULT_EVENTS {
        has(&page, &format!("antiphon_late_results_total{{event=\"{event}\"}} 0"));
    }
}

#[test]
fn metrics_with_few_or_no_labels_start_at_zero() {
    let page = telemetry().encode_metrics();
    has(&page, "antiphon_late_result_age_seconds_count 0");
    for kind in RecordKind::LABELS {
        has(&page, &format!("antiphon_ledger_lost_total{{kind=\"{kind}\"}} 0"));
    }
    has(&page, "antiphon_ledger_healthy 1");
    has(&page, "antiphon_spans_sent_total 0");
    has(&page, "antiphon_spans_lost_total{why=\"full\"} 0");
    has(&page, "antiphon_spans_lost_total{why=\"failed\"} 0");
    has(&page, "antiphon_watcher_truncated_total 0");
    has(&page, "antiphon_streams_active 0");
    has(&page, "antiphon_watcher_blind_total 0");
    has(&page, "antiphon_deferred_total 0");
    has(&page, "antiphon_unrepairable_total 0");
    has(&page, "antiphon_overhead_seconds_count 0");
    has(&page, "antiphon_inflight_requests 0");
    has(&page, "antiphon_config_last_reload_successful 1");
    has(&page, "antiphon_series_folded_total 0");
    for op in LEDGER_OPS {
        has(
            &page,
            &format!("antiphon_ledger_op_duration_seconds_count{{op=\"{op}\"}} 0"),
        );
        for kind in LEDGER_ERRORS {
            has(
                &page,
                &format!("antiphon_ledger_errors_total{{op=\"{op}\",kind=\"{kind}\"}} 0"),
            );
        }
    }
    for phase in ["connect", "headers", "first_byte", "body"] {
        has(
            &page,
            &format!("antiphon_upstream_duration_seconds_count{{phase=\"{phase}\"}} 0"),
        );
    }
    has(
        &page,
        concat!(
            "antiphon_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\",revision=\"unknown\"} 1"
        ),
    );
    assert!(page.ends_with("# EOF\n"), "{page}");
}

/// Every metric, in page order.
const OURS: [&str; 66] = [
    "antiphon_requests",
    "antiphon_inflight_requests",
    "antiphon_request_duration_seconds",
    "antiphon_overhead_seconds",
    "antiphon_ledger_hold_seconds",
    "antiphon_findings",
    "antiphon_repairs",
    "antiphon_unreadable",
    "antiphon_rejections",
    "antiphon_second_repairs",
    "antiphon_second_repairs_refused",
    "antiphon_refusal_rows",
    "antiphon_deferred",
    "antiphon_unrepairable",
    "antiphon_frozen_answers",
    "antiphon_continued",
    "antiphon_streams_active",
    "antiphon_calls_emitted",
    "antiphon_server_tools",
    "antiphon_stream_ends",
    "antiphon_stream_stalls",
    "antiphon_tokens",
    "antiphon_watcher_blind",
    "antiphon_watcher_truncated",
    "antiphon_upstream_duration_seconds",
    "antiphon_attempts",
    "antiphon_network_failures",
    "antiphon_profile_state",
    "antiphon_profile_rotations",
    "antiphon_breakers",
    "antiphon_stuck_sessions",
    "antiphon_lanes",
    "antiphon_session_forks",
    "antiphon_tool_calls_inflight",
    "antiphon_tool_calls_closed",
    "antiphon_settles",
    "antiphon_long_calls",
    "antiphon_late_tool_calls",
    "antiphon_calls_detached",
    "antiphon_calls_repeated",
    "antiphon_tool_round_trip_seconds",
    "antiphon_ledger_missed",
    "antiphon_ledger_lost",
    "antiphon_ledger_healthy",
    "antiphon_ledger_clock_skew_seconds",
    "antiphon_ledger_op_duration_seconds",
    "antiphon_ledger_errors",
    "antiphon_ledger_posts",
    "antiphon_ledger_claims",
    "antiphon_late_results",
    "antiphon_late_result_age_seconds",
    "antiphon_spans_sent",
    "antiphon_spans_lost",
    "antiphon_build",
    "antiphon_config_last_reload_successful",
    "antiphon_config_last_reload_success_timestamp_seconds",
    "antiphon_connections_refused",
    "antiphon_tls_handshakes_failed",
    "antiphon_ledger_records",
    "antiphon_ledger_bytes",
    "antiphon_messages_overdue",
    "antiphon_body_memory_bytes",
    "antiphon_body_memory_max_bytes",
    "antiphon_bodies_waiting_for_memory",
    "antiphon_bodies_waiting_for_work",
    "antiphon_series_folded",
];

/// Process metrics from the system.
const PROCESS: [&str; 6] = [
    "process_cpu_seconds",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
];

#[test]
fn every_metric_has_help_and_measurements_have_a_unit() {
    let telemetry = telemetry();
    telemetry.set_ledger_usage_source(|| Some([3, 900]));
    telemetry.set_body_load_source(BodyLoad::default);
    telemetry.set_overdue_source(|| 1);
    telemetry.record_rotation("anthropic", "a", "auth");
    telemetry.count_attempt("anthropic", "ok");
    telemetry.set_profile_state("anthropic", "a", "ready", true);
    telemetry.set_breaker_count("anthropic", "open", 1);
    let mut refused = ended();
    refused.record_row("developer_not_one_of_roles", RowOutcome::Relayed);
    telemetry.record_exchange(&refused);
    let page = telemetry.encode_metrics();
    let mut names: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let ours: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| name.starts_with("antiphon_"))
        .collect();
    assert_eq!(ours, OURS);
    let process = names.split_off(ours.len());
    let expected: &[&str] = if cfg!(target_os = "linux") { &PROCESS } else { &[] };
    assert_eq!(process, expected);
    for name in names.into_iter().chain(process) {
        assert!(page.contains(&format!("# HELP {name} ")), "{name} has no help");
        assert_eq!(
            name.ends_with("_seconds"),
            page.contains(&format!("# UNIT {name} seconds")),
            "{name}"
        );
        assert_eq!(
            name.ends_with("_bytes"),
            page.contains(&format!("# UNIT {name} bytes")),
            "{name}"
        );
    }
}
