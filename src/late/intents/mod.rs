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
mod operators;
mod replaying;
mod settled_by_calls;
mod storing;

pub use canonical_input::input_digest;
pub use claiming::{ClaimOutcome, ClaimSubject, GrantedClaim, IntentClaim};
pub use earlier_runs::EarlierRun;
pub use holder::Holder;
pub use holding::{HeldIntent, HolderOutcome, IntentView};
pub use operators::{ListedIntent, Resolution, ResolveOutcome};
pub use replaying::ReplayedResult;
pub(super) use settled_by_calls::IntentsOfCalls;

use std::sync::Arc;

use super::{calls::Calls, changes::Participants, parts::LateParts, readers::Readers};
use crate::auth::Caller;

/// The intents. Every method judges leases and windows as of `now`.
pub struct Intents {
    parts: Arc<LateParts>,
    calls: Calls,
    readers: Readers,
    /// The features that take part in changes of intents, and in heartbeats of their calls.
    participants: Participants,
}

impl Intents {
    /// Creates the intents of `calls`, and of holders without a call.
    pub(super) fn new(parts: &Arc<LateParts>, calls: &Calls, readers: &Readers, participants: Participants) -> Self {
        Self {
            parts: Arc::clone(parts),
            calls: calls.clone(),
            readers: readers.clone(),
            participants,
        }
    }

    /// Returns `true` if intents can be claimed: the ledger survives a restart.
    pub fn is_durable(&self) -> bool {
        self.parts.ledger.survives_restart()
    }

    /// Returns `true` if the caller may claim intents for itself: it is one person, and not everybody with its credential.
    pub fn may_claim(&self, caller: Caller) -> bool {
        self.parts.is_strong_user(caller.principal(), caller.account())
    }

    /// Returns the digest of a call's input, by which its intent is named.
    pub fn input_digest(&self, tool: &[u8], input: &[u8]) -> [u8; 32] {
        input_digest(input, &self.parts.settings.tool_settings(tool).ignore_input)
    }
}
