//! The trace that a request comes with (W3C Trace Context): malformed is as good as none.

use http::{HeaderMap, HeaderName};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// `traceparent`.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// `tracestate`.
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
/// Bytes of a `tracestate` that is kept; of a longer one none is.
const STATE_BYTES_MAX: usize = 512;

/// The span that a request names as its parent.
pub(super) fn parent(headers: &HeaderMap) -> Option<SpanContext> {
    let mut said = headers.get_all(TRACEPARENT).iter();
    let (Some(first), None) = (said.next(), said.next()) else {
        return None;
    };
    let text = first.to_str().ok()?;
    let rest = text.get(PARENT_BYTES..)?;
    let mut parts = text.get(..PARENT_BYTES)?.split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = TraceId::from_hex(hex(parts.next()?, 32)?).ok()?;
    let span = SpanId::from_hex(hex(parts.next()?, 16)?).ok()?;
    let flags = u8::from_str_radix(hex(parts.next()?, 2)?, 16).ok()?;
    // A later version may add fields, and says nothing else in those that are known.
    let is_known = match version {
        "00" => rest.is_empty(),
        "ff" => false,
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let context = SpanContext::new(
        trace,
        span,
        TraceFlags::new(flags) & TraceFlags::SAMPLED,
        true,
        state(headers),
    );
    (is_known && context.is_valid()).then_some(context)
}

fn hex(digits: &str, length: usize) -> Option<&str> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    (digits.len() == length && digits.bytes().all(is_hex)).then_some(digits)
}

/// What tracing systems before us have to say to those behind; several fields are one list.
fn state(headers: &HeaderMap) -> TraceState {
    let said: Option<Vec<&str>> = headers
        .get_all(TRACESTATE)
        .iter()
        .map(|value| value.to_str().ok())
        .collect();
    let said = said.unwrap_or_default().join(",");
    if said.len() > STATE_BYTES_MAX {
        return TraceState::NONE;
    }
    said.parse().unwrap_or(TraceState::NONE)
}
