//! Cancels: a tool whose effect can be undone is asked to undo it once its conversation was left.
//!
//! Only evidence counts: a dropped stream, a request that lacks the call, a closed session, the owner's request, or a silence
//! that this process has seen from its beginning to its end. A request within the grace revokes the cancel if it goes on
//! with the conversation of the call. Any other request proves nothing.

mod confirming;
mod evidence;
mod lane_watch;
mod sending;

pub use confirming::CancelOutcome;
pub(super) use sending::{CancelReply, PreparedCancel};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::lane_watch::LaneWatch;
use super::{
    changes::{ChangeParticipant, LateChange, Participants},
    outbox::Outbox,
    parts::LateParts,
    update::LateUpdate,
};
use crate::{clock, ledger::Moment};

/// The cancels of calls. Cheap to clone.
#[derive(Clone)]
pub struct Cancels(Arc<CancelsState>);

/// The state of the cancels.
pub(super) struct CancelsState {
    parts: Arc<LateParts>,
    outbox: Outbox,
    /// The features that take part in the requests of cancels.
    participants: Participants,
    /// Lanes whose calls can be cancelled.
    watched: Mutex<LaneWatch>,
}

impl Cancels {
    /// Creates the cancels, whose messages go into `outbox`.
    pub(super) fn new(parts: &Arc<LateParts>, outbox: &Outbox, participants: Participants) -> Self {
        Self(Arc::new(CancelsState {
            parts: Arc::clone(parts),
            outbox: outbox.clone(),
            participants,
            watched: Mutex::default(),
        }))
    }

    /// Notes that the cancels of earlier processes are watched.
    pub(super) fn end_recovery(&self) {
        self.lock_watch().end_recovery();
    }

    fn lock_watch(&self) -> MutexGuard<'_, LaneWatch> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an update of the cancels, if calls can be recorded. Does not wait.
    fn queue_update(&self, update: impl LateUpdate<Feature = CancelsState>) {
        if self.0.parts.is_used() {
            self.0.parts.queue_update(&self.0, update);
        }
    }
}

impl ChangeParticipant for Cancels {
    fn note(&self, change: LateChange<'_>, _now: Moment) {
        match change {
            LateChange::Opened(key, call) => self.watch_call(key, call),
            // It has a result: nobody wants it undone.
            LateChange::Settled(key, _) | LateChange::Corrected(key, _) | LateChange::Answered(key, _) => {
                self.lock_watch().remove_call(&key);
            }
            LateChange::Heartbeat(key) => self.lock_watch().note_heartbeat(&key, clock::now()),
            LateChange::SessionClosed(session) => self.note_closed(session),
            LateChange::Conflict(..)
            | LateChange::Withdrawn(..)
            | LateChange::CancelRequested(..)
            | LateChange::Claimed(..) => {}
        }
    }
}
