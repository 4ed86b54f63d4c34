//! The live feed: what was settled, told to whom it belongs, for as long as he listens.

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{auth::Principal, ledger::Name};

/// Events that a listener may be behind.
const BEHIND_MAX: usize = 256;

/// A result has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The name of the call, by which its delivery is acknowledged.
    pub name: Name,
    /// The id of the call.
    pub call_id: Vec<u8>,
    /// The tool.
    pub tool: Vec<u8>,
    /// Whether the tool reported an error.
    pub failed: bool,
}

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A result of his has come.
    Settled(Settled),
    /// He was too slow: some were left out.
    Missed,
}

/// Where events are sent from.
#[derive(Clone, Debug)]
pub(super) struct Sender(broadcast::Sender<(Principal, Settled)>);

impl Default for Sender {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl Sender {
    pub(super) fn tell(&self, principal: Principal, settled: Settled) {
        // That nobody listens is no error.
        drop(self.0.send((principal, settled)));
    }

    pub(super) fn listen(&self, principal: Principal) -> Feed {
        Feed {
            principal,
            receiver: self.0.subscribe(),
        }
    }
}

/// One listener. Invariant: nothing of another principal comes out.
#[derive(Debug)]
pub struct Feed {
    principal: Principal,
    receiver: broadcast::Receiver<(Principal, Settled)>,
}

impl Feed {
    /// The next event; none once nobody can send any more.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            match self.receiver.recv().await {
                Ok((principal, settled)) if principal == self.principal => return Some(Told::Settled(settled)),
                Ok(_) => {}
                // Some of them may have been his.
                Err(RecvError::Lagged(_)) => return Some(Told::Missed),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
