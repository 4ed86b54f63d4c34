//! The two spans of one exchange: the request of the client, and the request to the provider. Structure, never content.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    Array, InstrumentationScope, KeyValue, StringValue, Value,
    trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::names;
use crate::{
    clock,
    provider::ModelOperation,
    telemetry::events::{ExchangeEnded, ExchangeTrace},
};

/// The side of failures that the client caused.
const CLIENT: &str = "client";

/// Returns the operation's name in OpenTelemetry's conventions.
const fn operation_name(operation: ModelOperation) -> &'static str {
    match operation {
        ModelOperation::Chat => "chat",
        ModelOperation::GenerateContent => "generate_content",
        ModelOperation::TextCompletion => "text_completion",
        ModelOperation::Embeddings => "embeddings",
    }
}

/// The attributes of a span.
#[derive(Default)]
struct SpanAttributes(Vec<KeyValue>);

impl SpanAttributes {
    fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(name, value));
    }

    fn add_if_some(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds a count. Zero is left out, because it means that nothing was reported.
    fn add_count(&mut self, name: &'static str, count: u64) {
        if count > 0 {
            self.add(name, i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// Returns the spans of an exchange that ended: one if it sent nothing to a provider, else two.
pub(super) fn exchange_spans(event: &ExchangeEnded, trace: &ExchangeTrace) -> Vec<SpanData> {
    let end = SystemTime::UNIX_EPOCH + clock::system_time();
    // Computed from the measured duration: the system clock may have been set meanwhile.
    let begin = end.checked_sub(event.duration).unwrap_or(end);
    let mut spans = vec![server_span(event, trace, begin, end)];
    if event.sends > 0 {
        // Limited, because a span must not start after its end.
        let sent = trace.first_send.unwrap_or_default().min(event.duration);
        spans.push(client_span(event, trace, begin + sent, end));
    }
    spans
}

/// Returns a span with what all spans of an exchange have in common.
fn empty_span(trace: &ExchangeTrace, id: SpanId, begin: SystemTime, end: SystemTime) -> SpanData {
    // Only sampled traces are exported.
    let flags = TraceFlags::SAMPLED;
    let scope = InstrumentationScope::builder("antiphon").with_version(env!("CARGO_PKG_VERSION"));
    SpanData {
        span_context: SpanContext::new(trace.trace_id, id, flags, false, trace.trace_state.clone()),
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

/// Returns the span of the client's request.
fn server_span(event: &ExchangeEnded, trace: &ExchangeTrace, begin: SystemTime, end: SystemTime) -> SpanData {
    let method = method_name(event);
    let mut attributes = SpanAttributes::default();
    attributes.add(names::METHOD, method);
    attributes.add_if_some(names::ROUTE, trace.target.route);
    if event.status > 0 {
        attributes.add(names::STATUS, i64::from(event.status));
    }
    // By the conventions, an error of the client is not an error of the server span.
    let is_error = event.status >= 500 || (event.status < 400 && event.side.is_some_and(|side| side != CLIENT));
    attributes.add_if_some(names::ERROR_TYPE, error_code(event).filter(|_| is_error));
    attributes.add(names::REQUEST_ID, event.request_id.clone());
    attributes.add_if_some(names::UPSTREAM, event.upstream.clone());
    attributes.add_if_some(names::FORMAT, event.format.map(crate::wire::Format::label));
    attributes.add_if_some(names::MODE, event.mode.map(crate::repair::Mode::label));
    attributes.add_if_some(names::REPAIR, event.repair_summary());
    attributes.add(names::ATTEMPTS, i64::from(event.sends));
    add_end(event, &mut attributes);
    SpanData {
        parent_span_id: trace.parent_span.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: trace.parent_span.is_some(),
        span_kind: SpanKind::Server,
        name: match trace.target.route {
            Some(route) => format!("{method} {route}").into(),
            None => method.into(),
        },
        attributes: attributes.0,
        status: span_status(is_error, event),
        ..empty_span(trace, trace.server_span, begin, end)
    }
}

/// Returns the span of the request to the provider, from the first send to the end of the answer.
fn client_span(event: &ExchangeEnded, trace: &ExchangeTrace, begin: SystemTime, end: SystemTime) -> SpanData {
    let method = method_name(event);
    // Only a POST runs a model. Other methods on the same path read or delete stored objects.
    let operation = trace.target.operation.filter(|_| method == "POST").map(operation_name);
    let mut attributes = SpanAttributes::default();
    attributes.add_if_some(names::OPERATION, operation);
    attributes.add_if_some(names::PROVIDER, trace.target.provider.clone());
    attributes.add_if_some(names::ADDRESS, trace.target.address.clone());
    attributes.add_if_some(names::PORT, trace.target.port.map(i64::from));
    if operation.is_some() {
        add_model(event, trace, &mut attributes);
    } else {
        attributes.add(names::METHOD, method);
    }
    attributes.add_if_some(names::PROFILE, event.profile.clone());
    attributes.add_if_some(names::ERROR_TYPE, error_code(event));
    if let Some(tool) = &event.running_tool {
        attributes.add(names::TOOL_NAME, tool.name.clone());
        attributes.add(names::TOOL_CALL_ID, tool.id.clone());
    }
    add_end(event, &mut attributes);
    // A client that disconnects is no error of the provider.
    let is_error = event.status >= 400 || event.side.is_some_and(|side| side != CLIENT);
    SpanData {
        parent_span_id: trace.server_span,
        span_kind: SpanKind::Client,
        name: match (operation, &trace.model) {
            (Some(operation), Some(model)) => format!("{operation} {model}").into(),
            (Some(operation), None) => operation.into(),
            (None, _) => method.into(),
        },
        attributes: attributes.0,
        status: span_status(is_error, event),
        ..empty_span(trace, trace.client_span, begin, end)
    }
}

/// Adds the parameters of the request, and the facts that the answer reported about itself.
fn add_model(event: &ExchangeEnded, trace: &ExchangeTrace, attributes: &mut SpanAttributes) {
    attributes.add_if_some(names::REQUEST_MODEL, trace.model.clone());
    // By the conventions, the attribute is missing unless it is true.
    attributes.add_if_some(names::REQUEST_STREAM, trace.is_streamed.then_some(true));
    attributes.add_count(names::REQUEST_MAX_TOKENS, trace.max_tokens.unwrap_or(0));
    attributes.add_if_some(names::CONVERSATION_ID, trace.conversation.clone());
    // The convention counts from the send, the trace from the start of the exchange.
    let since_send = |chunk: Duration| chunk.saturating_sub(trace.first_send.unwrap_or_default());
    let first_chunk = trace.first_chunk.map(since_send);
    attributes.add_if_some(names::FIRST_CHUNK, first_chunk.map(|wait| wait.as_secs_f64()));
    let Some(answer) = &trace.answer else { return };
    attributes.add_if_some(names::RESPONSE_ID, answer.id.as_deref().map(ToOwned::to_owned));
    attributes.add_if_some(names::RESPONSE_MODEL, answer.model.as_deref().map(ToOwned::to_owned));
    let stop = event.answer_summary.map(|answer| answer.stop);
    // These labels are the proxy's own, not stop reasons of a provider.
    if let Some(stop) = stop.filter(|stop| !matches!(*stop, "none" | "error" | "other")) {
        let reasons = vec![StringValue::from(stop)];
        attributes.add(names::FINISH_REASONS, Value::Array(Array::String(reasons)));
    }
    let usage = answer.usage;
    attributes.add_count(names::INPUT_TOKENS, usage.input_total());
    attributes.add_count(names::OUTPUT_TOKENS, usage.output);
    attributes.add_count(names::CACHE_READ_TOKENS, usage.cache_read);
    attributes.add_count(names::CACHE_WRITE_TOKENS, usage.cache_write);
    attributes.add_count(names::REASONING_TOKENS, usage.reasoning);
}

/// Adds the outcome of the exchange: side, phase and code.
fn add_end(event: &ExchangeEnded, attributes: &mut SpanAttributes) {
    attributes.add_if_some(names::SIDE, event.side);
    attributes.add(names::PHASE, event.phase);
    attributes.add(names::CODE, event.code);
}

/// Returns the method's name in OpenTelemetry's conventions.
fn method_name(event: &ExchangeEnded) -> &'static str {
    if event.method == "OTHER" {
        "_OTHER"
    } else {
        event.method
    }
}

/// Returns the stable name of the failure; `None` if there was none.
fn error_code(event: &ExchangeEnded) -> Option<&'static str> {
    (event.code != "ok").then_some(event.code)
}

fn span_status(is_error: bool, event: &ExchangeEnded) -> Status {
    if is_error && error_code(event).is_some() {
        // No description: `error.type` already names the failure.
        Status::error("")
    } else {
        Status::Unset
    }
}
