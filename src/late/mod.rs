//! Late results: recorded tool calls, and the results that tool services post for them.
//!
//! This room gives meaning to the ledger's records. Each record of a call belongs to one principal, and a caller reads
//! and changes it only through that principal. The exception is a post: a tool service names a call id, and only calls
//! that the service is configured for are considered. A call of another caller and a missing call give the same answer
//! after the same work, so that a caller cannot probe for foreign calls.
//!
//! Without a configured service nobody can post. Then this room records and reads nothing.

mod bytes;
mod changes;
pub mod entry;
mod feed;
mod keeper;
pub mod matching;
mod names;
mod pending;
mod posting;
mod reads;
mod settings;

use std::{fmt, sync::Arc, time::Duration};

use moka::sync::Cache;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

pub use feed::{Feed, Settled, Told};
pub use keeper::Keeper;
pub use posting::{Beat, Posting};
pub use settings::{LateSettings, ServiceSettings, Tool};

use crate::{
    auth::{Caller, Owner, OwnerKey, PrincipalKey},
    callers::Callers,
    clock,
    ledger::{Key, Kind, Ledger, LedgerError, Moment, Name, Step},
    repair::Tier,
    session::{LaneId, Strength, session_hash},
    telemetry::Telemetry,
};
use entry::{Call, State};
use keeper::{Job, Recording};
use matching::{Named, Service};
use pending::Pending;

/// Entries of each in-memory cache below. A forgotten entry costs a redundant write, or a wrong `attached` flag.
const REMEMBERED_MAX: u64 = 100_000;
/// Lifetime of an entry in these caches: 24 hours.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// Tries of a change whose record other writers change at the same time.
const TRIES: usize = 32;
/// Jobs in the queue of the worker. Further jobs are lost, and counted as `lost`.
const JOBS_MAX: usize = 4096;
/// Time that a record outlives its call, so that a result that comes too late gets "expired" and not "unknown".
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// Factor on the retention of calls whose effect cannot be undone: their results must reach the conversation.
const ONE_WAY_FACTOR: u32 = 4;

/// A tool call as an exchange saw it, to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The lane in which the exchange saw the call.
    pub lane: Option<LaneId>,
    /// The [`SessionId::hash`](crate::session::SessionId::hash) of the session. `None` if the client named no session.
    pub session: Option<[u8; 32]>,
    /// The reliability of the session id.
    pub strength: Strength,
    /// The call id.
    pub id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// The hash of the canonical input. `None` if the input is not known yet.
    pub input: Option<[u8; 32]>,
}

/// A call of a request body whose posted result is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The call id.
    pub id: Vec<u8>,
    /// The name of the tool.
    pub tool: Vec<u8>,
    /// The hash of the canonical input.
    pub input_hash: [u8; 32],
}

/// The posted result that a lookup found for a call.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    /// The record name of the call.
    pub call: Name,
    /// The call id, exactly as it was recorded.
    pub id: Vec<u8>,
    /// The content. Invariant: one valid JSON value.
    pub content: String,
    /// `true` if the tool reported an error.
    pub failed: bool,
}

impl fmt::Debug for Found {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Found({} bytes, failed {})", self.content.len(), self.failed)
    }
}

/// The error of an operation on late results.
#[derive(Debug, thiserror::Error)]
pub enum LateError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Other writers changed the record before each of the retries.
    #[error("too many concurrent changes of one ledger record: retry later")]
    Busy,
}

/// The store of late results. Cheap to clone.
#[derive(Clone)]
pub struct Late(Arc<Inner>);

/// State that all handles share.
struct Inner {
    ledger: Arc<dyn Ledger>,
    callers: Callers,
    telemetry: Telemetry,
    settings: LateSettings,
    services: Vec<Service>,
    principals: PrincipalKey,
    owners: OwnerKey,
    /// Calls that are recorded, or on their way to the ledger.
    recorded: Cache<Key, ()>,
    /// Hashes of lanes and sessions that were left, with the time.
    left: Cache<[u8; 32], Moment>,
    pending: Pending,
    feed: feed::Sender,
    jobs: mpsc::Sender<Job>,
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

impl Late {
    /// Creates the store over a ledger, and its background worker. The worker must run as long as the process lives.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        callers: Callers,
        settings: LateSettings,
        telemetry: Telemetry,
    ) -> (Self, Keeper) {
        let secret = ledger.secret();
        let principals = PrincipalKey::of_ledger(&secret);
        let (jobs, receiver) = mpsc::channel(JOBS_MAX);
        let late = Self(Arc::new(Inner {
            ledger,
            callers,
            telemetry,
            services: settings.services(&principals),
            settings,
            owners: OwnerKey::of(&secret),
            principals,
            recorded: remembered(),
            left: remembered(),
            pending: Pending::default(),
            feed: feed::Sender::default(),
            jobs,
        }));
        let keeper = Keeper::new(Arc::downgrade(&late.0), receiver);
        (late, keeper)
    }

