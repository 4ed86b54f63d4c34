//! The open calls of one lane, and how a request closes them.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    call_state::{AnswerEnd, ClosedCalls, DetachReason, SettledCall},
    lane_evidence::{LaneEvidence, UnrelatedCall, is_truncated_id},
    lane_request::LaneRequest,
};
use crate::{
    conversation::{
        OutlineCall,
        outline::{ID_BYTES_MAX, IDS_MAX, OutlineResult},
    },
    repair::id_letters,
    session::TurnMark,
    wire::watch::{EmittedCalls, TEXT_BYTES_MAX},
};

// An id must be truncated in the same way where it is emitted and where it comes back.
const _: () = assert!(ID_BYTES_MAX == TEXT_BYTES_MAX);

/// The most open calls of one lane. Beyond that the oldest is dropped.
pub const OPEN_CALLS_MAX: usize = IDS_MAX;
/// The most calls that a lane went on without. A late result may still settle them.
pub const LEFT_CALLS_MAX: usize = 64;

/// The time limits of calls and silent lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The time limit of each tool, by name.
    pub tools: BTreeMap<Box<str>, Duration>,
    /// The silence after which no client is believed to wait for a lane's calls. The default is 5 minutes.
    pub detach_after: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            tools: BTreeMap::new(),
            detach_after: Duration::from_secs(5 * 60),
        }
    }
}

/// A call that the client has not answered yet, for the admin page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// The tool.
    pub tool: Box<str>,
    /// The time since the call was emitted.
    pub age: Duration,
    /// The time limit of the tool. `None` if none is configured.
    pub max_duration: Option<Duration>,
    /// `true` if a client is believed to wait for the result.
    pub attached: bool,
    /// `true` until the end of the stream or a request shows that the client has the call.
    pub tentative: bool,
}

/// A call that the client has not answered yet.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// The id, or empty if the format has none.
    id: Box<str>,
    pub(super) tool: Box<str>,
    pub(super) opened_at: Instant,
    /// The time at which the tool should be done.
    deadline: Option<Instant>,
    /// The first reason why no client waits for the call. `None` if one does.
    detached: Option<DetachReason>,
    /// `true` until the end of the stream or a request shows that the client has the call.
    tentative: bool,
    /// The number of the answer that brought the call.
    answer_number: u64,
    /// The request that was answered.
    asked: TurnMark,
    /// `true` once a request that goes on has lacked the call.
    is_lacking: bool,
}

impl OpenCall {
    /// Returns the bytes that the call occupies.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.id.len())
            .saturating_add(self.tool.len())
    }

    /// Returns the call as the admin page shows it.
    pub(super) fn to_view(&self, now: Instant) -> CallView {
        CallView {
            tool: self.tool.clone(),
            age: now.saturating_duration_since(self.opened_at),
            max_duration: self.deadline.map(|by| by.saturating_duration_since(self.opened_at)),
            attached: self.detached.is_none(),
            tentative: self.tentative,
        }
    }

    /// Returns `true` if the tool should be done by now.
    fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|by| now > by)
    }

    fn has_id(&self, id: &[u8]) -> bool {
        is_truncated_id(self.id.as_bytes(), id)
    }

    /// Returns `true` if the letters and digits of its id are `wanted`. Openclaw strips all other characters.
    fn has_alphanumerics(&self, wanted: &[u8]) -> bool {
        let own = self.id.bytes().filter(u8::is_ascii_alphanumeric);
        !wanted.is_empty() && own.eq(wanted.iter().copied())
    }

    fn is_any_of(&self, calls: &[OutlineCall]) -> bool {
        let is_it = |call: &OutlineCall| self.has_id(&call.id) || self.has_alphanumerics(&id_letters(&call.id));
        calls.iter().any(is_it)
    }

    /// Notes that a request contains the call: the client has it, even if it left the stream.
    fn mark_shown(&mut self) {
        // The other reasons for detaching do not depend on the stream, so they stay.
        self.tentative = false;
        self.detached = self.detached.filter(|why| *why != DetachReason::StreamDropped);
    }

    /// Detaches the call. Returns `true` if it was attached before.
    fn detach_call(&mut self, why: DetachReason) -> bool {
        let was_attached = self.detached.is_none();
        self.detached.get_or_insert(why);
        was_attached
    }

    fn to_settled(&self, now: Instant) -> SettledCall {
        SettledCall {
            tool: self.tool.clone(),
            open_for: now.saturating_duration_since(self.opened_at),
            attached: self.detached.is_none(),
            is_overrun: self.is_overdue(now),
        }
    }
}

