//! The response side: the head as it came, our notes on it, and the body handed to the relay.

mod coalesce;
mod first_event;
mod relay;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
};
use http_body_util::BodyExt;

pub use relay::{AnswerBody, RelayError};

use super::{exchange_log::ExchangeLog, headers, old_ids, shape::Shape};
use crate::{
    policy::{Class, Hints, Said, Verdict, course::Course},
    provider::{self, Route},
    upstream::{BoxedBody, Ebb, Kind, Phase, SendError},
    wire::{
        Format, REFUSAL_BYTES_MAX, Refusal, refusal,
        watch::{Framing, Watcher},
    },
};
use coalesce::Coalesced;
use first_event::{Opened, await_first_event};
use relay::{Passage, Relay};

/// The provider's answer, its head read.
#[derive(Debug)]
pub(super) struct ProviderAnswer {
    response: Response<Body>,
    format: Option<Format>,
    /// The provider's kind.
    kind: provider::Kind,
    /// Its clocks, which run since the head came.
    course: Course,
}

#[derive(Debug)]
enum Body {
    /// As it comes, behind what was already read of it.
    Streamed(Bytes, BoxedBody),
    /// All of it.
    Whole(Bytes),
}

impl ProviderAnswer {
    /// Takes the answer to a request on `route`.
    pub(super) fn new(response: Response<BoxedBody>, route: &Route<'_>, course: Course) -> Self {
        Self {
            response: response.map(|body| Body::Streamed(Bytes::new(), body)),
            format: route.wire.map(|wire| wire.format),
            kind: route.upstream.kind,
            course,
        }
    }

    /// The head's fields.
    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The status.
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// What an error that was read says.
    pub(super) fn said(&self) -> Said {
        let mut said = match self.response.body() {
            Body::Whole(body) => Said::read(body),
            Body::Streamed(..) => Said::default(),
        };
        // Amazon names the type in the head: `ThrottlingException:http://…`.
        let kind = self
            .headers()
            .get("x-amzn-errortype")
            .and_then(|kind| kind.to_str().ok());
        if let Some(kind) = kind.and_then(|kind| kind.split(':').next()) {
            kind.clone_into(&mut said.kind);
        }
        said
    }

    /// A 400 with a text is read up to [`REFUSAL_BYTES_MAX`]: it may say what is wrong with the pairing.
    pub(super) async fn with_refusal(self, limit: Duration) -> Result<Self, SendError> {
        if self.response.status() == StatusCode::BAD_REQUEST {
            self.with_error(limit).await
        } else {
            Ok(self)
        }
    }

