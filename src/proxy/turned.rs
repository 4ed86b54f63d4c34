//! Answers turned round for a provider that has bound its thinking to what it saw: placeholders for calls whose results stand
//! behind thinking that never saw them.

use std::cell::RefCell;

use super::recalled::Recalled;
use crate::repair::{Answers, Applicability, CallKey, CallSight, Frozen, Placeholder, RealResult, RepairPolicy};

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
    fn begins(&self) {
        self.recalled.begins();
        self.calls.replace(Vec::new());
        self.overruled.replace(Vec::new());
    }

    fn frozen(&self, call: &CallSight<'_>) -> Option<Frozen> {
        let key = self.recalled.key(call);
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
        let bound = self.recalled.tells(call) && call.thought_behind;
        let key = bound.then(|| self.recalled.key(call))?;
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
