//! Late results: recorded tool calls, and the results that tool services post for them.
//!
//! This module gives meaning to the ledger's records. Each record of a call belongs to one principal, and a caller reads
//! and changes it only through that principal. The exception is a post: a tool service names a call id, and only calls
//! that the service is configured for are considered. A call of another caller and a missing call give the same answer
//! after the same work, so that a caller cannot probe for foreign calls.
//!
//! Without a configured service no results can be posted, so this module records and reads nothing.

mod calls;
mod cancels;
mod compactions;
mod contents;
mod dispatching;
mod error;
mod events;
mod feed;
mod intent_of_call;
mod intents;
mod json_pointer;
mod lists;
pub mod matching;
mod other_replicas;
mod outbox;
mod page;
mod parts;
mod readers;
pub mod records;
mod service;
mod settings;
mod store_inner;
mod tasks;
mod update;
mod webhook;

use std::{fmt, sync::Arc};

use tokio::sync::Notify;

pub use calls::{
    AwaitedCalls, CallFilter, CarryOver, FoundCall, FoundResult, HeartbeatOutcome, NamedCallRecord, ObservedCall,
    PostOutcome, ReadResult, WithdrawOutcome,
};
pub use cancels::{CancelOutcome, Cancels};
pub use compactions::{Compactions, NotedCall};
pub use contents::NamedResult;
pub use dispatching::{Dispatcher, PreparedMessage, SendOutcome, webhooks};
pub use error::LateError;
pub use feed::{FeedEvent, ResultFeed, SettledEvent};
pub use intents::{
    ClaimOutcome, ClaimSubject, EarlierRun, GrantedClaim, HeldIntent, Holder, HolderOutcome, IntentClaim, IntentView,
    Intents, ListedIntent, ReplayedResult, Resolution, ResolveOutcome,
};
pub use json_pointer::{JsonPointer, JsonPointerParseError};
pub use lists::{
    ListedResult, OperatorList, RecordSummary, WaitReason, call_of_record, list_for_operator, summarize_record,
};
pub use outbox::{ListedMessage, Messages};
pub use page::{ListCursor, Page};
pub use readers::Readers;
pub use records::{
    CHOSEN_KEY_BYTES_MAX, CallQuery, ClaimSecret, EventKind, EventSubject, IntentId, IntentIdParseError, IntentScope,
    IntentState, LeaveReason, OutgoingRecord, Purpose,
};
pub use service::{Service, ServiceReach};
pub use settings::{INTENT_WINDOW_MAX, IntentUse, LateSettings, ServiceSettings, ToolSettings};
pub use tasks::{LINK_TTL_MAX, ListedTask, MadeLink, TaskCursor, TaskId, TaskLink, TaskSecret, TaskState, UserTasks};
pub use webhook::WebhookSettings;

use crate::{
    auth::{Caller, Owner, PrincipalKey},
    clock,
    ledger::RecordName,
    session::{LaneId, session_hash},
    table::{TableParts, VerifiedCallers},
    telemetry::Telemetry,
};
use store_inner::LateStoreInner;
use update::LateUpdate;

/// The store of late results. Cheap to clone.
#[derive(Clone)]
pub struct LateStore(Arc<LateStoreInner>);

impl fmt::Debug for LateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateStore").finish_non_exhaustive()
    }
}

impl LateStore {
    /// Creates the store over the ledger of `parts`.
    pub fn new(parts: &TableParts, callers: VerifiedCallers, settings: LateSettings, telemetry: Telemetry) -> Self {
        Self(Arc::new(LateStoreInner::new(parts, callers, settings, telemetry)))
    }

    /// Returns the key under which names of callers are hashed.
    pub fn principal_key(&self) -> &PrincipalKey {
        &self.0.parts.principals
    }

    /// Returns the tool services that may post results.
    pub fn services(&self) -> &[Service] {
        &self.0.parts.services
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

    /// Returns `true` if a tool service is configured.
    pub fn is_used(&self) -> bool {
        !self.0.parts.services.is_empty()
    }

    /// Returns access to the intents of side effects.
    pub const fn intents(&self) -> Intents<'_> {
        Intents(self)
    }

