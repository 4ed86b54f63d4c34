//! An HTTP/1 connection that runs in the task of the exchange that uses it, without a task and a channel of its own.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use futures_util::future::poll_fn;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
};
use tokio::task::unconstrained;

use super::{
    HEAD_BYTES_MAX,
    in_process::ProviderStream,
    read_idle::{ReadIdle, WriteTimeoutIo},
    send_progress::TrackedBody,
};

/// An HTTP/1 connection. It makes progress only while it is polled.
pub(super) struct Http1Connection {
    requests: http1::SendRequest<TrackedBody>,
    /// `None` once the connection has ended.
    running: Option<http1::Connection<WriteTimeoutIo<ProviderStream>, TrackedBody>>,
    read_idle: ReadIdle,
}

impl Http1Connection {
    /// Begins HTTP/1 on a new connection.
    pub(super) async fn open(stream: WriteTimeoutIo<ProviderStream>) -> Result<Self, hyper::Error> {
        let read_idle = stream.read_idle();
        let mut builder = http1::Builder::new();
        let (requests, running) = builder.max_buf_size(HEAD_BYTES_MAX).handshake(stream).await?;
        Ok(Self {
            requests,
            running: Some(running),
            read_idle,
        })
    }

    /// Returns the counter of its empty reads.
    pub(super) fn read_idle(&self) -> ReadIdle {
        self.read_idle.clone()
    }

    /// Sends a request and waits for the head of its answer. An error contains the request if no byte of it was sent.
    pub(super) async fn send(
        &mut self,
        request: Request<TrackedBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<TrackedBody>>> {
        // Unconstrained: once the task's budget is used up, tokio would defer the wake to the waker below, which is none.
        let mut answering = pin!(unconstrained(self.requests.try_send_request(request)));
        poll_fn(|cx| self.drive(cx, |quiet| answering.as_mut().poll(quiet))).await
    }

    /// Runs the connection, and polls a future or a body that depends on it.
    pub(super) fn drive<T>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.run(cx);
        // The polled future waits only for the connection, which has just run. If the future takes a part, hyper wakes
        // `cx`.
        poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Runs the connection once. Returns `true` if it can take a request, and the provider has not closed it.
    pub(super) fn check_free(&mut self) -> bool {
        self.run(&mut Context::from_waker(Waker::noop()));
        self.running.is_some() && self.requests.is_ready()
    }

    /// Reads and writes what is possible now.
    fn run(&mut self, cx: &mut Context<'_>) {
        let ended = self
            .running
            .as_mut()
            .is_some_and(|running| Pin::new(running).poll(cx).is_ready());
        if ended {
            // hyper has reported the error to the request, if there is one. Dropping the rest ends what waits for it.
            self.running = None;
        }
    }
}
