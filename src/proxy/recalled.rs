//! What is remembered of the calls of one request: who is asked while it is mended, and what became of it.
//!
//! Mending never waits. What memory does not know is noted, looked up in the ledger behind the first reading, and the body
//! is mended anew: only a body with calls that nobody has answered yet is read twice.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    memory::{HeldCalls, Memory, Principal},
    owed::{Debtor, Owed},
};
use crate::{
    conversation::Outline,
    late::Found,
    ledger::Name,
    recall::{Given, Patience, Recall, Scope, Wanted},
    repair::{
        Answers, Applicability, CallKey, CallSight, Frozen, Placeholder, RealResult, RepairPolicy, asked_hash, bare,
        brought, input_hash, is_strong,
    },
};

/// Bytes of results that a client once brought which one request gets back: what it prunes on purpose must not come back.
const RESTORED_BYTES_MAX: usize = 1024 * 1024;
/// Turns of the assistant, from the last on, whose calls get such results back.
const TURNS_BEHIND_MAX: usize = 20;

/// What was looked up for one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
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
    /// Calls that the provider holds, answered now at its word.
    pub(super) held: Option<HeldCalls>,
}

/// Who is asked about calls.
#[derive(Debug)]
pub(super) struct Recalled<'m> {
    pub(super) memory: &'m Memory,
    pub(super) recall: &'m Recall,
    pub(super) principal: Principal<'m>,
    pub(super) known: &'m Known,
    pub(super) notes: RefCell<Notes>,
}

impl<'m> Recalled<'m> {
    /// Answers for `principal` alone.
    pub(super) fn new(memory: &'m Memory, recall: &'m Recall, principal: Principal<'m>, known: &'m Known) -> Self {
        Self {
            memory,
            recall,
            principal,
            known,
            notes: RefCell::default(),
        }
    }

    /// The answer of a call, and whether it is known that there is none.
    fn look(&self, call: CallKey) -> (Option<Frozen>, bool) {
        if let Some(placeholder) = self.memory.turned(self.principal, call) {
            return (Some(Frozen::Placeholder(placeholder)), true);
        }
        match self.known.frozen.get(&call) {
            Some(known) => (known.clone(), true),
            None => (self.recall.recalled(self.principal.caller, call), false),
        }
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
        has_twin: call.has_twin,
    }
}

impl Answers for Recalled<'_> {
    fn frozen(&self, call: &CallSight<'_>) -> Option<Frozen> {
        let key = CallKey::of(call);
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
        self.known.real.get(&CallKey::of(call)).cloned()
    }

    fn insists(&self) -> bool {
        self.memory.overrules()
    }

    fn insisted(&self, call: &CallSight<'_>) -> Option<Placeholder> {
        let bound = call.thought_behind.then(|| CallKey::of(call))?;
        self.memory.turned(self.principal, bound)
    }

    fn answered(&self, call: &CallSight<'_>, answer: Frozen) {
        self.notes.borrow_mut().given.push((CallKey::of(call), answer));
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

/// As [`Recalled`], with placeholders for calls whose results stand behind thinking that never saw them.
#[derive(Debug)]
pub(super) struct Turned<'m> {
    pub(super) recalled: Recalled<'m>,
    pub(super) policy: &'m RepairPolicy,
    pub(super) calls: RefCell<Vec<(CallKey, Placeholder)>>,
    /// Whether placeholders may go back where clients have put results since.
    pub(super) overrules: bool,
    /// Calls of which that is so.
    pub(super) overruled: RefCell<Vec<(CallKey, Placeholder)>>,
}

impl Turned<'_> {
    /// Whether the call has its answer from elsewhere, in front of a thought that never saw it.
    fn crosses(&self, call: &CallSight<'_>, known: Option<&Frozen>) -> bool {
        let restored = || match known {
            Some(known) => matches!(known, Frozen::Result(_)),
            None => self.recalled.settled(call).is_some(),
        };
        call.crossing || (call.thought_behind && restored())
    }
}