/// The effect of a request on an open call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEffect {
    /// The call stays open.
    Unchanged,
    /// The request brings its result.
    Settled,
    /// The request reports its result as lost.
    Lost,
}

/// The open calls of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls {
    pub(super) list: Vec<OpenCall>,
    /// Calls that the lane went on without, in that order.
    left_behind: VecDeque<OpenCall>,
    answers: u64,
    /// The time of the last request or answer.
    last_heard: Option<Instant>,
}

impl OpenCalls {
    /// Returns the bytes that all calls occupy.
    pub(super) fn memory_bytes(&self) -> usize {
        let calls = self.list.iter().chain(&self.left_behind);
        calls.map(OpenCall::memory_bytes).fold(0, usize::saturating_add)
    }

    /// Returns the number of calls that are open for longer than the time limit of their tool.
    pub(super) fn overdue_count(&self, now: Instant) -> usize {
        self.list.iter().filter(|call| call.is_overdue(now)).count()
    }

    /// Opens the calls of an answer. Returns the number of calls that no client waits for.
    ///
    /// `asked` is the request that was answered: another one may have come since.
    pub(super) fn open_calls(
        &mut self,
        calls: &EmittedCalls,
        (asked, came): (TurnMark, AnswerEnd),
        limits: &CallLimits,
        now: Instant,
    ) -> usize {
        if calls.list.is_empty() {
            return 0;
        }
        self.last_heard = Some(now);
        self.answers = self.answers.saturating_add(1);
        let dropped = came == AnswerEnd::ClientLeft;
        let open = calls.list.iter().map(|call| OpenCall {
            id: call.id.clone(),
            tool: call.name.clone(),
            opened_at: now,
            deadline: limits.tools.get(&call.name).and_then(|limit| now.checked_add(*limit)),
            detached: dropped.then_some(DetachReason::StreamDropped),
            tentative: came != AnswerEnd::Complete,
            answer_number: self.answers,
            asked,
            is_lacking: false,
        });
        self.list.extend(open);
        let over = self.list.len().saturating_sub(OPEN_CALLS_MAX);
        self.list.drain(..over);
        if dropped { calls.list.len() } else { 0 }
    }

    /// Closes the calls that a request answers, and those that it goes on without.
    ///
    /// A request unrelated to the conversation of a call proves nothing. Returns the closed calls, and the ids of those
    /// that the request lacks although it goes on.
    pub(super) fn close_by_request(
        &mut self,
        request: &LaneRequest<'_>,
        limits: &CallLimits,
        now: Instant,
    ) -> (ClosedCalls, LaneEvidence) {
        let mut closed = ClosedCalls::default();
        // Judged before this request counts as a sign of life.
        for call in &mut self.list {
            if is_silent(call, self.last_heard, limits, now) && call.detach_call(DetachReason::Silent) {
                closed.detached.push(DetachReason::Silent);
            }
        }
        self.last_heard = Some(now);
        let (fates, others) = self.match_results(&request.outline.last_results);
        // A result may still come for a call that an earlier request went on without.
        closed.settled = others
            .iter()
            .filter_map(|answer| self.settle_late(answer, now))
            .collect();
        let mut shown = Vec::with_capacity(self.list.len());
        let mut in_body: Vec<u64> = Vec::new();
        for (call, fate) in self.list.iter_mut().zip(&fates) {
            // The last calls of the body count too: a request may contain a call that it does not answer.
            let is_shown = *fate != CallEffect::Unchanged || call.is_any_of(&request.outline.last_calls);
            if is_shown {
                call.mark_shown();
                in_body.push(call.answer_number);
            }
            shown.push(is_shown);
        }
        let mut left_ids = self.left_before(request);
        let (unrelated, may_go_on) = self.judge_calls(request, &shown);
        self.follow_compaction(request);
        let mut open = Vec::with_capacity(self.list.len());
        let calls = std::mem::take(&mut self.list).into_iter().zip(fates).zip(shown);
        for ((mut call, fate), is_shown) in calls {
            // The client has seen nothing of a broken answer if it sends the same request again.
            let is_retry = call.tentative && request.may_be_turn && request.mark == call.asked;
            let goes_on = is_retry || request.goes_on_from(&call.asked, in_body.contains(&call.answer_number));
            match fate {
                CallEffect::Settled => closed.settled.push(call.to_settled(now)),
                CallEffect::Lost => {
                    closed.placeholder = closed.placeholder.saturating_add(1);
                    self.leave_behind(call, &mut closed);
                }
                CallEffect::Unchanged if goes_on => {
                    closed.abandoned = closed.abandoned.saturating_add(1);
                    if request.is_compacted && !is_shown {
                        // Its result still reaches the conversation, whose history merely lacks the call.
                        call.asked = request.mark;
                        self.remember_left(call);
                        continue;
                    }
                    call.is_lacking = !is_shown;
                    left_ids.extend((!is_shown).then(|| call.id.clone()));
                    self.leave_behind(call, &mut closed);
                }
                CallEffect::Unchanged => open.push(call),
            }
        }
        self.list = open;
        let evidence = LaneEvidence {
            left_ids,
            unrelated,
            may_go_on,
        };
        (closed, evidence)
    }

