//! Claims of intents: holders ask if their tool may run, report its end, and operators resolve unknown outcomes.
//!
//! A claim is granted to one holder at a time, and is durable before the holder learns of it. Without a durable ledger
//! nothing is granted.

mod claiming;
mod holding;
mod operators;
mod replaying;

use super::{
    LateError, LateStore,
    intents::{Holder, IntentId, IntentState, is_strong_user},
    operator_list::ListCursor,
};
use crate::{
    auth::Caller,
    clock,
    ledger::{Moment, retry_conflicts},
};

pub use claiming::{ClaimOutcome, ClaimSubject, GrantedClaim, IntentClaim};
pub use holding::{HeldIntent, HolderOutcome, IntentView};
pub use operators::{IntentPage, ListedIntent, Resolution, ResolveOutcome};
pub use replaying::ReplayedResult;

/// Access to the intents of a store. Every method judges leases and windows as of `now`.
#[derive(Clone, Copy, Debug)]
pub struct Intents<'l>(pub(super) &'l LateStore);

impl Intents<'_> {
    /// Returns `true` if intents can be claimed: the ledger survives a restart.
    pub fn is_durable(self) -> bool {
        self.0.0.ledger.survives_restart()
    }

    /// Claims an intent. A grant is durable on return.
    pub async fn claim(self, claim: &IntentClaim<'_>, now: Moment) -> Result<ClaimOutcome, LateError> {
        // A lease that another replica has granted would seem to have ended.
        if !self.0.0.ledger.is_exclusive() && !clock::is_steady() {
            return Err(LateError::ClockStep);
        }
        if let ClaimSubject::Call { named, .. } = &claim.subject {
            self.0.0.jobs.await_call(named.call_id).await;
        }
        retry_conflicts(|| claiming::try_claim(self.0, claim, now)).await
    }

    /// Returns `true` if the caller may claim intents for itself: it is one person, and not everybody with its credential.
    pub fn may_claim(self, caller: Caller) -> bool {
        is_strong_user(self.0, caller.principal(), caller.account())
    }

    /// Returns an intent that the holder may read. `None` if there is none.
    pub async fn view(self, holder: Holder<'_>, id: IntentId, now: Moment) -> Result<Option<IntentView>, LateError> {
        holding::view(self.0, holder, id, now).await
    }

    /// Resolves an unknown outcome, for an operator who has found out what happened.
    pub async fn resolve(self, id: IntentId, resolution: Resolution, now: Moment) -> Result<ResolveOutcome, LateError> {
        retry_conflicts(|| operators::try_resolve(self.0, id, resolution, now)).await
    }

    /// Returns one page of the intents of every caller that are in one of `states`.
    pub async fn list(
        self,
        states: &[IntentState],
        after: Option<ListCursor>,
        limit: usize,
        now: Moment,
    ) -> Result<IntentPage, LateError> {
        operators::list(self.0, states, after, limit, now).await
    }
}
