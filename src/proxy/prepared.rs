//! A request that is ready: what goes up of it, with whichever credential, as often as it may.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::{
    asked::Asked,
    body::Spliced,
    credential::{self, ApplyError},
    owed::Owed,
    reading::is_signed,
    second::{Again, ask_for_binding_controls},
    tentative::Tentative,
};
use crate::{auth::Profile, clock, provider::Upstream, splice::Segments, telemetry::TRACEPARENT, upstream::SendBody};

/// A request that is ready to be sent, once or more often.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
    /// Ids that were replaced: (new, old).
    pub(super) renamed: Vec<(String, String)>,
    /// What a second send needs; none where the provider's first word is final.
    pub(super) again: Option<Again>,
    /// The answers that its calls were given; none where it may give none.
    pub(super) tentative: Option<Tentative>,
    /// Who is owed the results of its calls; none where no service posts any.
    pub(super) debtor: Option<Owed>,
    /// What it asks for, and what bears on how it is sent.
    pub(super) asked: Asked,
}

/// The body that goes up.
#[derive(Debug)]
pub(super) enum Payload {
    /// In memory: it can go up again.
    Held(Segments),
    /// As it comes from the client; none once it was sent.
    Passing(Option<SendBody>),
}

impl Payload {
    /// Its length in bytes, where it is known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Held(body) => Some(body.len() as u64),
            Self::Passing(body) => body.as_ref().and_then(|body| body.size_hint().exact()),
        }
    }
}

impl Prepared {
    /// Whether it can be sent again.
    pub(super) const fn is_repeatable(&self) -> bool {
        matches!(self.payload, Payload::Held(_))
    }

    /// Puts another body in the place of the one that went up.
    pub(super) fn replace(&mut self, body: Segments, asks_for_binding_controls: bool) {
        // What goes up now is plain, and of our own length.
        self.headers.remove(CONTENT_ENCODING);
        self.headers.insert(CONTENT_LENGTH, body.len().into());
        if asks_for_binding_controls {
            ask_for_binding_controls(&mut self.headers);
        }
        self.payload = Payload::Held(body);
    }

    /// Names the span that the request goes up in. What the client has signed stays as it is.
    pub(super) fn goes_on_from(&mut self, parent: HeaderValue) {
        if !is_signed(&self.headers) {
            self.headers.insert(TRACEPARENT, parent);
        }
    }

    /// The request with the credential of `profile`, or the client's own.
    pub(super) fn request(
        &mut self,
        upstream: &Upstream,
        profile: Option<&Profile>,
    ) -> Result<Request<SendBody>, ApplyError> {
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
            // Asked for once only: what passes cannot be repeated.
            Payload::Passing(body) => body.take().unwrap_or_else(|| in_memory(Segments::whole(Bytes::new()))),
        };
        Ok(Request::from_parts(head, body))
    }
}

/// A body of slices that are in memory.
fn in_memory(body: Segments) -> SendBody {
    Spliced::from(body).map_err(|never| match never {}).boxed_unsync()
}
