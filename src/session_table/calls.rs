//! The open calls of one lane: how a request closes them.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::standing::{Came, Closed, Detached, Settled, Standing};
use crate::{
    conversation::{
        Outline, OutlineCall,
        outline::{ID_BYTES_MAX, IDS_MAX, OutlineResult},
    },
    wire::watch::{Calls, TEXT_BYTES_MAX},
};

// An id is cut alike where it is emitted and where it comes back.
const _: () = assert!(ID_BYTES_MAX == TEXT_BYTES_MAX);

/// Calls of one lane that are kept: of more the oldest is forgotten.
pub const OPEN_MAX: usize = IDS_MAX;
/// Calls of one lane that are kept after it has gone on without their results.
pub const LEFT_MAX: usize = 64;

/// How long calls may take, and lanes be silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// How long the tools may take, by name.
    pub tools: BTreeMap<Box<str>, Duration>,
    /// How long a lane may be silent until nobody is believed to wait for its calls.
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

/// A call that the client has not answered so far, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// The tool.
    pub tool: Box<str>,
    /// Since it was emitted.
    pub age: Duration,
    /// How long its tool may take; none where nobody said so.
    pub max_duration: Option<Duration>,
    /// Whether somebody is known to wait for it.
    pub attached: bool,
    /// Whether neither the end of its stream nor a request has shown that the client has it.
    pub tentative: bool,
}

/// A call that the client has not answered so far.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// Empty where the format has none.
    id: Box<str>,
    pub(super) tool: Box<str>,
    pub(super) opened_at: Instant,
    /// When its tool should be done.
    deadline: Option<Instant>,
    /// Why nobody waits for it; the first reason counts.
    detached: Option<Detached>,
    /// Whether neither the end of its stream nor a request has shown that the client has it.
    tentative: bool,
    /// The answer that it came with.
    answer: u64,
    /// The messages of the request that was answered.
    messages: usize,
}

impl OpenCall {
    /// Bytes that it takes.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>()
            .saturating_add(self.id.len())
            .saturating_add(self.tool.len())
    }

    /// How it stands, for those who watch.
    pub(super) fn view(&self, now: Instant) -> CallView {
        CallView {
            tool: self.tool.clone(),
            age: now.saturating_duration_since(self.opened_at),
            max_duration: self.deadline.map(|by| by.saturating_duration_since(self.opened_at)),
            attached: self.detached.is_none(),
            tentative: self.tentative,
        }
    }

    fn is_called(&self, id: &[u8]) -> bool {
        // What was emitted was cut behind a whole letter.
        let cut = id.len() >= ID_BYTES_MAX && self.id.len() > ID_BYTES_MAX.saturating_sub(4);
        !self.id.is_empty() && (*id == *self.id.as_bytes() || (cut && id.starts_with(self.id.as_bytes())))
    }

    /// Whether its id has these letters and digits: openclaw strips what stands between them.
    fn is_like(&self, wanted: &[u8]) -> bool {
        let own = self.id.bytes().filter(u8::is_ascii_alphanumeric);
        !wanted.is_empty() && own.eq(wanted.iter().copied())
    }

    fn is_any_of(&self, calls: &[OutlineCall]) -> bool {
        let is_it = |call: &OutlineCall| self.is_called(&call.id) || self.is_like(&letters(&call.id));
        calls.iter().any(is_it)
    }

    /// A request shows that the client has the call, whatever became of its stream.
    fn is_shown(&mut self) {
        self.tentative = false;
        self.detached = self.detached.filter(|why| *why != Detached::StreamDropped);
    }

    /// Notes why nobody waits for it; whether somebody did.
    fn detach(&mut self, why: Detached) -> bool {
        let was_attached = self.detached.is_none();
        self.detached.get_or_insert(why);
        was_attached
    }

    fn settled(&self, now: Instant) -> Settled {
        Settled {
            tool: self.tool.clone(),
            open: now.saturating_duration_since(self.opened_at),
            attached: self.detached.is_none(),
        }
    }
}

fn letters(id: &[u8]) -> Vec<u8> {
    id.iter().copied().filter(u8::is_ascii_alphanumeric).collect()
}

/// What a request does with an open call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing.
    Open,
    /// Brings its result.
    Settled,
    /// Says that its result was lost.
    Lost,
}

