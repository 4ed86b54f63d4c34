//! The plan: which answer each call takes, what becomes of every other result, and the report of it.
//!
//! A function of the conversation, the pairing, the policy and what is remembered of its calls; writes no byte.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    conversation::{
        Conversation, Finding, Flaw, FlawKind, Open, Role,
        pairing::{CallRow, Fate, Pairing, Standing, begins_with_calls, id_of},
        rules::{PairingRules, ResultPlace},
        turns::Unit,
    },
    repair::{
        Action, Applicability, OnLate, RepairPolicy, Report,
        answers::{Answers, CallSight, Frozen, RealResult},
        equal, ids, kept,
        sight::Sights,
        steps::{Answer, Lift, Source, TurnPlan},
        words::Placeholder,
    },
};

/// What will be done.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Answers and quotes to put in, by turn; only turns that need some.
    pub(super) turns: BTreeMap<usize, TurnPlan>,
    /// What becomes of parts that do not stay as they are.
    pub(super) lifts: HashMap<usize, Lift>,
    /// New ids of call and result parts.
    pub(super) ids: HashMap<usize, String>,
    /// Results to quote in front of the words of a later unit.
    pub(super) deferred: BTreeMap<usize, Vec<usize>>,
    /// Results to quote behind a unit, as messages of their own.
    pub(super) behind: BTreeMap<usize, Vec<usize>>,
    /// Fields to mend.
    pub(super) fixes: Vec<Flaw>,
    /// Whether a user turn is put in front.
    pub(super) opening: bool,
    /// Calls that the provider holds: answered first, by placeholders.
    pub(super) held: Vec<String>,
    /// What was found and what is done about it.
    pub report: Report,
}

impl Plan {
    /// Answers calls that the provider holds: their results must come first.
    pub(super) fn answer_held(&mut self, held: Vec<String>) {
        let found = held.iter().map(|id| Finding::held(id.clone()));
        self.report.findings.splice(0..0, found);
        if !held.is_empty() {
            *self.report.actions.entry(Action::Placeholder).or_default() += held.len();
        }
        self.held = held;
    }
}

/// Plans the repair of one conversation.
pub fn plan(
    conversation: &Conversation<'_>,
    pairing: &Pairing,
    rules: PairingRules,
    answers: &dyn Answers,
    policy: &RepairPolicy,
) -> Plan {
    let findings = pairing.findings(conversation, policy.hygiene);
    let mut planner = Planner {
        conversation,
        pairing,
        rules,
        answers,
        policy,
        plan: Plan {
            report: Report {
                findings,
                ..Report::default()
            },
            ..Plan::default()
        },
        words: None,
        clear: None,
    };
    if planner.plan.report.findings.is_empty() && !answers.insists() {
        return planner.plan;
    }
    planner.rename();
    planner.answer();
    planner.salvage();
    planner.halves();
    planner.fields();
    planner.open();
    planner.plan
}

pub(super) struct Planner<'c> {
    pub(super) conversation: &'c Conversation<'c>,
    pub(super) pairing: &'c Pairing,
    pub(super) rules: PairingRules,
    answers: &'c dyn Answers,
    policy: &'c RepairPolicy,
    pub(super) plan: Plan,
    /// Units in which the user may speak, once they are asked for.
    pub(super) words: Option<Vec<usize>>,
    /// For each unit the first one from there on behind which no call waits, once they are asked for.
    pub(super) clear: Option<Vec<usize>>,
}

