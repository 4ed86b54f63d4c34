//! Intents: each stands for one side effect, whichever conversation or process asks for it.
//!
//! The name of an intent comes from the caller, the user, the tool and the canonical input, so that a user who starts
//! over leads to the same intent. Holders ask if their tool may run, and report its end; operators resolve unknown
//! outcomes. A claim is granted to one holder at a time, and is durable before the holder learns of it. Without a durable
//! ledger nothing is granted.

mod canonical_input;
mod claiming;
mod earlier_runs;
mod holder;
mod holding;
mod of_calls;
mod operators;
mod replaying;
pub(super) mod storing;

pub(super) use canonical_input::input_digest;
pub use claiming::{ClaimOutcome, ClaimSubject, GrantedClaim, IntentClaim};
pub use earlier_runs::EarlierRun;
pub use holder::Holder;
pub use holding::{HeldIntent, HolderOutcome, IntentView};
pub(super) use of_calls::{reopen_with_call, settle_with_call};
pub use operators::{ListedIntent, Resolution, ResolveOutcome};
pub use replaying::ReplayedResult;

use super::LateStore;
use crate::auth::Caller;

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