    /// Returns the key under which names of callers are hashed.
    pub fn principal_key(&self) -> &PrincipalKey {
        &self.0.principals
    }

    /// Returns the tool services that may post results.
    pub fn services(&self) -> &[Service] {
        &self.0.services
    }

    /// Returns `true` if a tool service is configured.
    pub fn is_used(&self) -> bool {
        !self.0.services.is_empty()
    }

    /// Returns the callers that a provider has answered with success.
    pub fn callers(&self) -> &Callers {
        &self.0.callers
    }

    /// Returns the name by which services refer to a caller: the value of `x-antiphon-owner`.
    pub fn owner(&self, caller: Caller) -> Owner {
        Owner::of(&self.0.owners, caller.principal())
    }

    /// Queues calls for recording if a service answers such calls, and if this process knows the caller as verified.
    ///
    /// The caller does not wait. A queued call may be lost with the process; a post that names it is then parked.
    pub fn record(&self, caller: Caller, calls: impl IntoIterator<Item = Opened>) {
        // An unverified credential stores nothing: anyone could invent one.
        if !self.is_used() || !self.0.callers.is_known(caller) {
            return;
        }
        // A call that no service can answer would only fill the ledger.
        let served = calls.into_iter().filter(|opened| self.serves(caller, &opened.tool));
        let news: Vec<Recording> = served.filter_map(|opened| self.recording(caller, opened)).collect();
        let keys: Vec<Key> = news.iter().map(|news| news.key).collect();
        if !news.is_empty() && !self.later(Job::Record(news)) {
            // The queue was full: the next request that shows these calls must record them.
            for key in &keys {
                self.0.recorded.invalidate(key);
            }
        }
    }

    /// Builds the record of a call. Returns `None` if the call is recorded already, or queued.
    fn recording(&self, caller: Caller, opened: Opened) -> Option<Recording> {
        let lane = opened.lane.map(|lane| *lane.as_bytes());
        let name = names::of_call(&opened.id, &opened.tool, lane.as_ref(), opened.input.as_ref());
        let key = names::key(Kind::Call, caller.principal(), name);
        if self.0.recorded.contains_key(&key) {
            return None;
        }
        let now = clock::since_1970();
        let settings = &self.0.settings;
        let tool = settings.tool(&opened.tool);
        let call = Call {
            account: *caller.account().as_bytes(),
            lane,
            session: opened.session,
            strength: opened.strength,
            id: opened.id,
            tool: opened.tool,
            input: opened.input,
            tier: tool.tier,
            opened_at: now,
            heard_at: now,
            deadline: now + tool.max_duration.unwrap_or(settings.ttl),
            expires_at: now + settings.ttl,
            state: State::Open,
            posted: None,
        };
        let index = names::index(&call.id);
        let insert = Step::Insert {
            key,
            index: Some(index),
            value: call.encode(),
            expires_at: self.kept_until(&call),
        };
        // A queued call counts as recorded. The worker removes the entry if it cannot write the record.
        self.0.recorded.insert(key, ());
        Some(Recording { key, index, insert })
    }

    /// Queues a note that the caller received the results of these calls. Does not wait.
    pub fn delivered(&self, caller: Caller, calls: impl IntoIterator<Item = Name>) {
        for name in calls {
            self.later(Job::Delivered(caller.principal(), name));
        }
    }

    /// Queues a note that the caller's history contains these results. Does not wait.
    pub fn acknowledged(&self, caller: Caller, calls: impl IntoIterator<Item = Name>) {
        let principal = caller.principal();
        // Every later request shows the same results: one that is no longer pending was acknowledged before.
        for name in calls.into_iter().filter(|name| self.0.pending.has(principal, name)) {
            self.later(Job::Acked(principal, name));
        }
    }

    /// Queues a note that the client itself brought a result of this tool. A posted result stays stored. Does not wait.
    pub fn settled_by_traffic(&self, caller: Caller, call: Name, tool: &[u8]) {
        if self.serves(caller, tool) {
            self.later(Job::Delivered(caller.principal(), call));
        }
    }

    /// Returns `true` if a service answers calls of this tool for the caller.
    fn serves(&self, caller: Caller, tool: &[u8]) -> bool {
        let services = &self.0.services;
        services.iter().any(|service| service.serves(caller.account(), tool))
    }

    /// Returns the record name of a call, for [`Late::settled_by_traffic`].
    pub fn name(lane: Option<LaneId>, call: &Wanted) -> Name {
        let lane = lane.map(|lane| *lane.as_bytes());
        names::of_call(&call.id, &call.tool, lane.as_ref(), Some(&call.input_hash))
    }

