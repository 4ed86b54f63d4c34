//! Inspection of HTTP/1 request framing. Never changes a byte.
//!
//! hyper resolves ambiguous framing silently: it drops `content-length` if `transfer-encoding` is present, and folds
//! equal lengths into one. Both are used for request smuggling, so the proxy refuses such requests. The inspector reads
//! the same bytes as hyper, and follows well-formed requests only. If it cannot follow one, the proxy refuses it.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::chunk_line::parse_size_line;

/// The description of a body's length in one request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFraming {
    /// Unambiguous: at most one `content-length`, or a transfer coding.
    Plain,
    /// More than one `content-length`.
    RepeatedLength,
    /// Both `content-length` and `transfer-encoding`.
    LengthAndCoding,
    /// The inspector could not follow the connection.
    Unknown,
}

/// The framings of the request heads on one connection, as a queue. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RequestHeads(Arc<RequestHeadsInner>);

/// State shared by the connection's I/O and its requests.
#[derive(Debug, Default)]
struct RequestHeadsInner {
    framings: Mutex<VecDeque<RequestFraming>>,
    // `true` if the current body is streamed upstream piece by piece.
    is_streamed: AtomicBool,
    // Number of requests whose framing was taken from the queue.
    taken: AtomicU64,
    // Number of the request with a malformed body; 0 if there is none. Nothing is followed after it.
    malformed: AtomicU64,
}

/// The place of a request on its connection, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestNumber(u64);

impl RequestHeads {
    /// Returns framing and number of the next request, in order of arrival.
    pub(super) fn next_framing(&self) -> (RequestFraming, RequestNumber) {
        // hyper parses a head only after it was inspected, so an empty queue is an error: refuse the request.
        let framing = self.lock_framings().pop_front().unwrap_or(RequestFraming::Unknown);
        let before = self.0.taken.fetch_add(1, Ordering::Relaxed);
        (framing, RequestNumber(before.saturating_add(1)))
    }

    /// Returns `true` if the body of a request is malformed, as far as it has arrived.
    pub(super) fn has_malformed_body(&self, request: RequestNumber) -> bool {
        self.0.malformed.load(Ordering::Acquire) == request.0
    }

    /// Marks the current body as streamed. Each piece costs a write upstream, so the pieces should be large.
    pub fn mark_streamed(&self) {
        self.0.is_streamed.store(true, Ordering::Relaxed);
    }

    fn lock_framings(&self) -> std::sync::MutexGuard<'_, VecDeque<RequestFraming>> {
        self.0.framings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a line that are stored: enough for the header names and lengths that are inspected.
const LINE_BYTES_MAX: usize = 256;

/// The first line of HTTP/2, without its end.
const HTTP2_PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0";

/// The longest body that is read in small pieces. At 4 MiB this costs 1.2 times the CPU time.
const SHORT_BODY_BYTES_MAX: u64 = 256 * 1024;

/// The position in the stream of requests.
#[derive(Debug)]
enum InspectorState {
    /// In a head, or between two requests.
    Head,
    /// In a body of known length, with the bytes left.
    Length(u64),
    /// In a chunk-size line.
    ChunkSize,
    /// In a chunk, with the bytes left.
    Chunk(u64),
    /// In the trailers of a chunked body.
    Trailers,
    /// The inspector does not follow the connection any more.
    Blind,
}

/// The inspector of one connection's requests.
#[derive(Debug)]
pub(super) struct FramingInspector {
    state: InspectorState,
    line: Vec<u8>,
    lines: usize,
    lengths: usize,
    codings: usize,
    length: Option<u64>,
    // Length of the current body.
    body_length: u64,
    // Number of complete heads.
    pub(super) heads_ended: u64,
    heads: RequestHeads,
}

impl FramingInspector {
    pub(super) const fn new(heads: RequestHeads) -> Self {
        Self {
            state: InspectorState::Head,
            line: Vec::new(),
            lines: 0,
            lengths: 0,
            codings: 0,
            length: None,
            body_length: 0,
            heads_ended: 0,
            heads,
        }
    }

