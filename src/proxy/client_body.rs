//! Bodies on the request side: bounded collect, the client's stream, spliced segments.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::{clock::Silence, splice::Segments, upstream::BoxedBody};

/// A body that the client did not bring to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// Malformed, cut short, or the connection is gone.
    #[error("the request's body is broken")]
    Broken,
    /// Silence for longer than the upload's limit.
    #[error("the request's body stalled")]
    Stalled,
}

/// A client's body as a stream. Trailers of requests are dropped.
#[derive(Debug)]
pub(super) struct ClientBody {
    // Bytes that were collected before the stream turned out to be too large.
    prefix: Option<Bytes>,
    inner: BoxedBody,
    // Runs only while we wait for the client, not while the provider is slow to take.
    idle: Silence,
    read: Arc<AtomicU64>,
}

impl ClientBody {
    /// Wraps a body; `read` counts its bytes.
    pub(super) fn new(inner: BoxedBody, idle_timeout: Duration, read: Arc<AtomicU64>) -> Self {
        Self {
            prefix: None,
            inner,
            idle: Silence::new(idle_timeout),
            read,
        }
    }

    /// Reads the whole body into one buffer if it is at most `limit` bytes.
    pub(super) async fn collect(mut self, limit: usize) -> Result<Collected, ClientFault> {
        let claimed = self.size_hint();
        if claimed.lower() > limit as u64 {
            return Ok(Collected::TooLarge(self));
        }
        let mut buffer = BytesMut::with_capacity(usize::try_from(claimed.lower()).unwrap_or(limit).min(limit));
        while let Some(frame) = self.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if data.len() > limit.saturating_sub(buffer.len()) {
                buffer.extend_from_slice(&data);
                self.prefix = Some(buffer.freeze());
                return Ok(Collected::TooLarge(self));
            }
            buffer.extend_from_slice(&data);
        }
        Ok(Collected::Whole(buffer.freeze()))
    }
}

/// What [`ClientBody::collect`] has found.
#[derive(Debug)]
pub(super) enum Collected {
    /// The whole body.
    Whole(Bytes),
    /// A body above the limit, every byte of it still to come out.
    TooLarge(ClientBody),
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientFault>>> {
        if let Some(prefix) = self.prefix.take() {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        loop {
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(frame) => {
                    self.idle.heard();
                    match frame {
                        None => return Poll::Ready(None),
                        Some(Err(_)) => return Poll::Ready(Some(Err(ClientFault::Broken))),
                        Some(Ok(frame)) => {
                            let Ok(data) = frame.into_data() else { continue };
                            self.read.fetch_add(data.len() as u64, Ordering::Relaxed);
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                    }
                }
                Poll::Pending => {
                    ready!(self.idle.poll(cx));
                    return Poll::Ready(Some(Err(ClientFault::Stalled)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let prefix = self.prefix.as_ref().map_or(0, Bytes::len) as u64;
        let inner = self.inner.size_hint();
        match inner.exact() {
            Some(exact) => SizeHint::with_exact(exact.saturating_add(prefix)),
            None => SizeHint::new(),
        }
    }
}

/// A body in memory; each piece is given away as it is sent.
#[derive(Debug)]
pub(super) struct Spliced {
    parts: VecDeque<Bytes>,
    left: u64,
}

impl From<Segments> for Spliced {
    fn from(segments: Segments) -> Self {
        Self {
            left: segments.len() as u64,
            parts: segments.into_parts().into(),
        }
    }
}

impl From<Bytes> for Spliced {
    fn from(body: Bytes) -> Self {
        Segments::whole(body).into()
    }
}

impl Body for Spliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.pop_front();
        self.left = self.left.saturating_sub(part.as_ref().map_or(0, Bytes::len) as u64);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