    /// Marks a posted result as acknowledged by the caller. Returns `false` if the caller has no such result.
    pub async fn ack(&self, caller: Caller, call: Name) -> Result<bool, LateError> {
        changes::acknowledge_call(self, caller.principal(), call).await
    }

    /// Notes that the client closed a session: its calls no longer wait in an open turn.
    pub fn close(&self, caller: Caller, session: &str) {
        let session = session_hash(caller.principal().as_bytes(), session.as_bytes());
        // Only the time is noted here: a post compares it with the time of its call.
        self.0.left.insert(session, clock::since_1970());
    }

    /// Notes that the client left a lane: its calls no longer wait in an open turn.
    pub fn detach(&self, lane: LaneId) {
        self.0.left.insert(*lane.as_bytes(), clock::since_1970());
    }

    /// Subscribes to the caller's results that are posted from now on.
    pub fn feed(&self, caller: Caller) -> Feed {
        self.0.feed.listen(caller.principal())
    }

    /// Waits until the worker has finished every job that is queued now.
    pub async fn flush(&self) {
        let (done, told) = oneshot::channel();
        if self.0.jobs.send(Job::Flush(done)).await.is_ok() {
            // An error means that the worker has ended: nothing is queued any more.
            let _ = told.await;
        }
    }

    /// Stores a result that a tool service posts for a call. It is durable on return, where the ledger is.
    pub async fn post(&self, named: &Named<'_>, content: String, failed: bool) -> Result<Posting, LateError> {
        posting::post_result(self, named, content, failed).await
    }

    /// Extends the deadline of a call on which its service still works.
    pub async fn heartbeat(&self, named: &Named<'_>) -> Result<Beat, LateError> {
        posting::extend_deadline(self, named).await
    }

    /// Returns the posted results of these calls, in their order. A call is found by a unique id, else by its id, lane,
    /// tool and input.
    ///
    /// Every entry is `None` if the ledger fails or does not answer before the deadline `by`.
    pub async fn results(
        &self,
        caller: Caller,
        lane: Option<LaneId>,
        wanted: &[Wanted],
        by: Instant,
    ) -> Vec<Option<Found>> {
        reads::find_results(self, caller, lane, wanted, by).await
    }

    /// Returns the results that wait for the caller, in posting order, with the record names of their calls.
    pub async fn outstanding(&self, caller: Caller) -> Result<Vec<(Name, Call)>, LateError> {
        reads::outstanding_results(self, caller).await
    }

    /// Returns those results that wait for the caller and whose call names pass `among`, in posting order.
    ///
    /// The list is empty if the ledger fails or does not answer before the deadline `by`.
    pub async fn waiting(&self, caller: Caller, among: impl Fn(&Name) -> bool, by: Instant) -> Vec<(Name, Call)> {
        reads::waiting_results(self, caller, among, by).await
    }

    /// Returns the number of results that wait for any caller that was seen since the start of the process.
    pub fn waiting_in_all(&self) -> usize {
        self.0.pending.total()
    }

    /// Returns the number of results that wait for the caller, from memory: 0 until [`Late::load`] has run.
    pub fn pending(&self, caller: Caller) -> usize {
        if self.is_used() {
            self.0.pending.count(caller.principal(), clock::since_1970())
        } else {
            0
        }
    }

    /// Reads the results that wait for the caller into memory, once. After a timeout the next exchange tries again.
    pub async fn load(&self, caller: Caller, by: Instant) {
        reads::load_pending(self, caller, by).await;
    }

    /// Returns the caller's calls of these ids that have a posted result. Reusable ids are never found.
    pub async fn lookup(&self, caller: Caller, ids: &[Vec<u8>]) -> Result<Vec<Option<(Name, Call)>>, LateError> {
        reads::look_up_calls(self, caller, ids).await
    }

    /// Queues a job for the worker. Returns `false` if the queue is full: the job is lost, and counted.
    fn later(&self, job: Job) -> bool {
        let taken = !self.is_used() || self.0.jobs.try_send(job).is_ok();
        if !taken {
            self.0.telemetry.record_late_event("lost");
        }
        taken
    }

    /// Returns the time until which the record of a call is stored.
    fn kept_until(&self, call: &Call) -> Moment {
        let ttl = self.0.settings.ttl;
        let factor = if call.tier == Tier::OneWay { ONE_WAY_FACTOR } else { 1 };
        let since = call.posted.as_ref().map_or(call.opened_at, |posted| posted.posted_at);
        // Heartbeats may have extended the call beyond its usual retention.
        (since + ttl * factor).max(call.expires_at) + GRACE
    }
}

/// Creates a bounded cache whose entries expire.
fn remembered<K, V>() -> Cache<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::builder()
        .max_capacity(REMEMBERED_MAX)
        .time_to_live(REMEMBERED)
        .build()
}