    /// Returns `true` if the client must send the rest of a head, or the first head of the connection.
    pub(super) fn awaits_head(&self) -> bool {
        // Between two requests the keep-alive timeout counts, not the head timeout.
        let begun = self.lines > 0 || !self.line.is_empty() || self.heads_ended == 0;
        matches!(self.state, InspectorState::Head) && begun
    }

    /// Returns `true` if the client has begun a head of HTTP/1.
    pub(super) fn has_begun_head(&self) -> bool {
        // The beginning of a first line may also be that of HTTP/2's preface.
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let may_be_http2 = self.lines == 0 && HTTP2_PREFACE_LINE.starts_with(line);
        matches!(self.state, InspectorState::Head) && (self.lines > 0 || !self.line.is_empty()) && !may_be_http2
    }

    /// Returns `true` if the next bytes belong to a short body that the proxy collects as a whole.
    pub(super) fn is_in_short_body(&self) -> bool {
        let streamed = self.heads.0.is_streamed.load(Ordering::Relaxed);
        matches!(self.state, InspectorState::Length(_)) && self.body_length <= SHORT_BODY_BYTES_MAX && !streamed
    }

    /// Returns `true` if the client may still send a body, or the rest of a refused request.
    pub(super) fn awaits_body(&self) -> bool {
        !matches!(self.state, InspectorState::Head)
    }

