//! A request that is ready to be sent: with whichever credential, as often as it may.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body::Body as _;
use http_body_util::BodyExt;
use memchr::memmem;

use super::{call_lookup::CallLookup, content_coding::Coding, context::RequestContext, pending_pins::PendingPins};
use crate::{
    auth::Profile,
    clock,
    provider::Upstream,
    proxy::{
        client_body::{ClientBody, Spliced},
        credential::{self, ApplyError},
        headers::is_signed,
        late_results::LateResults,
    },
    splice::Segments,
    telemetry::TRACEPARENT,
    upstream::BoxedBody,
    wire::Wire,
};

/// The header that asks for Anthropic's betas.
const BETA: &str = "anthropic-beta";
/// The beta that knows the setting of bound thinking (Anthropic, "Preserved thinking", 2026-11).
const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// What is sent in place of the client's body.
pub(in crate::proxy) struct OutgoingBody {
    pub(in crate::proxy) payload: Payload,
    /// Whether a coded body is sent decoded.
    pub(in crate::proxy) is_decoded: bool,
    /// Ids that were replaced: (new, old).
    pub(in crate::proxy) renamed: Vec<(String, String)>,
    /// What a resend is made from. `None` if the provider's first word is final.
    pub(in crate::proxy) sent: Option<SentBody>,
    /// Pins of its calls. `None` if the request may pin nothing.
    pub(in crate::proxy) pins: Option<PendingPins>,
    /// Late-result context. `None` if no tool service is configured.
    pub(in crate::proxy) results: Option<LateResults>,
    /// Whether the body contains a setting of bound thinking, which needs a header.
    pub(in crate::proxy) asks_for_binding_controls: bool,
    pub(in crate::proxy) context: RequestContext,
}

impl OutgoingBody {
    /// Sends the bytes that came.
    pub(in crate::proxy) fn untouched(payload: Payload, context: RequestContext) -> Self {
        Self {
            payload,
            is_decoded: false,
            renamed: Vec::new(),
            sent: None,
            pins: None,
            results: None,
            asks_for_binding_controls: false,
            context,
        }
    }
}

/// A body that was sent, with everything that a resend needs.
#[derive(Debug)]
pub(in crate::proxy) struct SentBody {
    /// The body as it came, decoded, with late results at the end of messages.
    pub(in crate::proxy) plain: Bytes,
    /// Whether the last message has some.
    pub(in crate::proxy) ends_with_late: bool,
    /// The bytes that were sent.
    pub(in crate::proxy) body: Segments,
    /// What was known of its calls.
    pub(in crate::proxy) lookup: CallLookup,
    pub(in crate::proxy) wire: Wire,
    pub(in crate::proxy) results: LateResults,
}

/// A request that is ready to be sent, once or more often.
#[derive(Debug)]
pub(in crate::proxy) struct OutgoingRequest {
    pub(in crate::proxy) method: Method,
    pub(in crate::proxy) uri: Uri,
    pub(in crate::proxy) headers: HeaderMap,
    pub(in crate::proxy) payload: Payload,
    /// Ids that were replaced: (new, old).
    pub(in crate::proxy) renamed: Vec<(String, String)>,
    /// What a resend is made from. `None` if the provider's first word is final.
    pub(in crate::proxy) sent: Option<SentBody>,
    /// Pins of its calls. `None` if the request may pin nothing.
    pub(in crate::proxy) pins: Option<PendingPins>,
    /// Late-result context. `None` if no tool service is configured.
    pub(in crate::proxy) results: Option<LateResults>,
    pub(in crate::proxy) context: RequestContext,
}

/// The bytes of a request's body.
#[derive(Debug)]
pub(in crate::proxy) enum Payload {
    /// In memory: it can be sent again.
    Held(Segments),
    /// Streamed from the client. `None` once it was sent.
    Passing(Option<BoxedBody>),
}

