//! Relay of an answer's body to the client: every byte unchanged and without delay.
//!
//! An answer that broke never ends cleanly. If the provider's connection broke, the client's breaks in the same way, and
//! its own retry works as without the proxy. If the proxy ends the stream, or its end is missing, an error event tells why.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::{body_evidence::BodyEvidence, coalesce::CoalescedBody, held_end::HeldEnd, relay_error::RelayError};
use crate::{
    api::ApiBody,
    clock::{self, DeadlineTimer},
    policy::{
        Class, LimitHints, Observation, ProviderErrorInfo, Verdict, classify,
        stream_timeouts::{RunningTool, StreamTimeouts},
    },
    provider::ProviderKind,
    proxy::{exchange_log::ExchangeLog, headers},
    refusals::RefusalReader,
    server::StopSignal,
    telemetry::events::AnswerSummary,
    wire::{
        ErrorShape, Format,
        watch::{Facts, Framing, Watcher},
    },
};

/// Time for the last bytes to reach the client before the connection is cut.
const CLOSE_DELAY: Duration = Duration::from_millis(10);
/// The body of an answer to the client.
#[derive(Debug)]
pub struct AnswerBody(AnswerBodyKind);

#[derive(Debug)]
enum AnswerBodyKind {
    /// Bytes in memory. `None` once they were sent, or if there are none.
    Full(Option<Bytes>),
    /// The provider's body.
    Relay(Box<Relay>),
    /// An answer of the ledger API.
    Ledger(ApiBody),
}

impl AnswerBody {
    pub(in crate::proxy) fn from_bytes(body: Bytes) -> Self {
        Self(AnswerBodyKind::Full(Some(body).filter(|body| !body.is_empty())))
    }

    pub(in crate::proxy) const fn from_ledger(body: ApiBody) -> Self {
        Self(AnswerBodyKind::Ledger(body))
    }

    pub(super) fn from_relay(relay: Relay) -> Self {
        if relay.is_stream() {
            relay.log.telemetry().record_stream_start();
        }
        Self(AnswerBodyKind::Relay(Box::new(relay)))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match &mut self.0 {
            AnswerBodyKind::Full(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            AnswerBodyKind::Relay(relay) => relay.poll_relay(cx),
            AnswerBodyKind::Ledger(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {})))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            AnswerBodyKind::Full(body) => body.is_none(),
            AnswerBodyKind::Relay(relay) => relay.is_end(),
            AnswerBodyKind::Ledger(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            AnswerBodyKind::Full(body) => SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64),
            AnswerBodyKind::Relay(relay) => relay.size_hint(),
            AnswerBodyKind::Ledger(body) => body.size_hint(),
        }
    }
}

/// State of a relay.
#[derive(Debug)]
pub(super) enum RelayState {
    /// The provider's body is relayed.
    Relaying(CoalescedBody),
    /// Everything was passed on. The error follows at this time, and cuts the connection.
    Closing(RelayError, Instant),
    /// The body has ended.
    Done,
}

/// The relay of the provider's body. Dropping it cancels the answer at the provider.
///
/// It sends the bytes that were already read, then the rest of the body.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) state: RelayState,
    /// Bytes of the body that were already read.
    pub(super) prefix: Bytes,
    pub(super) log: ExchangeLog,
    pub(super) evidence: BodyEvidence,
    /// The division of the answer into events. `None` if the content type names none that is known.
    pub(super) framing: Option<Framing>,
    /// The shape of an error event. `None` if no such event may be added.
    pub(super) shape: Option<ErrorShape>,
    pub(super) watcher: Option<Watcher>,
    /// The provider's kind.
    pub(super) kind: ProviderKind,
    /// The rows by which its refusals are read.
    pub(super) refusals: RefusalReader,
    // Runs only while the proxy waits for the provider, not while the client is slow to read.
    pub(super) timeouts: Box<StreamTimeouts>,
    pub(super) timer: DeadlineTimer,
    /// The end of an answer whose calls are being recorded.
    pub(super) held: Option<HeldEnd>,
    /// Given when the proxy is about to end. It wakes the task of the connection, so this looks at it when polled.
    pub(super) closing: StopSignal,
}