    /// Follows the framing over the next bytes.
    pub(super) fn inspect_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match &mut self.state {
                InspectorState::Blind => return,
                InspectorState::Length(left) | InspectorState::Chunk(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left = left.saturating_sub(taken as u64);
                    if *left == 0 {
                        self.state = if matches!(self.state, InspectorState::Chunk(_)) {
                            InspectorState::ChunkSize
                        } else {
                            InspectorState::Head
                        };
                    }
                    bytes.get(taken..).unwrap_or_default()
                }
                InspectorState::Head | InspectorState::ChunkSize | InspectorState::Trailers => self.read_line(bytes),
            };
        }
    }

    /// Takes bytes up to the end of the line, and handles the line once it is complete. Returns the rest.
    fn read_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let end = memchr::memchr(b'\n', bytes);
        let piece = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        // Most lines arrive as a whole, and need no copy.
        if let Some(end) = end.filter(|_| self.line.is_empty() && piece.len() <= LINE_BYTES_MAX) {
            self.handle_line(piece.strip_suffix(b"\r").unwrap_or(piece));
            return bytes.get(end.saturating_add(1)..).unwrap_or_default();
        }
        // The rest of a long line is dropped, so that a client cannot make the inspector grow.
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line
            .extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
        let Some(end) = end else { return &[] };
        // hyper accepts a bare line feed as well.
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        let line = std::mem::take(&mut self.line);
        self.handle_line(&line);
        // Put back to reuse its allocation.
        self.line = line;
        self.line.clear();
        bytes.get(end.saturating_add(1)..).unwrap_or_default()
    }

    /// Handles one line, without its end.
    fn handle_line(&mut self, line: &[u8]) {
        match self.state {
            InspectorState::Head => self.read_head_line(line),
            InspectorState::ChunkSize => self.read_size_line(line),
            InspectorState::Trailers if line.is_empty() => self.state = InspectorState::Head,
            _ => {}
        }
    }

    /// Handles one line of a head.
    fn read_head_line(&mut self, line: &[u8]) {
        if line.is_empty() {
            // Empty lines before a request line are ignored (RFC 9112, 2.2).
            if self.lines > 0 {
                self.finish_head();
            }
            return;
        }
        // HTTP/2 has a framing of its own, which cannot be ambiguous in this way.
        if self.lines == 0 && line.starts_with(HTTP2_PREFACE_LINE) {
            self.state = InspectorState::Blind;
            return;
        }
        self.lines = self.lines.saturating_add(1);
        // Two names matter, and most lines begin with another letter.
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            return;
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return;
        };
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"content-length") {
            self.lengths = self.lengths.saturating_add(1);
            // A truncated line could hide more digits.
            let whole = line.len() < LINE_BYTES_MAX;
            let digits = value.get(1..).filter(|_| whole).unwrap_or_default().trim_ascii();
            self.length = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.codings = self.codings.saturating_add(1);
        }
    }

    /// Handles a chunk-size line. The two bytes that end a chunk count as its data.
    fn read_size_line(&mut self, line: &[u8]) {
        // A truncated line could hide anything.
        let whole = Some(line).filter(|line| line.len() < LINE_BYTES_MAX);
        self.state = match whole.and_then(parse_size_line) {
            Some(0) => InspectorState::Trailers,
            Some(size) => size.checked_add(2).map_or(InspectorState::Blind, InspectorState::Chunk),
            None => InspectorState::Blind,
        };
        if matches!(self.state, InspectorState::Blind) {
            self.heads.0.malformed.store(self.heads_ended, Ordering::Release);
        }
    }

    /// Derives the framing from a complete head.
    fn finish_head(&mut self) {
        let (framing, state) = match (self.lengths, self.codings) {
            (0, 0) => (RequestFraming::Plain, InspectorState::Head),
            (0, _) => (RequestFraming::Plain, InspectorState::ChunkSize),
            // The refusal closes the connection, so nothing after this head will be read.
            (1.., 1..) => (RequestFraming::LengthAndCoding, InspectorState::Blind),
            (1, 0) => match self.length {
                Some(0) => (RequestFraming::Plain, InspectorState::Head),
                Some(length) => (RequestFraming::Plain, InspectorState::Length(length)),
                None => (RequestFraming::Unknown, InspectorState::Blind),
            },
            (2.., 0) => (RequestFraming::RepeatedLength, InspectorState::Blind),
        };
        self.heads.lock_framings().push_back(framing);
        self.heads.0.is_streamed.store(false, Ordering::Relaxed);
        self.body_length = self.length.unwrap_or(0);
        self.heads_ended = self.heads_ended.saturating_add(1);
        self.state = state;
        (self.lines, self.lengths, self.codings, self.length) = (0, 0, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(input: &[u8], cut: usize) -> Vec<RequestFraming> {
        let heads = RequestHeads::default();
        let mut witness = FramingInspector::new(heads.clone());
        witness.inspect_bytes(&input[..cut]);
        witness.inspect_bytes(&input[cut..]);
        heads.lock_framings().drain(..).collect()
    }

    #[test]
    fn follows_bodies_and_names_conflicts_at_any_cut() {
        let input = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n\r\n\r\na\
            POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n\r\n\r\r\n0\r\nA: b\r\n\r\n\
            \r\nGET / HTTP/1.1\n\n\
            POST / HTTP/1.1\r\nTRANSFER-encoding: chunked\r\ncontent-length: 1\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let want = [
            RequestFraming::Plain,
            RequestFraming::Plain,
            RequestFraming::Plain,
            RequestFraming::LengthAndCoding,
        ];
        for cut in 0..=input.len() {
            assert_eq!(heads(input, cut), want, "cut at {cut}");
        }
    }

    #[test]
    fn a_length_that_is_not_kept_whole_is_unknown() {
        let input = format!("POST / HTTP/1.1\r\nContent-Length: {}1\r\n\r\na", "0".repeat(300));
        assert_eq!(heads(input.as_bytes(), 40), [RequestFraming::Unknown]);
    }

    #[test]
    fn equal_lengths_are_still_two() {
        let input = b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na";
        assert_eq!(heads(input, 3), [RequestFraming::RepeatedLength]);
    }
}
