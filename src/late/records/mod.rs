//! The records of late results, and their bytes in the ledger. Every feature reads and writes those of the others by these
//! types.

pub(super) mod bytes;
pub(super) mod call_names;
mod call_state;
mod calls;
pub(super) mod delivery_value;
mod event_kind;
mod intent_names;
pub(super) mod intent_rules;
mod intents;
mod leave_reason;
mod messages;
pub(super) mod retention;

pub use call_state::RecordedCallState;
pub use calls::{
    CallQuery, INLINE_BYTES_MAX, NamedCallRecord, ParkedResult, PostRefusal, PostedResult, RecordedCall, RefusedResult,
    StoredContent, TIERS,
};
pub use event_kind::{EventKind, EventSubject};
pub use intent_names::{CHOSEN_KEY_BYTES_MAX, ClaimSecret, IntentId, IntentIdParseError, IntentScope};
pub(super) use intent_names::{IntentSubject, idempotency_key, intent_name};
pub use intents::IntentState;
pub(super) use intents::{ContentPlace, IntentRecord, IntentResult, IntentRun};
pub use leave_reason::LeaveReason;
pub(super) use messages::message_id;
pub use messages::{OutgoingRecord, Purpose};
