//! Joins frames of an answer that are ready together, so that a burst of events is sent in one write.
//!
//! The first frame of a burst is passed on at once. Further frames are held only while the provider's connection has
//! more of them in memory. It reports that exactly, so no event waits for one that has not arrived.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};

use crate::upstream::{BoxError, BoxedBody, ReadIdle};

/// Maximum bytes of joined frames: more memory would be held for a client that reads slowly.
const JOINED_MAX: usize = 16 * 1024;
/// Maximum bytes of a frame that is joined: copying a larger one costs more than a write of its own.
const COPIED_MAX: usize = 4 * 1024;

/// The next frame of a body, its error, or its end.
pub(super) type PolledFrame = Option<Result<Frame<Bytes>, BoxError>>;

/// The provider's body, with small frames joined.
#[derive(Debug)]
pub(super) struct CoalescedBody {
    body: BoxedBody,
    // `None` on HTTP/2, where several answers share a connection.
    read_idle: Option<ReadIdle>,
    // The socket's count of empty reads when the last frame was passed on.
    reads_when_sent: Option<u64>,
    // Frames that are joined but not passed on yet.
    joined: BytesMut,
    // Arrived after `joined`, and cannot be joined with it.
    next_frame: Option<PolledFrame>,
}

impl CoalescedBody {
    /// Wraps `body`. `read_idle` counts empty reads of its connection. `None` if other answers share the connection.
    pub(super) fn new(body: BoxedBody, read_idle: Option<ReadIdle>) -> Self {
        Self {
            body,
            read_idle,
            reads_when_sent: None,
            joined: BytesMut::new(),
            next_frame: None,
        }
    }

    /// Puts a frame, or the end, that was read from the body already before the rest.
    pub(super) fn with_first_frame(mut self, first: Option<PolledFrame>) -> Self {
        self.next_frame = first;
        self
    }

    /// Returns `true` if every frame was passed on and the body is known to be at its end.
    pub(super) fn is_end(&self) -> bool {
        self.joined.is_empty() && self.next_frame.is_none() && self.body.is_end_stream()
    }

    /// Returns the length in bytes that the provider announced. `None` if it announced none. Call it before `poll`.
    pub(super) fn announced_len(&self) -> Option<u64> {
        let first = match &self.next_frame {
            Some(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        // A frame that was read already is no longer counted by the body.
        Some(self.body.size_hint().exact()?.saturating_add(first as u64))
    }

    /// Returns the next frame, or the end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<PolledFrame> {
        if let Some(step) = self.next_frame.take() {
            return self.emit_frame(step);
        }
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(step) => {
                    let Some(data) = joinable_data(&step) else {
                        return self.emit_after_joined(step);
                    };
                    // The first frame of a burst must not wait, and a frame alone need not be copied.
                    if self.joined.is_empty() && !self.is_burst() {
                        return self.emit_frame(step);
                    }
                    if self.joined.is_empty() {
                        // Reserved once, so that the buffer never grows by copying.
                        self.joined.reserve(JOINED_MAX);
                    }
                    self.joined.extend_from_slice(data);
                    // Another frame of the largest size might not fit. At the end of the body none follows.
                    if self.joined.len() > JOINED_MAX - COPIED_MAX || self.body.is_end_stream() {
                        return self.emit_joined();
                    }
                }
                Poll::Pending => {
                    if self.joined.is_empty() {
                        return Poll::Pending;
                    }
                    // More frames are in memory until the socket is empty. A longer wait would delay an event.
                    if self.is_burst() {
                        return Poll::Pending;
                    }
                    return self.emit_joined();
                }
            }
        }
    }

    /// Returns `true` if the socket has not been empty since the last frame was passed on.
    fn is_burst(&self) -> bool {
        let read_idle = self.read_idle.as_ref().map(ReadIdle::empty_reads);
        read_idle.is_some() && read_idle == self.reads_when_sent
    }

    /// Passes on a step that cannot be joined, after the frames that are held.
    fn emit_after_joined(&mut self, step: PolledFrame) -> Poll<PolledFrame> {
        if self.joined.is_empty() {
            return self.emit_frame(step);
        }
        // The next poll returns it, since one poll returns one frame.
        self.next_frame = Some(step);
        self.emit_joined()
    }

    /// Passes on the joined frames.
    fn emit_joined(&mut self) -> Poll<PolledFrame> {
        let held = std::mem::take(&mut self.joined).freeze();
        self.emit_frame(Some(Ok(Frame::data(held))))
    }

    /// Passes on a step, and stores the count of empty reads for [`Self::is_burst`].
    fn emit_frame(&mut self, step: PolledFrame) -> Poll<PolledFrame> {
        self.reads_when_sent = self.read_idle.as_ref().map(ReadIdle::empty_reads);
        Poll::Ready(step)
    }
}

/// Returns the data of a frame that is small enough to be joined.
fn joinable_data(step: &PolledFrame) -> Option<&Bytes> {
    let data = step.as_ref()?.as_ref().ok()?.data_ref()?;
    (data.len() <= COPIED_MAX).then_some(data)
}
