//! Metrics and log line of an exchange.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use antiphon::{
    conversation::{Finding, FindingKind},
    repair::{Action, Mode, RepairReport},
    telemetry::{
        Telemetry,
        events::{AnswerSummary, ExchangeEnded},
    },
    wire::{
        Format, Unreadable,
        watch::{Framing, Watcher},
    },
};

/// Returns a successful exchange.
pub(crate) fn ended() -> ExchangeEnded {
    ExchangeEnded {
        request_id: "0190b5a0-0000-7000-8000-000000000000".into(),
        method: "POST",
        upstream: Some("anthropic".into()),
        asks_model: true,
        cause: None,
        path: "/anthropic/v1/messages".into(),
        model: None,
        client: None,
        client_token: None,
        lane: None,
        format: Some(Format::Anthropic),
        mode: Some(Mode::Repair),
        status: 200,
        report: Some(RepairReport::default()),
        unreadable: None,
        is_rejected: false,
        is_history_refused: false,
        mends: Vec::new(),
        row_refusals: Vec::new(),
        sends: 1,
        bytes_in: 10,
        bytes_out: 20,
        overhead: Duration::from_micros(300),
        ledger_hold: Duration::ZERO,
        upstream_head: Some(Duration::from_millis(700)),
        first_byte: Some(Duration::from_millis(50)),
        upstream_body: Some(Duration::from_secs(3)),
        duration: Duration::from_secs(4),
        answer_summary: None,
        profile: None,
        is_stalled: false,
        running_tool: None,
        side: None,
        phase: "done",
        code: "ok",
        trace: None,
    }
}

/// Returns telemetry that knows two upstreams.
pub(crate) fn telemetry() -> Telemetry {
    Telemetry::new(["anthropic", "openai"])
}

/// Asserts that a line is on the metrics page.
pub(crate) fn has(page: &str, line: &str) {
    assert!(page.lines().any(|known| known == line), "no line {line:?} in\n{page}");
}

#[test]
fn an_exchange_is_counted_once_in_each_metric() {
    let telemetry = telemetry();
    let finding = |kind| Finding {
        kind,
        message: 3,
        part: None,
        id: "call_secret".into(),
        within: String::new(),
        detail: None,
    };
    let report = RepairReport {
        findings: vec![
            finding(FindingKind::Unanswered),
            finding(FindingKind::Unanswered),
            finding(FindingKind::Orphan),
        ],
        broken_calls: Vec::new(),
        actions: BTreeMap::from([(Action::Placeholder, 2), (Action::Quote, 1)]),
        deferred: 4,
        unrepairable: 5,
        renamed: Vec::new(),
        unread: None,
    };
    telemetry.record_exchange(&ExchangeEnded {
        report: Some(report),
        ..ended()
    });
    let clone = telemetry.clone();
    clone.record_stream_start();
    telemetry.record_stream_start();
    telemetry.record_stream_end();
    telemetry.record_unwatched_answer();
    let page = telemetry.encode_metrics();
    for line in [
        "antiphon_requests_total{upstream=\"anthropic\",format=\"anthropic\",code_class=\"2xx\",outcome=\"ok\"} 1",
        "antiphon_findings_total{kind=\"unanswered\",format=\"anthropic\"} 2",
        "antiphon_findings_total{kind=\"orphan\",format=\"anthropic\"} 1",
        "antiphon_repairs_total{action=\"placeholder\",format=\"anthropic\"} 2",
        "antiphon_repairs_total{action=\"quoted\",format=\"anthropic\"} 1",
        "antiphon_deferred_total 4",
        "antiphon_unrepairable_total 5",
        "antiphon_streams_active 1",
        "antiphon_watcher_blind_total 1",
        "antiphon_overhead_seconds_count 1",
        "antiphon_request_duration_seconds_sum{format=\"anthropic\"} 4.0",
        "antiphon_upstream_duration_seconds_sum{phase=\"headers\"} 0.7",
        "antiphon_upstream_duration_seconds_sum{phase=\"body\"} 3.0",
    ] {
        has(&page, line);
    }
    assert!(!page.contains("call_secret"));
}

