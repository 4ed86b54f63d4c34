//! Cancels: a tool whose effect can be undone is asked to undo it once its conversation was left.
//!
//! Only evidence counts: a dropped stream, a request that lacks the call, a closed session, the owner's request, or a silence
//! that this process has seen from its beginning to its end. A request within the grace revokes the cancel if it goes on
//! with the conversation of the call. Any other request proves nothing.

mod confirming;
mod evidence;
mod lane_watch;
mod sending;

pub use confirming::CancelAnswer;
pub(super) use evidence::{
    WatchedLanes, note_silence, remove_cancel, store_cancel, store_sign, watch_again, watch_recorded,
};
pub(super) use sending::{CancelReply, PreparedCancel, note_reply, prepare};

use super::{LateError, LateStore, matching::NamedCall, records::RecordedCall};
use crate::{
    auth::Caller,
    ledger::{RecordKey, retry_conflicts},
    session::{CallEvidence, LaneId},
};

/// Access to the cancels of a store.
#[derive(Clone, Copy, Debug)]
pub struct Cancels<'l>(pub(super) &'l LateStore);

impl Cancels<'_> {
    /// Returns `true` if the lane has a watched call, or may have one of an earlier process.
    pub fn watches(self, lane: LaneId) -> bool {
        evidence::watches(self.0, lane)
    }

    /// Notes a request of a lane, without waiting. `judge` returns what it proves about the call with an id, and gets a
    /// search for that id in `body`. `may_go_on` is `true` if it may go on with the conversation of a call that only
    /// another process knows.
    pub fn note_request(
        self,
        (caller, lane): (Caller, LaneId),
        body: &[u8],
        may_go_on: bool,
        judge: impl Fn(&[u8], &dyn Fn() -> bool) -> CallEvidence,
    ) {
        evidence::note_request(self.0, (caller, lane), body, may_go_on, judge);
    }

    /// Notes that the client left a stream of a lane, which brought the calls with these ids. Does not wait.
    pub fn note_dropped_stream(self, lane: LaneId, is_of_stream: impl Fn(&[u8]) -> bool) {
        evidence::note_dropped_stream(self.0, lane, is_of_stream);
    }

    /// Notes that the client closed a session, by its hash.
    pub(super) fn note_closed(self, session: &[u8; 32]) {
        evidence::note_closed(self.0, session);
    }

    /// Watches a recorded call if evidence may cancel it: its tool has a `cancel_url`, and no other lane uses its id.
    pub(super) fn watch_call(self, key: RecordKey, call: &RecordedCall) {
        evidence::watch_call(self.0, key, call);
    }

    /// Notes the report of a service: a call was undone, or with `is_refused` it will not be.
    pub async fn confirm(self, named: &NamedCall<'_>, is_refused: bool) -> Result<CancelAnswer, LateError> {
        self.0.0.jobs.await_call(named.call_id).await;
        retry_conflicts(|| confirming::try_confirm(self.0, named, is_refused)).await
    }
}
