//! Streams of server-sent events.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::ApiBody;

/// Returns the answer that consists of these events.
pub fn event_stream(events: impl Stream<Item = Bytes> + Send + 'static) -> Response<ApiBody> {
    let mut answer = Response::new(StreamBody::new(events.map(|event| Ok(Frame::data(event)))).boxed_unsync());
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Writes an event with a name, an id by which a client resumes, and JSON data.
pub fn write_event(name: &str, id: Option<&str>, data: &[u8]) -> Bytes {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    let mut event = format!("event: {name}\n{id}data: ").into_bytes();
    event.extend(data);
    event.extend(b"\n\n");
    event.into()
}
