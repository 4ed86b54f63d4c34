//! The table of live lanes: the profile that serves each, its open calls, its branches, and the ids of its answers.
//!
//! The table is in memory, bounded, and drops idle lanes. Every key is a hash that includes the principal, so that no
//! lane reaches another principal's.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod branches;
mod call_state;
mod lane_evidence;
mod lane_request;
mod lane_view;
mod open_calls;
mod repeated_calls;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    auth::Caller,
    conversation::CallChain,
    digest_cache::{DigestCache, Lifetime},
    policy::stream_timeouts::RunningTool,
    session::{Lane, LaneId},
    wire::watch::EmittedCalls,
};

pub use branches::BRANCHES_MAX;
use branches::Branches;
pub use call_state::{AnswerEnd, ClosedCalls, DetachReason, SettledCall};
pub use lane_evidence::LaneEvidence;
pub use lane_request::{AnsweredRequest, LaneRequest};
use lane_view::STALL_SHOWN;
pub use lane_view::{LaneFilter, LaneLabels, LaneNames, LaneTotals, LaneView, StalledTool};
use open_calls::OpenCalls;
pub use open_calls::{CallLimits, CallView, LEFT_CALLS_MAX, OPEN_CALLS_MAX};
use repeated_calls::LostCalls;
pub use repeated_calls::{LOST_CALLS_MAX, LossKind, REPEAT_WINDOW, RepeatedCall, ShownCall};

/// Bytes that a lane counts in addition to its texts and calls, including the overhead of the map.
const LANE_BYTES: usize = 512;
/// Bytes that the id of an answer counts: the map stores two hashes.
const ANSWER_BYTES: u64 = 256;

/// Limits of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// The most lanes, and the most ids of answers. The default is 20,000.
    pub entries_max: u64,
    /// Bytes of all lanes, and of all ids of answers. The default is 32 MiB.
    pub bytes_max: u64,
    /// The time after which an unused lane is dropped. The default is 24 hours.
    pub idle: Duration,
    /// The time limits of calls.
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
pub struct ProfilePin {
    /// The upstream.
    pub upstream: Box<str>,
    /// The label of the profile.
    pub profile: Box<str>,
}

/// The lanes of this process.
#[derive(Debug)]
pub struct SessionTable {
    lanes: DigestCache<LaneId, Arc<LaneCell>>,
    lanes_by_answer: DigestCache<[u8; 32], Lane>,
    lost_calls: LostCalls,
    idle: Duration,
    limits: CallLimits,
}

/// The state of one lane.
#[derive(Clone, Debug)]
struct LaneState {
    pin: Option<ProfilePin>,
    calls: OpenCalls,
    branches: Branches,
    /// The number of forks that were seen.
    forks: usize,
    /// The number of calls that the model made again after their result was lost.
    repeats: usize,
    /// The provider-side tool that ran when the last answer stalled, and the time of its end.
    stall: Option<(RunningTool, Instant)>,
    labels: LaneLabels,
    first_seen: Instant,
    last_seen: Instant,
    /// The time between the last two uses.
    last_idle: Duration,
    /// `true` if the lane's history was compacted since its last request.
    is_compacted: bool,
    /// `true` once a request of the lane has declared tools after words of the user, and forced none of them.
    has_begun: bool,
    /// `true` once a turn of the lane has declared tools.
    declares_tools: bool,
}

/// A lane in the map.
///
/// Its state changes in place. Only a lane that grows is inserted anew, so that the map weighs it again.
#[derive(Debug)]
struct LaneCell {
    state: Mutex<LaneState>,
    /// Bytes that the map counts for the lane: a power of two that is at least its size.
    weight: AtomicUsize,
}

