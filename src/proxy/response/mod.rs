//! The response side: reads errors, holds streams that may be retried, and relays head and body to the client.

mod body_evidence;
mod coalesce;
mod first_event;
mod held_end;
mod relay;
mod relay_error;

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING},
};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;

pub use relay::AnswerBody;
pub(super) use relay_error::RETRIED_PREFIX;
pub use relay_error::RelayError;

use super::{exchange_log::ExchangeLog, headers, old_ids};
use crate::{
    auth::Credential,
    clock::{self, DeadlineTimer},
    explain::explain_error,
    policy::{Class, LimitHints, Observation, ProviderErrorInfo, Verdict, classify, stream_timeouts::StreamTimeouts},
    provider::{self, Route},
    refusals::RefusalReader,
    server::StopSignal,
    upstream::{BoxedBody, Phase, ReadIdle, SendError, SendErrorKind},
    wire::{
        ErrorMeaning, ErrorShape, Format, REFUSAL_BYTES_MAX, Refusal,
        watch::{Framing, Watcher},
    },
};
use body_evidence::{BodyEvidence, BodyOpening, UnreadError};
use coalesce::{CoalescedBody, PolledFrame};
use first_event::{FirstEvent, await_first_event};
use relay::{Relay, RelayState};

/// The header in which Amazon names the type of an error.
const AMAZON_ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// The provider's answer, once its head has arrived.
#[derive(Debug)]
pub(super) struct ProviderAnswer {
    response: Response<ProviderBody>,
    /// The counter of empty reads of the body's connection. `None` if other answers share it, or if all of it is here.
    read_idle: Option<ReadIdle>,
    /// The next frame of a streamed body, or its end, if it had arrived when the answer was judged.
    first_frame: Option<PolledFrame>,
    format: Option<Format>,
    /// `true` if a model answers the request.
    asks_model: bool,
    /// The provider's kind.
    kind: provider::ProviderKind,
    /// The rows by which its refusals are read.
    refusals: RefusalReader,
    /// Its timeouts, which run since the head arrived.
    /// Boxed, because the future of every exchange has room for several answers.
    timeouts: Box<StreamTimeouts>,
}

#[derive(Debug)]
enum ProviderBody {
    /// A stream, after the bytes that were already read of it.
    Streamed(Bytes, BoxedBody),
    /// The complete body.
    Whole(Bytes),
}

impl ProviderAnswer {
    /// Wraps the answer to a request on `route`.
    pub(super) fn new(
        response: Response<BoxedBody>,
        read_idle: Option<ReadIdle>,
        route: &Route<'_>,
        refusals: RefusalReader,
        timeouts: StreamTimeouts,
    ) -> Self {
        Self {
            response: response.map(|body| ProviderBody::Streamed(Bytes::new(), body)),
            read_idle,
            first_frame: None,
            format: route.wire.map(|wire| wire.format),
            asks_model: route.asks_model,
            kind: route.upstream.kind,
            refusals,
            timeouts: Box::new(timeouts),
        }
    }

    /// Returns the headers.
    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the status.
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Masks a credential that the provider repeats in its error. The body keeps its length.
    pub(super) fn mask_credential(&mut self, credential: &Credential) {
        if let ProviderBody::Whole(body) = self.response.body_mut()
            && let Some(masked) = credential.mask_in(body)
        {
            *body = masked.into();
        }
    }

