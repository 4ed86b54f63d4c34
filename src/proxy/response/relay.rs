//! The answer's body on its way down: every byte as it came, at once, and an end that says how it ended.
//!
//! A stream that broke never ends cleanly: its client gets an error event where the format has one, then a cut.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::coalesce::Coalesced;
use crate::{
    clock::{self, Alarm},
    ledger_api::LedgerBody,
    policy::{
        Class, Evidence, Hints, Said, Verdict, classify,
        course::{Course, Snapshot},
    },
    provider::Kind,
    proxy::{exchange_log::ExchangeLog, headers, shape::Shape},
    telemetry::events::AnswerSummary,
    wire::{
        Format,
        watch::{Facts, Watcher},
    },
};

/// Time for the last event to leave before the cut.
const FAREWELL: Duration = Duration::from_millis(10);

/// The answer's body could not be brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer ended early: {}", .0.code)]
pub struct RelayError(pub Verdict);

impl RelayError {
    const fn status(self) -> StatusCode {
        match self.0.class {
            Class::Broken => StatusCode::BAD_GATEWAY,
            _ => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn message(self, tool: Option<&Snapshot>) -> String {
        let text = match (self.0.class, self.0.code) {
            (Class::Broken, "incomplete_stream") => "the answer ended without its end; try again",
            (Class::Broken, _) => "the provider's connection broke in the middle of the answer; try again",
            (Class::ServerTool, _) => "a tool that the provider runs gave no sign for too long; try again",
            (Class::Compaction, _) => "the provider's compaction of the history took too long; try again",
            (Class::Parked { .. }, _) => "the provider took the request and never began to answer; try again",
            (Class::Deadline, _) => "the exchange has reached the limit on its whole duration",
            _ => "the provider fell silent in the middle of the answer; try again",
        };
        match tool {
            Some(tool) => format!("{text} ({} {}, {} s)", tool.name, tool.id, tool.age.as_secs()),
            None => text.to_owned(),
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
    Ledger(LedgerBody),
}

impl AnswerBody {
    pub(in crate::proxy) fn empty() -> Self {
        Self(Inner::Full(None))
    }

    pub(in crate::proxy) fn full(body: Bytes) -> Self {
        Self(Inner::Full(Some(body).filter(|body| !body.is_empty())))
    }

    pub(in crate::proxy) const fn ledger(body: LedgerBody) -> Self {
        Self(Inner::Ledger(body))
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
            Inner::Ledger(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {})))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Full(body) => body.is_none(),
            Inner::Relay(relay) => relay.is_end(),
            Inner::Ledger(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Full(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
            Inner::Relay(relay) => relay.size_hint(),
            Inner::Ledger(body) => body.size_hint(),
        }
    }
}

#[derive(Debug)]
enum State {
    Relaying(Coalesced),
    /// The error event has been handed out; the cut follows.
    Leaving(RelayError, Instant),
    Done,
}

/// What the relay of one answer needs.
#[derive(Debug)]
pub(super) struct Passage {
    /// What was read of the body already.
    pub(super) prefix: Bytes,
    pub(super) body: Coalesced,
    pub(super) log: ExchangeLog,
    /// Whether the answer is a stream of events.
    pub(super) stream: bool,
    pub(super) watcher: Option<Watcher>,
    /// The provider's kind.
    pub(super) kind: Kind,
    pub(super) course: Course,
    /// The shape of an error event; none where no event of ours fits.
    pub(super) shape: Option<Shape>,
}

/// The provider's body. Dropping it cancels the provider.
#[derive(Debug)]
pub(super) struct Relay {
    state: State,
    prefix: Bytes,
    log: ExchangeLog,
    stream: bool,
    shape: Option<Shape>,
    watcher: Option<Watcher>,
    kind: Kind,
    // Runs only while we wait for the provider, not while the client is slow to take.
    course: Course,
    alarm: Alarm,
}

impl Relay {
    /// Relays what was read, then the rest, past the watcher. With a shape, a stream that breaks gets an error event.
    pub(super) fn new(passage: Passage) -> Self {
        let Passage {
            prefix,
            body,
            log,
            stream,
            watcher,
            kind,
            course,
            shape,
        } = passage;
        if stream {
            log.telemetry().record_stream_start();
        }
        Self {
            state: State::Relaying(body),
            prefix,
            log,
            stream,
            shape,
            watcher,
            kind,
            course,
            alarm: Alarm::default(),
        }
    }

    /// Whether the body ends here, and may.
    fn is_end(&self) -> bool {
        self.is_exhausted() && self.may_end()
    }

    /// Whether nothing of the provider's body is left.
    fn is_exhausted(&self) -> bool {
        matches!(&self.state, State::Relaying(body) if self.prefix.is_empty() && body.is_end())
    }

    fn size_hint(&self) -> SizeHint {
        let State::Relaying(body) = &self.state else {
            return SizeHint::new();
        };
        match body.length() {
            Some(exact) => SizeHint::with_exact(exact.saturating_add(self.prefix.len() as u64)),
            None => SizeHint::new(),
        }
    }

    /// What the watcher knows, if the answer is one that says itself when it is over: a stream of a format of ours, as
    /// far as its events tell.
    fn told(&self) -> Option<(Format, &Facts)> {
        let watcher = self.watcher.as_ref().filter(|watcher| watcher.is_stream())?;
        let (format, facts) = (watcher.format()?, watcher.facts());
        (facts.is_recognized() || facts.events == 0).then_some((format, facts))
    }

    /// Whether the answer has said that this is its end.
    fn is_over(&self) -> bool {
        self.told().is_some_and(|(format, facts)| facts.is_whole(format))
    }

    /// Whether the answer may end here, as far as can be told.
    fn may_end(&self) -> bool {
        self.told()
            .is_none_or(|(format, facts)| facts.events == 0 || facts.is_whole(format))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match &mut self.state {
            State::Done => Poll::Ready(None),
            State::Leaving(error, at) => {
                let (error, at) = (*error, *at);
                ready!(self.alarm.poll(at, cx));
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
                    self.over(true)
                }
                Poll::Ready(None) => self.over(false),
                Poll::Pending => {
                    let watched = self.told().is_some();
                    let (at, clock) = self.course.wait(watched, clock::instant);
                    ready!(self.alarm.poll(Instant::from_std(at), cx));
                    if self.is_over() {
                        // All was said; that the provider forgets to hang up is nobody's fault.
                        return self.over(false);
                    }
                    let state = self.course.state();
                    self.fail(classify(Evidence::Silent { clock, state }))
                }
            },
        }
    }

    /// Takes note of a frame; its bytes are not touched.
    fn passed(&mut self, mut frame: Frame<Bytes>) -> Frame<Bytes> {
        if let Some(trailers) = frame.trailers_mut() {
            headers::for_trailers(trailers);
        }
        if let Some(data) = frame.data_ref() {
            self.log.passes(data.len());
            if self.stream {
                self.log.chunk_came();
            }
            if let Some(watcher) = &mut self.watcher {
                watcher.push(data);
            }
        }
        let watcher = self
            .watcher
            .as_ref()
            .filter(|watcher| watcher.is_stream() && watcher.format().is_some());
        self.course.heard(watcher.map(Watcher::facts), clock::instant);
        if self.is_end() {
            // hyper does not ask again behind the last frame.
            self.end(self.judged(false));
        }
        frame
    }

    /// What the error says that the answer ended with.
    fn said(&self) -> Option<Said> {
        let fault = self.watcher.as_ref()?.facts().error.as_ref()?;
        Some(Said::in_event(fault.event.data(), &fault.kind, &fault.code))
    }

    /// What the provider's end, or its breaking off, means.
    fn judged(&self, broken: bool) -> Verdict {
        if let Some(said) = self.said() {
            return classify(Evidence::InStream {
                kind: self.kind,
                said: &said,
            });
        }
        classify(Evidence::Ended {
            whole: self.may_end(),
            // What follows the end changes nothing.
            broken: broken && !self.is_over(),
        })
    }

    /// The provider's body is over.
    fn over(&mut self, broken: bool) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if let Some(watcher) = &mut self.watcher {
            watcher.finish();
        }
        let verdict = self.judged(broken);
        if verdict.class == Class::Broken {
            return self.fail(verdict);
        }
        self.end(verdict);
        self.state = State::Done;
        Poll::Ready(None)
    }

    /// Ends the log with what was noted; only the first end counts.
    fn end(&mut self, verdict: Verdict) {
        self.note();
        let facts = self.watcher.as_ref().map(Watcher::facts);
        let read = |said| Hints::read(&HeaderMap::new(), &said, verdict.class, clock::since_1970());
        let hints = self.said().map_or_else(Hints::default, read);
        self.log.end_of_body(verdict, &hints, facts);
    }

    fn note(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher.finish();
            self.log.event.watched = AnswerSummary::from_watcher(watcher);
            if let Some(trace) = &mut self.log.event.trace {
                trace.record_answer(watcher.facts());
            }
        }
    }

    fn fail(&mut self, verdict: Verdict) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let error = RelayError(verdict);
        let facts = self.watcher.as_ref().map(Watcher::facts);
        let tool = facts.and_then(|facts| self.course.snapshot(facts, clock::instant()));
        let message = error.message(tool.as_ref());
        self.log.event.tool = tool;
        self.end(verdict);
        // Dropping the body cancels the provider.
        self.state = State::Done;
        let id = &self.log.event.request_id;
        let event = self
            .shape
            .and_then(|shape| shape.event(error.status(), verdict.code, &message, id));
        let Some(event) = event else {
            return Poll::Ready(Some(Err(error)));
        };
        self.state = State::Leaving(error, clock::now() + FAREWELL);
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
            self.log.telemetry().record_stream_end();
        }
        let over = self.is_end() || self.is_over();
        if matches!(self.state, State::Relaying(_)) && over {
            self.end(self.judged(false));
        } else {
            let late = self.course.is_late(self.told().is_some(), clock::instant());
            let state = self.course.state();
            // Only if it has not ended yet.
            let gone = self.log.client_gone(state, late);
            self.end(gone);
        }
    }
}
