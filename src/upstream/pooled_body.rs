//! The body of a provider's answer, which runs its connection and puts it back at the end.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{ReadIdle, http1::Http1Connection, pool::OriginPool};

/// The body of a provider's answer. Dropping it before its end closes an HTTP/1 connection.
pub struct PooledBody {
    incoming: Incoming,
    /// The connection of an HTTP/1 answer. `None` after its end.
    connection: Option<UsedConnection>,
}

/// A connection in use.
struct UsedConnection {
    connection: Box<Http1Connection>,
    origin: Arc<OriginPool>,
}

impl PooledBody {
    /// Wraps the body of an HTTP/2 answer, whose connection has a task.
    pub(super) const fn from_shared(incoming: Incoming) -> Self {
        Self {
            incoming,
            connection: None,
        }
    }

    /// Wraps the body of an HTTP/1 answer.
    pub(super) fn new(incoming: Incoming, connection: Box<Http1Connection>, origin: Arc<OriginPool>) -> Self {
        let mut body = Self {
            incoming,
            connection: Some(UsedConnection { connection, origin }),
        };
        if body.incoming.is_end_stream() {
            body.put_back();
        }
        body
    }

    /// Returns the counter of the empty reads of an HTTP/1 connection. `None` if other answers share it, or if all of
    /// the body has arrived.
    pub fn read_idle(&self) -> Option<ReadIdle> {
        self.connection.as_ref().map(|used| used.connection.read_idle())
    }

    /// Puts the connection back, if there is one.
    fn put_back(&mut self) {
        if let Some(used) = self.connection.take() {
            used.origin.put_back(used.connection);
        }
    }

    /// Polls the body, and runs an HTTP/1 connection as far as that takes.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let incoming = &mut self.incoming;
        let Some(used) = &mut self.connection else {
            return Pin::new(incoming).poll_frame(cx);
        };
        // A frame may have arrived already. The connection is run once a frame is missing.
        let polled = Pin::new(&mut *incoming).poll_frame(&mut Context::from_waker(Waker::noop()));
        if polled.is_ready() {
            return polled;
        }
        used.connection
            .drive(cx, |quiet| Pin::new(&mut *incoming).poll_frame(quiet))
    }
}

impl Body for PooledBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = self.poll_incoming(cx);
        match &polled {
            Poll::Ready(Some(Err(_))) => self.connection = None,
            Poll::Ready(None) => self.put_back(),
            // As soon as the last frame has come, since another request may wait for the connection.
            Poll::Ready(Some(Ok(_))) if self.incoming.is_end_stream() => self.put_back(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
