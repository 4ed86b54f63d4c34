//! Claims of intents: holders ask if their tool may run, report its end, and operators resolve unknown outcomes.
//!
//! A claim is granted to one holder at a time, and is durable before the holder learns of it. Without a durable ledger
//! nothing is granted.

mod claiming;
mod holding;
mod operators;
mod replaying;

use super::LateStore;
use crate::auth::Caller;

pub use claiming::{ClaimOutcome, ClaimSubject, GrantedClaim, IntentClaim};
pub use holding::{HeldIntent, HolderOutcome, IntentView};
pub use operators::{ListedIntent, Resolution, ResolveOutcome};
pub use replaying::ReplayedResult;

/// Access to the intents of a store. Every method judges leases and windows as of `now`.
#[derive(Clone, Copy, Debug)]
pub struct Intents<'l>(pub(super) &'l LateStore);

impl Intents<'_> {
    /// Returns `true` if intents can be claimed: the ledger survives a restart.
    pub fn is_durable(self) -> bool {
        self.0.0.parts.ledger.survives_restart()
    }

    /// Returns `true` if the caller may claim intents for itself: it is one person, and not everybody with its credential.
    pub fn may_claim(self, caller: Caller) -> bool {
        self.0.0.parts.is_strong_user(caller.principal(), caller.account())
    }
}
