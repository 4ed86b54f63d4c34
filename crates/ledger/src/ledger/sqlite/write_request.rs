//! The requests to the writer thread.

use tokio::sync::oneshot;

use super::{store_error, store_health::RunningTrial, table::GcScope};
use crate::ledger::{CommitResult, CommitStep, LedgerError, Moment, TimedCommit};

/// The channel for the reply to one request.
pub(super) type ReplySender<T> = oneshot::Sender<Result<T, LedgerError>>;

/// A request to the writer thread.
pub(super) enum WriteRequest {
    Commit(CommitRequest),
    Clear {
        scope: GcScope,
        now: Moment,
        reply: ReplySender<u64>,
    },
    /// A write that changes nothing, to see if the store works again.
    Trial {
        trial: RunningTrial,
        reply: ReplySender<()>,
    },
}

impl WriteRequest {
    /// Answers the request with the error of the first check, which it has waited for.
    pub(super) fn refuse(self, error: &rusqlite::Error) {
        // A caller that hit its timeout has dropped the receiver.
        match self {
            Self::Commit(CommitRequest { reply, .. }) => drop(reply.send(Err(store_error(error)))),
            Self::Clear { reply, .. } => drop(reply.send(Err(store_error(error)))),
            // It is told of the fault by the health of the store.
            Self::Trial { reply, .. } => drop(reply.send(Ok(()))),
        }
    }
}

/// Commits that wait for their transaction.
pub(super) struct CommitRequest {
    pub(super) commits: Vec<TimedCommit>,
    pub(super) reply: ReplySender<Vec<CommitResult>>,
}

impl CommitRequest {
    /// Returns the number of bytes of all values in the commits.
    pub(super) fn value_bytes(&self) -> usize {
        let steps = self.commits.iter().flat_map(|commit| &commit.steps);
        steps.map(CommitStep::value_bytes).fold(0, usize::saturating_add)
    }
}