impl LaneCell {
    fn new(now: Instant) -> Self {
        let session = LaneState::new(now);
        let weight = AtomicUsize::new(rounded_weight(session.memory_bytes()));
        Self {
            state: Mutex::new(session),
            weight,
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rounded_weight(weight: usize) -> usize {
    weight.checked_next_power_of_two().unwrap_or(usize::MAX)
}

/// A lane as a request finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnteredLane {
    /// The calls that the request closed.
    pub closed: ClosedCalls,
    /// The profile that serves the lane.
    pub pin: Option<ProfilePin>,
    /// `true` if the client still works on calls of the lane.
    pub has_open_calls: bool,
    /// The time since the lane's last use.
    pub idle: Duration,
    /// `true` if the lane's history was compacted since its last request.
    pub is_compacted: bool,
    /// `true` for the first request of the lane that declares tools, forces none, and ends with words of the user.
    pub begins: bool,
    /// The number of pairs of branches that this request is the first to prove a fork.
    pub forks: usize,
    /// Hashes of the ids of calls that the lane went on without, when no client waited for them any more.
    pub unattended: Vec<[u8; 32]>,
    /// The evidence of the request about the lane's calls.
    pub evidence: LaneEvidence,
}

impl LaneState {
    fn new(now: Instant) -> Self {
        Self {
            pin: None,
            calls: OpenCalls::default(),
            branches: Branches::default(),
            forks: 0,
            repeats: 0,
            stall: None,
            labels: LaneLabels::default(),
            first_seen: now,
            last_seen: now,
            last_idle: Duration::ZERO,
            is_compacted: false,
            has_begun: false,
            declares_tools: false,
        }
    }

    fn memory_bytes(&self) -> usize {
        let pin = self
            .pin
            .as_ref()
            .map_or(0, |pin| pin.upstream.len().saturating_add(pin.profile.len()));
        let stall = self
            .stall
            .as_ref()
            .map_or(0, |(tool, _)| tool.name.len().saturating_add(tool.id.len()));
        let (calls, branches) = (self.calls.memory_bytes(), self.branches.memory_bytes());
        [pin, stall, self.labels.memory_bytes(), calls, branches]
            .into_iter()
            .fold(LANE_BYTES, usize::saturating_add)
    }

    /// Returns the time since the last use of the lane.
    fn idle_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_seen)
    }

    /// Returns `true` if the filter selects the lane, whose hash begins with `lane`.
    fn is_selected(&self, lane: LaneId, filter: &LaneFilter) -> bool {
        let calls = &self.calls.list;
        filter.is_busy.is_none_or(|is_busy| is_busy != calls.is_empty())
            // Checked last: it reads every name of the lane.
            && filter.matches_names(
                &lane.short_hash(),
                &self.labels,
                self.pin.as_ref(),
                calls.iter().map(|call| &call.tool),
            )
    }

    fn to_view(&self, lane: LaneId, now: Instant) -> LaneView {
        let stall = self.stall.as_ref().map(|(tool, at)| StalledTool {
            tool: tool.clone(),
            ended: now.saturating_duration_since(*at),
        });
        LaneView {
            lane: lane.short_hash(),
            labels: self.labels.clone(),
            pin: self.pin.clone(),
            calls: self.calls.list.iter().map(|call| call.to_view(now)).collect(),
            forks: self.forks,
            repeats: self.repeats,
            stalled_tool: stall.filter(|stall| stall.ended < STALL_SHOWN),
            idle: self.idle_time(now),
            age: now.saturating_duration_since(self.first_seen),
        }
    }
}

impl SessionTable {
    /// Makes an empty table.
    pub fn new(settings: SessionSettings) -> Self {
        let SessionSettings {
            entries_max,
            bytes_max,
            idle,
            calls: limits,
        } = settings;
        // Each entry counts at least its share of all bytes, so that one limit enforces both.
        let share = |entries: u64| bytes_max.checked_div(entries).unwrap_or(bytes_max).max(1);
        let least = usize::try_from(share(entries_max)).unwrap_or(usize::MAX);
        let weigh = move |kept: &Arc<LaneCell>| kept.weight.load(Ordering::Relaxed).max(least);
        let answers_max = entries_max.min(bytes_max.checked_div(ANSWER_BYTES).unwrap_or_default());
        Self {
            lanes: DigestCache::with_byte_limit(bytes_max, Lifetime::SinceUse(idle), weigh),
            lanes_by_answer: DigestCache::new(answers_max, Lifetime::SinceUse(idle)),
            lost_calls: LostCalls::default(),
            idle,
            limits,
        }
    }

    /// Sets the profile that serves the lane. `None` removes it.
    pub fn set_profile_pin(&self, lane: LaneId, pin: Option<ProfilePin>, now: Instant) {
        self.change_lane(lane, now, |session| session.pin = pin);
    }

    /// Notes that the history of a lane was compacted, so that the provider's cache of it is of no use.
    pub fn note_compaction(&self, lane: LaneId, now: Instant) {
        self.change_lane(lane, now, |session| session.is_compacted = true);
    }

