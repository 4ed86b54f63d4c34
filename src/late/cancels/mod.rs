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
pub(super) use evidence::{WatchedLanes, note_silence, watch_again, watch_recorded};
pub(super) use sending::{CancelReply, PreparedCancel, note_reply, prepare};

use super::LateStore;

/// Access to the cancels of a store.
#[derive(Clone, Copy, Debug)]
pub struct Cancels<'l>(pub(super) &'l LateStore);
