//! The wait for the first event: holds the stream of a profile until its answer begins.
//!
//! A stream that begins with an error becomes an answer with that error's status.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    clock,
    policy::{Observation, ProviderErrorInfo, Verdict, classify, status_of_error, stream_timeouts::StreamTimeouts},
    refusals::RefusalReader,
    upstream::BoxedBody,
    wire::{
        frames::AmazonFrame,
        openai_error_type,
        watch::{AnswerError, Framing, Watcher},
    },
};

/// Maximum bytes that are held. A longer stream is passed on, begun or not.
const HELD_MAX: usize = 64 * 1024;

/// The beginning of a stream.
#[derive(Debug)]
pub(super) enum FirstEvent {
    /// The answer has begun, or may no longer be held: the bytes read so far, and the rest.
    Released(Bytes, BoxedBody),
    /// The provider's error, as status and body of a complete answer.
    Refused(StatusCode, Bytes, ProviderErrorInfo),
}

/// Holds a stream of `watcher`'s format until its answer has begun, for up to `limit`. Fails if it breaks or times out before.
pub(super) async fn await_first_event(
    mut body: BoxedBody,
    mut watcher: Watcher,
    timeouts: &mut StreamTimeouts,
    limit: Duration,
    refusals: &RefusalReader,
) -> Result<FirstEvent, Verdict> {
    let gate = clock::now() + limit;
    let mut held = BytesMut::new();
    loop {
        let (at, expired) = timeouts.next_timeout(true, clock::std_now);
        // The stream's own timeouts apply too: one that expires first is a failure that can be retried.
        let until = gate.min(Instant::from_std(at));
        let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await else {
            // No failure is known yet, so the client gets the stream as it is.
            if gate <= clock::now() {
                return Ok(FirstEvent::Released(held.freeze(), body));
            }
            let state = timeouts.state();
            return Err(classify(Observation::TimedOut {
                timeout: expired,
                state,
            }));
        };
        let broken = match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                watcher.push(&data);
                held.extend_from_slice(&data);
                timeouts.record_bytes(Some(watcher.facts()), clock::std_now);
                None
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "the connection to the provider failed before the first event");
                Some(true)
            }
            None => {
                watcher.finish();
                Some(false)
            }
        };
        let facts = watcher.facts();
        // After the answer has begun, an error belongs to the client: nothing can be retried.
        if let Some(fault) = facts.error.as_ref().filter(|_| !facts.has_output) {
            return Ok(match watcher.framing() {
                Framing::Frames => refuse_by_exception(fault, &held, refusals),
                Framing::Events | Framing::Values => refuse_by_event(fault, &held, refusals),
            });
        }
        // An empty answer that announces its end is complete, though it never begins.
        let whole = watcher.format().is_none_or(|format| facts.is_complete(format));
        if facts.has_output || whole || watcher.is_lost() || held.len() > HELD_MAX {
            return Ok(FirstEvent::Released(held.freeze(), body));
        }
        if let Some(broken) = broken {
            return Err(classify(Observation::BodyEnded {
                is_complete: false,
                is_broken: broken,
            }));
        }
    }
}

/// Turns the exception of Amazon in the held frames, whose payload is the body of its errors too, into a complete answer.
fn refuse_by_exception(fault: &AnswerError, held: &[u8], refusals: &RefusalReader) -> FirstEvent {
    let body: Bytes = match (fault.event.data(), error_frame(held).message) {
        // The payload is too long to be stored, or missing.
        ([], []) => json!({ "message": &*fault.kind }).to_string().into(),
        // A frame of the type `error` has its message in a header.
        ([], message) => json!({ "message": String::from_utf8_lossy(message) })
            .to_string()
            .into(),
        (payload, _) => Bytes::copy_from_slice(payload),
    };
    let error_info = ProviderErrorInfo::parse_event(&body, &fault.kind, &fault.code, refusals);
    FirstEvent::Refused(status_of(&error_info), body, error_info)
}

