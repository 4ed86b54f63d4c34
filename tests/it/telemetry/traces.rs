//! Traces at the collector: two spans per exchange, on the client's trace, without content.

use std::time::Duration;

use antiphon::{
    policy::stream_timeouts::RunningTool,
    telemetry::{TRACE_NAMES, Telemetry, TraceSampling, TraceSettings, events::ExchangeEnded},
};
use http::HeaderMap;

use crate::{
    support::{
        app::{post, post_with},
        collector::{Collector, Span, counted, tracing},
        wire::{SSE, Upstream, chunk},
    },
    telemetry::metrics::{Lines, ended},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// Every attribute name of a span. Dashboards use these names, so they must stay.
#[rustfmt::skip]
const NAMES: [&str; 33] = [
    "antiphon.attempts", "antiphon.code", "antiphon.format", "antiphon.mode", "antiphon.phase", "antiphon.profile",
    "antiphon.repair", "antiphon.request_id", "antiphon.side", "antiphon.upstream",
    "error.type",
    "gen_ai.conversation.id", "gen_ai.operation.name", "gen_ai.provider.name",
    "gen_ai.request.max_tokens", "gen_ai.request.model", "gen_ai.request.stream",
    "gen_ai.response.finish_reasons", "gen_ai.response.id", "gen_ai.response.model", "gen_ai.response.time_to_first_chunk",
    "gen_ai.tool.call.id", "gen_ai.tool.name",
    "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens", "gen_ai.usage.reasoning.output_tokens",
    "http.request.method", "http.response.status_code", "http.route",
    "server.address", "server.port",
];

/// Content, and attributes that the conventions have dropped.
#[rustfmt::skip]
const NEVER: [&str; 12] = [
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments", "gen_ai.tool.call.result",
    "gen_ai.system", "gen_ai.prompt", "gen_ai.completion", "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens",
    "url.full",
];

const MESSAGE: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_9\",\"type\":\"message\",\"role\":\"assistant\",",
    "\"model\":\"claude-test-4-20260801\",\"content\":[],\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":70,",
    "\"cache_creation_input_tokens\":600,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"canary-said\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":42}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

const ASK: &str = r#"{"model":"claude-test-4","max_tokens":1024,"stream":true,"messages":[{"role":"user","content":"canary-asked"}]}"#;

/// Attributes of the spans of [`ASK`].
const SERVED: Said = &[
    ("http.request.method", "POST"),
    ("http.route", "/v1/messages"),
    ("http.response.status_code", "200"),
    ("antiphon.upstream", "anthropic"),
    ("antiphon.format", "anthropic"),
    ("antiphon.mode", "repair"),
    ("antiphon.repair", "none"),
    ("antiphon.attempts", "1"),
    ("antiphon.phase", "done"),
    ("antiphon.code", "ok"),
    ("error.type", ""),
];
const ASKED: Said = &[
    ("gen_ai.operation.name", "chat"),
    ("gen_ai.provider.name", "anthropic"),
    ("gen_ai.request.model", "claude-test-4"),
    ("gen_ai.request.stream", "true"),
    ("gen_ai.request.max_tokens", "1024"),
    ("gen_ai.response.id", "msg_9"),
    ("gen_ai.response.model", "claude-test-4-20260801"),
    ("gen_ai.response.finish_reasons", "end_turn"),
    ("gen_ai.usage.input_tokens", "675"),
    ("gen_ai.usage.cache_read.input_tokens", "70"),
    ("gen_ai.usage.cache_creation.input_tokens", "600"),
    ("gen_ai.usage.output_tokens", "42"),
    ("gen_ai.usage.reasoning.output_tokens", ""),
    ("server.address", "127.0.0.1"),
    ("error.type", ""),
];

/// Starts a provider that streams [`MESSAGE`].
async fn streaming() -> Upstream {
    let whole = [SSE.as_bytes(), &chunk(MESSAGE), b"0\r\n\r\n"].concat();
    Upstream::answering(whole).await
}

/// Returns a JSON answer.
pub(crate) fn json(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn check(span: &Span, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = span.attributes.get(*name).map(String::as_str);
        assert_eq!(
            found,
            Some(*value).filter(|value| !value.is_empty()),
            "{name} in {span:#?}"
        );
    }
}

#[test]
fn spans_have_only_these_attributes() {
    assert_eq!(TRACE_NAMES, NAMES);
    for name in NEVER {
        assert!(!TRACE_NAMES.contains(&name), "{name}");
    }
}

#[tokio::test]
async fn an_exchange_is_a_server_span_with_a_client_span_below() {
    let (upstream, collector) = (streaming().await, Collector::start().await);
    let app = tracing(&upstream, &collector, |_| {}).await;
    let fields = [("traceparent", PARENT), ("tracestate", "vendor=1")];
    let answer = app
        .ask(post_with("/anthropic/v1/messages?beta=true", &fields, ASK.as_bytes()))
        .await;
    assert_eq!(answer.status(), 200);
    app.telemetry.flush_traces().await;
    let (server, client) = collector.pair();
    let client = client.unwrap();
    assert_eq!((server.name.as_str(), server.kind), ("POST /v1/messages", "server"));
    assert_eq!(
        (server.trace.as_str(), server.parent.as_str()),
        (TRACE, "b7ad6b7169203331")
    );
    assert_eq!((client.name.as_str(), client.kind), ("chat claude-test-4", "client"));
    assert_eq!((client.trace.as_str(), &client.parent), (TRACE, &server.id));
    assert_eq!((server.state.as_str(), client.state.as_str()), ("vendor=1", "vendor=1"));
    assert!(!server.is_error && !client.is_error);
    check(&server, SERVED);
    check(
        &server,
        &[("antiphon.request_id", answer.header("x-antiphon-request-id").unwrap())],
    );
    let port = upstream.address.port().to_string();
    check(&client, ASKED);
    check(&client, &[("server.port", &port)]);
    let first: f64 = client.attributes["gen_ai.response.time_to_first_chunk"]
        .parse()
        .unwrap();
    assert!((0.0..60.0).contains(&first), "{first}");
    assert!(
        server.times.0 <= client.times.0 && client.times.0 <= client.times.1,
        "{server:?} {client:?}"
    );
    assert_eq!(server.times.1, client.times.1);
    assert!(
        client.attributes["gen_ai.conversation.id"]
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit())
    );
    assert_eq!(collector.resource()["service.name"], "antiphon");
    assert_eq!(counted(&app, "antiphon_spans_sent_total"), 2);
}