impl Relay {
    /// Returns `true` if the answer is a stream of events.
    fn is_stream(&self) -> bool {
        self.framing.is_some_and(Framing::is_stream)
    }

    /// Returns `true` if the body is at its end, and the answer is complete.
    fn is_end(&self) -> bool {
        // An incomplete answer is not reported as ended: the client must still get the error.
        self.is_exhausted() && self.may_end()
    }

    /// Returns `true` if nothing of the provider's body is left.
    fn is_exhausted(&self) -> bool {
        let is_sent = self.prefix.is_empty() && self.held.is_none();
        matches!(&self.state, RelayState::Relaying(body) if is_sent && body.is_end())
    }

    fn size_hint(&self) -> SizeHint {
        let RelayState::Relaying(body) = &self.state else {
            return SizeHint::new();
        };
        match body.announced_len() {
            Some(exact) => {
                let held = self.held.as_ref().map_or(0, HeldEnd::byte_len);
                let unsent = self.prefix.len().saturating_add(held);
                SizeHint::with_exact(exact.saturating_add(unsent as u64))
            }
            None => SizeHint::new(),
        }
    }

    /// Returns format and facts of an answer that announces its own end: a stream of a known format.
    fn announcing_facts(&self) -> Option<(Format, &Facts)> {
        let watcher = self.watcher.as_ref().filter(|watcher| watcher.is_stream())?;
        let (format, facts) = (watcher.format()?, watcher.facts());
        // A server may stream events of another format under a known path. They announce nothing that is known.
        (facts.is_recognized() || facts.events == 0).then_some((format, facts))
    }

    /// Returns `true` if the answer has announced its end.
    fn has_announced_end(&self) -> bool {
        self.announcing_facts()
            .is_some_and(|(format, facts)| facts.is_complete(format))
    }

    /// Returns `true` if the answer may end here: it has no events, or has announced its end.
    fn may_end(&self) -> bool {
        self.announcing_facts()
            .is_none_or(|(format, facts)| facts.events == 0 || facts.is_complete(format))
    }

