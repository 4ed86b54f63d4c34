//! Intents: each stands for one side effect, whichever conversation or process asks for it.
//!
//! The name of an intent comes from the caller, the user, the tool and the canonical input, so that a user who starts
//! over leads to the same intent. This folder has the records, the rules and the changes that belong to those of a call;
//! `claims` has the operations of holders and operators.

mod canonical_input;
mod holder;
mod names;
mod of_calls;
pub(super) mod records;
pub(super) mod rules;
mod scope;
pub(super) mod storing;

pub use holder::Holder;
pub use names::{CHOSEN_KEY_BYTES_MAX, ClaimSecret, IntentId, IntentIdParseError, IntentScope};
pub use records::IntentState;

pub(super) use canonical_input::input_digest;
pub(super) use names::{IntentSubject, idempotency_key, intent_name};
pub(super) use of_calls::{intent_of_call, reopen_with_call, settle_with_call};
pub(super) use scope::scope_of_call;
