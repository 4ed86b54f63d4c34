//! Late results: recorded tool calls, and the results that tool services post for them.
//!
//! This module gives meaning to the ledger's records. Each record of a call belongs to one principal, and a caller reads
//! and changes it only through that principal. The exception is a post: a tool service names a call id, and only calls
//! that the service is configured for are considered. A call of another caller and a missing call give the same answer
//! after the same work, so that a caller cannot probe for foreign calls.
//!
//! Without a service no results can be posted, so this module records and reads nothing.
//!
//! Each feature has a state of its own. A feature reaches the others' records by the types of `records`, and their changes
//! as a participant (`changes`). `LateStore` only puts them together.

mod calls;
mod cancels;
mod changes;
mod compactions;
mod contents;
mod dispatching;
mod error;
mod events;
mod feed;
mod intent_lookup;
mod intents;
mod json_pointer;
mod lists;
pub mod matching;
mod named_calls;
mod other_replicas;
mod outbox;
mod page;
mod parts;
mod readers;
pub mod records;
mod service;
mod settings;
mod tasks;
mod update;
mod webhook;

use std::{fmt, sync::Arc};

use tokio::sync::Notify;

use self::{
    changes::{ChangeParticipant, Participants},
    dispatching::Dispatching,
    events::Events,
    intents::IntentsOfCalls,
    parts::LateParts,
};
use crate::{
    auth::{Caller, Owner, PrincipalKey},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
};

pub use calls::{
    AwaitedCalls, CallFilter, Calls, CarryOver, FoundCall, FoundResult, HeartbeatOutcome, ObservedCall, PostOutcome,
    PostTerms, ReadResult, WithdrawOutcome,
};
pub use cancels::{CancelOutcome, Cancels};
pub use compactions::{Compactions, NotedCall};
pub use dispatching::{Dispatcher, PreparedMessage, SendOutcome, webhooks};
pub use error::LateError;
pub use feed::{FeedEvent, FeedSender, ResultFeed, SettledEvent};
pub use intents::{
    ClaimOutcome, ClaimSubject, EarlierRun, GrantedClaim, HeldIntent, Holder, HolderOutcome, IntentClaim, IntentView,
    Intents, ListedIntent, ReplayedResult, Resolution, ResolveOutcome, input_digest,
};
pub use json_pointer::{JsonPointer, JsonPointerParseError};
pub use lists::{
    ListedResult, OperatorList, OperatorLists, RecordSummary, WaitReason, call_of_record, summarize_record,
};
pub use outbox::{ListedMessage, Outbox};
pub use page::{ListCursor, Page};
pub use readers::Readers;
pub use records::{
    CHOSEN_KEY_BYTES_MAX, CallQuery, ClaimSecret, EventKind, EventSubject, IntentId, IntentIdParseError, IntentScope,
    IntentState, LeaveReason, NamedCallRecord, OutgoingRecord, Purpose,
};
pub use service::{Service, ServiceReach};
pub use settings::{INTENT_WINDOW_MAX, IntentUse, LOCAL_SERVICE, LateSettings, ServiceSettings, ToolSettings};
pub use tasks::{LINK_TTL_MAX, ListedTask, MadeLink, TaskCursor, TaskId, TaskLink, TaskSecret, TaskState, UserTasks};
pub use webhook::WebhookSettings;

/// The features of late results, over one ledger. Cheap to clone.
#[derive(Clone)]
pub struct LateStore(Arc<LateFeatures>);

/// The features that all handles share.
struct LateFeatures {
    parts: Arc<LateParts>,
    calls: Calls,
    carry_over: CarryOver,
    compactions: Compactions,
    intents: Intents,
    cancels: Cancels,
    outbox: Outbox,
    dispatching: Arc<Dispatching>,
    feed: FeedSender,
    readers: Readers,
    operator_lists: OperatorLists,
    tasks: UserTasks,
}

impl fmt::Debug for LateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateStore").finish_non_exhaustive()
    }
}