    /// Returns the next frame for the client.
    fn poll_relay(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match &mut self.state {
            RelayState::Done => Poll::Ready(None),
            RelayState::Closing(error, at) => {
                let (error, at) = (*error, *at);
                ready!(self.timer.poll(at, cx));
                if self.log.is_client_behind() {
                    // The server drops bytes that it has not yet written, and a slow client must still get them.
                    self.state = RelayState::Closing(error, clock::now() + CLOSE_DELAY);
                    return self.poll_relay(cx);
                }
                self.state = RelayState::Done;
                Poll::Ready(Some(Err(error)))
            }
            RelayState::Relaying(_) if self.held.is_some() => self.poll_held(cx),
            RelayState::Relaying(_) if !self.prefix.is_empty() => {
                let prefix = std::mem::take(&mut self.prefix);
                let frame = self.record_frame(Frame::data(prefix));
                self.pass_frame(frame, cx)
            }
            RelayState::Relaying(body) => match body.poll(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let frame = self.record_frame(frame);
                    self.pass_frame(frame, cx)
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "the connection to the provider failed in the middle of the answer");
                    self.finish_broken_body(cx)
                }
                Poll::Ready(None) => self.finish_body(cx),
                // Checked only after a poll of the body: bytes that have arrived always come before a timeout.
                Poll::Pending => {
                    if self.closing.is_given() {
                        return self.fail_stream(Verdict::with_code(Class::Unavailable, "drained"), cx);
                    }
                    let watched = self.announcing_facts().is_some();
                    let (at, clock) = self.timeouts.next_timeout(watched, clock::std_now);
                    ready!(self.timer.poll(Instant::from_std(at), cx));
                    if self.has_announced_end() {
                        // The answer is complete. A provider that does not close the connection has not failed.
                        return self.finish_body(cx);
                    }
                    let state = self.timeouts.state();
                    self.fail_stream(classify(Observation::TimedOut { timeout: clock, state }), cx)
                }
            },
        }
    }

    /// Records a frame. Its bytes are not changed.
    fn record_frame(&mut self, mut frame: Frame<Bytes>) -> Frame<Bytes> {
        if let Some(trailers) = frame.trailers_mut() {
            headers::for_trailers(trailers);
        }
        if let Some(data) = frame.data_ref() {
            self.log.record_bytes_out(data.len());
            self.evidence.push(data);
            if self.is_stream() {
                self.log.record_chunk();
            }
            if let Some(watcher) = &mut self.watcher {
                let was_lost = watcher.is_lost();
                watcher.push(data);
                if watcher.is_lost() && !was_lost {
                    self.log.telemetry().record_unwatched_answer();
                }
                // Before the client has these bytes: its next request may come at once.
                if let Some(format) = watcher.format() {
                    self.log.store_carried(watcher.facts(), format);
                }
            }
            self.log.read_objects(data, self.watcher.as_ref().map(Watcher::facts));
        }
        let watcher = self
            .watcher
            .as_ref()
            .filter(|watcher| watcher.is_stream() && watcher.format().is_some());
        self.timeouts.record_bytes(watcher.map(Watcher::facts), clock::std_now);
        self.hold_end(&mut frame);
        if self.is_end() {
            // hyper does not poll a body again once `is_end_stream` is true.
            self.end_log(self.end_verdict(false));
        }
        frame
    }

    /// Holds the end of a frame that completes an answer, if a tool service may answer its calls.
    fn hold_end(&mut self, frame: &mut Frame<Bytes>) {
        let whole = self.watcher.as_ref().filter(|watcher| watcher.is_whole());
        let calls = whole.map(|watcher| &watcher.facts().calls);
        let recording = calls
            .filter(|calls| !calls.list.is_empty())
            .and_then(|calls| self.log.record_calls(calls));
        if let (Some(recording), Some(data)) = (recording, frame.data_mut()) {
            self.held = Some(HeldEnd::split_off(data, self.framing, recording));
        }
    }

    /// Passes a frame on. One whose bytes are all held is not sent as an empty frame.
    fn pass_frame(
        &mut self,
        frame: Frame<Bytes>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if self.held.is_some() && frame.data_ref().is_some_and(Bytes::is_empty) {
            return self.poll_held(cx);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// Returns the held end once its calls are recorded.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let Some(held) = &mut self.held else {
            return self.poll_relay(cx);
        };
        let bytes = ready!(held.poll_bytes(cx));
        self.log.record_hold(held.held_since(), Some(held.held_since()));
        self.held = None;
        if self.is_end() {
            self.end_log(self.end_verdict(false));
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Returns the provider's error that ended the stream. `None` if there was none.
    fn stream_error(&self) -> Option<ProviderErrorInfo> {
        let fault = self.watcher.as_ref()?.facts().error.as_ref()?;
        Some(ProviderErrorInfo::parse_event(
            fault.event.data(),
            &fault.kind,
            &fault.code,
            &self.refusals,
        ))
    }

    /// Judges the end of the provider's body. `broken` is `true` if the connection failed before the answer was complete.
    fn end_verdict(&self, broken: bool) -> Verdict {
        if let Some(said) = self.stream_error() {
            let verdict = classify(Observation::StreamError {
                kind: self.kind,
                error: &said,
            });
            return verdict.after_output();
        }
        let ended = classify(Observation::BodyEnded {
            is_complete: self.may_end(),
            is_broken: broken,
        });
        let foreign = self.evidence.foreign_verdict();
        foreign.filter(|_| ended.class == Class::Success).unwrap_or(ended)
    }

    /// Handles the end of the provider's body.
    fn finish_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if let Some(watcher) = &mut self.watcher {
            watcher.finish();
        }
        // After `finish`, which may still find an event at the very end.
        let verdict = self.end_verdict(false);
        if verdict.class == Class::Broken {
            return self.fail_stream(verdict, cx);
        }
        self.end_log(verdict);
        self.state = RelayState::Done;
        Poll::Ready(None)
    }

    /// Handles a failure of the provider's connection.
    fn finish_broken_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if let Some(watcher) = &mut self.watcher {
            watcher.finish();
        }
        if self.has_last_event() {
            // After the last event nothing can be missing, so the client's answer ends well.
            return self.finish_body(cx);
        }
        // No error event: clients retry a broken connection by themselves, and many of them stop at an error.
        let verdict = self.end_verdict(true);
        self.end_failed_log(verdict);
        self.cut_connection(verdict, cx)
    }

    /// Returns `true` if the event that ends every answer of the format has come, and it is no error.
    fn has_last_event(&self) -> bool {
        // A stop reason is not enough: Chat Completions sends the usage and other choices after it.
        self.announcing_facts()
            .is_some_and(|(_, facts)| facts.terminal && facts.error.is_none())
    }

    /// Ends the log with the watcher's facts. Only the first end counts.
    fn end_log(&mut self, verdict: Verdict) {
        self.record_summary();
        // The head's verdict knew the status only.
        self.log.head_verdict = self.evidence.error_verdict(self.kind).or(self.log.head_verdict);
        let facts = self.watcher.as_ref().map(Watcher::facts);
        let read = |said| LimitHints::read(&HeaderMap::new(), &said, verdict.class, clock::system_time());
        let hints = self.stream_error().map_or_else(LimitHints::default, read);
        let (hints, verdict) = hints.limit_unnamed(verdict);
        self.log.end_with_body(verdict, &hints, facts);
    }

    /// Copies the watcher's facts to telemetry's event.
    fn record_summary(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher.finish();
            if let Some(format) = watcher.format() {
                self.log.store_carried(watcher.facts(), format);
            }
            self.log.event.answer_summary = AnswerSummary::from_watcher(watcher);
            if let Some(trace) = &mut self.log.event.trace {
                trace.record_answer(watcher.facts());
            }
        }
    }

    /// Ends the log of an answer that failed, and names the tool that the provider was running. Returns that tool.
    fn end_failed_log(&mut self, verdict: Verdict) -> Option<RunningTool> {
        let facts = self.watcher.as_ref().map(Watcher::facts);
        let tool = facts.and_then(|facts| self.timeouts.running_tool(facts, clock::std_now()));
        self.log.event.running_tool.clone_from(&tool);
        self.end_log(verdict);
        tool
    }

    /// Ends the answer with an error: an error event first if one fits, then a cut of the connection.
    fn fail_stream(
        &mut self,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let tool = self.end_failed_log(verdict);
        let message = RelayError(verdict).client_message(tool.as_ref());
        let id = &self.log.event.request_id;
        let event = self
            .shape
            .and_then(|shape| shape.error_event(verdict.code, &message, id));
        let Some(event) = event else {
            return self.cut_connection(verdict, cx);
        };
        // A partial event is ended first, or the client would read the error as its continuation.
        let open = self
            .watcher
            .as_ref()
            .is_some_and(|watcher| !watcher.is_between_events());
        let mut data = BytesMut::from(if open { &b"\n\n"[..] } else { &[] });
        data.extend_from_slice(&event);
        self.state = RelayState::Closing(RelayError(verdict), clock::now() + CLOSE_DELAY);
        Poll::Ready(Some(Ok(Frame::data(data.freeze()))))
    }

    /// Cuts the client's connection, once it got everything that was passed on.
    fn cut_connection(
        &mut self,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        // Replaces the provider's body, which cancels the answer there.
        self.state = RelayState::Closing(RelayError(verdict), clock::now() + CLOSE_DELAY);
        // The cut waits: the server would drop bytes that it has not yet written.
        self.poll_relay(cx)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.is_stream() {
            self.log.telemetry().record_stream_end();
        }
        // A client may close its connection right after the last event: that is no disconnect.
        let over = self.is_end() || self.has_announced_end();
        if matches!(self.state, RelayState::Relaying(_)) && over {
            self.end_log(self.end_verdict(false));
        } else {
            let late = self
                .timeouts
                .is_late(self.announcing_facts().is_some(), clock::std_now());
            let state = self.timeouts.state();
            // Does nothing if the log has ended already.
            let gone = self.log.client_gone_verdict(state, late);
            self.end_log(gone);
        }
    }
}
