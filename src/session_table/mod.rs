//! What is remembered of lanes while they live: the profile that serves them, their open calls, their branches, their answers' ids.
//!
//! In memory, bounded, and forgotten when idle. Every name is a hash with the principal in it: no lane reaches another's.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod branches;
mod calls;
mod standing;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use tokio::time::Instant;

use crate::{
    conversation::{CallChain, Outline},
    policy::course::Snapshot,
    session::{Known, Lane, LaneId, PrincipalHash},
    wire::watch::Calls,
};

pub use branches::BRANCHES_MAX;
use branches::Branches;
use calls::OpenCalls;
pub use calls::{CallLimits, CallView, LEFT_MAX, OPEN_MAX};
pub use standing::{Came, Closed, Detached, Settled, Standing};

/// Bytes that a lane takes beside its texts and calls, with what the map itself needs.
const LANE_BYTES: usize = 512;
/// Bytes that an answer's id takes: the map keeps two hashes.
const ANSWER_BYTES: u64 = 256;

/// Bounds of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Lanes that are remembered, and as many answers.
    pub entries_max: u64,
    /// Bytes that they may take.
    pub bytes_max: u64,
    /// How long a lane is remembered that nobody uses.
    pub idle: Duration,
    /// How long calls may take.
    pub calls: CallLimits,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            entries_max: 20_000,
            bytes_max: 32 * 1024 * 1024,
            idle: Duration::from_secs(24 * 60 * 60),
            calls: CallLimits::default(),
        }
    }
}

/// The profile that serves a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The upstream.
    pub upstream: Box<str>,
    /// The label of its profile.
    pub profile: Box<str>,
}

/// The lanes of this process.
#[derive(Debug)]
pub struct SessionTable {
    lanes: Cache<LaneId, Arc<Kept>>,
    answers: Cache<[u8; 32], Lane>,
    idle: Duration,
    limits: CallLimits,
}

/// What is remembered of one lane.
#[derive(Clone, Debug)]
struct Session {
    pin: Option<Pin>,
    calls: OpenCalls,
    branches: Branches,
    /// How often its history was seen to part.
    forks: usize,
    /// The tool of the provider's during which an answer last fell silent.
    stalled: Option<Snapshot>,
    last_seen: Instant,
}

/// One lane, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The beginning of its hash.
    pub lane: String,
    /// The profile that serves it.
    pub pin: Option<Pin>,
    /// Its open calls.
    pub calls: Vec<CallView>,
    /// How often its history was seen to part.
    pub forks: usize,
    /// The tool of the provider's during which an answer last fell silent.
    pub stalled: Option<Snapshot>,
    /// Since it was last seen.
    pub idle: Duration,
}

/// Sums over all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Lanes.
    pub lanes: usize,
    /// Lanes with a profile of their own.
    pub pinned: usize,
    /// Lanes with open calls.
    pub waiting: usize,
    /// Open calls.
    pub open_calls: usize,
}

/// A lane in the map. It changes where it stands: only one that grows is put in anew, so that the map weighs it again.
#[derive(Debug)]
struct Kept {
    session: Mutex<Session>,
    /// Bytes that the map counts for it: a power of two that it has not outgrown.
    weight: AtomicU32,
}

impl Kept {
    fn new(now: Instant) -> Self {
        let session = Session::new(now);
        let weight = AtomicU32::new(rounded(session.weight()));
        Self {
            session: Mutex::new(session),
            weight,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rounded(weight: usize) -> u32 {
    let rounded = weight.checked_next_power_of_two().unwrap_or(usize::MAX);
    u32::try_from(rounded).unwrap_or(u32::MAX)
}

/// A lane as a request of it finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// What the request closed.
    pub closed: Closed,
    /// The profile that serves the lane.
    pub pin: Option<Pin>,
    /// Whether the client still works on calls of the lane.
    pub has_open_calls: bool,
    /// Pairs of the lane's branches that this request is the first to prove a fork: a second loop on the same log.
    pub forks: usize,
}

impl Session {
    fn new(now: Instant) -> Self {
        Self {
            pin: None,
            calls: OpenCalls::default(),
            branches: Branches::default(),
            forks: 0,
            stalled: None,
            last_seen: now,
        }
    }

    fn weight(&self) -> usize {
        let pin = self
            .pin
            .as_ref()
            .map_or(0, |pin| pin.upstream.len().saturating_add(pin.profile.len()));
        [pin, self.calls.weight(), self.branches.weight()]
            .into_iter()
            .fold(LANE_BYTES, usize::saturating_add)
    }

    /// For how long nobody spoke.
    fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_seen)
    }
}

