//! Late results: recorded calls, and the results that tool services post for them.
//!
//! The meaning over the ledger's records. Every record of a call belongs to one principal and is read and changed through
//! that principal alone, except where a service posts: it names a call id, and only what it is configured for is looked at.
//! What is not the asker's and what is not there is the same answer, after the same work.
//!
//! Without a service nobody can post, so that nothing is recorded and nothing read.

mod bytes;
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
use tokio::sync::{mpsc, oneshot};

pub use feed::{Feed, Settled, Told};
pub use keeper::Keeper;
pub use posting::{Beat, Posting};
pub use settings::{LateSettings, ServiceSettings, Tool};

use crate::{
    auth::{Caller, Owner, OwnerKey, Principal, PrincipalKey},
    callers::Callers,
    clock,
    ledger::{Key, Kind, Ledger, LedgerError, Moment, Name, Outcome, Step},
    repair::Tier,
    session::{LaneId, Strength, session_hash},
    telemetry::Telemetry,
};
use entry::{Call, State};
use keeper::{Job, Recording};
use matching::Service;
use pending::Pending;

/// Calls that are known to be recorded, and lanes and sessions that were left: what is forgotten costs a write.
const REMEMBERED_MAX: u64 = 100_000;
/// How long those are remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a change is tried again that another change came before.
const TRIES: usize = 32;
/// Jobs that may wait for the keeper. More are lost, and counted.
const JOBS_MAX: usize = 4096;
/// How much longer a call is kept than it takes results, so that what comes then is told so.
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// How many times longer what was done for good is kept: it must be told.
const ONE_WAY_FACTOR: u32 = 4;

/// A call, as the one who saw it tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The lane in which it was seen.
    pub lane: Option<LaneId>,
    /// [`SessionId::hash`](crate::session::SessionId::hash) of its session, where a client named it.
    pub session: Option<[u8; 32]>,
    /// How far the session is to be trusted.
    pub strength: Strength,
    /// The id.
    pub id: Vec<u8>,
    /// The tool.
    pub tool: Vec<u8>,
    /// The hash of its canonical input, where it is known.
    pub input: Option<[u8; 32]>,
}

/// A call whose result is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The id.
    pub id: Vec<u8>,
    /// The tool.
    pub tool: Vec<u8>,
    /// The hash of its canonical input.
    pub input_hash: [u8; 32],
}

/// The result of a call.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    /// The name of the call.
    pub call: Name,
    /// Its id, exactly as it was seen.
    pub id: Vec<u8>,
    /// The content. Invariant: one valid JSON value.
    pub content: String,
    /// Whether the tool reported an error.
    pub failed: bool,
}

impl fmt::Debug for Found {
    // Never the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Found({} bytes, failed {})", self.content.len(), self.failed)
    }
}

/// Why the ledger did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LateError {
    /// The ledger says why.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Others changed the same record all the time.
    #[error("too many changes of one record at once")]
    Busy,
}

/// Late results. A cheap handle.
#[derive(Clone)]
pub struct Late(Arc<Inner>);