/// The open calls of a lane, and how far its history went.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls {
    pub(super) list: Vec<OpenCall>,
    /// Calls that the lane went on without, in the order in which it did.
    left: VecDeque<OpenCall>,
    /// Messages of the last request that was no side request.
    messages: usize,
    /// Messages of the last request.
    latest: usize,
    answers: u64,
    /// When the last request or answer came.
    heard: Option<Instant>,
}

impl OpenCalls {
    /// Bytes that they take.
    pub(super) fn weight(&self) -> usize {
        let calls = self.list.iter().chain(&self.left);
        calls.map(OpenCall::weight).fold(0, usize::saturating_add)
    }

    /// Opens the calls of an answer; how many of them nobody waits for already.
    pub(super) fn open(&mut self, calls: &Calls, came: Came, limits: &CallLimits, now: Instant) -> usize {
        if calls.list.is_empty() {
            return 0;
        }
        self.heard = Some(now);
        self.answers = self.answers.saturating_add(1);
        let dropped = came == Came::Dropped;
        let open = calls.list.iter().map(|call| OpenCall {
            id: call.id.clone(),
            tool: call.name.clone(),
            opened_at: now,
            deadline: limits.tools.get(&call.name).and_then(|limit| now.checked_add(*limit)),
            detached: dropped.then_some(Detached::StreamDropped),
            tentative: came != Came::Whole,
            answer: self.answers,
            messages: self.latest,
        });
        self.list.extend(open);
        let over = self.list.len().saturating_sub(OPEN_MAX);
        self.list.drain(..over);
        if dropped { calls.list.len() } else { 0 }
    }

    /// Closes what a request answers, and what it shows that the lane went on without. A side request, shorter than
    /// the one before and without any of the calls, closes nothing.
    pub(super) fn close(&mut self, outline: &Outline, limits: &CallLimits, now: Instant) -> Closed {
        let mut closed = Closed::default();
        for call in &mut self.list {
            if is_silent(call, self.heard, limits, now) && call.detach(Detached::Silent) {
                closed.detached.push(Detached::Silent);
            }
        }
        self.heard = Some(now);
        self.latest = outline.messages;
        let (fates, others) = self.fates(&outline.last_results);
        closed.settled = others
            .iter()
            .filter_map(|answer| self.comes_late(answer, now))
            .collect();
        let mut in_body: Vec<u64> = Vec::new();
        for (call, fate) in self.list.iter_mut().zip(&fates) {
            if *fate != Fate::Open || call.is_any_of(&outline.last_calls) {
                call.is_shown();
                in_body.push(call.answer);
            }
        }
        if outline.messages < self.messages && in_body.is_empty() {
            return closed;
        }
        self.messages = outline.messages;
        let mut open = Vec::with_capacity(self.list.len());
        for (call, fate) in std::mem::take(&mut self.list).into_iter().zip(fates) {
            // A request too short to go on from the call's answer is another agent's, unless it holds that answer.
            let goes_on = outline.messages >= call.messages || in_body.contains(&call.answer);
            match fate {
                Fate::Settled => closed.settled.push(call.settled(now)),
                Fate::Lost => {
                    closed.placeholder = closed.placeholder.saturating_add(1);
                    self.leave(call, &mut closed);
                }
                Fate::Open if goes_on => {
                    closed.abandoned = closed.abandoned.saturating_add(1);
                    self.leave(call, &mut closed);
                }
                Fate::Open => open.push(call),
            }
        }
        self.list = open;
        closed
    }

    /// The lane went on without the call. One that the client was never seen to have is forgotten.
    fn leave(&mut self, mut call: OpenCall, closed: &mut Closed) {
        if call.tentative {
            return;
        }
        if call.detach(Detached::WentOn) {
            closed.detached.push(Detached::WentOn);
        }
        self.left.push_back(call);
        let over = self.left.len().saturating_sub(LEFT_MAX);
        self.left.drain(..over);
    }

    /// The call that a result settles after the lane had gone on without it.
    fn comes_late(&mut self, answer: &OutlineResult, now: Instant) -> Option<Settled> {
        let index = index_of(self.left.iter(), &answer.id).filter(|_| !answer.lost)?;
        self.left.remove(index).map(|call| call.settled(now))
    }

