//! The outgoing request: ready to be sent with any credential, and again for each retry.

use std::borrow::Cow;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body::Body as _;
use http_body_util::BodyExt;
use memchr::memmem;

use super::{
    call_lookup::CallLookup, content_coding::ContentCoding, context::RequestContext, pending_pins::PendingPins,
};
use crate::{
    auth::Profile,
    clock,
    provider::{Upstream, decode_query},
    proxy::{
        client_body::{ClientBody, SegmentsBody},
        continuity::RequestContinuity,
        credential::{self, ApplyError},
        headers::is_signed,
        heavy_body::is_heavy_pass,
        late_results::LateResults,
        late_text_insertion::LastText,
        response_chain::ChainRequest,
    },
    recall::FactKey,
    repair::{Action, DisputedShape, LearnedRules, RepairReport},
    server::budget::BodyShare,
    splice::Segments,
    telemetry::TRACEPARENT,
    upstream::BoxedBody,
    wire::Wire,
};

/// Header that enables betas of Anthropic's API.
const BETA: &str = "anthropic-beta";
/// Beta with the setting for bound thinking (Anthropic, "Preserved thinking", 2026-11).
const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Body that is sent instead of the client's.
pub(in crate::proxy) struct OutgoingBody {
    pub(in crate::proxy) payload: Payload,
    /// `true` if each later pass over the whole body is heavy work.
    pub(in crate::proxy) is_heavy: bool,
    /// `true` if a compressed body is sent decompressed.
    pub(in crate::proxy) is_decoded: bool,
    /// Ids that were replaced: (new, old).
    pub(in crate::proxy) renamed_ids: Vec<(String, String)>,
    /// Data for a resend. `None` if the provider's first answer is final.
    pub(in crate::proxy) sent_body: Option<Box<SentBody>>,
    /// Memory that the repair takes beside the client's bytes. `None` if it is little.
    pub(super) _repair_memory: Option<BodyShare>,
    /// Memory that a resend takes beside that. `None` if there was none, or if it is little.
    pub(in crate::proxy) resend_memory: Option<BodyShare>,
    /// Pins of its calls. `None` if the request may pin nothing.
    pub(in crate::proxy) pins: Option<Box<PendingPins>>,
    /// The late text of the last message. `None` if it has none.
    pub(in crate::proxy) last_text: Option<Box<LastText>>,
    /// Late-result context. `None` if no tool service is configured.
    pub(in crate::proxy) late_results: Option<LateResults>,
    /// Values that the provider wants back. `None` if it wants none.
    pub(in crate::proxy) continuity: Option<RequestContinuity>,
    /// Items of the request, which its answer continues. `None` unless the answer gets an id.
    pub(in crate::proxy) chain: Option<ChainRequest>,
    /// Number of late results at the end of its messages.
    pub(in crate::proxy) appended: usize,
    /// `true` if the body contains the setting for bound thinking, which needs a header.
    pub(in crate::proxy) needs_binding_beta: bool,
    pub(in crate::proxy) context: Box<RequestContext>,
}

impl OutgoingBody {
    /// Adds everything that the plan of the present body does not count: values that were put back, the removal of a
    /// dead id, and late results.
    pub(in crate::proxy) fn add_to_report(&self, report: &mut RepairReport) {
        if let Some(continuity) = &self.continuity {
            continuity.add_to_report(report);
        }
        if let Some(chain) = &self.chain {
            chain.add_to_report(report);
        }
        if self.appended > 0 {
            report.actions.insert(Action::Append, self.appended);
        }
    }

    /// Creates a body that is sent as it is.
    pub(in crate::proxy) fn from_payload(payload: Payload, context: Box<RequestContext>) -> Self {
        // A streamed body is never in memory as a whole.
        let is_heavy = matches!(&payload, Payload::InMemory(body) if is_heavy_pass(body.len()));
        Self {
            payload,
            is_heavy,
            is_decoded: false,
            renamed_ids: Vec::new(),
            sent_body: None,
            _repair_memory: None,
            resend_memory: None,
            pins: None,
            last_text: None,
            late_results: None,
            continuity: None,
            chain: None,
            appended: 0,
            needs_binding_beta: false,
            context,
        }
    }
}