struct Inner {
    ledger: Arc<dyn Ledger>,
    callers: Callers,
    telemetry: Telemetry,
    settings: LateSettings,
    services: Vec<Service>,
    principals: PrincipalKey,
    owners: OwnerKey,
    recorded: Cache<Key, ()>,
    /// Lanes and sessions that were left, and when.
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
    /// Late results over this ledger, and who does what nobody waits for: to be run for as long as the process lives.
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
        let keeper = Keeper::new(late.weak(), receiver);
        (late, keeper)
    }

    /// The key of callers' names.
    pub fn principal_key(&self) -> &PrincipalKey {
        &self.0.principals
    }

    /// Who may post results.
    pub fn services(&self) -> &[Service] {
        &self.0.services
    }

    /// Whether anybody may.
    pub fn is_used(&self) -> bool {
        !self.0.services.is_empty()
    }

    /// Who was ever answered with success.
    pub fn callers(&self) -> &Callers {
        &self.0.callers
    }

    /// Whose calls a principal's are, as services name it.
    pub fn owner(&self, caller: Caller) -> Owner {
        Owner::of(&self.0.owners, caller.principal())
    }

    /// Records calls, if a service answers calls like these and a provider has ever answered who asks. Nobody waits: what
    /// is written may be lost with the process, and a post that names it is then parked.
    pub fn record(&self, caller: Caller, calls: impl IntoIterator<Item = Opened>) {
        if !self.is_used() || !self.0.callers.is_known(caller) {
            return;
        }
        let served = calls.into_iter().filter(|opened| self.serves(caller, &opened.tool));
        let news: Vec<Recording> = served.filter_map(|opened| self.recording(caller, opened)).collect();
        let keys: Vec<Key> = news.iter().map(|news| news.key).collect();
        if !news.is_empty() && !self.later(Job::Record(news)) {
            for key in &keys {
                self.0.recorded.invalidate(key);
            }
        }
    }

    /// How a call is recorded; none where it is recorded, or on its way.
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
        // On its way counts as recorded; the keeper takes that back where it is not to be done.
        self.0.recorded.insert(key, ());
        Some(Recording { key, index, insert })
    }

    /// Notes that these calls' results went to their owner. Nobody waits.
    pub fn delivered(&self, caller: Caller, calls: impl IntoIterator<Item = Name>) {
        for name in calls {
            self.later(Job::Delivered(caller.principal(), name));
        }
    }

    /// Notes that these results stand in their owner's history. Nobody waits. Of those that wait for nobody any more this
    /// was noted before.
    pub fn acknowledged(&self, caller: Caller, calls: impl IntoIterator<Item = Name>) {
        let principal = caller.principal();
        for name in calls.into_iter().filter(|name| self.0.pending.has(principal, name)) {
            self.later(Job::Acked(principal, name));
        }
    }

    /// Notes that the client brought a result of this tool itself. A posted one stays as it is. Nobody waits.
    pub fn settled_by_traffic(&self, caller: Caller, call: Name, tool: &[u8]) {
        if self.serves(caller, tool) {
            self.later(Job::Delivered(caller.principal(), call));
        }
    }

    /// Whether a service answers calls like this one.
    fn serves(&self, caller: Caller, tool: &[u8]) -> bool {
        let services = &self.0.services;
        services.iter().any(|service| service.serves(caller.account(), tool))
    }

    /// The name of a call, for [`Late::settled_by_traffic`].
    pub fn name(lane: Option<LaneId>, call: &Wanted) -> Name {
        let lane = lane.map(|lane| *lane.as_bytes());
        names::of_call(&call.id, &call.tool, lane.as_ref(), Some(&call.input_hash))
    }

    /// Notes that the owner has a result; false where there is no such result of his.
    pub async fn ack(&self, caller: Caller, call: Name) -> Result<bool, LateError> {
        self.ack_of(caller.principal(), call).await
    }

    /// Acknowledges a result on behalf of its owner.
    async fn ack_of(&self, principal: Principal, call: Name) -> Result<bool, LateError> {
        let acked = self.change(principal, call, |call| {
            let waits = call.posted.is_some() && call.state != State::Acked;
            waits.then(|| call.state = State::Acked).is_some()
        });
        let Some((call, changed)) = acked.await? else {
            return Ok(false);
        };
        if changed {
            self.0.telemetry.record_late_event("acked");
        }
        Ok(call.state == State::Acked)
    }

    /// Notes that a session of this name was left: its calls no longer wait in an open turn.
    pub fn close(&self, caller: Caller, session: &str) {
        let session = session_hash(caller.principal().as_bytes(), session.as_bytes());
        self.0.left.insert(session, clock::since_1970());
    }

    /// Notes that a lane was left.
    pub fn detach(&self, lane: LaneId) {
        self.0.left.insert(*lane.as_bytes(), clock::since_1970());
    }

    /// What is settled from now on.
    pub fn feed(&self, caller: Caller) -> Feed {
        self.0.feed.listen(caller.principal())
    }

    /// Waits until everything that nobody waits for is done.
    pub async fn flush(&self) {
        let (done, told) = oneshot::channel();
        if self.0.jobs.send(Job::Flush(done)).await.is_ok() {
            // An error says that the keeper has ended.
            let _ = told.await;
        }
    }

    /// Changes a call, if `change` says so. Gives the call, and whether it was changed; none where there is none.
    async fn change(
        &self,
        principal: Principal,
        name: Name,
        change: impl Fn(&mut Call) -> bool,
    ) -> Result<Option<(Call, bool)>, LateError> {
        let keys = [Kind::Call, Kind::Delivery].map(|kind| names::key(kind, principal, name));
        for _ in 0..TRIES {
            let now = clock::since_1970();
            let mut records = self.0.ledger.read(keys.to_vec(), now).await?.into_iter();
            let (record, waiting) = (records.next().flatten(), records.next().flatten());
            let Some((record, mut call)) = record.and_then(|record| {
                let call = Call::decode(&record.value)?;
                Some((record, call))
            }) else {
                return Ok(None);
            };
            if !change(&mut call) {
                return Ok(Some((call, false)));
            }
            let mut steps = vec![Step::Replace {
                key: record.key,
                version: record.version,
                value: call.encode(),
                expires_at: record.expires_at.max(self.kept_until(&call)),
            }];
            let waits = call.state == State::Settled;
            steps.extend(waiting.filter(|_| !waits).map(|record| Step::Remove {
                key: record.key,
                version: record.version,
            }));
            if self.0.ledger.commit(steps, now).await? == Outcome::Done {
                if !waits {
                    self.0.pending.remove(principal, name);
                }
                return Ok(Some((call, true)));
            }
        }
        Err(LateError::Busy)
    }

    /// Hands a job to the keeper. False where too many wait: it is lost, and counted.
    fn later(&self, job: Job) -> bool {
        let taken = !self.is_used() || self.0.jobs.try_send(job).is_ok();
        if !taken {
            self.0.telemetry.record_late_event("lost");
        }
        taken
    }

    /// Until when the record of a call is kept.
    fn kept_until(&self, call: &Call) -> Moment {
        let ttl = self.0.settings.ttl;
        let factor = if call.tier == Tier::OneWay { ONE_WAY_FACTOR } else { 1 };
        let since = call.posted.as_ref().map_or(call.opened_at, |posted| posted.posted_at);
        (since + ttl * factor).max(call.expires_at) + GRACE
    }
}

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
