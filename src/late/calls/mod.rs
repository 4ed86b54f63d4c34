//! Recorded calls and their results: what exchanges observe, what services post, and what reaches the caller.

mod awaited_calls;
mod carry_over;
mod marks;
mod match_queue;
mod observed;
mod parking;
mod posted_results;
mod posting;
mod queries;
mod read_result;
mod recording;
mod request_marks;
mod settling;

pub use awaited_calls::AwaitedCalls;
pub use carry_over::CarryOver;
pub use observed::{FoundResult, ObservedCall};
pub(super) use parking::settle_and_expire;
pub use posting::{HeartbeatOutcome, PostTerms, WithdrawOutcome};
pub use queries::{CallFilter, FoundCall};
pub use read_result::ReadResult;
pub(super) use settling::Post;
pub use settling::PostOutcome;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use self::{awaited_calls::AwaitedTable, match_queue::MatchQueue, posted_results::PostedResults};
use super::{
    changes::{LateChange, Participants},
    parts::LateParts,
    records::{CallQuery, call_names::candidate_names},
    update::LateUpdate,
};
use crate::{
    auth::Caller,
    clock,
    digest_cache::{DigestCache, DigestKey, Lifetime},
    ledger::{Index, Moment, RecordKey, RecordName},
    session::{LaneId, session_hash},
    table::TableParts,
};

/// Entries of each cache. A forgotten entry costs a redundant write, or a wrong `attached` flag.
const CACHE_ENTRIES_MAX: u64 = 100_000;
/// Lifetime of an entry in these caches: 24 hours.
const CACHE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The recorded calls. Cheap to clone.
#[derive(Clone)]
pub struct Calls(Arc<CallsState>);

/// The state of the calls.
pub(super) struct CallsState {
    parts: Arc<LateParts>,
    /// The features that take part in changes of calls.
    participants: Participants,
    /// Hashes of the observations of calls that are recorded, or on their way to the ledger.
    recorded: DigestCache<[u8; 32], ()>,
    /// Hashes of lanes and sessions that were left, with the time.
    left_at: DigestCache<[u8; 32], Moment>,
    posted: PostedResults,
    /// Calls whose posted results were put into a request while the ledger failed, with the digests of the results.
    in_requests: DigestCache<RecordKey, [u8; 32]>,
    /// Parked results of known owners.
    awaited: AwaitedTable,
    /// Parked results whose matches settle at a known time.
    match_queue: Arc<MatchQueue>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl Calls {
    /// Creates the calls over the ledger of `parts`, which is that of `table_parts`.
    pub(super) fn new(table_parts: &TableParts, parts: &Arc<LateParts>, participants: Participants) -> Self {
        let posted = PostedResults::new(table_parts, &parts.callers, parts.record_owners.clone());
        Self(Arc::new(CallsState {
            parts: Arc::clone(parts),
            participants,
            recorded: bounded_cache(),
            left_at: bounded_cache(),
            posted,
            in_requests: bounded_cache(),
            awaited: AwaitedTable::default(),
            match_queue: Arc::default(),
        }))
    }

    /// Returns the calls for which parked results wait that name the caller as their owner.
    pub fn awaited_calls(&self, caller: Caller) -> AwaitedCalls {
        let owner = || self.0.parts.owner_of(caller.principal());
        self.0.awaited.calls_of(owner)
    }

    /// Returns the state for a task that must not keep it alive.
    pub(super) fn to_weak(&self) -> Weak<CallsState> {
        Arc::downgrade(&self.0)
    }

    /// Returns the indexes of parked results whose match settles by itself.
    pub(super) fn unsettled_indexes(&self) -> HashSet<Index> {
        self.0.match_queue.queued_indexes()
    }

    /// Counts an answer that was sent before its calls were recorded.
    pub fn note_unrecorded(&self) {
        self.0.parts.telemetry.record_late_event("unrecorded");
    }

    /// Returns `true` if a posted result of this call waits for the caller, as far as memory knows.
    pub fn is_waiting(&self, caller: Caller, call: &RecordName) -> bool {
        self.0.posted.is_waiting(caller.principal(), call)
    }

    /// Returns the names under which a call of a body may be recorded, the most exact one first.
    pub fn call_names(lane: Option<LaneId>, call: &CallQuery) -> Vec<RecordName> {
        let lane = lane.map(|lane| *lane.as_bytes());
        candidate_names(call, lane.as_ref())
    }

    /// Notes that the client closed a session: its calls no longer wait in an open turn.
    pub fn note_session_closed(&self, caller: Caller, session: &str) {
        let session = session_hash(caller.principal(), session.as_bytes());
        let now = clock::unix_time();
        // Only the time is noted here: a post compares it with the time of its call.
        self.0.left_at.insert(&session, now);
        self.0.participants.note(LateChange::SessionClosed(&session), now);
    }

    /// Notes that the client left a lane: its calls no longer wait in an open turn.
    pub fn note_lane_left(&self, lane: LaneId) {
        self.0.left_at.insert(lane.as_bytes(), clock::unix_time());
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
        if self.0.parts.is_used() {
            self.0.posted.count_waiting(caller.principal())
        } else {
            0
        }
    }

    /// Returns `true` if the caller has a posted result, received or not, as far as memory knows.
    pub fn has_posted(&self, caller: Caller) -> bool {
        self.0.parts.is_used() && self.0.posted.has_any(caller.principal())
    }

    /// Queues an update of the calls, if any can be recorded. Does not wait.
    fn queue_update(&self, update: impl LateUpdate<Feature = CallsState>) {
        if self.0.parts.is_used() {
            self.0.parts.queue_update(&self.0, update);
        }
    }
}

/// Creates a bounded cache whose entries expire.
fn bounded_cache<K: DigestKey, V: Clone + Send + Sync + 'static>() -> DigestCache<K, V> {
    DigestCache::new(CACHE_ENTRIES_MAX, Lifetime::SinceWrite(CACHE_TTL))
}