/// Body that was sent, with everything that a resend needs.
pub(in crate::proxy) struct SentBody {
    /// Client's body, decoded, with late results at the end of messages and the values that it got back.
    pub(in crate::proxy) plain: Bytes,
    /// The same without the values that it got back. `None` if it got none.
    pub(in crate::proxy) unfilled: Option<Bytes>,
    /// Bytes of memory that reading the body takes: 0 if it is little, or not known yet.
    pub(in crate::proxy) reading_bytes: usize,
    /// `true` if the last message that may contain late results has some.
    pub(in crate::proxy) ends_with_late: bool,
    /// Bytes that were sent.
    pub(in crate::proxy) body: Segments,
    /// Results that were known for its calls.
    pub(in crate::proxy) lookup: CallLookup,
    pub(in crate::proxy) wire: Wire,
    /// Rules beyond the dialect's that the body follows.
    pub(in crate::proxy) learned: LearnedRules,
    /// Model that the request names. `None` if it names none.
    pub(in crate::proxy) model: Option<String>,
    /// Disputed shapes of the conversation, as the client wrote it.
    pub(in crate::proxy) shapes: Vec<(DisputedShape, FactKey)>,
    pub(in crate::proxy) late_results: LateResults,
}

/// Request that is ready to be sent, once or more often.
pub(in crate::proxy) struct OutgoingRequest {
    pub(in crate::proxy) method: Method,
    pub(in crate::proxy) uri: Uri,
    pub(in crate::proxy) headers: HeaderMap,
    /// Boxed, because a request is moved several times until it is sent.
    pub(in crate::proxy) body: Box<OutgoingBody>,
}

/// Bytes of a request's body.
pub(in crate::proxy) enum Payload {
    /// In memory: can be sent again.
    InMemory(Segments),
    /// Streamed from the client: can be sent once. `None` after that.
    Streamed(Option<BoxedBody>),
}

impl Payload {
    /// Returns the length in bytes. `None` if it is not known.
    pub(in crate::proxy) fn byte_len(&self) -> Option<u64> {
        match self {
            Self::InMemory(body) => Some(body.len() as u64),
            Self::Streamed(body) => body.as_ref().and_then(|body| body.size_hint().exact()),
        }
    }
}

impl OutgoingBody {
    /// Returns `true` if the body may contain posted results that no provider has accepted yet.
    pub(in crate::proxy) fn has_posted_results(&self) -> bool {
        let has_restored = |pins: &PendingPins| !pins.posted_calls.is_empty();
        self.last_text.is_some() || self.pins.as_deref().is_some_and(has_restored)
    }
}

impl OutgoingRequest {
    /// Returns `true` if the request can be sent again.
    pub(in crate::proxy) const fn is_repeatable(&self) -> bool {
        matches!(self.body.payload, Payload::InMemory(_))
    }

    /// Returns the memory that a search of at most `limit` bytes takes beside the body: a copy without escapes, and one
    /// without its coding. `plain_len` is the length without its coding, if it is known.
    pub(in crate::proxy) fn search_bytes(&self, limit: usize, plain_len: Option<usize>) -> usize {
        let Payload::InMemory(body) = &self.body.payload else {
            return 0;
        };
        match ContentCoding::from_headers(&self.headers) {
            Some(ContentCoding::Identity) => body.len(),
            Some(coding) => {
                let longest = plain_len.unwrap_or_else(|| coding.longest_plain(body.len()));
                longest.min(limit).saturating_mul(2)
            }
            None => 0,
        }
    }