#[test]
fn rejections_and_failures_are_counted_separately() {
    let telemetry = telemetry();
    telemetry.record_exchange(&ExchangeEnded {
        status: 400,
        is_rejected: true,
        side: Some("client"),
        code: "rejected",
        ..ended()
    });
    telemetry.record_exchange(&ExchangeEnded {
        report: None,
        unreadable: Some(Unreadable::Shape),
        ..ended()
    });
    telemetry.record_exchange(&ExchangeEnded {
        status: 0,
        side: Some("client"),
        format: None,
        report: None,
        ..ended()
    });
    let page = telemetry.encode_metrics();
    for line in [
        "antiphon_rejections_total{format=\"anthropic\"} 1",
        "antiphon_unreadable_total{reason=\"shape\"} 1",
        "antiphon_requests_total{upstream=\"anthropic\",format=\"anthropic\",code_class=\"4xx\",outcome=\"client\"} 1",
        "antiphon_requests_total{upstream=\"anthropic\",format=\"none\",code_class=\"none\",outcome=\"client\"} 1",
        "antiphon_overhead_seconds_count 2",
    ] {
        has(&page, line);
    }
}

/// Returns the summary of a stream with this stop reason, two calls, a server tool and secret ids.
fn watched(stop: &str) -> AnswerSummary {
    let mut watcher = Watcher::new(Some(Format::Anthropic), Framing::Events);
    let block = |kind: &str, id: usize| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"content_block\":{{\"type\":\"{kind}\",\
             \"id\":\"secret_{id}\",\"name\":\"secret_tool\"}}}}\n\n"
        )
    };
    watcher.push((block("tool_use", 1) + &block("tool_use", 2) + &block("server_tool_use", 3)).as_bytes());
    let usage = "\"usage\":{\"input_tokens\":30,\"output_tokens\":4}";
    let end = format!("data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{stop}\"}},{usage}}}\n\n");
    watcher.push((end + "data: {\"type\":\"message_stop\"}\n\n").as_bytes());
    AnswerSummary::from_watcher(&watcher).unwrap()
}

#[test]
fn answers_are_counted_and_logged_without_content() {
    let telemetry = telemetry();
    for stop in ["tool_use", "secret_stop"] {
        let event = ExchangeEnded {
            answer_summary: Some(watched(stop)),
            ..ended()
        };
        telemetry.record_exchange(&event);
        let line = logged(&event);
        let shown = if stop == "tool_use" { stop } else { "other" };
        assert_eq!(
            (&line["stop"], &line["calls"], &line["server_tools"]),
            (&shown.into(), &2.into(), &1.into())
        );
        assert!(!line.to_string().contains("secret"), "{line}");
    }
    telemetry.record_exchange(&ExchangeEnded {
        answer_summary: Some(AnswerSummary {
            is_stream: false,
            truncated: 3,
            ..watched("end_turn")
        }),
        ..ended()
    });
    let page = telemetry.encode_metrics();
    for line in [
        "antiphon_calls_emitted_total{format=\"anthropic\"} 6",
        "antiphon_server_tools_total{format=\"anthropic\"} 3",
        "antiphon_stream_ends_total{format=\"anthropic\",stop=\"tool_use\"} 1",
        "antiphon_stream_ends_total{format=\"anthropic\",stop=\"other\"} 1",
        "antiphon_stream_ends_total{format=\"anthropic\",stop=\"end_turn\"} 0",
        "antiphon_tokens_total{format=\"anthropic\",direction=\"input\"} 90",
        "antiphon_tokens_total{format=\"anthropic\",direction=\"output\"} 12",
        "antiphon_watcher_truncated_total 3",
    ] {
        has(&page, line);
    }
    assert!(!page.contains("secret"), "{page}");
}

