//! The messages of a stream of server-sent events.

use std::{collections::VecDeque, ops::Range};

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;

use super::{byte_budget::HeldBytes, http_fault::HttpFault, line_joiner::MESSAGE_BYTES_MAX};
use crate::{
    upstream::PooledBody,
    wire::{
        frames::{EventFramer, SseEvent},
        json::validate,
    },
};

/// Longest id of an event in bytes.
const ID_BYTES_MAX: usize = 4096;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event of a stream.
#[derive(Debug, Default)]
pub(super) struct StreamEvent {
    /// The place in the stream behind this event.
    pub(super) id: Option<Vec<u8>>,
    /// The pause before the stream may be asked for again, in milliseconds.
    pub(super) retry: Option<u64>,
    /// The message, as a line with its end.
    pub(super) line: Option<Bytes>,
}

/// The reader of one stream.
pub(super) struct EventReader {
    /// `None` after its end.
    body: Option<PooledBody>,
    framer: EventFramer,
    buffer: BytesMut,
    /// The offset of the buffer in the stream.
    start: u64,
    ready: VecDeque<Range<u64>>,
    held: HeldBytes,
}

impl EventReader {
    /// Creates a reader.
    pub(super) fn new(body: PooledBody, held: HeldBytes) -> Self {
        Self {
            body: Some(body),
            framer: EventFramer::default(),
            buffer: BytesMut::new(),
            start: 0,
            ready: VecDeque::new(),
            held,
        }
    }

    /// Returns the next event. `None` at the end of the stream, whatever has ended it.
    pub(super) async fn next_event(&mut self) -> Result<Option<StreamEvent>, HttpFault> {
        loop {
            if let Some(range) = self.ready.pop_front() {
                let length = usize::try_from(range.end.saturating_sub(self.start)).unwrap_or(usize::MAX);
                let event = self.buffer.split_to(length.min(self.buffer.len()));
                let is_first = self.start == 0;
                self.start = range.end;
                return Ok(Some(read_event(&event, is_first)));
            }
            let Some(body) = &mut self.body else {
                return Ok(None);
            };
            // A connection that breaks is the end of a stream, too.
            let Some(Ok(frame)) = body.frame().await else {
                self.body = None;
                return Ok(self.take_rest());
            };
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            self.buffer.extend_from_slice(&chunk);
            let ready = &mut self.ready;
            self.framer.push(&chunk, |range| ready.push_back(range));
            let is_too_long = self.ready.is_empty() && self.buffer.remaining() > MESSAGE_BYTES_MAX;
            if is_too_long || !self.held.set(self.buffer.len()) {
                return Err(HttpFault::of_unclear(too_large(is_too_long)));
            }
        }
    }

    /// Returns the last event without the empty line at its end, if its message is whole.
    fn take_rest(&mut self) -> Option<StreamEvent> {
        let rest = std::mem::take(&mut self.buffer);
        let event = read_event(&rest, self.start == 0);
        event.line.is_some().then_some(event)
    }
}

/// Returns the words about an answer that is not kept.
pub(super) fn too_large(is_alone: bool) -> &'static str {
    if is_alone {
        "a message of the server is larger than 64 MiB"
    } else {
        "the open messages are together larger than 512 MiB"
    }
}

fn read_event(bytes: &[u8], is_first: bool) -> StreamEvent {
    let bytes = bytes
        .strip_prefix(BYTE_ORDER_MARK)
        .filter(|_| is_first)
        .unwrap_or(bytes);
    let event = SseEvent::read(bytes);
    let is_message = [&b""[..], b"message"].contains(&event.name) && validate(&event.data).is_ok();
    StreamEvent {
        id: event.id.filter(|id| id.len() <= ID_BYTES_MAX).map(<[u8]>::to_vec),
        retry: event.retry,
        line: is_message.then(|| to_line(&event.data)),
    }
}

/// Returns JSON as one line with its end. An end of a line stands between two parts of JSON, where a blank means the same.
pub(super) fn to_line(json: &[u8]) -> Bytes {
    let mut line = json.to_vec();
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Bytes::from(line)
}
