//! A request body that fails where the framing inspector has found it malformed.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::framing::{RequestHeads, RequestNumber};

/// The failure of a client's request body.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The HTTP stack could not read it.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The inspector has found a chunk that two servers could read differently.
    #[error("a chunk of the body is malformed")]
    MalformedChunk,
}

/// The body of a client's request.
#[derive(Debug)]
pub struct InspectedBody {
    inner: Incoming,
    // `None` on HTTP/2, which has no chunks.
    inspected: Option<(RequestHeads, RequestNumber)>,
}

impl InspectedBody {
    pub(super) const fn new(inner: Incoming, inspected: Option<(RequestHeads, RequestNumber)>) -> Self {
        Self { inner, inspected }
    }

    fn is_malformed(&self) -> bool {
        let inspected = self.inspected.as_ref();
        inspected.is_some_and(|(heads, number)| heads.has_malformed_body(*number))
    }
}

impl Body for InspectedBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx).map_err(RequestBodyError::from);
        // The inspector sees bytes before hyper does, so no frame after a malformed line gets past this check.
        if polled.is_ready() && self.is_malformed() {
            return Poll::Ready(Some(Err(RequestBodyError::MalformedChunk)));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && !self.is_malformed()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