#[test]
fn a_client_cannot_invent_labels() {
    let telemetry = telemetry();
    let end = |n: usize| {
        telemetry.record_exchange(&ExchangeEnded {
            upstream: Some(format!("made-up-{n}")),
            ..ended()
        });
    };
    end(0);
    let lines = telemetry.encode_metrics().lines().count();
    (1..50).for_each(end);
    let page = telemetry.encode_metrics();
    has(
        &page,
        "antiphon_requests_total{upstream=\"none\",format=\"anthropic\",code_class=\"2xx\",outcome=\"ok\"} 50",
    );
    assert!(!page.contains("made-up"));
    assert_eq!(page.lines().count(), lines);
}

/// A buffer of log lines.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Captures the log lines of this thread while the guard lives.
    pub(crate) fn listen() -> (Self, tracing::subscriber::DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(move || writer.clone())
            .without_time()
            .finish();
        (lines, crate::support::log::listen(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the log line of an exchange as JSON.
fn logged(event: &ExchangeEnded) -> serde_json::Value {
    let (lines, _listening) = Lines::listen();
    telemetry().record_exchange(event);
    serde_json::from_str(&lines.text()).unwrap()
}

#[test]
fn an_exchange_writes_one_log_line() {
    let actions = BTreeMap::from([(Action::Move, 1), (Action::Placeholder, 2)]);
    let line = logged(&ExchangeEnded {
        report: Some(RepairReport {
            actions,
            ..RepairReport::default()
        }),
        ledger_hold: Duration::from_millis(40),
        ..ended()
    });
    let expected = serde_json::json!({
        "level": "INFO", "target": "antiphon::exchange", "message": "exchange ended",
        "request_id": "0190b5a0-0000-7000-8000-000000000000", "method": "POST", "path": "/anthropic/v1/messages",
        "upstream": "anthropic", "format": "anthropic", "mode": "repair", "status": 200,
        "repair": "moved=1, placeholder=2", "attempts": 1, "bytes_in": 10, "bytes_out": 20,
        "overhead_us": 300, "ledger_hold_ms": 40, "head_ms": 700, "dur_ms": 4000, "side": "-", "phase": "done",
        "code": "ok",
    });
    assert_eq!(line, expected);
}

#[test]
fn the_log_line_has_the_same_repair_words_as_the_header() {
    let finding = Finding {
        kind: FindingKind::Orphan,
        message: 0,
        part: None,
        id: "call_1".into(),
        within: String::new(),
        detail: None,
    };
    let observed = RepairReport {
        findings: vec![finding],
        ..RepairReport::default()
    };
    for (event, words) in [
        (ended(), "none"),
        (
            ExchangeEnded {
                report: Some(observed),
                ..ended()
            },
            "observed",
        ),
        (
            ExchangeEnded {
                is_rejected: true,
                ..ended()
            },
            "rejected",
        ),
        (
            ExchangeEnded {
                unreadable: Some(Unreadable::NotJson),
                ..ended()
            },
            "unreadable; reason=not_json",
        ),
    ] {
        let line = logged(&event);
        assert_eq!(line["repair"], words);
        // The id of a call without details in its body.
        let call = (words == "observed").then_some("orphan - call_1");
        assert_eq!(line["broken_calls"].as_str(), call);
    }
    let line = logged(&ExchangeEnded {
        report: None,
        upstream: None,
        format: None,
        ..ended()
    });
    assert!(
        line.get("repair").is_none() && line.get("upstream").is_none() && line.get("format").is_none(),
        "{line}"
    );
}

#[test]
fn a_logged_path_is_short_and_has_no_query() {
    let line = logged(&ExchangeEnded {
        path: format!("/{}?key=secret", "ä".repeat(400)),
        ..ended()
    });
    assert_eq!(line["path"].as_str().unwrap().chars().count(), 256);
    let line = logged(&ExchangeEnded {
        path: "/gemini?key=secret".into(),
        ..ended()
    });
    assert_eq!(line["path"], "/gemini");
}
