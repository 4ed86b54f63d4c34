//! The wait for the first event: a stream is held back until its answer has begun, while another attempt could still be made.
//!
//! A stream that opens with an error becomes an answer with that error's status.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    clock,
    policy::{Evidence, Said, Verdict, classify, course::Course, status_of},
    proxy::shape::openai_type,
    upstream::BoxedBody,
    wire::watch::Watcher,
};

/// Bytes that are held back: an answer that has not begun by then is let through.
const HELD_MAX: usize = 64 * 1024;

/// What came through the gate.
#[derive(Debug)]
pub(super) enum Opened {
    /// The answer has begun, or may no longer be held: what was read of it, and the rest.
    Through(Bytes, BoxedBody),
    /// It is there in whole.
    Whole(Bytes),
    /// It is an error of the provider's, whole.
    Refused(Box<Response<Bytes>>, Said),
    /// It broke off, or fell silent, before it had begun.
    Failed(Verdict),
}

/// Holds a stream of `watcher`'s format back for up to `limit`.
pub(super) async fn await_first_event(
    mut body: BoxedBody,
    mut watcher: Watcher,
    course: &mut Course,
    limit: Duration,
) -> Opened {
    let gate = clock::now() + limit;
    let mut held = BytesMut::new();
    loop {
        let (at, ran_out) = course.wait(true, clock::instant);
        let until = gate.min(Instant::from_std(at));
        let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await else {
            if gate <= clock::now() {
                return Opened::Through(held.freeze(), body);
            }
            let state = course.state();
            return Opened::Failed(classify(Evidence::Silent { clock: ran_out, state }));
        };
        let broken = match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                watcher.push(&data);
                held.extend_from_slice(&data);
                course.heard(Some(watcher.facts()), clock::instant);
                None
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "the answer broke off before it had begun");
                Some(true)
            }
            None => {
                watcher.finish();
                Some(false)
            }
        };
        let facts = watcher.facts();
        if let Some(fault) = facts.error.as_ref().filter(|_| !facts.begun) {
            let data = last_data(&held);
            let said = Said::in_event(&data, &fault.kind, &fault.code);
            return Opened::Refused(Box::new(refusal(&data, &said)), said);
        }
        let whole = watcher.format().is_none_or(|format| facts.is_whole(format));
        if facts.begun || whole || held.len() > HELD_MAX {
            return Opened::Through(held.freeze(), body);
        }
        if let Some(broken) = broken {
            return Opened::Failed(classify(Evidence::Ended { whole: false, broken }));
        }
    }
}

/// The data of the last event that has any.
fn last_data(events: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut fresh = true;
    for line in events.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            fresh = true;
        } else if let Some(text) = line.strip_prefix(b"data:") {
            if std::mem::take(&mut fresh) {
                data.clear();
            }
            data.extend_from_slice(text.strip_prefix(b" ").unwrap_or(text));
        }
    }
    data
}

/// The answer that an error event would have been: the provider's own words under the status that they mean.
fn refusal(data: &[u8], said: &Said) -> Response<Bytes> {
    let status = StatusCode::from_u16(status_of(said)).unwrap_or(StatusCode::BAD_GATEWAY);
    let value: Value = serde_json::from_slice(data).unwrap_or_default();
    let nested = value.get("response").and_then(|response| response.get("error"));
    let body = match (nested, value.get("error")) {
        (Some(error), _) => json!({ "error": error }).to_string().into(),
        (None, Some(Value::Object(_))) => Bytes::copy_from_slice(data),
        // Responses say it without a frame around it.
        _ => json!({ "error": {
            "message": value.get("message"), "type": openai_type(status), "param": value.get("param"), "code": value.get("code"),
        } })
        .to_string()
        .into(),
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}

/// Makes a head that announced a stream into the head of an answer that is whole.
pub(super) fn as_whole(head: &mut http::response::Parts, status: StatusCode, length: usize) {
    head.status = status;
    head.headers.remove(TRANSFER_ENCODING);
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.insert(CONTENT_LENGTH, length.into());
}
