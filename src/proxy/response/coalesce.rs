//! Frames of an answer that are ready together, joined: a burst of events leaves in one write. Never waits for more.
//!
//! The first frame of a burst is handed on at once. Behind it, frames are held only while the provider's connection
//! still has more of them in memory, which it says exactly: no event waits for one that has not arrived.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};

use crate::upstream::{BoxError, BoxedBody, Ebb};

/// Bytes that are joined: more would be held for a client that reads slowly.
const JOINED_MAX: usize = 16 * 1024;
/// Largest frame that is copied into a joined one.
const COPIED_MAX: usize = 4 * 1024;

/// One step of a body.
type Step = Option<Result<Frame<Bytes>, BoxError>>;

/// The provider's body, its small frames joined.
#[derive(Debug)]
pub(super) struct Coalesced {
    body: BoxedBody,
    // None where frames of several answers share a connection.
    ebb: Option<Ebb>,
    // What the ebb said when the last frame left.
    left_at: Option<u64>,
    held: BytesMut,
    // What came behind `held`.
    behind: Option<Step>,
}

impl Coalesced {
    /// Gathers `body`; `ebb` is that of its connection, if nothing else comes over it meanwhile.
    pub(super) fn new(body: BoxedBody, ebb: Option<Ebb>) -> Self {
        Self {
            body,
            ebb,
            left_at: None,
            held: BytesMut::new(),
            behind: None,
        }
    }

    /// Whether everything was handed out, as far as is known.
    pub(super) fn is_end(&self) -> bool {
        self.held.is_empty() && self.behind.is_none() && self.body.is_end_stream()
    }

    /// What is left, where the provider said how much; asked before anything was handed out.
    pub(super) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next frame, or the end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if let Some(step) = self.behind.take() {
            return self.leave(step);
        }
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(step) => {
                    let Some(data) = joinable(&step) else {
                        return self.finish(step);
                    };
                    if self.held.is_empty() && !self.is_burst() {
                        return self.leave(step);
                    }
                    if self.held.is_empty() {
                        self.held.reserve(JOINED_MAX);
                    }
                    self.held.extend_from_slice(data);
                    if self.held.len() > JOINED_MAX - COPIED_MAX || self.body.is_end_stream() {
                        return self.hand_over();
                    }
                }
                Poll::Pending => {
                    if self.held.is_empty() {
                        return Poll::Pending;
                    }
                    if let (Some(ebb), Some(left_at)) = (&self.ebb, self.left_at) {
                        ready!(ebb.poll_past(left_at, cx));
                    }
                    return self.hand_over();
                }
            }
        }
    }

    /// Whether the frame at hand was in memory already when the one before it left.
    fn is_burst(&self) -> bool {
        let ebb = self.ebb.as_ref().map(Ebb::times);
        ebb.is_some() && ebb == self.left_at
    }

    /// A step that nothing is joined with goes behind what is held.
    fn finish(&mut self, step: Step) -> Poll<Step> {
        if self.held.is_empty() {
            return self.leave(step);
        }
        self.behind = Some(step);
        self.hand_over()
    }

    fn hand_over(&mut self) -> Poll<Step> {
        let held = std::mem::take(&mut self.held).freeze();
        self.leave(Some(Ok(Frame::data(held))))
    }

    fn leave(&mut self, step: Step) -> Poll<Step> {
        self.left_at = self.ebb.as_ref().map(Ebb::times);
        Poll::Ready(step)
    }
}

fn joinable(step: &Step) -> Option<&Bytes> {
    let data = step.as_ref()?.as_ref().ok()?.data_ref()?;
    (data.len() <= COPIED_MAX).then_some(data)
}