impl Payload {
    /// Returns its length in bytes, if it is known.
    pub(in crate::proxy) fn length(&self) -> Option<u64> {
        match self {
            Self::Held(body) => Some(body.len() as u64),
            Self::Passing(body) => body.as_ref().and_then(|body| body.size_hint().exact()),
        }
    }
}

impl OutgoingRequest {
    /// Whether it can be sent again.
    pub(in crate::proxy) const fn is_repeatable(&self) -> bool {
        matches!(self.payload, Payload::Held(_))
    }

    /// Whether one of `phrases` is in the address, a header or the body, decoded up to `limit` bytes.
    ///
    /// A body that is streamed unread is not searched.
    pub(in crate::proxy) fn contains_any(&self, phrases: &[&str], limit: usize) -> bool {
        let is_in = |text: &[u8]| {
            phrases
                .iter()
                .any(|phrase| memmem::find(text, phrase.as_bytes()).is_some())
        };
        let address = self.uri.path_and_query().map_or("", |address| address.as_str());
        // Clients write a blank in an address in three ways.
        let address = address.replace("%20", " ").replace('+', " ");
        if is_in(address.as_bytes()) || self.headers.values().any(|value| is_in(value.as_bytes())) {
            return true;
        }
        let Payload::Held(body) = &self.payload else {
            return false;
        };
        match (Coding::of(&self.headers), body.parts()) {
            (Some(coding), [whole]) => coding.decode(whole, limit).is_ok_and(|plain| is_in(&plain)),
            (_, parts) => parts.iter().any(|part| is_in(part)),
        }
    }

    /// Replaces the body that was sent by that of a resend.
    pub(in crate::proxy) fn replace(&mut self, body: Segments, asks_for_binding_controls: bool) {
        // The new body is plain, and its length is our own.
        self.headers.remove(CONTENT_ENCODING);
        self.headers.insert(CONTENT_LENGTH, body.len().into());
        if asks_for_binding_controls {
            ask_for_binding_controls(&mut self.headers);
        }
        self.payload = Payload::Held(body);
    }

    /// Sets the parent span. Headers that the client has signed stay as they are.
    pub(in crate::proxy) fn set_trace_parent(&mut self, parent: HeaderValue) {
        if !is_signed(&self.headers) {
            self.headers.insert(TRACEPARENT, parent);
        }
    }

    /// Builds the request with the credential of `profile`, or the client's own.
    pub(in crate::proxy) fn build(
        &mut self,
        upstream: &Upstream,
        profile: Option<&Profile>,
    ) -> Result<Request<BoxedBody>, ApplyError> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = self.method.clone();
        head.uri = self.uri.clone();
        head.headers = self.headers.clone();
        if let Some(profile) = profile {
            let body = match &self.payload {
                Payload::Held(body) => credential::Body::Whole(body),
                Payload::Passing(_) => credential::Body::Streamed,
            };
            credential::apply(profile, upstream, &mut head, body, clock::since_1970())?;
        }
        let body = match &mut self.payload {
            Payload::Held(body) => in_memory(body.clone()),
            // A streamed body is built once only: it cannot be repeated.
            Payload::Passing(body) => body.take().unwrap_or_else(|| in_memory(Segments::whole(Bytes::new()))),
        };
        Ok(Request::from_parts(head, body))
    }
}

/// Boxes a body of slices in memory.
fn in_memory(body: Segments) -> BoxedBody {
    Spliced::from(body).map_err(|never| match never {}).boxed_unsync()
}

/// Boxes a client's body, to be streamed.
pub(in crate::proxy) fn streamed(body: ClientBody) -> BoxedBody {
    body.map_err(Into::into).boxed_unsync()
}

/// Asks for the beta that knows the setting of bound thinking.
pub(in crate::proxy) fn ask_for_binding_controls(headers: &mut HeaderMap) {
    let asks = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains(BINDING_BETA));
    if !headers.get_all(BETA).iter().any(asks) {
        headers.append(BETA, HeaderValue::from_static(BINDING_BETA));
    }
}