/// Attribute names and values. An empty value means that the attribute is absent.
type Said = &'static [(&'static str, &'static str)];
/// A row of [`EXCHANGES`].
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    [&'static str; 2],
    [bool; 2],
    Said,
);

/// Upstream's status and body, path, request, names of the two spans, which of them are errors, and attributes of the
/// client span. An empty name means that the span is absent.
#[rustfmt::skip]
const EXCHANGES: &[Row] = &[
    ("200 OK", r#"{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-test-2026","choices":[{"index":0,"message":{"role":"assistant","content":"canary"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"completion_tokens_details":{"reasoning_tokens":3}}}"#,
        "/openai/v1/chat/completions", r#"{"model":"gpt-test","messages":[{"role":"user","content":"canary"}]}"#,
        ["POST /v1/chat/completions", "chat gpt-test"], [false, false],
        &[("gen_ai.provider.name", "openai"), ("gen_ai.response.model", "gpt-test-2026"), ("gen_ai.response.finish_reasons", "stop"), ("gen_ai.usage.reasoning.output_tokens", "3"), ("gen_ai.request.stream", "")]),
    ("200 OK", r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"canary"}]},"finishReason":"STOP"}],"modelVersion":"gemini-test-001"}"#,
        "/gemini/v1beta/models/gemini-test:generateContent?key=canary", r#"{"contents":[{"role":"user","parts":[{"text":"canary"}]}]}"#,
        ["POST /v1beta/models/{model}:generateContent", "generate_content gemini-test"], [false, false],
        &[("gen_ai.provider.name", "gcp.gemini"), ("gen_ai.response.model", "gemini-test-001")]),
    ("200 OK", r#"{"object":"response","id":"resp_1","model":"gpt-test-r","status":"completed","output":[]}"#,
        "/openai/v1/responses", r#"{"model":"gpt-test","max_output_tokens":77,"input":"canary"}"#,
        ["POST /v1/responses", "chat gpt-test"], [false, false],
        &[("gen_ai.response.id", "resp_1"), ("gen_ai.response.model", "gpt-test-r"), ("gen_ai.request.max_tokens", "77"), ("gen_ai.response.finish_reasons", "completed")]),
    ("200 OK", r#"{"input_tokens":5}"#,
        "/anthropic/v1/messages/count_tokens", r#"{"model":"m","messages":[]}"#,
        ["POST /v1/messages/count_tokens", "POST"], [false, false],
        &[("gen_ai.operation.name", ""), ("gen_ai.request.model", ""), ("http.request.method", "POST"), ("gen_ai.provider.name", "anthropic")]),
    ("429 Too Many Requests", r#"{"type":"error","error":{"type":"rate_limit_error","message":"canary"}}"#,
        "/anthropic/v1/messages", r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"canary"}]}"#,
        ["POST /v1/messages", "chat m"], [false, true],
        &[("error.type", "rate_limit"), ("gen_ai.response.id", "")]),
    ("529 Overloaded", r#"{"type":"error","error":{"type":"overloaded_error","message":"canary"}}"#,
        "/anthropic/v1/messages", r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"canary"}]}"#,
        ["POST /v1/messages", "chat m"], [true, true],
        &[("error.type", "overloaded")]),
    ("200 OK", "{}", "/nowhere/canary?canary", "{}", ["POST", ""], [false, false], &[]),
    ("200 OK", "{}", "/openai/v1/files/canary?canary", "{}", ["POST", "POST"], [false, false], &[("server.address", "127.0.0.1")]),
];