    /// Notes a request of the lane: closes the calls that it answers, and those that it goes on without. Operators see the
    /// `names`.
    pub fn enter_lane(
        &self,
        lane: LaneId,
        names: LaneNames<'_>,
        request: LaneRequest<'_>,
        now: Instant,
    ) -> EnteredLane {
        // A request that does not go on proves no fork.
        let nothing = CallChain::default();
        let chain = if request.may_be_turn {
            &request.outline.chain
        } else {
            &nothing
        };
        self.change_lane(lane, now, |session| {
            session.labels.set_names(names);
            let is_compacted = session.is_compacted || request.is_compacted;
            let request = LaneRequest {
                is_compacted,
                ..request
            };
            let (closed, evidence) = session.calls.close_by_request(&request, &self.limits, now);
            let forks = session.branches.add_history(chain);
            session.forks = session.forks.saturating_add(forks);
            let declares_tools = request.mark.declares_tools();
            // Clients ask for titles and topics in between, which need no tools.
            let is_turn = request.may_be_turn && (declares_tools || !session.declares_tools);
            session.declares_tools |= is_turn && declares_tools;
            let can_begin = declares_tools && request.mark.has_free_choice() && request.outline.ends_with_user_text;
            let begins = is_turn && can_begin && !session.has_begun;
            session.has_begun |= begins;
            if is_turn {
                // The conversation goes on: its last answer is not the present one any more.
                session.stall = None;
                // The turn writes the cache of the new history.
                session.is_compacted = false;
            }
            EnteredLane {
                idle: session.last_idle,
                is_compacted,
                closed,
                pin: session.pin.clone(),
                has_open_calls: !session.calls.list.is_empty(),
                begins,
                forks,
                unattended: session.calls.unattended_ids(),
                evidence,
            }
        })
    }

    /// Notes an answer of the lane: opens its calls, and stores its id.
    ///
    /// Returns the number of calls that no client waits for.
    pub fn note_answer(
        &self,
        caller: &Caller,
        request: AnsweredRequest,
        calls: &EmittedCalls,
        came: AnswerEnd,
        answer_id: Option<&str>,
        now: Instant,
    ) -> usize {
        let AnsweredRequest { lane, mark } = request;
        if let Some(id) = answer_id.filter(|id| !id.is_empty()) {
            self.lanes_by_answer.insert(&answer_key(caller, id), lane);
        }
        // No entry is created for a lane that has nothing to remember.
        if calls.list.is_empty() {
            // The time of the lane's last use stays: it is that of a request, or of calls.
            if let Some(kept) = self.lanes.get(&lane.id).filter(|_| came == AnswerEnd::Complete) {
                kept.lock_state().stall = None;
            }
            return 0;
        }
        self.change_lane(lane.id, now, |session| {
            if came == AnswerEnd::Complete {
                session.stall = None;
            }
            session.calls.open_calls(calls, (mark, came), &self.limits, now)
        })
    }

    /// Returns the lane of this caller that received the answer with this id.
    pub fn lane_of_answer(&self, caller: &Caller, id: &str) -> Option<Lane> {
        self.lanes_by_answer.get(&answer_key(caller, id))
    }

    /// Detaches all calls of the lane, whose owner closed it. Returns the number of calls that were attached.
    pub fn close_lane(&self, lane: LaneId, now: Instant) -> usize {
        // A request about an unknown lane must not create one.
        let kept = self.lanes.get(&lane);
        let known = kept.is_some_and(|kept| kept.lock_state().idle_time(now) <= self.idle);
        let close = |session: &mut LaneState| session.calls.detach_all(DetachReason::Closed);
        if known { self.change_lane(lane, now, close) } else { 0 }
    }

    /// Notes that an answer of the lane stalled while this tool ran at the provider.
    pub fn note_stall(&self, lane: LaneId, tool: RunningTool, now: Instant) {
        self.change_lane(lane, now, |session| session.stall = Some((tool, now)));
    }

    /// Returns `true` if the caller may have a lost call that its model can still repeat.
    pub fn has_lost_calls(&self, caller: &Caller) -> bool {
        self.lost_calls.has_any(caller)
    }

    /// Notes the calls of a request that a provider accepted. Returns the calls that repeat a lost one of this caller.
    pub fn note_shown_calls(
        &self,
        caller: &Caller,
        lane: Option<LaneId>,
        calls: &[ShownCall],
        now: Instant,
    ) -> Vec<RepeatedCall> {
        let repeated = self.lost_calls.note_calls(caller, calls, now);
        if let Some(lane) = lane.filter(|_| !repeated.is_empty()) {
            self.change_lane(lane, now, |session| {
                session.repeats = session.repeats.saturating_add(repeated.len());
            });
        }
        repeated
    }