impl Planner<'_> {
    pub(super) fn count(&mut self, action: Action) {
        *self.plan.report.actions.entry(action).or_default() += 1;
    }

    pub(super) fn may(&self, class: Applicability) -> bool {
        class >= self.policy.least
    }

    /// New ids for calls and for the results that answer them.
    fn rename(&mut self) {
        for turn in &self.pairing.turns {
            let calls = || self.pairing.calls[turn.calls.clone()].iter();
            if !calls().any(|call| call.bad_id || call.repeats.is_some()) {
                continue;
            }
            let mut taken: HashSet<Vec<u8>> = calls()
                .map(|call| id_of(self.conversation, call.part).to_vec())
                .collect();
            for call in calls().filter(|call| call.bad_id || call.repeats.is_some()) {
                let old = id_of(self.conversation, call.part);
                let mut ordinal = call.repeats.map_or(1, |(_, count)| count);
                let mut new = ids::renamed(old, self.rules.ids, ordinal);
                while !taken.insert(new.clone().into_bytes()) {
                    ordinal += 1;
                    new = ids::renamed(old, self.rules.ids, ordinal);
                }
                self.count(Action::Rename);
                self.plan
                    .report
                    .renamed
                    .push((new.clone(), String::from_utf8_lossy(old).into_owned()));
                if let Some(row) = call.answer {
                    self.plan.ids.insert(self.pairing.results[row].part, new.clone());
                }
                self.plan.ids.insert(call.part, new);
            }
        }
        for row in self.pairing.results.iter().filter(|row| row.nameless) {
            if let Fate::Answers(call) = row.fate {
                let call = self.pairing.calls[call].part;
                let old = id_of(self.conversation, call);
                let id = String::from_utf8_lossy(old).into_owned();
                let id = self.plan.ids.get(&call).cloned().unwrap_or(id);
                if id.as_bytes() != old {
                    // No text says a lone surrogate: then both get the new id.
                    self.plan.ids.insert(call, id.clone());
                }
                self.plan.ids.insert(row.part, id);
                self.count(Action::Rename);
            }
        }
    }

    /// Each call takes the first answer that applies.
    fn answer(&mut self) {
        let (conversation, pairing) = (self.conversation, self.pairing);
        let mut sights = None;
        for (index, call) in pairing.calls.iter().enumerate() {
            if let Some(row) = call.answer.map(|row| &pairing.results[row])
                && row.home
            {
                let insisted = self.answers.insists().then(|| {
                    let sights = sights.get_or_insert_with(|| Sights::new(conversation, pairing));
                    self.answers.insisted(&sights.of(index))
                });
                match insisted.flatten() {
                    Some(placeholder) => self.overrule(call, row.part, placeholder),
                    None => self.answered_in_place(call.turn, row.unit),
                }
                continue;
            }
            match call.open {
                _ if call.answer.is_some() => {}
                Open::Legal => continue,
                Open::Unanswerable => {
                    self.fold(call.part);
                    continue;
                }
                Open::Refused => {}
            }
            let sight = sights
                .get_or_insert_with(|| Sights::new(conversation, pairing))
                .of(index);
            let Some(source) = self.source(call, &sight) else {
                continue;
            };
            let plan = self.plan.turns.entry(call.turn).or_default();
            plan.answers.push(Answer {
                call: call.part,
                source,
            });
            plan.systems = true;
        }
    }

    /// A placeholder goes back into the place where the client has put a result since.
    fn overrule(&mut self, call: &CallRow, result: usize, placeholder: Placeholder) {
        self.count(Action::Placeholder);
        self.plan.lifts.insert(result, Lift::Gone);
        self.plan.turns.entry(call.turn).or_default().answers.push(Answer {
            call: call.part,
            source: Source::Placeholder(placeholder),
        });
    }

    /// The answer of a call that has none in its place: frozen, elsewhere in the body, copied, remembered, invented.
    fn source(&mut self, call: &CallRow, sight: &CallSight<'_>) -> Option<Source> {
        let frozen = self.answers.frozen(sight);
        let is_frozen = frozen.is_some();
        let overtaken = |frozen: &Frozen| {
            self.policy.late == OnLate::Move && call.answer.is_some() && matches!(frozen, Frozen::Placeholder(_))
        };
        if let Some(frozen) = frozen.filter(|frozen| !overtaken(frozen)) {
            return Some(self.thaw(frozen, call));
        }
        if let Some(row) = call.answer {
            let moved = self.moved(call, row);
            let part = self.pairing.results[row].part;
            let kept = kept::cut(self.conversation.body, self.conversation.parts[part].span);
            if let Some(block) = kept.filter(|_| !is_frozen) {
                self.answers.answered(sight, Frozen::Result(RealResult::Block(block)));
            }
            return Some(moved);
        }
        // Two equal calls with one result: the second gets a copy. Its new id is counted already.
        if let Some((first, _)) = call.repeats.filter(|_| call.equal)
            && let Some(row) = self.pairing.calls[first].answer
        {
            return Some(Source::Part(self.pairing.results[row].part));
        }
        if let Some(real) = self.answers.settled(sight) {
            self.count(Action::Restore);
            self.answers.answered(sight, Frozen::Result(real.clone()));
            return Some(Source::Real(real));
        }
        if !self.may(Applicability::Inventive) {
            return None;
        }
        self.count(Action::Placeholder);
        let tier = self
            .policy
            .tiers
            .get(String::from_utf8_lossy(&sight.tool).as_ref())
            .copied();
        let placeholder = Placeholder::of(tier.unwrap_or_default());
        self.answers.answered(sight, Frozen::Placeholder(placeholder));
        Some(Source::Placeholder(placeholder))
    }

    /// A result of the body goes to its call.
    fn moved(&mut self, call: &CallRow, row: usize) -> Source {
        let found = &self.pairing.results[row];
        let merged = found.standing == Standing::Split && found.turn == Some(call.turn);
        self.count(if merged { Action::Merge } else { Action::Move });
        self.plan.lifts.insert(found.part, Lift::Gone);
        Source::Part(found.part)
    }

    /// An open call that nobody can answer becomes text, with the reasoning that would lose the item it belongs to.
    fn fold(&mut self, call: usize) {
        if !self.may(Applicability::Salvage) {
            self.plan.report.unrepairable += 1;
            return;
        }
        self.plan.lifts.insert(call, Lift::Folded);
        for part in self.conversation.reasoning_before(call) {
            self.plan.lifts.insert(part, Lift::Gone);
        }
        self.count(Action::Quote);
    }

    /// A result in its place may still have to be cut out of an assistant message, or put before a system message.
    fn answered_in_place(&mut self, turn: usize, unit: usize) {
        let behind_system = !self.pairing.turns[turn].systems.is_empty();
        if behind_system {
            self.plan.turns.entry(turn).or_default().systems = true;
        }
        if behind_system || self.pairing.units[unit].inner {
            self.count(Action::Move);
        }
    }

    /// A frozen answer stays; the same result elsewhere in the body is that answer, any other is quoted.
    fn thaw(&mut self, frozen: Frozen, call: &CallRow) -> Source {
        if let (Frozen::Result(real), Some(row)) = (&frozen, call.answer)
            && equal::says(self.conversation, self.pairing.results[row].part, real)
        {
            return self.moved(call, row);
        }
        if let Some(row) = call.answer {
            self.quote(row);
        }
        let (source, action) = match frozen {
            Frozen::Result(real) => (Source::Real(real), Action::Restore),
            Frozen::Placeholder(placeholder) => (Source::Placeholder(placeholder), Action::Placeholder),
        };
        self.count(action);
        source
    }

    fn halves(&mut self) {
        for half in &self.pairing.halves {
            if half.droppable && self.may(Applicability::Lossy) {
                self.plan.lifts.insert(half.part, Lift::Gone);
                self.count(Action::Drop);
            } else {
                self.plan.report.unrepairable += 1;
            }
        }
    }

    fn open(&mut self) {
        if (self.pairing.headless || self.loses_its_head()) && self.may(Applicability::Inventive) {
            self.plan.opening = true;
            self.count(Action::Open);
        }
    }

    /// Whether what stood in front of the first assistant message vanishes: results inside that message, or
    /// instructions that say nothing. A user's message leaves a note behind.
    fn loses_its_head(&self) -> bool {
        let gone = |part: usize| self.plan.lifts.get(&part) == Some(&Lift::Gone);
        let mut rest = self.pairing.units.iter().enumerate().skip_while(|(index, unit)| {
            (unit.inner || unit.role != Role::User)
                && !unit.parts.is_empty()
                && unit.parts.clone().all(gone)
                && !self.plan.deferred.contains_key(index)
        });
        let head = rest.next().filter(|(_, unit)| unit.role == Role::Assistant);
        let whole = !self.conversation.calls_elsewhere && self.conversation.compaction.is_none();
        let minded = |(head, _): (usize, &Unit)| {
            self.rules.place != ResultPlace::NextContent
                || begins_with_calls(self.conversation, &self.pairing.units[head..])
        };
        self.rules.user_first && whole && head.is_some_and(minded)
    }

    fn fields(&mut self) {
        if !self.policy.hygiene {
            return;
        }
        for (flaw, mendable) in &self.pairing.flaws {
            if !mendable {
                self.plan.report.unrepairable += 1;
                continue;
            }
            let first = self
                .conversation
                .messages
                .get(flaw.message)
                .map(|message| message.parts.start);
            if flaw.kind == FlawKind::RepeatedItemId && first.is_some_and(|part| self.plan.lifts.contains_key(&part)) {
                // What leaves its place takes its id along.
                continue;
            }
            if let (FlawKind::BlankText, Some(part)) = (flaw.kind, flaw.part) {
                self.plan.lifts.insert(part, Lift::Gone);
            }
            self.plan.fixes.push(*flaw);
            let merges = flaw.kind == FlawKind::SplitTurn;
            self.count(if merges { Action::Merge } else { Action::Fix });
        }
    }
}
