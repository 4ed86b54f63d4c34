//! The progress of a request's body: the bytes that the connection has taken, and a failure of the body itself.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::{BoxError, BoxedBody, Phase};
use crate::clock;

/// Largest part that a connection gets at once.
const PART_BYTES_MAX: usize = 256 * 1024;

/// The progress of a request's body. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    moved: Instant,
    // `true` once a connection has begun to take the body.
    taken: bool,
    // `true` while the body itself is not ready, so that the wait is not the provider's fault.
    starved: bool,
    done: bool,
    failure: Option<BoxError>,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self(Arc::new(Mutex::new(Shared {
            moved: clock::now(),
            taken: false,
            starved: false,
            done: false,
            failure: None,
        })))
    }

    /// Returns after a silence of the provider: `send` while it reads the request, `headers` after it has read all.
    /// Until a connection takes the request, `connect` is added.
    pub(super) async fn silence(&self, send: Duration, headers: Duration, connect: Duration) {
        let least = send.min(headers);
        // The earliest possible end. No event needs to wake this task, because it computes the deadline anew each time.
        let mut look = self.lock().moved + least;
        loop {
            tokio::time::sleep_until(look).await;
            let now = clock::now();
            let mut shared = self.lock();
            // The client is slow, so the timeout of the provider starts again.
            if shared.starved {
                shared.moved = now;
            }
            let limit = if shared.done { headers } else { send };
            let deadline = shared.moved + if shared.taken { limit } else { limit + connect };
            if deadline <= now {
                return;
            }
            // After the last byte was taken nothing moves the deadline.
            let settled = shared.taken && shared.done;
            look = if settled { deadline } else { deadline.min(now + least) };
        }
    }

    /// Returns the phase of a failure that happens now.
    pub(super) fn phase(&self) -> Phase {
        if self.lock().done { Phase::Headers } else { Phase::Send }
    }

    /// Returns the error of the body itself.
    pub(super) fn take_failure(&self) -> Option<BoxError> {
        self.lock().failure.take()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a request's body. The cause is in [`Progress`].
#[derive(Debug, thiserror::Error)]
#[error("the request body failed")]
pub(super) struct BodyFailed;

/// A body that reports its progress. Large frames are split, so that bytes taken are bytes nearly written.
#[derive(Debug)]
pub(super) struct Tracked {
    body: BoxedBody,
    /// The rest of a large frame.
    rest: Bytes,
    progress: Progress,
}

impl Tracked {
    pub(super) fn new(body: BoxedBody, progress: Progress) -> Self {
        // An empty body is never polled.
        progress.lock().done = body.is_end_stream();
        Self {
            body,
            rest: Bytes::new(),
            progress,
        }
    }
}

impl Tracked {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        // Whole frames of a fast client would hide a provider that reads slowly.
        let part = self.rest.split_to(self.rest.len().min(PART_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = BodyFailed;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        let polled = self.poll_part(cx);
        // Computed before the lock: the body's own code must not run under it.
        let ended = self.is_end_stream();
        let mut shared = self.progress.lock();
        shared.taken = true;
        shared.starved = polled.is_pending();
        let Poll::Ready(frame) = polled else {
            return Poll::Pending;
        };
        shared.moved = clock::now();
        let frame = match frame {
            Some(Err(error)) => {
                // Stored here, because hyper replaces the body's error by its own.
                shared.failure = Some(error);
                Some(Err(BodyFailed))
            }
            Some(Ok(frame)) => Some(Ok(frame)),
            None => None,
        };
        shared.done = frame.is_none() || ended;
        drop(shared);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        match inner.exact() {
            Some(exact) => SizeHint::with_exact(exact.saturating_add(rest)),
            None => inner,
        }
    }
}
