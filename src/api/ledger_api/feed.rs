//! The live feed as server-sent events.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;

use super::{LedgerApi, answers::SettledNotice, delivery_id::format_delivery_id};
use crate::{
    api::{
        ApiBody, Problem, ProblemCode,
        json::write_json,
        stream::{event_stream, write_event},
    },
    auth::Caller,
    late::{FeedEvent, ResultFeed, SettledEvent},
    ledger::RecordName,
    server::{OwnerPlace, StopSignal},
};

/// Silence after which a feed sends a comment: 15 seconds. Proxies in between would cut an idle connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// One connected listener.
struct FeedListener {
    feed: ResultFeed,
    /// Results that were posted before, and that the client has missed. Each is sent once.
    missed: VecDeque<SettledEvent>,
    replayed: HashSet<RecordName>,
    stopping: StopSignal,
    _place: OwnerPlace<Caller>,
}

impl FeedListener {
    /// Waits for the next event or heartbeat. Returns `None` once the drain has begun.
    async fn next_event(mut self) -> Option<(Bytes, Self)> {
        if let Some(missed) = self.missed.pop_front() {
            return Some((settled_event(&missed), self));
        }
        // An open feed would otherwise hold up the drain until its timeout.
        let told = tokio::time::timeout(HEARTBEAT, self.feed.next_event());
        let told = self.stopping.run_until(Box::pin(told)).await?;
        let event = match told {
            Err(_) => Bytes::from_static(b": still here\n\n"),
            Ok(None) => return None,
            Ok(Some(FeedEvent::Missed)) => Bytes::from_static(b"event: missed\ndata: {}\n\n"),
            // Posted while the missed results were read, and sent with them.
            Ok(Some(FeedEvent::Settled(settled))) if self.replayed.contains(&settled.name) => {
                Bytes::from_static(b": sent before\n\n")
            }
            Ok(Some(FeedEvent::Settled(settled))) => settled_event(&settled),
        };
        Some((event, self))
    }
}

/// Writes the event of a posted result. Its id is the delivery, by which a client resumes.
fn settled_event(settled: &SettledEvent) -> Bytes {
    let delivery = format_delivery_id(&settled.name);
    let notice = SettledNotice {
        call_id: String::from_utf8_lossy(&settled.call_id),
        tool: String::from_utf8_lossy(&settled.tool),
        delivery: &delivery,
        is_error: settled.failed,
    };
    write_event("settled", Some(&delivery), &write_json(&notice))
}

/// Opens the feed of a caller. With `last` it begins with the waiting results after that one.
pub(super) async fn open_feed(
    api: &LedgerApi,
    owner: Caller,
    last: Option<RecordName>,
) -> Result<Response<ApiBody>, Problem> {
    let place = api.listeners.take_place(owner).ok_or(ProblemCode::Busy)?;
    // Before the read, so that no result falls in between.
    let feed = api.late.feed().subscribe(owner);
    let missed = match last {
        Some(last) => api.late.calls().list_waiting_after(owner, last).await?,
        None => Vec::new(),
    };
    let missed: VecDeque<SettledEvent> = missed
        .iter()
        .map(|(name, call)| SettledEvent::from_result(*name, call))
        .collect();
    let listener = FeedListener {
        feed,
        replayed: missed.iter().map(|settled| settled.name).collect(),
        missed,
        stopping: api.stopping.clone(),
        _place: place,
    };
    // Sent at once: the client then knows that no later result is missed, and can read `outstanding`.
    let first = stream::iter([Bytes::from_static(b": listening\n\n")]);
    let events = first.chain(stream::unfold(listener, FeedListener::next_event));
    Ok(event_stream(events))
}
