//! The live feed: announces posted results to the connected clients of their caller.

use tokio::sync::broadcast::{self, error::RecvError};

use super::{
    changes::{ChangeParticipant, LateChange},
    records::RecordedCall,
};
use crate::{
    auth::{Caller, Principal},
    ledger::{Moment, RecordName},
};

/// Events that a listener may lag behind. A slower listener gets one `Missed` event.
const LAG_MAX: usize = 256;

/// The announcement of a posted result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledEvent {
    /// The record name of the call. The client acknowledges the delivery by it.
    pub name: RecordName,
    /// The call id.
    pub call_id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// `true` if the tool reported an error.
    pub failed: bool,
}

impl SettledEvent {
    /// Returns the announcement of a stored result.
    pub fn from_result(name: RecordName, call: &RecordedCall) -> Self {
        Self {
            name,
            failed: call.posted.as_ref().is_some_and(|posted| posted.failed),
            call_id: call.id.clone(),
            tool: call.tool.clone(),
        }
    }
}

/// An event of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// A result of the caller was posted.
    Settled(SettledEvent),
    /// Events may be missing: the listener was too slow, or another replica could not tell of its results.
    Missed,
}

/// The sending end of every feed.
#[derive(Clone, Debug)]
pub struct FeedSender(broadcast::Sender<FeedMessage>);

/// A message to all listeners.
#[derive(Clone, Debug)]
enum FeedMessage {
    /// A result of this caller was posted.
    Settled(Principal, SettledEvent),
    /// Events of any caller may have been missed.
    Missed,
}

impl Default for FeedSender {
    fn default() -> Self {
        Self(broadcast::Sender::new(LAG_MAX))
    }
}

impl FeedSender {
    /// Sends an event to the listeners of a principal.
    pub(super) fn send_settled(&self, principal: Principal, event: SettledEvent) {
        // The send fails if no client listens, which is normal.
        drop(self.0.send(FeedMessage::Settled(principal, event)));
    }

    /// Tells every listener that events may have been missed.
    pub(super) fn send_missed(&self) {
        drop(self.0.send(FeedMessage::Missed));
    }

    /// Returns `true` if any client listens.
    pub(super) fn has_listeners(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Subscribes to the caller's results that are posted from now on.
    pub fn subscribe(&self, caller: Caller) -> ResultFeed {
        ResultFeed {
            principal: caller.principal(),
            receiver: self.0.subscribe(),
        }
    }
}

impl ChangeParticipant for FeedSender {
    fn note(&self, change: LateChange<'_>, _now: Moment) {
        if let LateChange::Settled(key, call) = change
            && call.is_pushed()
        {
            self.send_settled(key.owner(), SettledEvent::from_result(key.name, call));
        }
    }
}

/// One subscription. Invariant: it returns no event of another principal.
#[derive(Debug)]
pub struct ResultFeed {
    principal: Principal,
    receiver: broadcast::Receiver<FeedMessage>,
}

impl ResultFeed {
    /// Waits for the next event. Returns `None` once the sender is gone.
    pub async fn next_event(&mut self) -> Option<FeedEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(FeedMessage::Settled(principal, event)) if principal == self.principal => {
                    return Some(FeedEvent::Settled(event));
                }
                // All principals share one channel: skip the events of others.
                Ok(FeedMessage::Settled(..)) => {}
                // Some of the dropped events may have been the caller's own.
                Ok(FeedMessage::Missed) | Err(RecvError::Lagged(_)) => return Some(FeedEvent::Missed),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
