//! The answer's body on its way down: every byte as it came, at once, and an end that says how it ended.
//!
//! A stream that broke never ends cleanly: its client gets an error event where the format has one, then a cut.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};

use super::{
    gather::Gathered,
    headers,
    record::{End, Record},
    shape::Shape,
};
use crate::{clock::Silence, telemetry::events::Watched, wire::watch::Watcher};

/// Time for the last event to leave before the cut.
const FAREWELL: Duration = Duration::from_millis(10);

/// The answer's body could not be brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// The provider's connection broke.
    #[error("the answer broke off")]
    Broken,
    /// The provider fell silent.
    #[error("the answer stalled")]
    Stalled,
}

impl RelayError {
    const fn end(self) -> End {
        match self {
            Self::Broken => End {
                side: Some("network"),
                phase: "body",
                code: "answer_broken",
            },
            Self::Stalled => End {
                side: Some("provider"),
                phase: "body",
                code: "answer_stalled",
            },
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::Broken => StatusCode::BAD_GATEWAY,
            Self::Stalled => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Broken => "the provider's connection broke in the middle of the answer; try again",
            Self::Stalled => "the provider fell silent in the middle of the answer; try again",
        }
    }
}

/// The body of an answer: one of ours, or the provider's.
#[derive(Debug)]
pub struct AnswerBody(Inner);

#[derive(Debug)]
enum Inner {
    Full(Option<Bytes>),
    Relay(Box<Relay>),
}

impl AnswerBody {
    pub(super) fn empty() -> Self {
        Self(Inner::Full(None))
    }

    pub(super) fn full(body: Bytes) -> Self {
        Self(Inner::Full(Some(body).filter(|body| !body.is_empty())))
    }

    pub(super) fn relay(relay: Relay) -> Self {
        Self(Inner::Relay(Box::new(relay)))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match &mut self.0 {
            Inner::Full(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Inner::Relay(relay) => relay.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Full(body) => body.is_none(),
            Inner::Relay(relay) => matches!(&relay.state, State::Relaying(body) if relay.is_end(body)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Full(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
            Inner::Relay(relay) => match &relay.state {
                State::Relaying(body) => relay.size_hint(body),
                _ => SizeHint::new(),
            },
        }
    }
}

#[derive(Debug)]
enum State {
    Relaying(Gathered),
    /// The error event has been handed out; the cut follows.
    Leaving(RelayError),
    Done,
}

/// The provider's body. Dropping it cancels the provider.
#[derive(Debug)]
pub(super) struct Relay {
    state: State,
    prefix: Bytes,
    record: Record,
    stream: bool,
    shape: Option<Shape>,
    watcher: Option<Watcher>,
    // Runs only while we wait for the provider, not while the client is slow to take.
    idle: Silence,
}

impl Relay {
    /// Relays `prefix`, then `body`, past the watcher. With a shape, a stream that breaks gets an error event.
    pub(super) fn new(
        prefix: Bytes,
        body: Gathered,
        record: Record,
        stream: bool,
        watcher: Option<Watcher>,
        shape: Option<Shape>,
        idle_timeout: Duration,
    ) -> Self {
        if stream {
            record.telemetry().stream_opened();
        }
        Self {
            state: State::Relaying(body),
            prefix,
            record,
            stream,
            shape,
            watcher,
            idle: Silence::new(idle_timeout),
        }
    }

    fn is_end(&self, body: &Gathered) -> bool {
        self.prefix.is_empty() && body.is_end()
    }

    fn size_hint(&self, body: &Gathered) -> SizeHint {
        match body.length() {
            Some(exact) => SizeHint::with_exact(exact.saturating_add(self.prefix.len() as u64)),
            None => SizeHint::new(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match &mut self.state {
            State::Done => Poll::Ready(None),
            State::Leaving(error) => {
                let error = *error;
                ready!(self.idle.poll(cx));
                self.state = State::Done;
                Poll::Ready(Some(Err(error)))
            }
            State::Relaying(_) if !self.prefix.is_empty() => {
                let prefix = std::mem::take(&mut self.prefix);
                Poll::Ready(Some(Ok(self.passed(Frame::data(prefix)))))
            }
            State::Relaying(body) => match body.poll(cx) {
                Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(self.passed(frame)))),
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "the answer broke off");
                    self.fail(RelayError::Broken)
                }
                Poll::Ready(None) => {
                    self.end(End::OK);
                    self.state = State::Done;
                    Poll::Ready(None)
                }
                Poll::Pending => {
                    ready!(self.idle.poll(cx));
                    self.fail(RelayError::Stalled)
                }
            },
        }
    }

    /// Takes note of a frame; its bytes are not touched.
    fn passed(&mut self, mut frame: Frame<Bytes>) -> Frame<Bytes> {
        self.idle.heard();
        if let Some(trailers) = frame.trailers_mut() {
            headers::for_trailers(trailers);
        }
        if let Some(data) = frame.data_ref() {
            self.record.event.bytes_out = self.record.event.bytes_out.saturating_add(data.len() as u64);
            if let Some(watcher) = &mut self.watcher {
                watcher.push(data);
            }
        }
        if matches!(&self.state, State::Relaying(body) if self.is_end(body)) {
            // hyper does not ask again behind the last frame.
            self.end(End::OK);
        }
        frame
    }

    /// Ends the record with what was noted; only the first end counts.
    fn end(&mut self, end: End) {
        self.note();
        self.record.end(end);
    }

    fn note(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher.finish();
            self.record.event.watched = Watched::of(watcher);
        }
    }

    fn fail(&mut self, error: RelayError) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        self.end(error.end());
        // Dropping the body cancels the provider.
        self.state = State::Done;
        let id = &self.record.event.request_id;
        let event = self
            .shape
            .and_then(|shape| shape.event(error.status(), error.end().code, error.message(), id));
        let Some(event) = event else {
            return Poll::Ready(Some(Err(error)));
        };
        self.state = State::Leaving(error);
        self.idle = Silence::new(FAREWELL);
        // A partial event is ended first, so that ours can be read.
        let open = self
            .watcher
            .as_ref()
            .is_some_and(|watcher| !watcher.is_between_events());
        let mut data = BytesMut::from(if open { &b"\n\n"[..] } else { &[] });
        data.extend_from_slice(&event);
        Poll::Ready(Some(Ok(Frame::data(data.freeze()))))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.stream {
            self.record.telemetry().stream_closed();
        }
        if matches!(&self.state, State::Relaying(body) if self.is_end(body)) {
            self.end(End::OK);
        } else {
            // The record ends with us, if it has not yet.
            self.note();
        }
    }
}
