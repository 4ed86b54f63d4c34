//! The live feed as server-sent events, and the response body type of the ledger API.

use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body::{Body, Frame, SizeHint};

use super::{
    LedgerApi,
    delivery_id::format_delivery_id,
    response::{ApiErrorCode, ApiRefusal},
};
use crate::{
    auth::Caller,
    late::{FeedEvent, ResultFeed},
    server::StopSignal,
    wire::json::quote_string,
};

/// Silence after which a feed sends a comment: 15 seconds. Proxies in between would cut an idle connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Concurrent listeners in total, and of one caller, so that one caller cannot take every slot.
const LISTENERS_MAX: (usize, usize) = (256, 16);

/// The body of a ledger API response.
pub struct LedgerBody(LedgerBodyKind);

/// The two kinds of bodies.
enum LedgerBodyKind {
    /// A complete body. `None` once it was sent.
    Full(Option<Bytes>),
    /// The future of the next event. It resolves to `None` behind the last event.
    Feed(BoxFuture<'static, Option<(Bytes, FeedListener)>>),
}

impl std::fmt::Debug for LedgerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerBody").finish_non_exhaustive()
    }
}

impl LedgerBody {
    /// Creates a complete body.
    pub(super) fn from_bytes(body: Bytes) -> Self {
        Self(LedgerBodyKind::Full(Some(body)))
    }

    /// Returns the length of a complete body in bytes, and 0 for a feed.
    pub fn full_length(&self) -> u64 {
        match &self.0 {
            LedgerBodyKind::Full(body) => body.as_ref().map_or(0, Bytes::len) as u64,
            LedgerBodyKind::Feed(_) => 0,
        }
    }
}

impl Body for LedgerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            LedgerBodyKind::Full(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            LedgerBodyKind::Feed(next) => {
                let Some((event, listener)) = std::task::ready!(next.as_mut().poll(cx)) else {
                    // A future must not be polled again after it has resolved.
                    self.0 = LedgerBodyKind::Full(None);
                    return Poll::Ready(None);
                };
                *next = listener.next_event().boxed();
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, LedgerBodyKind::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            LedgerBodyKind::Full(_) => SizeHint::with_exact(self.full_length()),
            LedgerBodyKind::Feed(_) => SizeHint::new(),
        }
    }
}

/// The number of listeners of each caller.
#[derive(Clone, Debug, Default)]
pub(super) struct FeedListeners(Arc<Mutex<HashMap<Caller, usize>>>);

impl FeedListeners {
    /// Takes a slot for one more listener. Returns `None` at a limit.
    fn take_slot(&self, owner: Caller) -> Option<ListenerSlot> {
        let mut listening = self.lock_counts();
        let own = listening.get(&owner).copied().unwrap_or_default();
        if listening.values().sum::<usize>() >= LISTENERS_MAX.0 || own >= LISTENERS_MAX.1 {
            return None;
        }
        listening.insert(owner, own.saturating_add(1));
        Some(ListenerSlot {
            listeners: self.clone(),
            owner,
        })
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<Caller, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener's slot. Dropping it frees the slot.
#[derive(Debug)]
struct ListenerSlot {
    listeners: FeedListeners,
    owner: Caller,
}

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        let mut listening = self.listeners.lock_counts();
        match listening.get_mut(&self.owner) {
            Some(own) if *own > 1 => *own -= 1,
            // Removed at zero, so that the map does not grow with every caller that ever listened.
            _ => drop(listening.remove(&self.owner)),
        }
    }
}

/// One connected listener.
struct FeedListener {
    feed: ResultFeed,
    stopping: StopSignal,
    _place: ListenerSlot,
}

impl FeedListener {
    /// Waits for the next event or heartbeat. Returns `None` once the drain has begun.
    async fn next_event(mut self) -> Option<(Bytes, Self)> {
        // An open feed would otherwise hold up the drain until its timeout.
        let told = tokio::time::timeout(HEARTBEAT, self.feed.next_event());
        let told = self.stopping.run_until(Box::pin(told)).await?;
        let event = match told {
            Err(_) => Bytes::from_static(b": still here\n\n"),
            Ok(None) => return None,
            Ok(Some(FeedEvent::Missed)) => Bytes::from_static(b"event: missed\ndata: {}\n\n"),
            Ok(Some(FeedEvent::Settled(settled))) => {
                let event = format!(
                    "event: settled\ndata: {{\"call_id\":{},\"tool\":{},\"delivery\":\"{}\",\"is_error\":{}}}\n\n",
                    quote_string(&String::from_utf8_lossy(&settled.call_id)),
                    quote_string(&String::from_utf8_lossy(&settled.tool)),
                    format_delivery_id(&settled.name),
                    settled.failed,
                );
                event.into()
            }
        };
        Some((event, self))
    }
}

/// Opens the feed of a caller.
pub(super) fn open_feed(api: &LedgerApi, owner: Caller) -> Result<Response<LedgerBody>, ApiRefusal> {
    let place = api
        .listeners
        .take_slot(owner)
        .ok_or(ApiRefusal::from_code(ApiErrorCode::Busy))?;
    let listener = FeedListener {
        feed: api.late.subscribe(owner),
        stopping: api.stopping.clone(),
        _place: place,
    };
    // Sent at once: the client then knows that no later result is missed, and can read `outstanding`.
    let first = async move { Some((Bytes::from_static(b": listening\n\n"), listener)) };
    let mut answer = Response::new(LedgerBody(LedgerBodyKind::Feed(first.boxed())));
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}
