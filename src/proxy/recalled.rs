//! What is remembered of the calls of one request: who is asked while it is mended, and what became of it.
//!
//! Mending never waits. What memory does not know is noted, looked up in the ledger behind the first reading, and the body
//! is mended anew: only a body with calls that nobody has answered yet is read twice.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

use tokio::time::Instant;

use super::{
    memory::{HeldCalls, Memory, Principal},
    owed::Owed,
};
use crate::{
    auth,
    late::Found,
    ledger::Name,
    recall::{Given, Recall, Scope, Wanted},
    repair::{
        Answers, CallKey, CallSight, Frozen, Placeholder, RealResult, Spelling, asked_hash, bare, input_hash, is_strong,
    },
    session::LaneId,
    wire::Format,
};

/// Bytes of results that a client once brought which one request gets back: what it prunes on purpose must not come back.
const RESTORED_BYTES_MAX: usize = 1024 * 1024;
/// Turns of the assistant, from the last on, whose calls get such results back.
const TURNS_BEHIND_MAX: usize = 20;

/// What was looked up for one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The lane, where one is told: with it calls have names whose ids come again.
    lane: Option<LaneId>,
    /// The answers that calls were given before; none where they were given none.
    frozen: HashMap<CallKey, Option<Frozen>>,
    /// Results of calls that were given no answer before.
    real: HashMap<CallKey, RealResult>,
    /// The names of calls whose results a service posted.
    posted: HashMap<CallKey, Name>,
}

/// A call that memory knows nothing of.
#[derive(Clone, Debug)]
pub(super) struct Unknown {
    pub(super) key: CallKey,
    pub(super) call: Wanted,
    /// Turns of the assistant behind it.
    pub(super) turns_behind: usize,
}

/// What became of the calls without an answer in their place.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// Calls that memory knows nothing of.
    pub(super) wanted: Vec<Unknown>,
    /// Answers that calls were given now.
    pub(super) given: Vec<Given>,
    /// Answers that calls were given before.
    pub(super) used: Vec<Given>,
    /// Whether there are calls among them whose ids may come again.
    pub(super) comes_again: bool,
    /// Calls that the provider holds, answered now at its word.
    pub(super) held: Option<HeldCalls>,
}

/// Who is asked about calls.
#[derive(Debug)]
pub(super) struct Recalled<'m> {
    pub(super) memory: &'m Memory,
    pub(super) recall: &'m Recall,
    pub(super) principal: Principal<'m>,
    pub(super) format: Format,
    pub(super) known: &'m Known,
    pub(super) notes: RefCell<Notes>,
}

impl<'m> Recalled<'m> {
    /// Answers for `principal` alone.
    pub(super) fn new(
        memory: &'m Memory,
        recall: &'m Recall,
        principal: Principal<'m>,
        format: Format,
        known: &'m Known,
    ) -> Self {
        Self {
            memory,
            recall,
            principal,
            format,
            known,
            notes: RefCell::default(),
        }
    }

    /// The name of a call: within its lane where its id may come again and the lane is told.
    pub(super) fn key(&self, call: &CallSight<'_>) -> CallKey {
        let key = CallKey::of(call);
        if !comes_again(call) {
            return key;
        }
        self.notes.borrow_mut().comes_again = true;
        self.known.lane.map_or(key, |lane| key.within(lane.as_bytes()))
    }

    /// Whether the name of a call is that of no other.
    pub(super) const fn tells(&self, call: &CallSight<'_>) -> bool {
        !comes_again(call) || self.known.lane.is_some()
    }

    /// The answer of a call, and whether it is known that there is none.
    pub(super) fn look(&self, call: CallKey) -> (Option<Frozen>, bool) {
        if let Some(placeholder) = self.memory.turned(self.principal, call) {
            return (Some(Frozen::Placeholder(placeholder)), true);
        }
        if let Some(known) = self.known.frozen.get(&call) {
            return (known.clone(), true);
        }
        let scope = Scope {
            who: self.principal.caller,
            format: self.format,
            lane: None,
        };
        (self.recall.recalled(scope, call), false)
    }
}

/// The call, as those know it who keep results.
fn wanted(call: &CallSight<'_>) -> Wanted {
    let id = if call.id.is_empty() { &call.tool } else { call.id };
    Wanted {
        id: id.to_vec(),
        tool: call.tool.to_vec(),
        input: input_hash(call.input),
        asked: call.before.map(|before| asked_hash(call.input, &before)),
        occurrence: call.occurrence,
        has_twin: call.spelling != Spelling::Alone,
    }
}

/// Whether its id may come again: another conversation of the caller may have a call of the same name.
const fn comes_again(call: &CallSight<'_>) -> bool {
    call.before.is_some() || call.place.is_some()
}