/// Returns the first frame with an error. Empty if there is none.
fn error_frame(frames: &[u8]) -> AmazonFrame<'_> {
    let mut rest = frames;
    while let Some((length, _)) = rest.split_first_chunk() {
        let frame = AmazonFrame::read(rest);
        if frame.is_error() {
            return frame;
        }
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        // A length of zero must not end in a loop.
        rest = rest.get(length.max(1)..).unwrap_or_default();
    }
    AmazonFrame::default()
}

/// Turns the error in the last of the held events into a complete answer.
fn refuse_by_event(fault: &AnswerError, held: &[u8], refusals: &RefusalReader) -> FirstEvent {
    let data = last_event_data(held);
    let error_info = ProviderErrorInfo::parse_event(&data, &fault.kind, &fault.code, refusals);
    let status = status_of(&error_info);
    FirstEvent::Refused(status, error_body(&data, status), error_info)
}

/// Returns the data of the last event that has any.
fn last_event_data(events: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut fresh = true;
    for line in events.split(|byte| *byte == b'\n') {
        // Servers end lines with LF or CRLF.
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            fresh = true;
        } else if let Some(text) = line.strip_prefix(b"data:") {
            // An event may have several data lines. Only the first line of an event starts over.
            if std::mem::take(&mut fresh) {
                data.clear();
            }
            data.extend_from_slice(text.strip_prefix(b" ").unwrap_or(text));
        }
    }
    data
}

/// Returns the status that the type of an error means.
fn status_of(error_info: &ProviderErrorInfo) -> StatusCode {
    StatusCode::from_u16(status_of_error(error_info)).unwrap_or(StatusCode::BAD_GATEWAY)
}

/// Builds the body of the answer for an error event: the provider's own error.
fn error_body(data: &[u8], status: StatusCode) -> Bytes {
    let value: Value = serde_json::from_slice(data).unwrap_or_default();
    let nested = value.get("response").and_then(|response| response.get("error"));
    match (nested, value.get("error")) {
        (Some(error), _) => json!({ "error": error }).to_string().into(),
        (None, Some(Value::Object(_))) => Bytes::copy_from_slice(data),
        // Responses sends the members of the error without an object around them.
        _ => json!({ "error": {
            "message": value.get("message"),
            "type": openai_error_type(status.as_u16()),
            "param": value.get("param"),
            "code": value.get("code"),
        } })
        .to_string()
        .into(),
    }
}

/// Changes the head of a stream into that of a complete JSON answer.
pub(super) fn complete_stream_head(head: &mut http::response::Parts, status: StatusCode, length: usize) {
    head.status = status;
    head.headers.remove(TRANSFER_ENCODING);
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.insert(CONTENT_LENGTH, length.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with these headers. Its sums are wrong.
    fn frame(headers: &[(&str, &str)]) -> Vec<u8> {
        let mut fields = Vec::new();
        for (name, value) in headers {
            fields.push(u8::try_from(name.len()).unwrap());
            fields.extend_from_slice(name.as_bytes());
            fields.push(7);
            fields.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
            fields.extend_from_slice(value.as_bytes());
        }
        let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
        let total = length(fields.len() + 16);
        [&total, &length(fields.len())[..], b"sums", &fields[..], b"sums"].concat()
    }

    #[test]
    fn the_message_of_an_error_frame_reaches_the_client() {
        let event = frame(&[(":event-type", "ping"), (":message-type", "event")]);
        let kind = (":message-type", "error");
        let fault = AnswerError {
            kind: "InternalError".into(),
            ..AnswerError::default()
        };
        for (error, message) in [
            (frame(&[kind, (":error-message", "too \"busy\"")]), "too \"busy\""),
            (frame(&[kind]), "InternalError"),
            (Vec::new(), "InternalError"),
        ] {
            let held = [&event[..], &error[..]].concat();
            let FirstEvent::Refused(_, body, _) = refuse_by_exception(&fault, &held, &RefusalReader::default()) else {
                panic!("{message}");
            };
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body, json!({ "message": message }));
        }
    }
}
