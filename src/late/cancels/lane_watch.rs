//! The lanes of this process with calls that can be cancelled, and the signs of life of each. Pure: time is a parameter.
//!
//! A lane is left by evidence only: a dropped stream, a request that lacks the call, a closed session. Silence counts from
//! the last sign that this process has seen itself.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    late::records::LeaveReason,
    ledger::{Moment, RecordKey},
    session::CallEvidence,
};

/// The most watched lanes. A call of a further one is cancelled only if its owner asks for it.
const LANES_MAX: usize = 10_000;
/// The most watched calls of one lane. A further one is cancelled only if its owner asks for it.
const CALLS_MAX: usize = 256;

/// A call that can be cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchedCall {
    /// The key of its record.
    pub(super) key: RecordKey,
    /// Its id.
    pub(super) id: Vec<u8>,
    /// The last heartbeat of its tool, or the time from which the call is watched.
    pub(super) alive_at: Instant,
    /// The latest evidence that its lane was left, and the time of the first, from which the grace counts. `None` while
    /// the lane is alive.
    pub(super) pending: Option<(LeaveReason, Instant)>,
}

/// A call whose lane was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftCall {
    pub(super) key: RecordKey,
    pub(super) lane: [u8; 32],
    pub(super) reason: LeaveReason,
    /// The time from which the grace counts.
    pub(super) left_at: Instant,
}

/// The effect of a request on the calls of its lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeardLane {
    /// Calls that are not to be cancelled any more.
    pub(super) revoked: Vec<RecordKey>,
    /// Calls that the request lacks.
    pub(super) left: Vec<LeftCall>,
    /// `true` if the request goes on with the conversation of a call.
    pub(super) is_alive: bool,
}

#[derive(Clone, Debug)]
struct WatchedLane {
    session: Option<[u8; 32]>,
    /// The time of the last request that went on with it.
    heard_at: Instant,
    /// The sign of life that this process has queued last for the ledger.
    signed_at: Moment,
    calls: Vec<WatchedCall>,
}

/// The watched lanes.
#[derive(Debug)]
pub(super) struct LaneWatch {
    lanes: HashMap<[u8; 32], WatchedLane>,
    lane_of: HashMap<RecordKey, [u8; 32]>,
    /// The lanes with requests since the start. `None` once the cancels of earlier processes are watched.
    heard_early: Option<HashSet<[u8; 32]>>,
}

impl Default for LaneWatch {
    fn default() -> Self {
        Self {
            lanes: HashMap::new(),
            lane_of: HashMap::new(),
            heard_early: Some(HashSet::new()),
        }
    }
}

impl LaneWatch {
    /// Returns `true` if the lane has a watched call, or may have one of an earlier process.
    pub(super) fn contains(&self, lane: &[u8; 32]) -> bool {
        self.heard_early.is_some() || self.lanes.contains_key(lane)
    }

    /// Notes that the cancels of earlier processes are watched.
    pub(super) fn end_recovery(&mut self) {
        self.heard_early = None;
    }

    /// Returns `true` if a request of the lane came before the cancels of earlier processes were watched.
    pub(super) fn is_heard_early(&self, lane: &[u8; 32]) -> bool {
        self.heard_early.as_ref().is_some_and(|heard| heard.contains(lane))
    }

    /// Watches a call, unless it is watched already.
    pub(super) fn add_call(&mut self, lane: [u8; 32], session: Option<[u8; 32]>, call: WatchedCall, now: Instant) {
        if self.lanes.len() >= LANES_MAX && !self.lanes.contains_key(&lane) {
            return;
        }
        let watched = self.lanes.entry(lane).or_insert_with(|| WatchedLane {
            session,
            heard_at: now,
            signed_at: Moment::ZERO,
            calls: Vec::new(),
        });
        watched.session = watched.session.or(session);
        if watched.calls.len() < CALLS_MAX && !self.lane_of.contains_key(&call.key) {
            self.lane_of.insert(call.key, lane);
            watched.calls.push(call);
        }
    }

    /// Notes a request of a lane, whose sign of life is stored as of `signed_at`. `judge` returns what it proves about a
    /// call. `may_go_on` is `true` if it may go on with the conversation of a call that is not watched yet.
    pub(super) fn hear(
        &mut self,
        lane: &[u8; 32],
        judge: impl Fn(&WatchedCall) -> CallEvidence,
        may_go_on: bool,
        (now, signed_at): (Instant, Moment),
    ) -> HeardLane {
        let mut heard = HeardLane::default();
        if let Some(early) = self
            .heard_early
            .as_mut()
            .filter(|early| may_go_on && early.len() < LANES_MAX)
        {
            early.insert(*lane);
        }
        let Some(watched) = self.lanes.get_mut(lane) else {
            heard.is_alive = may_go_on;
            return heard;
        };
        for call in &mut watched.calls {
            let evidence = judge(call);
            // A request that goes on without a call ends the silence of the lane, too.
            heard.is_alive |= evidence != CallEvidence::Unrelated;
            match (call.pending, evidence) {
                (Some((LeaveReason::Requested, _)), _)
                | (_, CallEvidence::Unrelated)
                | (None, CallEvidence::GoesOn) => {}
                (pending, CallEvidence::Left) => {
                    // It does not keep this call, whose grace goes on from the first evidence.
                    let left_at = pending.map_or(now, |(_, first)| first);
                    call.pending = Some((LeaveReason::WentOn, left_at));
                    heard.left.push(LeftCall {
                        key: call.key,
                        lane: *lane,
                        reason: LeaveReason::WentOn,
                        left_at,
                    });
                }
                (Some(_), CallEvidence::GoesOn) => {
                    call.pending = None;
                    heard.revoked.push(call.key);
                }
            }
        }
        if heard.is_alive {
            (watched.heard_at, watched.signed_at) = (now, watched.signed_at.max(signed_at));
        }
        heard
    }

