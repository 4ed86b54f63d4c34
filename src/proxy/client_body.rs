//! Request bodies: the client's stream with its timeout, collecting it up to a limit, and segments in memory.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::upload_timeout::UploadTimeout;
use crate::{
    server::budget::{BodyBuffer, BodyShare, Overloaded},
    splice::Segments,
    upstream::BoxedBody,
};

/// Reason for which a client's body did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// Malformed, cut short, or the connection is gone.
    #[error("the client's request body is malformed or was cut short")]
    Broken,
    /// Timeout: the client was silent for longer than the limit for uploads, or sent too slowly.
    #[error("timeout: the client's request body stalled")]
    Stalled,
}

/// Reason for which a client's body was not collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectError {
    /// The client's fault.
    Client(ClientFault),
    /// The bodies of other clients fill the memory.
    Overloaded(Overloaded),
}

/// Client's body as a stream, without trailers.
#[derive(Debug)]
pub(super) struct ClientBody {
    // Collected before the body turned out to be too large.
    prefix: VecDeque<Bytes>,
    inner: BoxedBody,
    // Runs only while the proxy waits for the client, not while the provider is slow to take data.
    timeout: UploadTimeout,
    bytes_read: Arc<AtomicU64>,
}

impl ClientBody {
    /// Wraps a client's body. Adds the bytes that are read to `read`.
    pub(super) fn new(inner: BoxedBody, idle_timeout: Duration, read: Arc<AtomicU64>) -> Self {
        Self {
            prefix: VecDeque::new(),
            inner,
            timeout: UploadTimeout::new(idle_timeout),
            bytes_read: read,
        }
    }

    /// Returns the length that the client claims, if it claims one.
    pub(super) fn claimed_len(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    /// Collects a body of at most `limit` bytes into one buffer. Returns a larger body as a stream.
    ///
    /// Also returns a stream if the system has no memory. Waits while the bodies of others fill the memory that `share`
    /// is a share of.
    pub(super) async fn collect_up_to(
        mut self,
        limit: usize,
        mut share: BodyShare,
    ) -> Result<CollectOutcome, CollectError> {
        let claimed = self.claimed_len();
        if claimed.is_some_and(|claimed| claimed > limit as u64) {
            // Not read at all: the stream starts without delay.
            return Ok(CollectOutcome::TooLarge(self));
        }
        let claimed = claimed.and_then(|claimed| usize::try_from(claimed).ok());
        let mut buffer = BodyBuffer::default();
        while let Some(frame) = self.next_frame(&share).await {
            let Ok(data) = frame?.into_data() else { continue };
            let fits = data.len() <= limit.saturating_sub(buffer.len());
            if fits {
                let wanted = buffer.len().saturating_add(data.len());
                share.grow_to(wanted).await.map_err(CollectError::Overloaded)?;
            }
            if !fits || append_data(&mut buffer, &data, claimed, &share).is_err() {
                // What was collected comes first out of the stream. An empty piece would be an empty frame.
                self.prefix = [end_collecting(buffer, share)?, data].into();
                self.prefix.retain(|piece| !piece.is_empty());
                return Ok(CollectOutcome::TooLarge(self));
            }
        }
        Ok(CollectOutcome::Whole(end_collecting(buffer, share)?))
    }

    /// Returns the next frame, or an error once the body is evicted for others.
    async fn next_frame(&mut self, share: &BodyShare) -> Option<Result<Frame<Bytes>, CollectError>> {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *self).poll_frame(cx) {
                return Poll::Ready(frame.map(|frame| frame.map_err(CollectError::Client)));
            }
            ready!(share.poll_evicted(cx));
            Poll::Ready(Some(Err(CollectError::Overloaded(Overloaded::Memory))))
        })
        .await
    }
}

/// Returns the handle of a collected body, which keeps its share of the memory for as long as it is in use.
fn end_collecting(buffer: BodyBuffer, mut share: BodyShare) -> Result<Bytes, CollectError> {
    if buffer.is_empty() {
        return Ok(Bytes::new());
    }
    share.end_reading(buffer.len()).map_err(CollectError::Overloaded)?;
    Ok(share.into_bytes(buffer))
}

/// Maximum bytes that are reserved at first, whatever length the client claims: 64 KiB.
const FIRST_RESERVE_MAX: usize = 64 * 1024;