    /// Nobody waits for the open calls any more; for how many somebody did.
    pub(super) fn detach(&mut self, why: Detached) -> usize {
        let waited = |call: &mut OpenCall| usize::from(call.detach(why));
        self.list.iter_mut().map(waited).fold(0, usize::saturating_add)
    }

    /// How the call stands that `id` means: exactly, or by its letters and digits where they mean one call alone.
    pub(super) fn standing(&self, id: &[u8], limits: &CallLimits, now: Instant) -> Option<Standing> {
        let all: Vec<&OpenCall> = self.left.iter().chain(&self.list).collect();
        let call = *all.get(index_of(all.iter().copied(), id)?)?;
        let silent = is_silent(call, self.heard, limits, now).then_some(Detached::Silent);
        let because = call.detached.or(silent);
        Some(Standing {
            attached: because.is_none(),
            detached_because: because,
            tentative: call.tentative,
            age: now.saturating_duration_since(call.opened_at),
            deadline: call.deadline,
            tool: call.tool.clone(),
        })
    }

    /// For each open call what becomes of it, and the results that are none of theirs. Each result answers one call.
    fn fates<'o>(&self, answers: &'o [OutlineResult]) -> (Vec<Fate>, Vec<&'o OutlineResult>) {
        let mut fates = vec![Fate::Open; self.list.len()];
        let mut results: Vec<&OutlineResult> = Vec::with_capacity(answers.len());
        // A real result counts before a text that says that there is none.
        let (lost, real): (Vec<&OutlineResult>, Vec<&OutlineResult>) = answers.iter().partition(|answer| answer.lost);
        for answer in real.into_iter().chain(lost) {
            if !self.settle(&mut fates, answer, |call| call.is_called(&answer.id)) {
                results.push(answer);
            }
        }
        if !fates.contains(&Fate::Open) {
            return (fates, results);
        }
        // Letters are enough where they can mean one call and one result alone.
        let letters_of: Vec<Vec<u8>> = results.iter().map(|answer| letters(&answer.id)).collect();
        let mut others = Vec::with_capacity(results.len());
        for (answer, own) in results.iter().zip(&letters_of) {
            let open = self.list.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::Open);
            let alike = open.filter(|(call, _)| call.is_like(own)).count();
            let settled = if alike == 1 && letters_of.iter().filter(|other| *other == own).count() == 1 {
                self.settle(&mut fates, answer, |call| call.is_like(own))
            } else {
                // A call without an id, to which some clients give one of their own.
                let nameless = |call: &OpenCall| call.id.is_empty() && *call.tool.as_bytes() == *answer.name;
                alike == 0 && !answer.name.is_empty() && self.settle(&mut fates, answer, nameless)
            };
            if !settled {
                others.push(*answer);
            }
        }
        (fates, others)
    }

    /// Settles the last open call that `is_it`, of several of one answer the first; whether there was one.
    fn settle(&self, fates: &mut [Fate], answer: &OutlineResult, is_it: impl Fn(&OpenCall) -> bool) -> bool {
        let open = |index: &usize| fates.get(*index) == Some(&Fate::Open);
        let found = self
            .list
            .iter()
            .enumerate()
            .filter(|(index, call)| open(index) && is_it(call));
        let best = found.max_by_key(|(index, call)| (call.answer, std::cmp::Reverse(*index)));
        let slot = best.map(|(index, _)| index).and_then(|index| fates.get_mut(index));
        let fate = if answer.lost { Fate::Lost } else { Fate::Settled };
        slot.map(|slot| *slot = fate).is_some()
    }
}

/// Whether the lane has said nothing for too long since the call was emitted.
fn is_silent(call: &OpenCall, heard: Option<Instant>, limits: &CallLimits, now: Instant) -> bool {
    let since = heard.map_or(call.opened_at, |heard| heard.max(call.opened_at));
    now.saturating_duration_since(since) >= limits.detach_after
}

/// The last call that is called so; else the only one whose id has these letters and digits.
fn index_of<'c>(
    calls: impl DoubleEndedIterator<Item = &'c OpenCall> + ExactSizeIterator + Clone,
    id: &[u8],
) -> Option<usize> {
    let exact = calls.clone().rposition(|call| call.is_called(id));
    exact.or_else(|| {
        let own = letters(id);
        let mut alike = calls.enumerate().filter(|(_, call)| call.is_like(&own));
        let first = alike.next().map(|(index, _)| index);
        first.filter(|_| alike.next().is_none())
    })
}