    /// Returns the first of `phrases` that the address, a header or the body contains, or may contain.
    ///
    /// Decodes up to `limit` bytes of the body, and JSON escapes. A body that cannot be searched may contain anything.
    pub(in crate::proxy) fn find_phrase<'p>(&self, phrases: &[&'p str], limit: usize) -> Option<&'p str> {
        let Payload::InMemory(body) = &self.body.payload else {
            return phrases.first().copied();
        };
        // In an address a blank is written as `%20` or `+`.
        let address = self.uri.path_and_query().map_or("", |address| address.as_str());
        let mut texts = vec![decode_query(address)];
        texts.extend(self.headers.values().map(|value| Cow::Borrowed(value.as_bytes())));
        let decoded;
        match (ContentCoding::from_headers(&self.headers), body.parts()) {
            (Some(ContentCoding::Identity), parts) => texts.extend(parts.iter().map(|part| decode_escapes(part))),
            // Only a body in one piece may be compressed: an edited one is sent decompressed.
            (Some(coding), [whole]) => match coding.decode_body(whole, limit) {
                Ok(plain) => {
                    decoded = plain;
                    texts.push(decode_escapes(&decoded));
                }
                Err(_) => return phrases.first().copied(),
            },
            (Some(_), parts) => texts.extend(parts.iter().map(|part| decode_escapes(part))),
            (None, _) => return phrases.first().copied(),
        }
        let is_in = |phrase: &&str| texts.iter().any(|text| memmem::find(text, phrase.as_bytes()).is_some());
        phrases.iter().copied().find(is_in)
    }

    /// Replaces the body that was sent with that of a resend.
    pub(in crate::proxy) fn replace_body(&mut self, body: Segments, asks_for_binding_controls: bool) {
        // The resend's body is not compressed and has a length of its own.
        self.headers.remove(CONTENT_ENCODING);
        self.headers.insert(CONTENT_LENGTH, body.len().into());
        if asks_for_binding_controls {
            add_binding_beta(&mut self.headers);
        }
        self.body.payload = Payload::InMemory(body);
    }

    /// Sets `traceparent`, unless the client has signed its request.
    pub(in crate::proxy) fn set_trace_parent(&mut self, parent: HeaderValue) {
        if !is_signed(&self.headers, self.uri.query()) {
            self.headers.insert(TRACEPARENT, parent);
        }
    }

    /// Builds the request with the credential of `profile`, or the client's own.
    pub(in crate::proxy) fn build_http_request(
        &mut self,
        upstream: &Upstream,
        profile: Option<&Profile>,
    ) -> Result<Request<BoxedBody>, ApplyError> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = self.method.clone();
        head.uri = self.uri.clone();
        head.headers = if self.is_repeatable() {
            // Copied, so that `self` never contains a profile's credential: a retry may use another one.
            self.headers.clone()
        } else {
            std::mem::take(&mut self.headers)
        };
        if let Some(profile) = profile {
            let body = match &self.body.payload {
                Payload::InMemory(body) => credential::BodyToSign::Whole(body),
                Payload::Streamed(_) => credential::BodyToSign::Streamed,
            };
            // The last change to the head: a signature covers all of it.
            credential::apply_credential(profile, upstream, &mut head, body, clock::system_time())?;
        }
        let body = match &mut self.body.payload {
            Payload::InMemory(body) => boxed_segments(body.clone()),
            // A streamed body is taken by the first send: `is_repeatable` rules out a second.
            Payload::Streamed(body) => body
                .take()
                .unwrap_or_else(|| boxed_segments(Segments::whole(Bytes::new()))),
        };
        Ok(Request::from_parts(head, body))
    }
}

/// Boxes a body that is in memory.
pub(in crate::proxy) fn boxed_segments(body: Segments) -> BoxedBody {
    SegmentsBody::from(body).map_err(|never| match never {}).boxed_unsync()
}

/// Boxes a client's body for streaming.
pub(in crate::proxy) fn boxed_client_body(body: ClientBody) -> BoxedBody {
    body.map_err(Into::into).boxed_unsync()
}

/// Adds the beta header that the setting for bound thinking needs, unless the client has sent it.
pub(in crate::proxy) fn add_binding_beta(headers: &mut HeaderMap) {
    let asks = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains(BINDING_BETA));
    if !headers.get_all(BETA).iter().any(asks) {
        // Appended, so that the client's own betas stay enabled.
        headers.append(BETA, HeaderValue::from_static(BINDING_BETA));
    }
}

/// Decodes the escapes of ASCII letters in a JSON text (`\u0063`), which a provider would echo decoded.
fn decode_escapes(text: &[u8]) -> Cow<'_, [u8]> {
    const PREFIX: &[u8] = b"\\u00";
    // The usual body has no such escape and is not copied.
    if memmem::find(text, PREFIX).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, PREFIX) {
        let (before, escape) = rest.split_at(at);
        plain.extend_from_slice(before);
        let (escape, after) = escape.split_at(escape.len().min(PREFIX.len() + 2));
        let digits = escape
            .get(PREFIX.len()..)
            .and_then(|digits| str::from_utf8(digits).ok())
            .filter(|digits| digits.len() == 2);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(letter) => plain.push(letter),
            None => plain.extend_from_slice(escape),
        }
        rest = after;
    }
    plain.extend_from_slice(rest);
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_letters_are_decoded() {
        for (text, plain) in [
            ("plain", "plain"),
            (r"\u0063redit b\u0061lance", "credit balance"),
            (r"\u006", r"\u006"),
            (r"\u00zz\u0062", r"\u00zzb"),
            (r"\u4e2d", r"\u4e2d"),
        ] {
            assert_eq!(&*decode_escapes(text.as_bytes()), plain.as_bytes(), "{text}");
        }
    }
}
