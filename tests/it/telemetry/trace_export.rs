//! Span export: the collector never delays an exchange, lost spans are counted, and the drain sends the rest.

use std::time::Duration;

use antiphon::telemetry::{TraceSettings, events::ExchangeEnded};
use http::HeaderMap;

use crate::{
    support::{
        app::{before, post},
        binary::Install,
        collector::{Collector, counted, tracing},
        ports::CLOSED,
        wire::Upstream,
    },
    telemetry::metrics,
};

#[tokio::test]
async fn a_failing_collector_delays_no_exchange_and_lost_spans_are_counted() {
    let refusing = Collector::answering("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let gone = format!("http://{CLOSED}/v1/traces");
    let stalled = Collector::stalled().await;
    for endpoint in [refusing.endpoint(), gone.parse().unwrap(), stalled.endpoint()] {
        let upstream = Upstream::ok().await;
        let app = tracing(&upstream, &refusing, |settings| {
            settings.endpoint = endpoint.clone();
            settings.timeout = Duration::from_millis(100);
        })
        .await;
        for _ in 0..3 {
            assert_eq!(
                app.ask(post("/anthropic/v1/messages", "{}")).await.status(),
                200,
                "{endpoint}"
            );
        }
        app.telemetry.flush_traces().await;
        assert_eq!(
            counted(&app, "antiphon_spans_lost_total{why=\"failed\"}"),
            6,
            "{endpoint}"
        );
        assert_eq!(counted(&app, "antiphon_spans_sent_total"), 0, "{endpoint}");
    }
}

#[tokio::test]
async fn the_span_queue_is_bounded_and_overflow_is_counted() {
    let upstream = Upstream::ok().await;
    let settings = TraceSettings::for_endpoint("http://127.0.0.1:9/v1/traces".parse().unwrap());
    let mut parts = before(upstream.address)
        .with(|builder| builder.traces = Some(settings))
        .parts();
    // The queue is never emptied, so its free space does not change.
    let exporter = parts.traces.take().unwrap();
    let telemetry = parts.shared.telemetry.clone();
    let trace = telemetry.start_trace(&HeaderMap::new());
    let event = ExchangeEnded {
        trace,
        ..metrics::ended()
    };
    for _ in 0..1030 {
        telemetry.record_exchange(&event);
    }
    drop(exporter);
    let page = telemetry.encode_metrics();
    assert!(page.contains("antiphon_spans_lost_total{why=\"full\"} 12\n"), "{page}");
}

#[tokio::test]
async fn the_drain_sends_queued_spans_but_does_not_wait_for_a_stalled_collector() {
    let (upstream, collector) = (Upstream::ok().await, Collector::start().await);
    let app = tracing(&upstream, &collector, |_| {}).await;
    app.ask(post("/anthropic/v1/messages", "{}")).await;
    assert!(collector.exports().is_empty());
    app.running.drain().await;
    assert_eq!(collector.spans().len(), 2);

    let stalled = Collector::stalled().await;
    let app = tracing(&upstream, &stalled, |settings| {
        settings.timeout = Duration::from_secs(3600);
    })
    .await;
    app.ask(post("/anthropic/v1/messages", "{}")).await;
    tokio::time::pause();
    app.running.drain().await;
}

#[tokio::test]
async fn without_traces_no_trace_is_started() {
    let upstream = Upstream::ok().await;
    let app = before(upstream.address).start().await;
    assert!(app.telemetry.start_trace(&HeaderMap::new()).is_none());
    assert!(!app.telemetry.has_traces());
    app.telemetry.flush_traces().await;
}

#[tokio::test]
async fn the_binary_reads_the_opentelemetry_variables() {
    let (upstream, collector) = (Upstream::ok().await, Collector::start().await);
    let url = format!("[upstreams.anthropic]\nurl = \"http://{}\"\n", upstream.address);
    let install = Install::new(&url);
    let endpoint = collector.endpoint().to_string();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.trim_end_matches("/v1/traces")),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b"),
        ("OTEL_SERVICE_NAME", "trial"),
    ];
    for (disabled, exports) in [("true", 0), ("false", 1)] {
        let variables: Vec<_> = variables.into_iter().chain([("OTEL_SDK_DISABLED", disabled)]).collect();
        let process = install.start_with(&variables).await;
        assert_eq!(process.ask(post("/anthropic/v1/messages", "{}")).await.status(), 200);
        process.stop().await;
        assert_eq!(collector.exports().len(), exports, "OTEL_SDK_DISABLED={disabled}");
    }
    assert_eq!(collector.exports()[0].header("x-team"), Some("a b"));
    assert_eq!(collector.resource()["service.name"], "trial");
    assert_eq!(collector.spans().len(), 2);
}
