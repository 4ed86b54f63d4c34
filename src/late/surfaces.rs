//! Surfaces: the ways by which a caller learns of a result when no conversation waits for it any more.
//!
//! An effect that cannot be undone must not happen for a session alone. The surfaces are a webhook of the caller, a feed or a
//! list of outstanding results that the caller has read in the last 7 days, and the next conversation of the same person.

use super::{LateError, LateStore, carry_over, records::RecordedCall};
use crate::{
    auth::{Caller, Principal},
    ledger::Moment,
};

impl LateStore {
    /// Notes that a caller reads its feed or its outstanding results: it learns of them without a conversation.
    /// Does not wait.
    pub fn note_read(&self, caller: Caller) {
        if self.is_used() {
            self.0.readers.note_read(caller.principal());
        }
    }
}

/// Returns `true` if the result of a call reaches the caller without its conversation.
pub(super) async fn has_surface(
    late: &LateStore,
    principal: Principal,
    call: &RecordedCall,
    now: Moment,
) -> Result<bool, LateError> {
    let account = Principal::from_bytes(call.account);
    if carry_over::reaches(late, principal, call) {
        return Ok(true);
    }
    if late.0.parts.webhooks.iter().any(|webhook| webhook.reaches(account)) {
        return Ok(true);
    }
    late.0.readers.has_read(principal, now).await
}