    /// Returns access to the results that new conversations get.
    pub const fn carry_over(&self) -> CarryOver<'_> {
        CarryOver::of_store(self)
    }

    /// Returns access to the cancels of calls.
    pub const fn cancels(&self) -> Cancels<'_> {
        Cancels(self)
    }

    /// Returns the digest of a call's input, by which its intent is named.
    pub fn intent_input(&self, tool: &[u8], input: &[u8]) -> [u8; 32] {
        intents::input_digest(input, &self.0.parts.settings.tool_settings(tool).ignore_input)
    }

    /// Returns access to the calls that compactions have removed from their histories.
    pub fn compactions(&self) -> &Compactions {
        &self.0.compactions
    }

    /// Returns the callers that read their feed or their outstanding results.
    pub fn readers(&self) -> &Readers {
        &self.0.readers
    }

    /// Returns the callers that a provider has answered with success.
    pub fn callers(&self) -> &VerifiedCallers {
        &self.0.parts.callers
    }

    /// Returns the name by which services refer to a caller: the value of `x-antiphon-owner`.
    pub fn owner_of(&self, caller: Caller) -> Owner {
        Owner::of_principal(&self.0.parts.owners, caller.principal())
    }

    /// Returns the calls for which parked results wait that name the caller as their owner.
    pub fn awaited_calls(&self, caller: Caller) -> AwaitedCalls {
        self.0.awaited.calls_of(|| self.owner_of(caller))
    }

    /// Counts an answer that was sent before its calls were recorded.
    pub fn note_unrecorded(&self) {
        self.0.parts.telemetry.record_late_event("unrecorded");
    }

    /// Returns `true` if a posted result of this call waits for the caller, as far as memory knows.
    pub fn is_waiting(&self, caller: Caller, call: &RecordName) -> bool {
        self.0.posted.is_waiting(caller.principal(), call)
    }

    /// Returns `true` if a service answers calls of this tool for the caller.
    fn is_served(&self, caller: Caller, tool: &[u8]) -> bool {
        let services = &self.0.parts.services;
        services
            .iter()
            .any(|service| service.may_answer(caller.account(), tool))
    }

    /// Returns the names under which a call of a body may be recorded, the most exact one first.
    pub fn call_names(lane: Option<LaneId>, call: &CallQuery) -> Vec<RecordName> {
        let lane = lane.map(|lane| *lane.as_bytes());
        records::call_names::candidate_names(call, lane.as_ref())
    }

    /// Notes that the client closed a session: its calls no longer wait in an open turn.
    pub fn note_session_closed(&self, caller: Caller, session: &str) {
        let session = session_hash(caller.principal(), session.as_bytes());
        // Only the time is noted here: a post compares it with the time of its call.
        self.0.left_at.insert(&session, clock::unix_time());
        self.cancels().note_closed(&session);
    }

    /// Notes that the client left a lane: its calls no longer wait in an open turn.
    pub fn note_lane_left(&self, lane: LaneId) {
        self.0.left_at.insert(lane.as_bytes(), clock::unix_time());
    }

    /// Subscribes to the caller's results that are posted from now on.
    pub fn subscribe(&self, caller: Caller) -> ResultFeed {
        self.0.feed.subscribe(caller.principal())
    }

    /// Waits until everything that is queued for the ledger now is done or lost.
    pub async fn flush_updates(&self) {
        self.0.parts.writer.flush().await;
    }

    /// Returns those of the named calls that have a posted result, received or not, as far as memory knows. Each comes
    /// with the hash of a client's own result that contains it.
    pub fn known_posted(
        &self,
        caller: Caller,
        names: impl Iterator<Item = RecordName>,
    ) -> Vec<(RecordName, Option<u64>)> {
        self.0.posted.known_posted(caller.principal(), names)
    }

    /// Returns the number of results that wait for any caller that was seen since the start of the process.
    pub fn waiting_total(&self) -> usize {
        self.0.posted.total_count()
    }

    /// Returns the number of results that wait for the caller, from memory: 0 until they were loaded.
    pub fn waiting_count(&self, caller: Caller) -> usize {
        if self.is_used() {
            self.0.posted.count_waiting(caller.principal(), clock::unix_time())
        } else {
            0
        }
    }

    /// Returns `true` if the caller has a posted result, received or not, as far as memory knows.
    pub fn has_posted(&self, caller: Caller) -> bool {
        self.is_used() && self.0.posted.has_any(caller.principal(), clock::unix_time())
    }

    /// Runs the tasks that keep memory up to date, until all other handles are dropped. Until they have read the callers
    /// with posted results, every caller may have some.
    pub async fn run_upkeep(self) {
        if !self.is_used() {
            return;
        }
        let (owners, ledger) = (self.0.parts.record_owners.clone(), Arc::downgrade(&self.0.parts.ledger));
        // The handle is dropped first: these tasks must not keep the store alive.
        let store = Arc::downgrade(&self.0);
        drop(self);
        // Several notices during one search ask for one more.
        let missed = Notify::new();
        let news = other_replicas::follow_replicas(store.clone(), &missed);
        tokio::join!(
            owners.follow(ledger),
            news,
            calls::parking::settle_and_expire(store, &missed)
        );
    }

    /// Queues an update of the store, if it is used. Does not wait.
    fn queue_update(&self, update: impl LateUpdate<Feature = LateStoreInner>) {
        if self.is_used() {
            self.0.parts.queue_update(&self.0, update);
        }
    }
}