    /// Sets `retry-after` to this many seconds, unless the provider names a shorter wait.
    pub(super) fn shorten_retry_after(&mut self, seconds: u64) {
        let fields = self.response.headers_mut();
        let named = fields
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        #[expect(clippy::cast_precision_loss, reason = "no wait is that long")]
        let is_shorter = named.is_some_and(|named| named > 0.0 && named <= seconds as f64);
        if !is_shorter {
            // SDKs prefer the milliseconds.
            for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
                fields.remove(name);
            }
            fields.insert(RETRY_AFTER, seconds.into());
        }
    }

    /// Returns the provider's error. Empty if the body was not read.
    pub(super) fn error_info(&self) -> ProviderErrorInfo {
        let mut error_info = match self.response.body() {
            ProviderBody::Whole(body) => {
                ProviderErrorInfo::parse_body(Some(self.status().as_u16()), body, &self.refusals)
            }
            ProviderBody::Streamed(..) => ProviderErrorInfo::default(),
        };
        if let Some(kind) = amazon_error_type(self.headers()) {
            kind.clone_into(&mut error_info.kind);
        }
        error_info
    }

    /// Returns the body. `None` if it was not read, or not to its end.
    pub(super) fn whole_body(&self) -> Option<&[u8]> {
        match self.response.body() {
            ProviderBody::Whole(body) => Some(body),
            ProviderBody::Streamed(..) => None,
        }
    }

    /// Judges an answer with a status of success by its head. `None` if a model may have given it.
    pub(super) fn foreign_verdict(&self) -> Option<Verdict> {
        if !self.asks_model || self.status().as_u16() >= 400 {
            return None;
        }
        let is_redirect = self.status().is_redirection();
        let is_empty = match self.response.body() {
            ProviderBody::Streamed(read, body) => read.is_empty() && body.size_hint().exact() == Some(0),
            ProviderBody::Whole(body) => body.is_empty(),
        };
        // Answers without a known format may be anything but the page of a portal or of a wrong URL.
        let is_foreign = is_redirect || is_page(self.headers()) || (is_empty && self.format.is_some());
        is_foreign.then(|| classify(Observation::NoAnswer { is_redirect }))
    }

    /// Returns `true` for an error whose body can be judged only when it has been relayed.
    pub(super) fn is_unread_error(&self) -> bool {
        let is_unread = matches!(self.response.body(), ProviderBody::Streamed(read, _) if read.is_empty());
        is_unread && self.status().as_u16() >= 400 && is_plain_text(&self.response)
    }

    /// Returns the collector of the evidence that the body has and the head lacks.
    fn body_evidence(&self) -> BodyEvidence {
        let headers = self.headers();
        if self.is_unread_error() {
            let kind = amazon_error_type(headers).map(ToOwned::to_owned);
            return BodyEvidence::Error(UnreadError::new(self.status().as_u16(), kind, self.refusals.clone()));
        }
        let is_binary = body_framing(headers) == Some(Framing::Frames);
        let is_judged = self.asks_model && self.format.is_some() && self.status().is_success();
        if is_judged && !is_binary && !is_compressed(headers) {
            BodyEvidence::Opening(BodyOpening::default())
        } else {
            BodyEvidence::Unneeded
        }
    }

    /// Reads the body of an answer that may refuse the history. `limit` is the timeout between two frames.
    pub(super) async fn with_refusal_read(self, limit: Duration) -> Result<Self, SendError> {
        // llama.cpp and FastAPI report the faults of a history as 500 and 422 (ggml-org/llama.cpp#25510, 2026-07), and
        // vLLM a lost response as 404.
        if self.refusals.has_status(self.status().as_u16()) {
            self.with_error_read(limit).await
        } else {
            Ok(self)
        }
    }

    /// Reads the text body of an error, up to [`REFUSAL_BYTES_MAX`]. `limit` is the timeout between two frames.
    pub(super) async fn with_error_read(self, limit: Duration) -> Result<Self, SendError> {
        if self.response.status().as_u16() < 400 || !is_plain_text(&self.response) {
            return Ok(self);
        }
        let (mut head, body) = self.response.into_parts();
        // An earlier call has read it already.
        let ProviderBody::Streamed(_, mut body) = body else {
            let response = Response::from_parts(head, body);
            return Ok(Self { response, ..self });
        };
        let mut read = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(limit, body.frame()).await;
            let frame = frame.map_err(|_| SendError::new(Phase::Body, SendErrorKind::TimedOut, None))?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| SendError::new(Phase::Body, SendErrorKind::Io, Some(error)))?;
            read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            // Too large for an error message: the rest is relayed as a stream, and no text is judged.
            if read.len() > REFUSAL_BYTES_MAX {
                let response = Response::from_parts(head, ProviderBody::Streamed(read.freeze(), body));
                return Ok(Self { response, ..self });
            }
        }
        // The body is sent in one piece, whatever framing the provider used.
        head.headers.remove(TRANSFER_ENCODING);
        head.headers.insert(CONTENT_LENGTH, read.len().into());
        Ok(Self {
            response: Response::from_parts(head, ProviderBody::Whole(read.freeze())),
            ..self
        })
    }

    /// Returns `true` for a stream of events in a known format.
    pub(super) fn is_watched_stream(&self) -> bool {
        self.watched_stream().is_some()
    }

    /// Returns format and framing of a stream of events whose format is known.
    fn watched_stream(&self) -> Option<(Format, Framing)> {
        let framing = body_framing(self.headers()).filter(|framing| framing.is_stream())?;
        // The events of a compressed stream cannot be read.
        let format = self.format.filter(|_| !is_compressed(self.headers()))?;
        Some((format, framing))
    }

    /// Holds a stream of events until its answer has begun, for up to `limit`. Returns other answers at once.
    ///
    /// A stream that begins with an error is returned as an answer with that error. Fails if the stream does.
    pub(super) async fn hold_until_begun(
        mut self,
        limit: Duration,
    ) -> Result<(Self, Option<ProviderErrorInfo>), Verdict> {
        let Some((format, framing)) = self.watched_stream() else {
            return Ok((self, None));
        };
        let (mut head, body) = self.response.into_parts();
        let (body, error_info) = match body {
            ProviderBody::Streamed(_, body) => {
                let watcher = Watcher::new(Some(format), framing);
                match await_first_event(body, watcher, &mut self.timeouts, limit, &self.refusals).await? {
                    FirstEvent::Released(prefix, body) => (ProviderBody::Streamed(prefix, body), None),
                    FirstEvent::Refused(status, body, error_info) => {
                        first_event::complete_stream_head(&mut head, status, body.len());
                        if framing == Framing::Frames
                            && let Ok(kind) = HeaderValue::from_str(&error_info.kind)
                        {
                            head.headers.insert(AMAZON_ERROR_TYPE, kind);
                        }
                        (ProviderBody::Whole(body), Some(error_info))
                    }
                }
            }
            // Read before.
            body @ ProviderBody::Whole(_) => (body, None),
        };
        let response = Response::from_parts(head, body);
        Ok((Self { response, ..self }, error_info))
    }

    /// Takes the first frame of the body if it has arrived. Fails if the body broke before its first byte.
    ///
    /// The server sends the head together with the first poll of the body, so a client would get a broken answer whose
    /// failure is known before a byte of it was sent.
    pub(super) async fn take_first_frame(&mut self) -> Result<(), Verdict> {
        // Polled once and never waited for: the head of a slow answer must not be delayed.
        poll_fn(|cx| {
            self.poll_first_frame(cx);
            Poll::Ready(())
        })
        .await;
        if let Some(Some(Err(error))) = &self.first_frame {
            tracing::debug!(%error, "the connection to the provider failed before the first byte of the answer");
            return Err(classify(Observation::BodyEnded {
                is_complete: false,
                is_broken: true,
            }));
        }
        Ok(())
    }

    /// Waits for the ledger. The first frame of the body is taken meanwhile: only the time until then is the provider's.
    pub(super) async fn wait_for_ledger(&mut self, hold: impl Future<Output = ()>, log: &mut ExchangeLog) {
        let (began, mut hold, mut body_came) = (clock::now(), pin!(hold), None);
        poll_fn(|cx| {
            // First, so that an answer that waits for nothing has no step more than without a ledger.
            if hold.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            self.poll_first_frame(cx);
            if self.has_begun() {
                log.record_first_byte();
            }
            if body_came.is_none() && !self.awaits_body() {
                body_came = Some(clock::now());
            }
            Poll::Pending
        })
        .await;
        log.record_hold(began, body_came);
    }

    /// Takes the first frame of a streamed body if it has arrived, or its end.
    fn poll_first_frame(&mut self, cx: &mut Context<'_>) {
        if let ProviderBody::Streamed(read, body) = self.response.body_mut()
            && self.first_frame.is_none()
            && read.is_empty()
            && !body.is_end_stream()
            && let Poll::Ready(step) = Pin::new(body).poll_frame(cx)
        {
            self.first_frame = Some(step);
        }
    }

    /// Returns `true` if neither a part of the body nor its end has arrived.
    fn awaits_body(&self) -> bool {
        match self.response.body() {
            ProviderBody::Whole(_) => false,
            ProviderBody::Streamed(read, body) => {
                self.first_frame.is_none() && read.is_empty() && !body.is_end_stream()
            }
        }
    }

    /// Returns `true` if bytes of the body have arrived.
    fn has_begun(&self) -> bool {
        let is_data = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|data| !data.is_empty());
        match self.response.body() {
            ProviderBody::Whole(body) => !body.is_empty(),
            ProviderBody::Streamed(read, _) => {
                let first = self.first_frame.as_ref().and_then(Option::as_ref);
                !read.is_empty() || first.is_some_and(|frame| frame.as_ref().is_ok_and(is_data))
            }
        }
    }

    /// Returns the refusal of the history that the body contains, with the client's own ids. `None` for other answers.
    pub(super) fn history_refusal(&self, renamed: &[(String, String)]) -> Option<Refusal> {
        let ProviderBody::Whole(body) = self.response.body() else {
            return None;
        };
        let mut refusal = self.refusals.read_with_status(self.status().as_u16(), body)?.refusal;
        // The recovery repairs the client's body, which does not contain the new ids.
        for id in &mut refusal.ids {
            if let Some((_, old)) = renamed.iter().find(|(new, _)| new == id) {
                id.clone_from(old);
            }
        }
        Some(refusal)
    }

    /// Replaces ids that the client has never sent by its own, in an error that was read.
    pub(super) fn with_old_ids(mut self, renamed: &[(String, String)]) -> Self {
        if let ProviderBody::Whole(body) = self.response.body_mut()
            && !renamed.is_empty()
        {
            let mapped = old_ids::restore_old_ids(std::mem::take(body), renamed);
            self.replace_body(mapped);
        }
        self
    }

    /// Returns what an error that was read says beyond the history, with the row that knows it. `None` if that is
    /// nothing.
    pub(super) fn meaning(&self) -> Option<(Box<str>, ErrorMeaning)> {
        let found = self
            .refusals
            .read_with_status(self.status().as_u16(), self.whole_body()?)?;
        Some((found.row.name.as_str().into(), found.meaning?))
    }

    /// Appends to an error what clients of the format look for. Returns `false` if it stays as it is.
    pub(super) fn explain(&mut self, format: Format, meaning: ErrorMeaning, tool: Option<&str>) -> bool {
        let ProviderBody::Whole(body) = self.response.body() else {
            return false;
        };
        let Some(explained) = explain_error(body, format, meaning, tool) else {
            return false;
        };
        self.replace_body(explained);
        true
    }

    /// Replaces a body that is in memory.
    fn replace_body(&mut self, body: Bytes) {
        let fields = self.response.headers_mut();
        fields.insert(CONTENT_LENGTH, body.len().into());
        // They are of the provider's bytes.
        for digest in ["content-md5", "digest", "content-digest", "repr-digest"] {
            fields.remove(digest);
        }
        *self.response.body_mut() = ProviderBody::Whole(body);
    }

    /// Turns the answer into the client's: the head with the proxy's headers, and the body frame by frame.
    ///
    /// A stream that still runs when `closing` is given ends with an error event.
    pub(super) fn relay_to_client(
        self,
        mut log: ExchangeLog,
        shape: ErrorShape,
        closing: StopSignal,
    ) -> Response<AnswerBody> {
        let evidence = self.body_evidence();
        let (mut head, body) = self.response.into_parts();
        let compressed = is_compressed(&head.headers);
        if self.format.is_some() && compressed {
            log.telemetry().record_unwatched_answer();
        }
        log.read_object_head(&head.headers);
        headers::for_client(&mut head.headers);
        log.complete_head(head.status, &mut head.headers);
        let framing = body_framing(&head.headers);
        // Errors and compressed answers have no events that the watcher can read.
        let watched = self.format.filter(|_| head.status.is_success() && !compressed);
        let (notes, notes_reasoning) = (log.notes_carried(), log.notes_reasoning());
        let notes_items = log.notes_items();
        let new_watcher = |framing| {
            let mut watcher = Watcher::new(watched, framing);
            if notes {
                watcher = watcher.noting_carried();
            }
            if notes_reasoning {
                watcher = watcher.noting_reasoning();
            }
            if log.notes_inputs() {
                watcher = watcher.noting_inputs();
            }
            if notes_items {
                watcher = watcher.noting_items();
            }
            watcher
        };
        let watcher = framing.map(new_watcher);
        // An error event of the proxy fits only into a stream of a known format without an announced length.
        let known = self.format.is_some() || matches!(shape, ErrorShape::Responses | ErrorShape::Gemini);
        let open =
            framing == Some(Framing::Events) && known && !compressed && !head.headers.contains_key(CONTENT_LENGTH);
        let body = match body {
            ProviderBody::Streamed(prefix, body) => AnswerBody::from_relay(Relay {
                state: RelayState::Relaying(
                    CoalescedBody::new(body, self.read_idle).with_first_frame(self.first_frame),
                ),
                prefix,
                log,
                evidence,
                framing,
                shape: open.then_some(shape),
                watcher,
                kind: self.kind,
                refusals: self.refusals,
                timeouts: self.timeouts,
                timer: DeadlineTimer::default(),
                held: None,
                closing,
            }),
            ProviderBody::Whole(body) => {
                log.event.bytes_out = body.len() as u64;
                // Complete in memory: nothing can break. An error in the head has its own verdict already.
                log.end_with_body(Verdict::from_class(Class::Success), &LimitHints::default(), None);
                AnswerBody::from_bytes(body)
            }
        };
        Response::from_parts(head, body)
    }
}

fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding.as_bytes() != b"identity")
}

/// Returns the error type that Amazon sends in a header: `ThrottlingException:http://…`.
fn amazon_error_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(AMAZON_ERROR_TYPE)?.to_str().ok()?.split(':').next()
}

/// Returns the content type without its parameters; empty if there is none.
fn essence(headers: &HeaderMap) -> &[u8] {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

fn is_page(headers: &HeaderMap) -> bool {
    let kind = essence(headers);
    kind.eq_ignore_ascii_case(b"text/html") || kind.eq_ignore_ascii_case(b"application/xhtml+xml")
}

fn body_framing(headers: &HeaderMap) -> Option<Framing> {
    headers
        .get(CONTENT_TYPE)
        .and_then(|kind| Framing::from_content_type(kind.as_bytes()))
}

/// Returns `true` if the body is uncompressed text: JSON, or the plain text of a gateway.
fn is_plain_text<B>(response: &Response<B>) -> bool {
    let fields = response.headers();
    let kind = fields
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes)
        .to_ascii_lowercase();
    let known = [&b"application/json"[..], b"application/problem+json", b"text/plain"];
    known.iter().any(|known| kind.starts_with(known)) && !fields.contains_key(CONTENT_ENCODING)
}