    /// Returns up to `limit` lanes after the first `skip`, in the order of [`find_lanes`](Self::find_lanes).
    pub fn lane_views(&self, skip: usize, limit: usize, now: Instant) -> Vec<LaneView> {
        self.find_lanes(&LaneFilter::default(), skip, limit, now).1
    }

    /// Returns the number of selected lanes, and up to `limit` of them after the first `skip`.
    ///
    /// Lanes with overdue calls come first, then those with other open calls, then the most recently used.
    pub fn find_lanes(&self, filter: &LaneFilter, skip: usize, limit: usize, now: Instant) -> (usize, Vec<LaneView>) {
        let live = self.live_lanes(now);
        let mut lanes: Vec<(Duration, LaneId, Arc<LaneCell>)> = live
            .filter(|(_, lane, kept)| kept.lock_state().is_selected(*lane, filter))
            .collect();
        // Cached keys, since each of them takes the lock of its lane.
        lanes.sort_by_cached_key(|(idle, lane, kept)| {
            let calls = &kept.lock_state().calls;
            (calls.list.is_empty(), calls.overdue_count(now) == 0, *idle, *lane)
        });
        let view = |(_, lane, kept): &(Duration, LaneId, Arc<LaneCell>)| kept.lock_state().to_view(*lane, now);
        let views = lanes.iter().skip(skip).take(limit).map(view).collect();
        (lanes.len(), views)
    }

    /// Returns the sums over all lanes.
    pub fn lane_totals(&self, now: Instant) -> LaneTotals {
        // The cache evicts lazily: entries over the limit would be counted.
        self.lanes.evict();
        self.live_lanes(now).fold(LaneTotals::default(), |sums, (_, _, kept)| {
            let session = kept.lock_state();
            let open = session.calls.list.len();
            LaneTotals {
                lanes: sums.lanes.saturating_add(1),
                pinned: sums.pinned.saturating_add(usize::from(session.pin.is_some())),
                waiting: sums.waiting.saturating_add(usize::from(open > 0)),
                open_calls: sums.open_calls.saturating_add(open),
                overdue_calls: sums.overdue_calls.saturating_add(session.calls.overdue_count(now)),
            }
        })
    }

    /// Returns the lanes that are not idle for too long, each with its idle time.
    fn live_lanes(&self, now: Instant) -> impl Iterator<Item = (Duration, LaneId, Arc<LaneCell>)> {
        let living = self.lanes.iter().map(move |(lane, kept)| {
            let idle = kept.lock_state().idle_time(now);
            (idle, lane, kept)
        });
        living.filter(|(idle, _, _)| *idle <= self.idle)
    }

    /// Changes the state of a lane, which is created if it is unknown. Changes of one lane exclude each other.
    fn change_lane<T>(&self, lane: LaneId, now: Instant, change: impl FnOnce(&mut LaneState) -> T) -> T {
        let known = self.lanes.get(&lane);
        // Two first requests of a lane must share one entry.
        let kept = known.unwrap_or_else(|| self.lanes.get_or_insert_with(&lane, || Arc::new(LaneCell::new(now))));
        let mut session = kept.lock_state();
        // The cache evicts lazily, and by another clock: an idle lane may still be here.
        if session.idle_time(now) > self.idle {
            *session = LaneState::new(now);
        }
        session.last_idle = session.idle_time(now);
        // Concurrent tasks may pass their times out of order.
        session.last_seen = session.last_seen.max(now);
        let done = change(&mut session);
        // Rounding makes a lane that grows call by call be inserted anew only when its size doubles.
        let weight = rounded_weight(session.memory_bytes());
        drop(session);
        if weight > kept.weight.fetch_max(weight, Ordering::Relaxed) {
            self.lanes.insert(&lane, kept);
        }
        done
    }
}

/// Returns the key of an answer's id.
///
/// The watcher truncates ids, so this does the same. Ids with the same beginning count as one.
fn answer_key(caller: &Caller, id: &str) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_keyed(caller.principal_bytes());
    let end = (0..=crate::wire::watch::TEXT_BYTES_MAX.min(id.len()))
        .rev()
        .find(|at| id.is_char_boundary(*at));
    hash.update(id.get(..end.unwrap_or(0)).unwrap_or_default().as_bytes());
    hash.finalize().into()
}