#[tokio::test]
async fn every_kind_of_exchange_has_its_spans_without_content() {
    for (status, said, path, body, names, errors, expected) in EXCHANGES {
        let upstream = Upstream::answering(json(status, said)).await;
        let collector = Collector::start().await;
        let app = tracing(&upstream, &collector, |_| {}).await;
        app.ask(post(path, body)).await;
        app.telemetry.flush_traces().await;
        let (server, client) = collector.pair();
        assert_eq!(server.parent, "", "{path}");
        let client = client.unwrap_or_default();
        assert_eq!([&*server.name, &*client.name], *names, "{path}");
        assert_eq!(
            [server.is_error, client.is_error],
            *errors,
            "{path}: {server:#?} {client:#?}"
        );
        check(&client, expected);
        let exported = String::from_utf8_lossy(&collector.exports()[0].body).into_owned();
        assert!(!exported.contains("canary"), "{path}: {exported}");
        for span in [server, client] {
            assert!(
                span.attributes.keys().all(|name| NAMES.contains(&name.as_str())),
                "{span:#?}"
            );
        }
    }
}

#[tokio::test]
async fn a_stalled_server_tool_is_named() {
    let (upstream, collector) = (Upstream::ok().await, Collector::start().await);
    let app = tracing(&upstream, &collector, |_| {}).await;
    app.telemetry.record_exchange(&ExchangeEnded {
        trace: app.telemetry.start_trace(&HeaderMap::new()),
        running_tool: Some(RunningTool {
            id: "srvtoolu_1".to_owned(),
            name: "web_search".to_owned(),
            age: Duration::from_secs(900),
        }),
        side: Some("provider_tool"),
        phase: "body",
        code: "server_tool_stalled",
        ..ended()
    });
    app.telemetry.flush_traces().await;
    let (server, client) = collector.pair();
    let client = client.unwrap();
    assert!(server.is_error && client.is_error);
    check(
        &client,
        &[
            ("gen_ai.tool.name", "web_search"),
            ("gen_ai.tool.call.id", "srvtoolu_1"),
            ("antiphon.side", "provider_tool"),
            ("error.type", "server_tool_stalled"),
        ],
    );
    assert!(!server.attributes.contains_key("gen_ai.tool.name"));
}