    /// Returns the sign of life that this process has queued last for a lane: what it proves was judged already.
    pub(super) fn own_sign(&self, lane: &[u8; 32]) -> Moment {
        self.lanes.get(lane).map_or(Moment::ZERO, |watched| watched.signed_at)
    }

    /// Notes that the client left the stream of these calls. Returns those for which that is news.
    pub(super) fn drop_stream(
        &mut self,
        lane: &[u8; 32],
        is_of_stream: impl Fn(&[u8]) -> bool,
        now: Instant,
    ) -> Vec<LeftCall> {
        let watched = self.lanes.get_mut(lane);
        watched.map_or_else(Vec::new, |watched| {
            watched.leave(lane, (LeaveReason::StreamDropped, now), |call| is_of_stream(&call.id))
        })
    }

    /// Notes that a session was closed. Returns the calls for which that is news.
    pub(super) fn close_session(&mut self, session: &[u8; 32], now: Instant) -> Vec<LeftCall> {
        let of_session = self
            .lanes
            .iter_mut()
            .filter(|(_, watched)| watched.session.as_ref() == Some(session));
        of_session
            .flat_map(|(lane, watched)| watched.leave(lane, (LeaveReason::Closed, now), |_| true))
            .collect()
    }

    /// Notes that no request revokes the cancel of a call any more: its owner asked for it, or it was sent.
    pub(super) fn make_final(&mut self, key: &RecordKey, now: Instant) {
        if let Some(call) = self.find_call(key) {
            call.pending = Some((LeaveReason::Requested, now));
        }
    }

    /// Returns the calls whose lane and tool have been silent for `limit`, each once.
    pub(super) fn find_silent(&mut self, limit: Duration, now: Instant) -> Vec<LeftCall> {
        let mut silent = Vec::new();
        for (lane, watched) in &mut self.lanes {
            let heard_at = watched.heard_at;
            let is_silent = |call: &WatchedCall| now.saturating_duration_since(heard_at.max(call.alive_at)) >= limit;
            silent.extend(watched.leave(lane, (LeaveReason::Silent, now), is_silent));
        }
        silent
    }

    /// Returns the earliest time at which a call may count as silent.
    pub(super) fn next_silence(&self, limit: Duration) -> Option<Instant> {
        let of_lane = |watched: &WatchedLane| {
            let open = watched.calls.iter().filter(|call| call.pending.is_none());
            open.map(|call| watched.heard_at.max(call.alive_at)).min()
        };
        let first = self.lanes.values().filter_map(of_lane).min()?;
        first.checked_add(limit)
    }

    /// Notes a heartbeat of a tool.
    pub(super) fn note_heartbeat(&mut self, key: &RecordKey, now: Instant) {
        if let Some(call) = self.find_call(key) {
            call.alive_at = now;
        }
    }

    /// Returns the evidence about a call. `None` if its lane is alive, or not watched.
    pub(super) fn pending_reason(&self, lane: &[u8; 32], key: &RecordKey) -> Option<LeaveReason> {
        let watched = self.lanes.get(lane)?;
        let call = watched.calls.iter().find(|call| call.key == *key)?;
        call.pending.map(|(reason, _)| reason)
    }

