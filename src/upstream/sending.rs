//! The request's body on its way up: how far it is, and whether it failed by itself.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::{BoxError, Phase, SendBody};
use crate::clock;

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

/// A body that reports its progress.
#[derive(Debug)]
pub(super) struct Tracked {
    body: SendBody,
    progress: Progress,
}

impl Tracked {
    pub(super) fn new(body: SendBody, progress: Progress) -> Self {
        progress.lock().done = body.is_end_stream();
        Self { body, progress }
    }
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = BodyFailed;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFailed>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
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
        shared.done = frame.is_none() || self.body.is_end_stream();
        drop(shared);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
