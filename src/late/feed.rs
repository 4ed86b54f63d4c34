//! The live feed: announces posted results to the connected clients of their caller.

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{auth::Principal, ledger::Name};

/// Events that a listener may lag behind. A slower listener gets [`Told::Missed`].
const BEHIND_MAX: usize = 256;

/// The announcement of a posted result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The record name of the call. The client acknowledges the delivery by it.
    pub name: Name,
    /// The call id.
    pub call_id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// `true` if the tool reported an error.
    pub failed: bool,
}

/// An event of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A result of the caller was posted.
    Settled(Settled),
    /// The listener was too slow: some events were dropped.
    Missed,
}

/// The sending end of every feed.
#[derive(Clone, Debug)]
pub(super) struct Sender(broadcast::Sender<(Principal, Settled)>);

impl Default for Sender {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl Sender {
    /// Sends an event to the listeners of a principal.
    pub(super) fn tell(&self, principal: Principal, settled: Settled) {
        // The send fails if no client listens, which is normal.
        drop(self.0.send((principal, settled)));
    }

    /// Subscribes to the events of a principal.
    pub(super) fn listen(&self, principal: Principal) -> Feed {
        Feed {
            principal,
            receiver: self.0.subscribe(),
        }
    }
}

/// One subscription. Invariant: it returns no event of another principal.
#[derive(Debug)]
pub struct Feed {
    principal: Principal,
    receiver: broadcast::Receiver<(Principal, Settled)>,
}

impl Feed {
    /// Waits for the next event. Returns `None` once the sender is gone.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            match self.receiver.recv().await {
                Ok((principal, settled)) if principal == self.principal => return Some(Told::Settled(settled)),
                // All principals share one channel: skip the events of others.
                Ok(_) => {}
                // Some of the dropped events may have been the caller's own.
                Err(RecvError::Lagged(_)) => return Some(Told::Missed),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
