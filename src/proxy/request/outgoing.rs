//! The outgoing request: ready to be sent with any credential, and again for each retry.

use std::borrow::Cow;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body_util::BodyExt;
use memchr::memmem;

use super::{
    content_coding::ContentCoding,
    planned_body::{Payload, PlannedBody},
};
use crate::{
    auth::Profile,
    clock,
    provider::{Upstream, decode_query},
    proxy::{
        betas,
        client_body::{ClientBody, SegmentsBody},
        credential::{self, ApplyError},
        headers::is_signed,
    },
    splice::Segments,
    telemetry::TRACEPARENT,
    upstream::BoxedBody,
};

/// Beta with the setting for bound thinking (Anthropic, "Preserved thinking", 2026-11).
const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Request that is ready to be sent, once or more often.
pub(in crate::proxy) struct OutgoingRequest {
    pub(in crate::proxy) method: Method,
    pub(in crate::proxy) uri: Uri,
    pub(in crate::proxy) headers: HeaderMap,
    /// Boxed, because a request is moved several times until it is sent.
    pub(in crate::proxy) body: Box<PlannedBody>,
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
    if !headers.get_all(betas::HEADER).iter().any(asks) {
        // Appended, so that the client's own betas stay enabled.
        headers.append(betas::HEADER, HeaderValue::from_static(BINDING_BETA));
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