    /// Returns the calls with whose conversation the request does not go on, and `true` if it may go on with that of
    /// another call. `shown` is `true` for the open calls that it contains.
    fn judge_calls(&self, request: &LaneRequest<'_>, shown: &[bool]) -> (Vec<UnrelatedCall>, bool) {
        let open = self.list.iter().zip(shown.iter().copied());
        let left = self.left_behind.iter().map(|call| (call, false));
        let (mut unrelated, mut may_go_on) = (Vec::new(), request.may_go_on());
        for (call, is_shown) in open.chain(left) {
            if request.keeps_alive(&call.asked, is_shown, call.is_lacking) {
                may_go_on = true;
            } else if !call.id.is_empty() {
                let counts_if_shown = request.mark.may_continue(&call.asked);
                let id = call.id.clone();
                unrelated.push(UnrelatedCall { id, counts_if_shown });
            }
        }
        (unrelated, may_go_on)
    }

    /// Lets the compacted history stand for the earlier one: later requests go on from it.
    fn follow_compaction(&mut self, request: &LaneRequest<'_>) {
        if !request.is_compacted {
            return;
        }
        let kept = self.left_behind.iter_mut().filter(|call| !call.is_lacking);
        for call in kept.filter(|call| request.goes_on_from(&call.asked, false)) {
            call.asked = request.mark;
        }
    }

    /// Returns the ids of calls that an earlier request lacked, if this one goes on without them, too.
    fn left_before(&self, request: &LaneRequest<'_>) -> Vec<Box<str>> {
        let goes_on =
            |call: &&OpenCall| call.is_lacking && !request.is_compacted && request.goes_on_from(&call.asked, false);
        self.left_behind
            .iter()
            .filter(goes_on)
            .map(|call| call.id.clone())
            .collect()
    }

    /// Returns the hashes of the ids of calls that the lane went on without, when no client waited for them any more.
    pub(super) fn unattended_ids(&self) -> Vec<[u8; 32]> {
        let unattended = self.left_behind.iter().filter(|call| {
            // Going on is what abandons a call: the other reasons came before it.
            call.detached.is_some_and(|why| why != DetachReason::WentOn) && !call.id.is_empty()
        });
        unattended.map(|call| blake3::hash(call.id.as_bytes()).into()).collect()
    }

    /// Moves a call to those that the lane went on without, and counts it as detached.
    fn leave_behind(&mut self, mut call: OpenCall, closed: &mut ClosedCalls) {
        if !call.tentative && call.detach_call(DetachReason::WentOn) {
            closed.detached.push(DetachReason::WentOn);
        }
        self.remember_left(call);
    }

    /// Remembers a call that the lane went on without: a result may still settle it. One that the client was never seen to
    /// have is dropped.
    fn remember_left(&mut self, call: OpenCall) {
        if call.tentative {
            return;
        }
        self.left_behind.push_back(call);
        let over = self.left_behind.len().saturating_sub(LEFT_CALLS_MAX);
        self.left_behind.drain(..over);
    }