    /// Stops watching a call.
    pub(super) fn remove_call(&mut self, key: &RecordKey) {
        let Some(lane) = self.lane_of.remove(key) else { return };
        if let Some(watched) = self.lanes.get_mut(&lane) {
            watched.calls.retain(|call| call.key != *key);
            if watched.calls.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    fn find_call(&mut self, key: &RecordKey) -> Option<&mut WatchedCall> {
        let lane = self.lane_of.get(key)?;
        let watched = self.lanes.get_mut(lane)?;
        watched.calls.iter_mut().find(|call| call.key == *key)
    }
}

impl WatchedLane {
    fn leave(
        &mut self,
        lane: &[u8; 32],
        (reason, left_at): (LeaveReason, Instant),
        is_left: impl Fn(&WatchedCall) -> bool,
    ) -> Vec<LeftCall> {
        let open = self
            .calls
            .iter_mut()
            .filter(|call| call.pending.is_none() && is_left(call));
        open.map(|call| {
            call.pending = Some((reason, left_at));
            LeftCall {
                key: call.key,
                lane: *lane,
                reason,
                left_at,
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use CallEvidence::{GoesOn, Left, Unrelated};

    use super::*;
    use crate::{auth::Principal, ledger::RecordKind};

    const LANE: [u8; 32] = [1; 32];
    const LIMIT: Duration = Duration::from_secs(300);

    fn key(name: u8) -> RecordKey {
        RecordKey::new(RecordKind::Call, Principal::NONE, [name; 32])
    }

    fn watch(now: Instant) -> LaneWatch {
        let mut watch = LaneWatch::default();
        for name in [1, 2] {
            let call = WatchedCall {
                key: key(name),
                id: vec![name],
                alive_at: now,
                pending: None,
            };
            watch.add_call(LANE, Some([9; 32]), call, now);
        }
        watch.end_recovery();
        watch
    }

    fn reasons(left: &[LeftCall]) -> Vec<(RecordKey, LeaveReason)> {
        left.iter().map(|call| (call.key, call.reason)).collect()
    }

    #[tokio::test]
    async fn a_request_that_goes_on_revokes_what_it_does_not_prove_itself() {
        let now = crate::clock::now();
        let mut watch = watch(now);
        let both = [
            (key(1), LeaveReason::StreamDropped),
            (key(2), LeaveReason::StreamDropped),
        ];
        assert_eq!(reasons(&watch.drop_stream(&LANE, |id| *id == [1], now)), both[..1]);
        assert_eq!(reasons(&watch.drop_stream(&LANE, |_| true, now)), both[1..]);
        assert!(watch.close_session(&[9; 32], now).is_empty(), "it is no news");
        // The request shows the first call and lacks the second.
        let lacks_second = |call: &WatchedCall| if call.id == [2] { Left } else { GoesOn };
        let unrelated = watch.hear(&LANE, |_| Unrelated, true, (now + LIMIT, Moment::ZERO));
        assert_eq!(unrelated, HeardLane::default());
        let heard = watch.hear(&LANE, lacks_second, true, (now, Moment::ZERO));
        assert_eq!(heard.revoked, [key(1)]);
        assert_eq!(reasons(&heard.left), [(key(2), LeaveReason::WentOn)]);
        // Its grace goes on from the first one.
        let again = watch.hear(&LANE, lacks_second, true, (now + LIMIT, Moment::ZERO));
        assert!(again.revoked.is_empty() && again.left == heard.left);
        let back = watch.hear(&LANE, |_| GoesOn, true, (now, Moment::ZERO));
        assert_eq!(back.revoked, [key(2)]);
    }

    #[tokio::test]
    async fn requests_are_remembered_until_the_cancels_of_earlier_processes_are_watched() {
        let mut watch = LaneWatch::default();
        assert!(watch.contains(&LANE) && !watch.is_heard_early(&LANE));
        let times = (crate::clock::now(), Moment::ZERO);
        watch.hear(&LANE, |_| GoesOn, false, times);
        assert!(!watch.is_heard_early(&LANE), "it is unrelated to every conversation");
        watch.hear(&LANE, |_| GoesOn, true, times);
        assert!(watch.is_heard_early(&LANE) && !watch.is_heard_early(&[2; 32]));
        watch.end_recovery();
        assert!(!watch.contains(&LANE) && !watch.is_heard_early(&LANE));
    }

    #[tokio::test]
    async fn silence_counts_from_the_last_sign_of_lane_and_tool() {
        let now = crate::clock::now();
        let mut watch = watch(now);
        let later = now + LIMIT;
        assert_eq!(watch.next_silence(LIMIT), Some(later));
        watch.note_heartbeat(&key(1), now + Duration::from_secs(1));
        // A title ends no silence.
        watch.hear(&LANE, |_| Unrelated, true, (now + Duration::from_secs(2), Moment::ZERO));
        assert!(watch.find_silent(LIMIT, later - Duration::from_nanos(1)).is_empty());
        assert_eq!(
            reasons(&watch.find_silent(LIMIT, later)),
            [(key(2), LeaveReason::Silent)]
        );
        assert!(watch.find_silent(LIMIT, later).is_empty(), "each is found once");
        assert_eq!(watch.next_silence(LIMIT), Some(later + Duration::from_secs(1)));
    }

    #[tokio::test]
    async fn a_final_cancel_is_not_revoked_and_ended_calls_are_forgotten() {
        let now = crate::clock::now();
        let mut watch = watch(now);
        watch.make_final(&key(1), now);
        let heard = watch.hear(&LANE, |_| GoesOn, true, (now, Moment::ZERO));
        assert!(heard.revoked.is_empty() && heard.left.is_empty());
        assert_eq!(watch.pending_reason(&LANE, &key(1)), Some(LeaveReason::Requested));
        assert_eq!(
            reasons(&watch.close_session(&[9; 32], now)),
            [(key(2), LeaveReason::Closed)]
        );
        watch.remove_call(&key(1));
        assert!(watch.contains(&LANE));
        watch.remove_call(&key(2));
        assert!(!watch.contains(&LANE));
    }
}