/// Adds `data` to a body that is being collected. Enlarges the capacity if it does not suffice.
///
/// A claim costs the client nothing, so little is reserved for it at first. When more has come, all of the claimed length
/// is reserved unless the bodies together have reserved too much: each growth copies the body. Else the capacity doubles.
fn append_data(buffer: &mut BodyBuffer, data: &[u8], claimed: Option<usize>, share: &BodyShare) -> io::Result<()> {
    let wanted = buffer.len().saturating_add(data.len());
    if wanted > buffer.capacity() {
        let capacity = buffer.capacity();
        let doubled = capacity.saturating_mul(2);
        // Never beyond the claim, so that a body of the claimed length wastes no memory.
        let room = match claimed {
            Some(claimed) if capacity == 0 => claimed.min(FIRST_RESERVE_MAX),
            Some(claimed) if share.reserve(claimed.saturating_sub(capacity)) => claimed,
            Some(claimed) => doubled.min(claimed),
            None => doubled,
        };
        let room = room.max(wanted);
        buffer.grow(room, share.needs_map(room))?;
    }
    buffer.push(data)
}

/// Outcome of [`ClientBody::collect_up_to`].
#[derive(Debug)]
pub(super) enum CollectOutcome {
    /// Whole body.
    Whole(Bytes),
    /// Body above the limit, or without memory for it. The stream yields all of it.
    TooLarge(ClientBody),
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientFault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientFault>>> {
        if let Some(prefix) = self.prefix.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(prefix))));
        }
        loop {
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(frame) => {
                    let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                    let bytes = data.map_or(0, Bytes::len);
                    // Stopped until the next wait: a provider that is slow to take data costs the client nothing.
                    self.timeout.end_wait(bytes);
                    match frame {
                        None => return Poll::Ready(None),
                        Some(Err(_)) => return Poll::Ready(Some(Err(ClientFault::Broken))),
                        Some(Ok(frame)) => {
                            // Trailers are dropped: only the head's headers are filtered for the provider.
                            let Ok(data) = frame.into_data() else { continue };
                            self.bytes_read.fetch_add(data.len() as u64, Ordering::Relaxed);
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                    }
                }
                Poll::Pending => {
                    // Only here is it the client that is waited for.
                    ready!(self.timeout.poll_wait(cx));
                    return Poll::Ready(Some(Err(ClientFault::Stalled)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // The length that is sent upstream: what was collected is no longer counted by `inner`.
        let prefix = self.prefix.iter().map(Bytes::len).sum::<usize>() as u64;
        let inner = self.inner.size_hint();
        match inner.exact() {
            Some(exact) => SizeHint::with_exact(exact.saturating_add(prefix)),
            None => SizeHint::new(),
        }
    }
}

/// Body in memory. Each piece is released as it is sent.
#[derive(Debug)]
pub(super) struct SegmentsBody {
    parts: VecDeque<Bytes>,
    bytes_left: u64,
}

impl From<Segments> for SegmentsBody {
    fn from(segments: Segments) -> Self {
        Self {
            bytes_left: segments.len() as u64,
            parts: segments.into_parts().into(),
        }
    }
}

impl Body for SegmentsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.pop_front();
        self.bytes_left = self
            .bytes_left
            .saturating_sub(part.as_ref().map_or(0, Bytes::len) as u64);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::budget::{BodyMemory, BudgetClient};

    const KIB: usize = 1024;
    const MIB: usize = 1024 * 1024;

    /// Returns the capacities of a buffer for `claimed` bytes while `pieces` pieces of `piece` bytes are added.
    fn grown(claimed: Option<usize>, piece: usize, pieces: usize, may_reserve: bool) -> Vec<usize> {
        // Without memory for bodies nothing may be reserved.
        let memory = BodyMemory::new(if may_reserve { 1024 * MIB as u64 } else { 0 });
        let share = memory.open(BudgetClient::Unknown, None);
        let mut buffer = BodyBuffer::default();
        let mut rooms = vec![buffer.capacity()];
        for _ in 0..pieces {
            append_data(&mut buffer, &vec![b'x'; piece], claimed, &share).unwrap();
            rooms.push(buffer.capacity());
        }
        assert_eq!(buffer.len(), piece * pieces);
        rooms.dedup();
        rooms
    }

    #[test]
    fn a_claim_costs_no_more_than_the_first_read() {
        assert_eq!(grown(Some(64 * MIB), 1, 1, true), [0, 64 * KIB]);
        assert_eq!(grown(Some(64 * MIB), 0, 1, true), [0]);
    }

    #[test]
    fn a_claimed_length_is_reserved_at_once_or_by_doubling() {
        assert_eq!(grown(Some(256 * KIB), 16 * KIB, 16, true), [0, 64 * KIB, 256 * KIB]);
        assert_eq!(
            grown(Some(160 * KIB), 16 * KIB, 10, false),
            [0, 64 * KIB, 128 * KIB, 160 * KIB]
        );
        assert_eq!(grown(Some(3000), 1000, 3, true), [0, 3000]);
        assert_eq!(grown(Some(4 * MIB), 3 * MIB, 1, true), [0, 3 * MIB]);
    }

    #[test]
    fn a_body_without_a_claim_doubles() {
        assert_eq!(grown(None, 1000, 9, true), [0, 1000, 2000, 4000, 8000, 16_000]);
    }
}