    /// Settles a call that the lane had gone on without.
    fn settle_late(&mut self, answer: &OutlineResult, now: Instant) -> Option<SettledCall> {
        // A text that reports a lost result settles nothing that was given up already.
        let index = find_call(&self.left_behind, &answer.id).filter(|_| !answer.lost)?;
        self.left_behind.remove(index).map(|call| call.to_settled(now))
    }

    /// Detaches all open calls. Returns the number of calls that were attached.
    pub(super) fn detach_all(&mut self, why: DetachReason) -> usize {
        let waited = |call: &mut OpenCall| usize::from(call.detach_call(why));
        self.list.iter_mut().map(waited).fold(0, usize::saturating_add)
    }

    /// Returns the effect on each open call, and the results that match none. Each result matches one call.
    fn match_results<'o>(&self, answers: &'o [OutlineResult]) -> (Vec<CallEffect>, Vec<&'o OutlineResult>) {
        let mut fates = vec![CallEffect::Unchanged; self.list.len()];
        let mut results: Vec<&OutlineResult> = Vec::with_capacity(answers.len());
        // Real results go first, so that a text about a lost result cannot take their call.
        let (lost, real): (Vec<&OutlineResult>, Vec<&OutlineResult>) = answers.iter().partition(|answer| answer.lost);
        for answer in real.into_iter().chain(lost) {
            if !self.settle_call(&mut fates, answer, |call| call.has_id(&answer.id)) {
                results.push(answer);
            }
        }
        if !fates.contains(&CallEffect::Unchanged) {
            return (fates, results);
        }
        // Letters and digits are enough if they identify one call and one result.
        let letters_of: Vec<Vec<u8>> = results.iter().map(|answer| id_letters(&answer.id)).collect();
        let mut others = Vec::with_capacity(results.len());
        for (answer, own) in results.iter().zip(&letters_of) {
            let open = self
                .list
                .iter()
                .zip(&fates)
                .filter(|(_, fate)| **fate == CallEffect::Unchanged);
            let alike = open.filter(|(call, _)| call.has_alphanumerics(own)).count();
            let settled = if alike == 1 && letters_of.iter().filter(|other| *other == own).count() == 1 {
                self.settle_call(&mut fates, answer, |call| call.has_alphanumerics(own))
            } else {
                // Some clients invent an id for a call that came without one: the tool's name identifies it then.
                let nameless = |call: &OpenCall| call.id.is_empty() && *call.tool.as_bytes() == *answer.name;
                alike == 0 && !answer.name.is_empty() && self.settle_call(&mut fates, answer, nameless)
            };
            if !settled {
                others.push(*answer);
            }
        }
        (fates, others)
    }

    /// Settles the last open call that `is_it` accepts, or the first one if an answer has several.
    ///
    /// Returns `true` if there was one.
    fn settle_call(&self, fates: &mut [CallEffect], answer: &OutlineResult, is_it: impl Fn(&OpenCall) -> bool) -> bool {
        let open = |index: &usize| fates.get(*index) == Some(&CallEffect::Unchanged);
        let found = self
            .list
            .iter()
            .enumerate()
            .filter(|(index, call)| open(index) && is_it(call));
        // An id may be used again: the result belongs to the latest answer.
        let best = found.max_by_key(|(index, call)| (call.answer_number, std::cmp::Reverse(*index)));
        let slot = best.map(|(index, _)| index).and_then(|index| fates.get_mut(index));
        let fate = if answer.lost {
            CallEffect::Lost
        } else {
            CallEffect::Settled
        };
        slot.map(|slot| *slot = fate).is_some()
    }
}

/// Returns `true` if the lane has been silent for too long since the call was emitted.
fn is_silent(call: &OpenCall, heard: Option<Instant>, limits: &CallLimits, now: Instant) -> bool {
    let since = heard.map_or(call.opened_at, |heard| heard.max(call.opened_at));
    now.saturating_duration_since(since) >= limits.detach_after
}

/// Returns the index of the last call with this id, or of the only call whose id has these letters and digits.
fn find_call(calls: &VecDeque<OpenCall>, id: &[u8]) -> Option<usize> {
    let exact = calls.iter().rposition(|call| call.has_id(id));
    exact.or_else(|| {
        let own = id_letters(id);
        let mut alike = calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.has_alphanumerics(&own));
        let first = alike.next().map(|(index, _)| index);
        // Two calls with the same letters and digits: neither is identified.
        first.filter(|_| alike.next().is_none())
    })
}