impl LateStore {
    /// Creates the features over the ledger of `table_parts`.
    pub fn new(
        table_parts: &TableParts,
        callers: VerifiedCallers,
        settings: LateSettings,
        telemetry: Telemetry,
    ) -> Self {
        let parts = Arc::new(LateParts::new(table_parts, callers, settings, telemetry));
        let (outbox, feed) = (Outbox::new(&parts), FeedSender::default());
        let events = Events::new(&parts, &outbox);
        // A cancel writes its intent itself, and no feed tells of it.
        let of_cancels: [Box<dyn ChangeParticipant>; 1] = [Box::new(events.clone())];
        let cancels = Cancels::new(&parts, &outbox, Participants::new(of_cancels));
        let of_all: [Box<dyn ChangeParticipant>; 4] = [
            Box::new(IntentsOfCalls(Arc::clone(&parts))),
            Box::new(events.clone()),
            Box::new(cancels.clone()),
            Box::new(feed.clone()),
        ];
        let participants = Participants::new(of_all);
        let calls = Calls::new(table_parts, &parts, participants.clone());
        let readers = Readers::new(&parts);
        Self(Arc::new(LateFeatures {
            carry_over: CarryOver::new(&calls),
            compactions: Compactions::new(&parts),
            intents: Intents::new(&parts, &calls, &readers, participants),
            dispatching: Dispatching::new(&parts, &outbox, &cancels, events),
            operator_lists: OperatorLists::new(&parts, &calls),
            tasks: UserTasks::new(&parts),
            calls,
            cancels,
            outbox,
            feed,
            readers,
            parts,
        }))
    }

    /// Returns the recorded calls and their results.
    pub fn calls(&self) -> &Calls {
        &self.0.calls
    }

    /// Returns the results that new conversations get.
    pub fn carry_over(&self) -> &CarryOver {
        &self.0.carry_over
    }

    /// Returns the calls that compactions have removed from their histories.
    pub fn compactions(&self) -> &Compactions {
        &self.0.compactions
    }

    /// Returns the intents of side effects.
    pub fn intents(&self) -> &Intents {
        &self.0.intents
    }

    /// Returns the cancels of calls.
    pub fn cancels(&self) -> &Cancels {
        &self.0.cancels
    }

    /// Returns the messages to services and webhooks.
    pub fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    /// Returns the sender's side of the messages.
    pub fn dispatcher(&self) -> Dispatcher {
        self.0.dispatching.dispatcher()
    }

    /// Returns the live feeds of posted results.
    pub fn feed(&self) -> &FeedSender {
        &self.0.feed
    }

    /// Returns the callers that read their feed or their outstanding results.
    pub fn readers(&self) -> &Readers {
        &self.0.readers
    }

    /// Returns the lists for operators.
    pub fn operator_lists(&self) -> &OperatorLists {
        &self.0.operator_lists
    }

    /// Returns the tasks of every person.
    pub fn tasks(&self) -> &UserTasks {
        &self.0.tasks
    }

    /// Returns the key under which names of callers are hashed.
    pub fn principal_key(&self) -> &PrincipalKey {
        &self.0.parts.principals
    }

    /// Returns the tool services that may post results.
    pub fn services(&self) -> &[Service] {
        &self.0.parts.services
    }

    /// Returns `true` if there is a tool service.
    pub fn is_used(&self) -> bool {
        !self.0.parts.services.is_empty()
    }

    /// Returns `true` if the answers that clients give to this tool's calls are not final.
    pub fn is_provisional(&self, tool: &[u8]) -> bool {
        self.0.parts.settings.tool_settings(tool).is_provisional
    }

    /// Returns `true` if late results are also appended after tool results, without words of the user.
    pub fn delivers_in_loops(&self) -> bool {
        self.0.parts.settings.delivers_in_loops
    }

    /// Returns the limit of a posted result in a request, in bytes.
    pub fn result_bytes_max(&self) -> usize {
        self.0.parts.settings.result_bytes_max
    }

    /// Returns the callers that a provider has answered with success.
    pub fn callers(&self) -> &VerifiedCallers {
        &self.0.parts.callers
    }

    /// Returns the name by which services refer to a caller: the value of `x-antiphon-owner`.
    pub fn owner_of(&self, caller: Caller) -> Owner {
        self.0.parts.owner_of(caller.principal())
    }

    /// Waits until everything that is queued for the ledger now is done or lost.
    pub async fn flush_updates(&self) {
        self.0.parts.writer.flush().await;
    }

    /// Runs the tasks that keep memory up to date, until all other handles are dropped. Until they have read the callers
    /// with posted results, every caller may have some.
    pub async fn run_upkeep(self) {
        if !self.is_used() {
            return;
        }
        let parts = &self.0.parts;
        let (owners, ledger) = (parts.record_owners.clone(), Arc::downgrade(&parts.ledger));
        let calls = self.0.calls.to_weak();
        // The handle is dropped first: these tasks must not keep the store alive.
        let store = Arc::downgrade(&self.0);
        drop(self);
        // Several notices during one search ask for one more.
        let missed = Notify::new();
        let news = other_replicas::follow_replicas(store, &missed);
        tokio::join!(owners.follow(ledger), news, calls::settle_and_expire(calls, &missed));
    }
}
