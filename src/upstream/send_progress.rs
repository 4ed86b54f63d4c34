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
pub(super) struct SendProgress(Arc<Mutex<ProgressState>>);

#[derive(Debug)]
struct ProgressState {
    last_progress: Instant,
    // `true` once a connection has begun to take the body.
    is_taken: bool,
    // `true` while the body itself is not ready, so that the wait is not the provider's fault.
    waits_for_body: bool,
    is_complete: bool,
    failure: Option<BoxError>,
}

impl SendProgress {
    pub(super) fn start() -> Self {
        Self(Arc::new(Mutex::new(ProgressState {
            last_progress: clock::now(),
            is_taken: false,
            waits_for_body: false,
            is_complete: false,
            failure: None,
        })))
    }

    /// Returns after a silence of the provider: `send` while it reads the request, `headers` after it has read all.
    /// Until a connection takes the request, `connect` is added.
    pub(super) async fn wait_for_silence(&self, send: Duration, headers: Duration, connect: Duration) {
        let least = send.min(headers);
        // The earliest possible end. No event needs to wake this task, because it computes the deadline anew each time.
        let mut look = self.lock_state().last_progress + least;
        loop {
            tokio::time::sleep_until(look).await;
            let now = clock::now();
            let mut shared = self.lock_state();
            // The client is slow, so the timeout of the provider starts again.
            if shared.waits_for_body {
                shared.last_progress = now;
            }
            let limit = if shared.is_complete { headers } else { send };
            let deadline = shared.last_progress + if shared.is_taken { limit } else { limit + connect };
            if deadline <= now {
                return;
            }
            // After the last byte was taken nothing moves the deadline.
            let settled = shared.is_taken && shared.is_complete;
            look = if settled { deadline } else { deadline.min(now + least) };
        }
    }

    /// Returns the phase of a failure that happens now.
    pub(super) fn current_phase(&self) -> Phase {
        if self.lock_state().is_complete {
            Phase::Headers
        } else {
            Phase::Send
        }
    }

    /// Returns the error of the body itself.
    pub(super) fn take_failure(&self) -> Option<BoxError> {
        self.lock_state().failure.take()
    }

    fn lock_state(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a request's body. The cause is in [`SendProgress`].
#[derive(Debug, thiserror::Error)]
#[error("the request body failed")]
pub(super) struct BodyError;

/// A body that reports its progress. Large frames are split, so that bytes taken are bytes nearly written.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: BoxedBody,
    /// The rest of a large frame.
    frame_rest: Bytes,
    progress: SendProgress,
}

impl TrackedBody {
    pub(super) fn new(body: BoxedBody, progress: SendProgress) -> Self {
        // An empty body is never polled.
        progress.lock_state().is_complete = body.is_end_stream();
        Self {
            body,
            frame_rest: Bytes::new(),
            progress,
        }
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.frame_rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.frame_rest = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        // Whole frames of a fast client would hide a provider that reads slowly.
        let part = self.frame_rest.split_to(self.frame_rest.len().min(PART_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.poll_part(cx);
        // Computed before the lock: the body's own code must not run under it.
        let ended = self.is_end_stream();
        let mut shared = self.progress.lock_state();
        shared.is_taken = true;
        shared.waits_for_body = polled.is_pending();
        let Poll::Ready(frame) = polled else {
            return Poll::Pending;
        };
        shared.last_progress = clock::now();
        shared.is_complete = frame.is_none() || ended;
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| {
                // Stored here, because hyper replaces the body's error by its own.
                shared.failure = Some(error);
                BodyError
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.frame_rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.frame_rest.len() as u64);
        match inner.exact() {
            Some(exact) => SizeHint::with_exact(exact.saturating_add(rest)),
            None => inner,
        }
    }
}