impl Answers for Turned<'_> {
    fn frozen(&self, call: &CallSight<'_>) -> Option<Frozen> {
        let key = CallKey::of(call);
        let (known, _) = self.recalled.look(key);
        if self.policy.least > Applicability::Inventive || !self.crosses(call, known.as_ref()) {
            return self.recalled.frozen(call);
        }
        if let Some(Frozen::Placeholder(placeholder)) = known {
            return Some(Frozen::Placeholder(placeholder));
        }
        let tool = String::from_utf8_lossy(&call.tool);
        let tier = self.policy.tiers.get(tool.as_ref()).copied();
        let placeholder = Placeholder::of(tier.unwrap_or_default());
        self.calls.borrow_mut().push((key, placeholder));
        Some(Frozen::Placeholder(placeholder))
    }

    fn settled(&self, call: &CallSight<'_>) -> Option<RealResult> {
        self.recalled.settled(call)
    }

    fn insists(&self) -> bool {
        self.overrules || self.recalled.insists()
    }

    fn insisted(&self, call: &CallSight<'_>) -> Option<Placeholder> {
        let key = call.thought_behind.then(|| CallKey::of(call))?;
        let (Some(Frozen::Placeholder(placeholder)), _) = self.recalled.look(key) else {
            return None;
        };
        if self.overrules {
            self.overruled.borrow_mut().push((key, placeholder));
            return Some(placeholder);
        }
        self.recalled.insisted(call)
    }

    fn answered(&self, call: &CallSight<'_>, answer: Frozen) {
        self.recalled.answered(call, answer);
    }

    fn knows_held(&self) -> bool {
        self.recalled.knows_held()
    }

    fn due(&self, origin: &[u8]) -> Vec<String> {
        self.recalled.due(origin)
    }

    fn is_spent(&self, id: &[u8], origin: Option<&[u8]>) -> bool {
        self.recalled.is_spent(id, origin)
    }

    fn answered_held(&self, ids: &[String], origin: Option<&[u8]>) {
        self.recalled.answered_held(ids, origin);
    }
}

impl Known {
    /// Looks these calls up; from then on something is known of each.
    /// A posted result that stands elsewhere in the body already, as one of `told`, is not restored too.
    pub(super) async fn fetch(
        &mut self,
        owed: Owed<'_>,
        scope: Scope,
        calls: &[Unknown],
        told: &HashSet<Name>,
        by: Instant,
    ) {
        let keys: Vec<CallKey> = calls.iter().map(|call| call.key).collect();
        let mut found = owed.recall.fetch(scope.who, &keys, by).await;
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
            Frozen::Result(_) if self.real.contains_key(&call) => "restored",
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

/// The answers of a request on its way: taken back, unless a provider takes it.
#[derive(Debug)]
pub(super) struct Tentative {
    pub(super) recall: Recall,
    /// How long second sends may still wait for the ledger.
    pub(super) patience: Patience,
    pub(super) scope: Scope,
    pub(super) notes: Notes,
    /// The calls whose results a service posted.
    pub(super) posted: HashMap<CallKey, Name>,
    /// Who is owed the results of its calls.
    pub(super) debtor: Option<Debtor>,
    /// The body as it came, decoded, with what it says of its end: it may bring results.
    pub(super) plain: Bytes,
    pub(super) outline: Outline,
}

impl Tentative {
    /// The provider has answered the request with success.
    pub(super) fn accepted(mut self) {
        if let Some(debtor) = &self.debtor {
            // What stood there was a result: a placeholder may have taken its place since.
            let real = |(call, answer): &Given| matches!(answer, Frozen::Result(_)).then_some(*call);
            let given = self.notes.given.iter().filter_map(real);
            let given = given.filter_map(|call| self.posted.get(&call));
            debtor.late.delivered(self.scope.who, given.copied());
            debtor.owed().shown(&self.plain, self.scope.format, &self.outline);
        }
        let mut used = std::mem::take(&mut self.notes.used);
        used.append(&mut self.notes.given);
        self.recall.accepted(self.scope.who, &used);
        let brought = brought(&self.plain, self.scope.format, &self.outline);
        self.recall.saw(self.scope, brought);
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        self.recall.withdrawn(self.scope.who, &self.notes.given);
    }
}