impl SessionTable {
    /// An empty table.
    pub fn new(settings: SessionSettings) -> Self {
        let SessionSettings {
            entries_max,
            bytes_max,
            idle,
            calls: limits,
        } = settings;
        // An entry counts its share of all bytes at least, so that one bound keeps both.
        let share = |entries: u64| bytes_max.checked_div(entries).unwrap_or(bytes_max).max(1);
        let least = u32::try_from(share(entries_max)).unwrap_or(u32::MAX);
        Self {
            lanes: Cache::builder()
                .max_capacity(bytes_max)
                .weigher(move |_, kept: &Arc<Kept>| kept.weight.load(Ordering::Relaxed).max(least))
                .time_to_idle(idle)
                .build(),
            answers: Cache::builder()
                .max_capacity(entries_max.min(bytes_max.checked_div(ANSWER_BYTES).unwrap_or_default()))
                .time_to_idle(idle)
                .build(),
            idle,
            limits,
        }
    }

    /// The profile that serves a lane.
    pub fn pin(&self, lane: LaneId, now: Instant) -> Option<Pin> {
        self.look(lane, now, |session| session.pin.clone()).flatten()
    }

    /// From now on this profile serves the lane; none: whichever comes.
    pub fn set_pin(&self, lane: LaneId, pin: Option<Pin>, now: Instant) {
        self.change(lane, now, |session| session.pin = pin);
    }

    /// A request of the lane came: closes the calls that it answers, and those that the lane went on without.
    pub fn asked(&self, lane: LaneId, outline: &Outline, now: Instant) -> Closed {
        self.entered(lane, outline, true, now).closed
    }

    /// As [`SessionTable::asked`], with what else the request wants to know of its lane. One that only counts or compacts
    /// its history does not go on with it.
    pub fn entered(&self, lane: LaneId, outline: &Outline, goes_on: bool, now: Instant) -> Entered {
        let nothing = CallChain::default();
        let chain = if goes_on { &outline.chain } else { &nothing };
        self.change(lane, now, |session| {
            let closed = session.calls.close(outline, &self.limits, now);
            let forks = session.branches.show(chain);
            session.forks = session.forks.saturating_add(forks);
            Entered {
                closed,
                pin: session.pin.clone(),
                has_open_calls: !session.calls.list.is_empty(),
                forks,
            }
        })
    }

    /// The lane was answered: opens the calls of the answer, and remembers the answer's id. How many of the calls nobody
    /// waits for already.
    pub fn answered(
        &self,
        principal: &PrincipalHash,
        lane: Lane,
        calls: &Calls,
        came: Came,
        answer_id: Option<&str>,
        now: Instant,
    ) -> usize {
        if let Some(id) = answer_id.filter(|id| !id.is_empty()) {
            self.answers.insert(answer_key(principal, id), lane);
        }
        if calls.list.is_empty() {
            return 0;
        }
        self.change(lane.id, now, |session| {
            session.calls.open(calls, came, &self.limits, now)
        })
    }

    /// Nobody waits for the lane's calls any more, as somebody said who knows: for how many somebody did.
    pub fn close(&self, lane: LaneId, now: Instant) -> usize {
        let known = self.look(lane, now, |_| ()).is_some();
        let close = |session: &mut Session| session.calls.detach(Detached::Closed);
        if known { self.change(lane, now, close) } else { 0 }
    }

    /// How a call of the lane stands that is not settled, by its id, or by the letters and digits of it.
    pub fn standing(&self, lane: LaneId, call_id: &str, now: Instant) -> Option<Standing> {
        let standing = |session: &Session| session.calls.standing(call_id.as_bytes(), &self.limits, now);
        self.look(lane, now, standing).flatten()
    }

