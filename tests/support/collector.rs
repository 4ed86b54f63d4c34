//! A trace collector over a real socket. It decodes exports with OpenTelemetry's own types.

use std::{collections::BTreeMap, time::Duration};

use antiphon::telemetry::TraceSettings;
use http::Uri;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1,
};
use prost::Message as _;

use super::{
    app::{App, before},
    wire::{Message, Upstream},
};

const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

/// A running collector. It ends on drop.
pub struct Collector(Upstream);

/// A span with every value as text.
#[derive(Clone, Debug, Default)]
pub struct Span {
    pub trace: String,
    pub id: String,
    /// Parent id, empty if the span has none.
    pub parent: String,
    pub state: String,
    pub name: String,
    /// `server` or `client`.
    pub kind: &'static str,
    pub attributes: BTreeMap<String, String>,
    pub is_error: bool,
    /// Start and end in nanoseconds since 1970.
    pub times: (u64, u64),
}

impl Collector {
    /// Starts a collector that accepts everything.
    pub async fn start() -> Self {
        Self(Upstream::answering(TAKEN).await)
    }

    /// Starts a collector that reads and never answers.
    pub async fn stalled() -> Self {
        Self(Upstream::script(|mut conn, _| async move { drop(conn.rest().await) }).await)
    }

    /// Starts a collector that gives this answer to everything.
    pub async fn answering(answer: &str) -> Self {
        Self(Upstream::answering(answer).await)
    }

    pub fn endpoint(&self) -> Uri {
        format!("http://{}/v1/traces", self.0.address).parse().unwrap()
    }

    /// Returns every export as it came.
    pub fn exports(&self) -> Vec<Message> {
        self.0.requests()
    }

    /// Returns the resource attributes of the sender.
    pub fn resource(&self) -> BTreeMap<String, String> {
        let request = decoded(&self.exports()[0]);
        texts(&request.resource_spans[0].resource.as_ref().unwrap().attributes)
    }

    /// Returns all spans so far, in order of arrival.
    pub fn spans(&self) -> Vec<Span> {
        let scopes = self.exports().iter().map(decoded).collect::<Vec<_>>();
        let scopes = scopes.iter().flat_map(|request| &request.resource_spans);
        let spans = scopes.flat_map(|of| of.scope_spans.iter().flat_map(|scope| &scope.spans));
        spans.map(span).collect()
    }

    /// Returns the spans of the only exchange so far: the server span, and the client span if there is one.
    pub fn pair(&self) -> (Span, Option<Span>) {
        let spans = self.spans();
        let of = |kind: &str| {
            spans
                .iter()
                .filter(|span| span.kind == kind)
                .cloned()
                .collect::<Vec<_>>()
        };
        let (mut server, mut client) = (of("server"), of("client"));
        assert_eq!(server.len(), 1, "{spans:#?}");
        assert!(client.len() < 2, "{spans:#?}");
        (server.remove(0), client.pop())
    }
}

fn decoded(export: &Message) -> ExportTraceServiceRequest {
    assert_eq!(export.header("content-type"), Some("application/x-protobuf"));
    ExportTraceServiceRequest::decode(&*export.body).unwrap()
}

fn span(span: &v1::Span) -> Span {
    let hex = |bytes: &[u8]| -> String {
        bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(digit)
            .collect()
    };
    Span {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state.clone(),
        name: span.name.clone(),
        kind: match span.kind() {
            v1::span::SpanKind::Server => "server",
            v1::span::SpanKind::Client => "client",
            other => panic!("{other:?}"),
        },
        attributes: texts(&span.attributes),
        is_error: span
            .status
            .as_ref()
            .is_some_and(|status| status.code() == v1::status::StatusCode::Error),
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
    }
}

fn digit(half: u8) -> char {
    char::from_digit(u32::from(half), 16).unwrap()
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |one: &KeyValue| (one.key.clone(), text(one.value.as_ref().unwrap()));
    let all: BTreeMap<String, String> = attributes.iter().map(text).collect();
    assert_eq!(all.len(), attributes.len(), "a name stands twice: {attributes:?}");
    all
}

fn text(value: &AnyValue) -> String {
    match value.value.as_ref().unwrap() {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::BoolValue(is) => is.to_string(),
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::DoubleValue(number) => number.to_string(),
        any_value::Value::ArrayValue(array) => array.values.iter().map(text).collect::<Vec<_>>().join(","),
        other => panic!("{other:?}"),
    }
}

/// Starts an app in front of `upstream` whose spans are queued until they are flushed.
pub async fn tracing(upstream: &Upstream, collector: &Collector, change: impl FnOnce(&mut TraceSettings)) -> App {
    let mut settings = TraceSettings::for_endpoint(collector.endpoint());
    // Long enough that no span is sent without a flush.
    settings.batch_delay = Duration::from_secs(3600);
    change(&mut settings);
    let builder = before(upstream.address).with(|builder| builder.traces = Some(settings));
    builder.start().await
}

/// Returns the value of a metric.
pub fn counted(app: &App, name: &str) -> u64 {
    let page = app.telemetry.encode_metrics();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}
