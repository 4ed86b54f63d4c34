//! The spans of one exchange: the request as it came to us, and what we asked of the provider. Structure, never content.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    Array, InstrumentationScope, KeyValue, StringValue, Value,
    trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::{ExchangeTrace, names};
use crate::{clock, provider::Operation, telemetry::events::ExchangeEnded};

/// The side of who asks us.
const CLIENT: &str = "client";

/// The operation in the conventions' words.
const fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Chat => "chat",
        Operation::GenerateContent => "generate_content",
        Operation::TextCompletion => "text_completion",
        Operation::Embeddings => "embeddings",
    }
}

/// Attributes on their way into a span.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn put(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(name, value));
    }

    fn maybe(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// A count; zero where nothing was said.
    fn count(&mut self, name: &'static str, count: u64) {
        if count > 0 {
            self.put(name, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// Spans of one exchange.
pub(super) fn of(event: &ExchangeEnded, trace: &ExchangeTrace, repair: Option<String>) -> Vec<SpanData> {
    let end = SystemTime::UNIX_EPOCH + clock::since_1970();
    let begin = end.checked_sub(event.duration).unwrap_or(end);
    let mut spans = vec![served(event, trace, repair, begin, end)];
    if event.attempts > 0 {
        let sent = trace.sent.unwrap_or_default().min(event.duration);
        spans.push(asked(event, trace, begin + sent, end));
    }
    spans
}

/// What all spans of an exchange have in common.
fn span(trace: &ExchangeTrace, id: SpanId, begin: SystemTime, end: SystemTime) -> SpanData {
    let flags = TraceFlags::SAMPLED;
    let scope = InstrumentationScope::builder("antiphon").with_version(env!("CARGO_PKG_VERSION"));
    SpanData {
        span_context: SpanContext::new(trace.id, id, flags, false, trace.state.clone()),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: Cow::Borrowed(""),
        start_time: begin,
        end_time: end,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.build(),
    }
}

/// The request as it came.
fn served(
    event: &ExchangeEnded,
    trace: &ExchangeTrace,
    repair: Option<String>,
    begin: SystemTime,
    end: SystemTime,
) -> SpanData {
    let method = method(event);
    let mut attributes = Attributes::default();
    attributes.put(names::METHOD, method);
    attributes.maybe(names::ROUTE, trace.route);
    if event.status > 0 {
        attributes.put(names::STATUS, i64::from(event.status));
    }
    // The client's own mistakes are no errors of a server.
    let is_ours = event.status >= 500 || (event.status < 400 && event.side.is_some_and(|side| side != CLIENT));
    attributes.maybe(names::ERROR_TYPE, error(event).filter(|_| is_ours));
    attributes.put(names::REQUEST_ID, event.request_id.clone());
    attributes.maybe(names::UPSTREAM, event.upstream.clone());
    attributes.maybe(names::FORMAT, event.format.map(crate::wire::Format::label));
    attributes.maybe(names::MODE, event.mode.map(crate::repair::Mode::label));
    attributes.maybe(names::REPAIR, repair);
    attributes.put(names::ATTEMPTS, i64::from(event.attempts));
    ended(event, &mut attributes);
    SpanData {
        parent_span_id: trace.parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: trace.parent.is_some(),
        span_kind: SpanKind::Server,
        name: match trace.route {
            Some(route) => format!("{method} {route}").into(),
            None => method.into(),
        },
        attributes: attributes.0,
        status: status(is_ours, event),
        ..span(trace, trace.server, begin, end)
    }
}

/// What we asked of the provider: from the first send to the end of the answer.
fn asked(event: &ExchangeEnded, trace: &ExchangeTrace, begin: SystemTime, end: SystemTime) -> SpanData {
    let method = method(event);
    let operation = trace.operation.filter(|_| method == "POST").map(operation);
    let mut attributes = Attributes::default();
    attributes.maybe(names::OPERATION, operation);
    attributes.maybe(names::PROVIDER, trace.provider.clone());
    attributes.maybe(names::ADDRESS, trace.address.clone());
    attributes.maybe(names::PORT, trace.port.map(i64::from));
    if operation.is_some() {
        model(event, trace, &mut attributes);
    } else {
        attributes.put(names::METHOD, method);
    }
    attributes.maybe(names::PROFILE, event.profile.clone());
    attributes.maybe(names::ERROR_TYPE, error(event));
    if let Some(tool) = &event.tool {
        attributes.put(names::TOOL_NAME, tool.name.clone());
        attributes.put(names::TOOL_CALL_ID, tool.id.clone());
    }
    ended(event, &mut attributes);
    // What a client does to itself, as by going away, is nobody's error.
    let is_error = event.status >= 400 || event.side.is_some_and(|side| side != CLIENT);
    SpanData {
        parent_span_id: trace.server,
        span_kind: SpanKind::Client,
        name: match (operation, &trace.model) {
            (Some(operation), Some(model)) => format!("{operation} {model}").into(),
            (Some(operation), None) => operation.into(),
            (None, _) => method.into(),
        },
        attributes: attributes.0,
        status: status(is_error, event),
        ..span(trace, trace.client, begin, end)
    }
}

/// What was asked of the model, and what it said about its answer.
fn model(event: &ExchangeEnded, trace: &ExchangeTrace, attributes: &mut Attributes) {
    attributes.maybe(names::REQUEST_MODEL, trace.model.clone());
    // The conventions name it only where it is so.
    attributes.maybe(names::REQUEST_STREAM, trace.streams.then_some(true));
    attributes.count(names::REQUEST_MAX_TOKENS, trace.max_tokens.unwrap_or(0));
    attributes.maybe(names::CONVERSATION_ID, trace.conversation.clone());
    let told = |chunk: Duration| chunk.saturating_sub(trace.sent.unwrap_or_default()).as_secs_f64();
    attributes.maybe(names::FIRST_CHUNK, trace.first_chunk.map(told));
    let Some(answered) = &trace.answered else { return };
    attributes.maybe(names::RESPONSE_ID, answered.id.as_deref().map(ToOwned::to_owned));
    attributes.maybe(names::RESPONSE_MODEL, answered.model.as_deref().map(ToOwned::to_owned));
    let stop = event.watched.map(|watched| watched.stop);
    if let Some(stop) = stop.filter(|stop| !matches!(*stop, "none" | "error" | "other")) {
        let reasons = vec![StringValue::from(stop)];
        attributes.put(names::FINISH_REASONS, Value::Array(Array::String(reasons)));
    }
    let usage = answered.usage;
    attributes.count(names::INPUT_TOKENS, usage.input_total());
    attributes.count(names::OUTPUT_TOKENS, usage.output);
    attributes.count(names::CACHE_READ_TOKENS, usage.cache_read);
    attributes.count(names::CACHE_WRITE_TOKENS, usage.cache_write);
    attributes.count(names::REASONING_TOKENS, usage.reasoning);
}

fn ended(event: &ExchangeEnded, attributes: &mut Attributes) {
    attributes.maybe(names::SIDE, event.side);
    attributes.put(names::PHASE, event.phase);
    attributes.put(names::CODE, event.code);
}

/// The method in the conventions' words.
fn method(event: &ExchangeEnded) -> &'static str {
    if event.method == "OTHER" {
        "_OTHER"
    } else {
        event.method
    }
}

/// Why it failed: the stable name of the failure, which is one of few.
fn error(event: &ExchangeEnded) -> Option<&'static str> {
    (event.code != "ok").then_some(event.code)
}

fn status(is_error: bool, event: &ExchangeEnded) -> Status {
    if is_error && error(event).is_some() {
        Status::error("")
    } else {
        Status::Unset
    }
}