    /// An answer of the lane fell silent while this tool ran at the provider.
    pub fn stalled(&self, lane: LaneId, tool: Snapshot, now: Instant) {
        self.change(lane, now, |session| session.stalled = Some(tool));
    }

    /// Whether the client still works on calls of the lane.
    pub fn has_open_calls(&self, lane: LaneId, now: Instant) -> bool {
        self.look(lane, now, |session| !session.calls.list.is_empty())
            .unwrap_or_default()
    }

    /// The lanes with open calls, then the others, each those first that were seen last: `limit` at most, behind `skip`.
    pub fn view(&self, skip: usize, limit: usize, now: Instant) -> Vec<LaneView> {
        let mut lanes: Vec<(Duration, LaneId, Arc<Kept>)> = self.living(now).collect();
        lanes.sort_by_cached_key(|(idle, lane, kept)| (kept.lock().calls.list.is_empty(), *idle, *lane));
        let lanes = lanes.into_iter().skip(skip).take(limit);
        let view = |(idle, lane, kept): (Duration, LaneId, Arc<Kept>)| {
            let session = kept.lock();
            let calls = session.calls.list.iter();
            LaneView {
                lane: lane.short(),
                pin: session.pin.clone(),
                calls: calls.map(|call| call.view(now)).collect(),
                forks: session.forks,
                stalled: session.stalled.clone(),
                idle,
            }
        };
        lanes.map(view).collect()
    }

    /// Sums over all lanes.
    pub fn totals(&self, now: Instant) -> Totals {
        self.lanes.run_pending_tasks();
        self.living(now).fold(Totals::default(), |sums, (_, _, kept)| {
            let session = kept.lock();
            let open = session.calls.list.len();
            Totals {
                lanes: sums.lanes.saturating_add(1),
                pinned: sums.pinned.saturating_add(usize::from(session.pin.is_some())),
                waiting: sums.waiting.saturating_add(usize::from(open > 0)),
                open_calls: sums.open_calls.saturating_add(open),
            }
        })
    }

    /// The lanes that are not forgotten, and for how long nobody spoke in them.
    fn living(&self, now: Instant) -> impl Iterator<Item = (Duration, LaneId, Arc<Kept>)> {
        let living = self.lanes.iter().map(move |(lane, kept)| {
            let idle = kept.lock().idle(now);
            (idle, *lane, kept)
        });
        living.filter(|(idle, _, _)| *idle <= self.idle)
    }

    fn look<T>(&self, lane: LaneId, now: Instant, look: impl FnOnce(&Session) -> T) -> Option<T> {
        let kept = self.lanes.get(&lane)?;
        let session = kept.lock();
        (session.idle(now) <= self.idle).then(|| look(&session))
    }

    /// Changes what is remembered of a lane; one at a time.
    fn change<T>(&self, lane: LaneId, now: Instant, change: impl FnOnce(&mut Session) -> T) -> T {
        let known = self.lanes.get(&lane);
        let kept = known.unwrap_or_else(|| self.lanes.get_with(lane, || Arc::new(Kept::new(now))));
        let mut session = kept.lock();
        if session.idle(now) > self.idle {
            *session = Session::new(now);
        }
        session.last_seen = session.last_seen.max(now);
        let done = change(&mut session);
        let weight = rounded(session.weight());
        drop(session);
        if weight > kept.weight.fetch_max(weight, Ordering::Relaxed) {
            self.lanes.insert(lane, kept);
        }
        done
    }
}

impl Known for SessionTable {
    fn lane_of_answer(&self, principal: &PrincipalHash, id: &str) -> Option<Lane> {
        self.answers.get(&answer_key(principal, id))
    }
}

/// Ids are cut where answers are watched: two that agree so far are taken for one.
fn answer_key(principal: &PrincipalHash, id: &str) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_keyed(principal);
    let end = (0..=crate::wire::watch::TEXT_BYTES_MAX.min(id.len()))
        .rev()
        .find(|at| id.is_char_boundary(*at));
    hash.update(id.get(..end.unwrap_or(0)).unwrap_or_default().as_bytes());
    hash.finalize().into()
}