impl Answers for Recalled<'_> {
    fn begins(&self) {
        self.notes.replace(Notes::default());
    }

    fn frozen(&self, call: &CallSight<'_>) -> Option<Frozen> {
        let key = self.key(call);
        let (answer, known) = self.look(key);
        let mut notes = self.notes.borrow_mut();
        match &answer {
            Some(answer) => notes.used.push((key, answer.clone())),
            None if !known => notes.wanted.push(Unknown {
                key,
                call: wanted(call),
                turns_behind: call.turns_behind,
            }),
            None => {}
        }
        answer
    }

    fn settled(&self, call: &CallSight<'_>) -> Option<RealResult> {
        if self.known.real.is_empty() {
            return None;
        }
        self.known.real.get(&self.key(call)).cloned()
    }

    fn insists(&self) -> bool {
        self.memory.overrules(self.principal.caller)
    }

    fn insisted(&self, call: &CallSight<'_>) -> Option<Placeholder> {
        let bound = self.tells(call) && call.thought_behind;
        self.memory.turned(self.principal, bound.then(|| self.key(call))?)
    }

    fn answered(&self, call: &CallSight<'_>, answer: Frozen) {
        // A result of a call that may be another one's too is told anew from each body.
        let is_kept = self.principal.caller != auth::Principal::NONE && self.tells(call);
        if is_kept || matches!(answer, Frozen::Placeholder(_)) {
            let given = (self.key(call), answer);
            self.notes.borrow_mut().given.push(given);
        }
    }

    fn knows_held(&self) -> bool {
        self.memory.knows_held()
    }

    fn due(&self, origin: &[u8]) -> Vec<String> {
        self.memory.due(self.principal.origin(origin))
    }

    fn is_spent(&self, id: &[u8], origin: Option<&[u8]>) -> bool {
        let origin = origin.map(|id| self.principal.origin(id));
        self.memory.is_spent(self.principal.held(id), origin)
    }

    fn answered_held(&self, ids: &[String], origin: Option<&[u8]>) {
        let name = |id: &String| {
            let alone = is_strong(id.as_bytes(), b"");
            (alone.then(|| self.principal.held(id.as_bytes())), id.clone())
        };
        self.notes.borrow_mut().held = Some(HeldCalls {
            origin: origin.map(|id| self.principal.origin(id)),
            calls: ids.iter().map(name).collect(),
        });
    }
}

impl Known {
    /// Nothing was looked up yet of the calls of a lane.
    pub(super) fn in_lane(lane: LaneId) -> Self {
        Self {
            lane: Some(lane),
            ..Self::default()
        }
    }

    /// Looks these calls up; from then on something is known of each.
    /// A posted result that stands elsewhere in the body already, as one of `told`, is not restored too.
    pub(super) async fn fetch(&mut self, owed: &Owed, calls: &[Unknown], told: &HashSet<Name>, by: Instant) {
        let (scope, keys) = (owed.scope(), calls.iter().map(|call| call.key).collect::<Vec<_>>());
        let mut found = owed.recall.fetch(scope, &keys, by).await;
        let open: Vec<&Unknown> = calls.iter().filter(|call| !found.contains_key(&call.key)).collect();
        let posted = owed.posted(&open, by).await;
        let calls: Vec<&Wanted> = open.iter().map(|unknown| &unknown.call).collect();
        let seen = owed.recall.seen(scope, &calls, by).await;
        let (mut posted, mut seen, mut room) = (posted.into_iter(), seen.into_iter(), RESTORED_BYTES_MAX);
        for unknown in open {
            let (posted, seen) = (posted.next().flatten(), seen.next().flatten());
            let is_its = |posted: &Found| {
                let very = !unknown.call.has_twin || posted.id == unknown.call.id;
                very && !told.contains(&posted.call)
            };
            if let Some(posted) = posted.filter(is_its) {
                let (content, failed) = (bare(&posted.content), posted.failed);
                self.real.insert(unknown.key, RealResult::Content { content, failed });
                self.posted.insert(unknown.key, posted.call);
            } else if let Some(real) = seen.filter(|_| unknown.turns_behind < TURNS_BEHIND_MAX)
                && let Some(left) = room.checked_sub(real.len())
            {
                room = left;
                self.real.insert(unknown.key, real);
            }
        }
        for call in keys {
            self.frozen.insert(call, found.remove(&call));
        }
    }

    /// What an answer is that a call was given now, in the words of the counter.
    pub(super) fn row_of(&self, call: CallKey, answer: &Frozen) -> &'static str {
        match answer {
            Frozen::Placeholder(_) => "placeholder",
            Frozen::Result(real) if self.real.get(&call) == Some(real) => "restored",
            Frozen::Result(_) => "moved",
        }
    }

    /// The calls whose results a service posted.
    pub(super) fn posted(&self) -> HashMap<CallKey, Name> {
        self.posted.clone()
    }

    /// These answers stand, whatever this request would have given.
    pub(super) fn adopt(&mut self, standing: HashMap<CallKey, Frozen>) {
        let standing = standing.into_iter().map(|(call, answer)| (call, Some(answer)));
        self.frozen.extend(standing);
    }
}