    /// An error with a text is read up to [`REFUSAL_BYTES_MAX`].
    pub(super) async fn with_error(self, limit: Duration) -> Result<Self, SendError> {
        if self.response.status().as_u16() < 400 || !is_plain_text(&self.response) {
            return Ok(self);
        }
        let (mut head, body) = self.response.into_parts();
        let Body::Streamed(_, mut body) = body else {
            let response = Response::from_parts(head, body);
            return Ok(Self { response, ..self });
        };
        let mut read = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(limit, body.frame()).await;
            let frame = frame.map_err(|_| SendError {
                phase: Phase::Body,
                kind: Kind::TimedOut,
                source: None,
            })?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| SendError {
                phase: Phase::Body,
                kind: Kind::Io,
                source: Some(error),
            })?;
            read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if read.len() > REFUSAL_BYTES_MAX {
                let response = Response::from_parts(head, Body::Streamed(read.freeze(), body));
                return Ok(Self { response, ..self });
            }
        }
        head.headers.remove(TRANSFER_ENCODING);
        head.headers.insert(CONTENT_LENGTH, read.len().into());
        Ok(Self {
            response: Response::from_parts(head, Body::Whole(read.freeze())),
            ..self
        })
    }

    /// A stream of events is held back until it has begun, for up to `limit`.
    pub(super) async fn held(self, limit: Duration) -> Held {
        let events = framing(self.headers()) == Some(Framing::Events) && !is_compressed(self.headers());
        let Some(format) = self.format.filter(|_| events) else {
            return Held::Answer(self);
        };
        let (mut head, body) = self.response.into_parts();
        let mut course = self.course;
        let watcher = Watcher::new(Some(format), Framing::Events);
        let opened = match body {
            Body::Streamed(_, body) => await_first_event(body, watcher, &mut course, limit).await,
            Body::Whole(body) => Opened::Whole(body),
        };
        let (body, said) = match opened {
            Opened::Through(prefix, body) => (Body::Streamed(prefix, body), None),
            Opened::Whole(body) => (Body::Whole(body), None),
            Opened::Refused(refused, said) => {
                let status = refused.status();
                let body = refused.into_body();
                first_event::as_whole(&mut head, status, body.len());
                (Body::Whole(body), Some(said))
            }
            Opened::Failed(verdict) => return Held::Failed(verdict),
        };
        let answer = Self {
            response: Response::from_parts(head, body),
            format: Some(format),
            kind: self.kind,
            course,
        };
        match said {
            None => Held::Answer(answer),
            Some(said) => Held::Refused(answer, said),
        }
    }

    /// What the answer says about pairing, if it was read as a refusal; in the client's own ids.
    pub(super) fn refusal(&self, renamed: &[(String, String)]) -> Option<Refusal> {
        let Body::Whole(body) = self.response.body() else {
            return None;
        };
        let mut refusal = refusal(body)?;
        for id in &mut refusal.ids {
            if let Some((_, old)) = renamed.iter().find(|(new, _)| new == id) {
                id.clone_from(old);
            }
        }
        Some(refusal)
    }

    /// Whether the provider took the request.
    pub(super) fn is_success(&self) -> bool {
        self.response.status().is_success()
    }

    /// A refusal that may name ids which the client has never seen gets the client's own ids back.
    pub(super) fn with_old_ids(mut self, renamed: &[(String, String)]) -> Self {
        if let Body::Whole(body) = self.response.body_mut()
            && !renamed.is_empty()
        {
            let mapped = old_ids::put_back(std::mem::take(body), renamed);
            let length = mapped.len().into();
            *body = mapped;
            self.response.headers_mut().insert(CONTENT_LENGTH, length);
        }
        self
    }

    /// The answer for the client: the head as it came with our notes, the body frame by frame.
    pub(super) fn relay(self, mut log: ExchangeLog, shape: Shape) -> Response<AnswerBody> {
        let (mut head, body) = self.response.into_parts();
        let compressed = is_compressed(&head.headers);
        if self.format.is_some() && compressed {
            log.telemetry().record_unwatched_answer();
        }
        headers::for_client(&mut head.headers);
        log.answered(head.status, &mut head.headers);
        let framing = framing(&head.headers);
        let watched = self.format.filter(|_| head.status.is_success() && !compressed);
        let watcher = framing.map(|framing| Watcher::new(watched, framing));
        // An event of ours fits only into a stream whose events we know and whose length nobody has promised.
        let known = self.format.is_some() || matches!(shape, Shape::Responses | Shape::Gemini);
        let stream = framing == Some(Framing::Events);
        let open = stream && known && !compressed && !head.headers.contains_key(CONTENT_LENGTH);
        let body = match body {
            Body::Streamed(prefix, body) => AnswerBody::relay(Relay::new(Passage {
                prefix,
                body: Coalesced::new(body, head.extensions.remove::<Ebb>()),
                log,
                stream,
                watcher,
                kind: self.kind,
                course: self.course,
                shape: open.then_some(shape),
            })),
            Body::Whole(body) => {
                log.event.bytes_out = body.len() as u64;
                log.end_of_body(Verdict::of(Class::Success), &Hints::default(), None);
                AnswerBody::full(body)
            }
        };
        Response::from_parts(head, body)
    }
}

/// What came of holding an answer back.
#[derive(Debug)]
pub(super) enum Held {
    /// It has begun, or may not be held.
    Answer(ProviderAnswer),
    /// It is an error.
    Refused(ProviderAnswer, Said),
    /// It broke off, or fell silent.
    Failed(Verdict),
}

fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding.as_bytes() != b"identity")
}

fn framing(headers: &HeaderMap) -> Option<Framing> {
    headers.get(CONTENT_TYPE).and_then(|kind| Framing::of(kind.as_bytes()))
}

/// Whether the body is a text as it stands: JSON, or what gateways make of it.
fn is_plain_text<B>(response: &Response<B>) -> bool {
    let fields = response.headers();
    let kind = fields
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes)
        .to_ascii_lowercase();
    let known = [&b"application/json"[..], b"application/problem+json", b"text/plain"];
    known.iter().any(|known| kind.starts_with(known)) && !fields.contains_key(CONTENT_ENCODING)
}
