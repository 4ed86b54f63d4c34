//! The request's body on its way up: how far it is, and whether it failed by itself.

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

/// Bytes that a connection is given at once.
const PART_BYTES_MAX: usize = 256 * 1024;

/// How far the request's body is. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    moved: Instant,
    // Whether a connection has begun to take the body.
    taken: bool,
    // The body itself is not ready: nobody upstream is waited for.
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

    /// Ready once the other end has let us wait: for `send` while it takes the request, for `headers` once it has it
    /// all; until a connection takes it, for `connect` more.
    pub(super) async fn silence(&self, send: Duration, headers: Duration, connect: Duration) {
        let least = send.min(headers);
        // Never late, whatever happens meanwhile: nothing of that has to wake us.
        let mut look = self.lock().moved + least;
        loop {
            tokio::time::sleep_until(look).await;
            let now = clock::now();
            let mut shared = self.lock();
            if shared.starved {
                shared.moved = now;
            }
            let limit = if shared.done { headers } else { send };
            let deadline = shared.moved + if shared.taken { limit } else { limit + connect };
            if deadline <= now {
                return;
            }
            // Nothing moves it once all was taken.
            let settled = shared.taken && shared.done;
            look = if settled { deadline } else { deadline.min(now + least) };
        }
    }

    /// The phase that a failure now falls into.
    pub(super) fn phase(&self) -> Phase {
        if self.lock().done { Phase::Headers } else { Phase::Send }
    }

    /// The error of the body itself.
    pub(super) fn take_failure(&self) -> Option<BoxError> {
        self.lock().failure.take()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request's body has failed by itself; the cause is in [`Progress`].
#[derive(Debug, thiserror::Error)]
#[error("the request's body failed")]
pub(super) struct BodyFailed;

/// A body that reports its progress: large pieces are given in parts, so that what is taken was nearly written.
#[derive(Debug)]
pub(super) struct Tracked {
    body: BoxedBody,
    /// What is left of a large piece.
    rest: Bytes,
    progress: Progress,
}

impl Tracked {
    pub(super) fn new(body: BoxedBody, progress: Progress) -> Self {
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
        let part = self.rest.split_to(self.rest.len().min(PART_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = BodyFailed;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        let polled = self.poll_part(cx);
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
