//! What is remembered of the calls of one request: who is asked while it is mended, and what became of it.
//!
//! Mending never waits. What memory does not know is noted, looked up in the ledger behind the first reading, and the body
//! is mended anew: only a body with calls that nobody has answered yet is read twice.

use std::{cell::RefCell, collections::HashMap};

use tokio::time::Instant;

use super::memory::{Memory, Principal};
use crate::{
    clock,
    recall::{Given, PATIENCE, Recall},
    repair::{Answers, Applicability, CallKey, CallSight, Frozen, Placeholder, RealResult, RepairPolicy},
};

/// What was looked up for one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The answers that calls were given before; none where they were given none.
    frozen: HashMap<CallKey, Option<Frozen>>,
}

/// What became of the calls without an answer in their place.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// Calls that memory knows nothing of.
    pub(super) wanted: Vec<CallKey>,
    /// Answers that calls were given now.
    pub(super) given: Vec<Given>,
    /// Answers that calls were given before.
    pub(super) used: Vec<Given>,
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

impl Answers for Recalled<'_> {
    fn frozen(&self, call: &CallSight<'_>) -> Option<Frozen> {
        let call = CallKey::of(call);
        let (answer, known) = self.look(call);
        let mut notes = self.notes.borrow_mut();
        match &answer {
            Some(answer) => notes.used.push((call, answer.clone())),
            None if !known => notes.wanted.push(call),
            None => {}
        }
        answer
    }

    fn settled(&self, _: &CallSight<'_>) -> Option<RealResult> {
        None
    }

    fn answered(&self, call: &CallSight<'_>, answer: Frozen) {
        self.notes.borrow_mut().given.push((CallKey::of(call), answer));
    }
}

/// As [`Recalled`], with placeholders for calls whose results stand behind thinking that never saw them.
#[derive(Debug)]
pub(super) struct Turned<'m> {
    pub(super) recalled: Recalled<'m>,
    pub(super) policy: &'m RepairPolicy,
    pub(super) calls: RefCell<Vec<(CallKey, Placeholder)>>,
}

impl Answers for Turned<'_> {
    fn frozen(&self, call: &CallSight<'_>) -> Option<Frozen> {
        if !call.crossing || self.policy.least > Applicability::Inventive {
            return self.recalled.frozen(call);
        }
        let key = CallKey::of(call);
        if let (Some(Frozen::Placeholder(placeholder)), _) = self.recalled.look(key) {
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

    fn answered(&self, call: &CallSight<'_>, answer: Frozen) {
        self.recalled.answered(call, answer);
    }
}

impl Known {
    /// Looks these calls up; from then on something is known of each.
    pub(super) async fn fetch(&mut self, recall: &Recall, principal: Principal<'_>, calls: &[CallKey], by: Instant) {
        let mut found = recall.fetch(principal.caller, calls, by).await;
        for call in calls {
            self.frozen.insert(*call, found.remove(call));
        }
    }

    /// These answers stand, whatever this request would have given.
    pub(super) fn adopt(&mut self, standing: HashMap<CallKey, Frozen>) {
        let standing = standing.into_iter().map(|(call, answer)| (call, Some(answer)));
        self.frozen.extend(standing);
    }
}

/// Until when an exchange waits for the ledger, from now.
pub(super) fn patience() -> Instant {
    clock::now() + PATIENCE
}

/// The answers of a request on its way: taken back, unless a provider takes it.
#[derive(Debug)]
pub(super) struct Tentative {
    pub(super) recall: Recall,
    pub(super) caller: crate::auth::Principal,
    pub(super) notes: Notes,
}

impl Tentative {
    /// The provider has answered the request with success.
    pub(super) fn accepted(mut self) {
        let mut used = std::mem::take(&mut self.notes.used);
        used.append(&mut self.notes.given);
        self.recall.accepted(self.caller, &used);
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        self.recall.withdrawn(self.caller, &self.notes.given);
    }
}
