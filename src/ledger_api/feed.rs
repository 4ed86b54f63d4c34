//! The live feed as server-sent events.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::{
    LedgerApi, LedgerBody,
    delivery_id::format_delivery_id,
    response::{ApiErrorCode, ApiRefusal},
};
use crate::{
    auth::Caller,
    late::{FeedEvent, ResultFeed},
    server::{ListenerSlot, StopSignal},
    wire::json::quote_string,
};

/// Silence after which a feed sends a comment: 15 seconds. Proxies in between would cut an idle connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// One connected listener.
struct FeedListener {
    feed: ResultFeed,
    stopping: StopSignal,
    _slot: ListenerSlot<Caller>,
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
    let slot = api
        .listeners
        .take_slot(owner)
        .ok_or(ApiRefusal::from_code(ApiErrorCode::Busy))?;
    let listener = FeedListener {
        feed: api.late.subscribe(owner),
        stopping: api.stopping.clone(),
        _slot: slot,
    };
    // Sent at once: the client then knows that no later result is missed, and can read `outstanding`.
    let first = stream::iter([Bytes::from_static(b": listening\n\n")]);
    let events = first.chain(stream::unfold(listener, FeedListener::next_event));
    let mut answer = Response::new(StreamBody::new(events.map(|event| Ok(Frame::data(event)))).boxed_unsync());
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}