#[tokio::test]
async fn no_content_and_no_credential_is_exported() {
    let (upstream, collector) = (streaming().await, Collector::start().await);
    let app = tracing(&upstream, &collector, |_| {}).await;
    let body = r#"{"model":"m","max_tokens":9,"stream":true,"system":"canary-system","metadata":{"user_id":"canary-user"},
        "tools":[{"name":"canary_tool","description":"canary-description","input_schema":{}}],
        "messages":[{"role":"user","content":"canary-text"},
            {"role":"assistant","content":[{"type":"tool_use","id":"toolu_01canary","name":"canary_tool","input":{"a":"canary-input"}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01canary","content":"canary-result"},
                {"type":"tool_result","tool_use_id":"toolu_02canary","content":"canary-orphan"}]}]}"#;
    let fields = [
        ("x-api-key", "canary-key"),
        ("authorization", "Bearer canary-bearer"),
        ("cookie", "canary-cookie"),
        ("x-antiphon-session", "canary-session"),
        ("user-agent", "canary-agent"),
        ("baggage", "canary=canary-baggage"),
    ];
    for mode in [None, Some(("x-antiphon-mode", "strict"))] {
        let fields: Vec<_> = fields.into_iter().chain(mode).collect();
        app.ask(post_with(
            "/anthropic/v1/messages?key=canary-query",
            &fields,
            body.as_bytes(),
        ))
        .await;
    }
    app.telemetry.flush_traces().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{spans:#?}");
    assert_eq!(spans[2].attributes["antiphon.repair"], "rejected");
    assert_ne!(spans[0].attributes["antiphon.repair"], "none");
    for export in collector.exports() {
        let bytes = [export.head.as_bytes(), &export.body].concat();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn sampling_follows_the_traceparent_if_configured() {
    let share = |follows_parent, share| TraceSampling { follows_parent, share };
    for (parent, sampling, sent) in [
        (None, share(true, 1.0), true),
        (None, share(true, 0.0), false),
        (Some(PARENT), share(true, 0.0), true),
        (Some(UNSAMPLED), share(true, 1.0), false),
        (Some(UNSAMPLED), share(false, 1.0), true),
        (Some(PARENT), share(false, 0.0), false),
    ] {
        let (upstream, collector) = (Upstream::ok().await, Collector::start().await);
        let app = tracing(&upstream, &collector, |settings| settings.sampling = sampling).await;
        let fields: Vec<_> = parent.map(|parent| ("traceparent", parent)).into_iter().collect();
        app.ask(post_with("/anthropic/v1/messages", &fields, b"{}")).await;
        app.telemetry.flush_traces().await;
        assert_eq!(!collector.exports().is_empty(), sent, "{parent:?} {sampling:?}");
    }
}

#[test]
fn the_log_line_of_an_exchange_names_its_trace() {
    let settings = TraceSettings::for_endpoint("http://127.0.0.1:9/v1/traces".parse().unwrap());
    let (telemetry, _exporter) = Telemetry::default().with_traces(Some(settings));
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", UNSAMPLED.parse().unwrap());
    let event = ExchangeEnded {
        trace: telemetry.start_trace(&headers),
        ..ended()
    };
    // A log call site that is first met by a thread without a listener may stay disabled for all threads.
    telemetry.record_exchange(&event);
    let (lines, _listening) = Lines::listen();
    telemetry.record_exchange(&event);
    let line: serde_json::Value = serde_json::from_str(&lines.text()).unwrap();
    assert_eq!(line["trace_id"], TRACE);
}

#[tokio::test]
async fn trace_headers_are_passed_on_unchanged_unless_configured() {
    let (upstream, collector) = (Upstream::ok().await, Collector::start().await);
    let fields = [("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", "b=2")];
    let request = || post_with("/anthropic/v1/messages", &fields, b"{}");
    let app = tracing(&upstream, &collector, |_| {}).await;
    app.ask(request()).await;
    let propagating = tracing(&upstream, &collector, |settings| settings.propagates = true).await;
    propagating.ask(request()).await;
    let signed = [
        ("traceparent", PARENT),
        ("authorization", "AWS4-HMAC-SHA256 Credential=x"),
    ];
    propagating
        .ask(post_with("/anthropic/v1/messages", &signed, b"{}"))
        .await;
    propagating.telemetry.flush_traces().await;
    let [plain, ours, signed] = &upstream.requests()[..] else {
        panic!("{:?}", upstream.requests())
    };
    for (name, value) in fields {
        assert_eq!(plain.header(name), Some(value));
        assert!(name == "traceparent" || ours.header(name) == Some(value));
    }
    let client = &collector.spans()[1];
    assert_eq!(client.kind, "client");
    assert_eq!(
        ours.header("traceparent"),
        Some(&*format!("00-{TRACE}-{}-01", client.id))
    );
    assert_eq!(signed.header("traceparent"), Some(PARENT));
}
