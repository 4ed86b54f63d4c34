//! The parent span that a request names in its headers (W3C Trace Context). Malformed headers are ignored.

use http::{HeaderMap, HeaderName};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The header that names the parent span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with the data of other tracing systems.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
/// Limit of a `tracestate`, in bytes. A longer one is dropped.
const STATE_BYTES_MAX: usize = 512;

/// Returns the span that a request names as its parent; `None` if it names none, or more than one.
pub(super) fn parent_span(headers: &HeaderMap) -> Option<SpanContext> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    // Several headers are invalid, and any choice among them could join foreign traces.
    let (Some(first), None) = (values.next(), values.next()) else {
        return None;
    };
    let text = first.to_str().ok()?;
    let rest = text.get(PARENT_BYTES..)?;
    let mut parts = text.get(..PARENT_BYTES)?.split('-');
    let version = hex_digits(parts.next()?, 2)?;
    let trace = TraceId::from_hex(hex_digits(parts.next()?, 32)?).ok()?;
    let span = SpanId::from_hex(hex_digits(parts.next()?, 16)?).ok()?;
    let flags = u8::from_str_radix(hex_digits(parts.next()?, 2)?, 16).ok()?;
    // A later version may append fields; it does not change the known ones.
    let is_known = match version {
        "00" => rest.is_empty(),
        "ff" => false,
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let context = SpanContext::new(
        trace,
        span,
        // Other flags have no meaning in version 00.
        TraceFlags::new(flags) & TraceFlags::SAMPLED,
        true,
        trace_state(headers),
    );
    (is_known && context.is_valid()).then_some(context)
}

/// Returns `digits` if they are this many hexadecimal digits in lower case.
fn hex_digits(digits: &str, length: usize) -> Option<&str> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    (digits.len() == length && digits.bytes().all(is_hex)).then_some(digits)
}

/// Returns the data of other tracing systems. Several headers make one list.
fn trace_state(headers: &HeaderMap) -> TraceState {
    let values: Option<Vec<&str>> = headers
        .get_all(TRACESTATE)
        .iter()
        .map(|value| value.to_str().ok())
        .collect();
    let list = values.unwrap_or_default().join(",");
    if list.len() > STATE_BYTES_MAX {
        return TraceState::NONE;
    }
    // By the specification, a malformed `tracestate` does not invalidate the parent.
    list.parse().unwrap_or(TraceState::NONE)
}
