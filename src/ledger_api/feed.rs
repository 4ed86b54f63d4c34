//! The live feed as server-sent events, and the body of every answer here.

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
    answer::{Code, Refusal},
    owners::shown,
};
use crate::{
    auth::Caller,
    late::{Feed, Told},
    server::Signal,
    wire::json::quoted,
};

/// Time between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Listeners at once, and of one owner: nobody shuts others out.
const LISTENERS_MAX: (usize, usize) = (256, 16);

/// The body of an answer.
pub struct LedgerBody(Inner);

enum Inner {
    Full(Option<Bytes>),
    /// The next event, and who waits for it; none behind the last.
    Feed(BoxFuture<'static, Option<(Bytes, Listener)>>),
}

impl std::fmt::Debug for LedgerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerBody").finish_non_exhaustive()
    }
}

impl LedgerBody {
    pub(super) fn full(body: Bytes) -> Self {
        Self(Inner::Full(Some(body)))
    }

    /// Bytes of a body that is whole.
    pub fn length(&self) -> u64 {
        match &self.0 {
            Inner::Full(body) => body.as_ref().map_or(0, Bytes::len) as u64,
            Inner::Feed(_) => 0,
        }
    }
}

impl Body for LedgerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Full(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Inner::Feed(next) => {
                let Some((event, listener)) = std::task::ready!(next.as_mut().poll(cx)) else {
                    self.0 = Inner::Full(None);
                    return Poll::Ready(None);
                };
                *next = listener.next().boxed();
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Full(_) => SizeHint::with_exact(self.length()),
            Inner::Feed(_) => SizeHint::new(),
        }
    }
}

/// Who listens, and how often.
#[derive(Clone, Debug, Default)]
pub(super) struct Listeners(Arc<Mutex<HashMap<Caller, usize>>>);

impl Listeners {
    /// A place for one more, if there is one.
    fn place(&self, owner: Caller) -> Option<Place> {
        let mut listening = self.listening();
        let own = listening.get(&owner).copied().unwrap_or_default();
        if listening.values().sum::<usize>() >= LISTENERS_MAX.0 || own >= LISTENERS_MAX.1 {
            return None;
        }
        listening.insert(owner, own.saturating_add(1));
        Some(Place {
            listeners: self.clone(),
            owner,
        })
    }

    fn listening(&self) -> MutexGuard<'_, HashMap<Caller, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among those who listen; free again once dropped.
#[derive(Debug)]
struct Place {
    listeners: Listeners,
    owner: Caller,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut listening = self.listeners.listening();
        match listening.get_mut(&self.owner) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(listening.remove(&self.owner)),
        }
    }
}

struct Listener {
    feed: Feed,
    stopping: Signal,
    _place: Place,
}

impl Listener {
    /// The next event or sign of life; none once the drain has begun.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let told = tokio::time::timeout(HEARTBEAT, self.feed.next());
        let told = self.stopping.until(Box::pin(told)).await?;
        let event = match told {
            Err(_) => Bytes::from_static(b": still here\n\n"),
            Ok(None) => return None,
            Ok(Some(Told::Missed)) => Bytes::from_static(b"event: missed\ndata: {}\n\n"),
            Ok(Some(Told::Settled(settled))) => {
                let event = format!(
                    "event: settled\ndata: {{\"call_id\":{},\"tool\":{},\"delivery\":\"{}\",\"is_error\":{}}}\n\n",
                    quoted(&String::from_utf8_lossy(&settled.call_id)),
                    quoted(&String::from_utf8_lossy(&settled.tool)),
                    shown(&settled.name),
                    settled.failed,
                );
                event.into()
            }
        };
        Some((event, self))
    }
}

/// Opens the feed of one owner.
pub(super) fn open(api: &LedgerApi, owner: Caller) -> Result<Response<LedgerBody>, Refusal> {
    let place = api.listeners.place(owner).ok_or(Refusal::of(Code::Busy))?;
    let listener = Listener {
        feed: api.late.feed(owner),
        stopping: api.stopping.clone(),
        _place: place,
    };
    // Something at once, so that the listener knows that it listens.
    let first = async move { Some((Bytes::from_static(b": listening\n\n"), listener)) };
    let mut answer = Response::new(LedgerBody(Inner::Feed(first.boxed())));
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}
