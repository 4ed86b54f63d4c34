//! The repair of one history: which answer each call takes, and what becomes of every other result.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{
    Action, Applicability, Assignment, BodyCall, KnownAnswers, OnLate, Paired, PinnedAnswer, RealResult, RemoteAnswers,
    RepairPolicy, Report, equal, held, ids, kept,
    parsed::PairedHistory,
    steps::{Answer, Lift, Source, TurnPlan},
    words::Placeholder,
};
use crate::{
    conversation::{
        Conversation, Finding, Flaw, FlawKind, Open, Role,
        pairing::{CallRow, Fate, Pairing, Standing, begins_with_calls, id_of},
        rules::{PairingRules, ResultPlace},
        turns::Unit,
    },
    wire::{Unreadable, json::validate},
};

/// Bytes of results that are copied for equal calls. A call beyond them counts as one without a result: a body must not
/// grow by its length times its calls.
const COPIED_BYTES_MAX: usize = 1024 * 1024;

/// The repair of one history.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryPlan {
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
    /// Messages of which words leave their place.
    pub(super) arranged: BTreeSet<usize>,
    /// Whether results go up in messages without words.
    pub(super) results_apart: bool,
    /// Whether a user turn is put in front.
    pub(super) opening: bool,
    /// Remote calls: answered first, with placeholders.
    pub(super) held: Vec<String>,
    /// What was found and what is done about it.
    pub(super) report: Report,
    pub(super) assigned: Vec<Assignment>,
    pub(super) remote_answers: Option<RemoteAnswers>,
}

impl HistoryPlan {
    pub(super) fn new(
        history: &PairedHistory<'_>,
        paired: &Paired<'_>,
        known: &KnownAnswers,
        policy: &RepairPolicy,
    ) -> Result<Self, Unreadable> {
        let mut plan = Planner::new(history, known, policy).run();
        if policy.least <= Applicability::Inventive {
            let insistence = history.insistence.as_ref();
            let due = held::due_calls(&history.conversation, &history.remote, insistence, paired.wire.format);
            plan.answer_remote_calls(due.calls);
            plan.remote_answers = due.news;
        }
        if !plan.report.findings.is_empty() || !plan.report.actions.is_empty() {
            validate(history.conversation.body)?;
        }
        Ok(plan)
    }

    /// Answers remote calls: their results must come first.
    fn answer_remote_calls(&mut self, calls: Vec<String>) {
        let found = calls.iter().map(|id| Finding::held(id.clone()));
        self.report.findings.splice(0..0, found);
        if !calls.is_empty() {
            *self.report.actions.entry(Action::Placeholder).or_default() += calls.len();
        }
        self.held = calls;
    }
}

pub(super) struct Planner<'c> {
    history: &'c PairedHistory<'c>,
    pub(super) conversation: &'c Conversation<'c>,
    pub(super) pairing: &'c Pairing,
    pub(super) rules: PairingRules,
    known: &'c KnownAnswers,
    policy: &'c RepairPolicy,
    pub(super) plan: HistoryPlan,
    /// Bytes of results that equal calls may still have copies of.
    copies_left: usize,
    /// Units in which the user may speak, once computed.
    pub(super) words: Option<Vec<usize>>,
    /// For each unit the first one from there on behind which no call waits, once computed.
    pub(super) clear: Option<Vec<usize>>,
}

impl<'c> Planner<'c> {
    fn new(history: &'c PairedHistory<'c>, known: &'c KnownAnswers, policy: &'c RepairPolicy) -> Self {
        Self {
            history,
            conversation: &history.conversation,
            pairing: &history.pairing,
            rules: history.rules,
            known,
            policy,
            plan: HistoryPlan::default(),
            copies_left: COPIED_BYTES_MAX,
            words: None,
            clear: None,
        }
    }

    fn run(mut self) -> HistoryPlan {
        self.plan.report.findings = self.pairing.findings(self.conversation, self.policy.hygiene);
        // A healthy history needs no further look, unless a placeholder has to go back into it.
        if self.plan.report.findings.is_empty() && self.known.overrides.is_empty() {
            return self.plan;
        }
        self.rename();
        self.answer();
        self.salvage();
        self.halves();
        self.fields();
        self.arrange();
        self.open();
        self.plan
    }

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
            // The next free ordinal of a name: those that were found taken are not tried again.
            let mut free: HashMap<String, usize> = HashMap::new();
            for call in calls().filter(|call| call.bad_id || call.repeats.is_some()) {
                let old = id_of(self.conversation, call.part);
                let free = free.entry(ids::renamed(old, self.rules.ids, 1)).or_insert(1);
                let mut ordinal = call.repeats.map_or(1, |(_, count)| count).max(*free);
                let mut new = ids::renamed(old, self.rules.ids, ordinal);
                while !taken.insert(new.clone().into_bytes()) {
                    ordinal += 1;
                    new = ids::renamed(old, self.rules.ids, ordinal);
                }
                *free = ordinal + 1;
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

    /// Gives each call the first answer that applies.
    fn answer(&mut self) {
        let (history, pairing) = (self.history, self.pairing);
        let overrides = self.overrides();
        // Open calls are in document order, as the rows are.
        let mut open = history.open.iter().peekable();
        for (index, call) in pairing.calls.iter().enumerate() {
            let described = open.next_if(|described| described.row == index);
            if let Some(row) = call.answer.map(|row| &pairing.results[row])
                && row.home
            {
                match overrides.get(&index) {
                    Some(placeholder) => self.overrule(call, row.part, *placeholder),
                    None => self.answered_in_place(call.turn, row.unit),
                }
                continue;
            }
            if call.answer.is_none() && call.open == Open::Unanswerable {
                self.fold(call.part);
                continue;
            }
            let Some(source) = described.and_then(|described| self.source(call, described)) else {
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

    /// Returns the placeholders that replace results in their places, by the row of the call.
    fn overrides(&self) -> HashMap<usize, Placeholder> {
        if self.known.overrides.is_empty() {
            return HashMap::new();
        }
        let calls = self.history.answered_calls().into_iter();
        calls
            .filter_map(|call| Some((call.row, *self.known.overrides.get(&call.key)?)))
            .collect()
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

    /// Finds the answer of a call that has none in its place: pinned, elsewhere in the body, copied, known, invented.
    fn source(&mut self, call: &CallRow, described: &BodyCall) -> Option<Source> {
        let pinned = self.known.pinned.get(&described.key);
        let overtaken = |pinned: &PinnedAnswer| {
            self.policy.late == OnLate::Move && call.answer.is_some() && matches!(pinned, PinnedAnswer::Placeholder(_))
        };
        if let Some(pinned) = pinned.filter(|pinned| !overtaken(pinned)) {
            return Some(self.apply_pin(pinned.clone(), call));
        }
        if let Some(row) = call.answer {
            let moved = self.moved(call, row);
            let part = self.pairing.results[row].part;
            let block = kept::cut(self.conversation.body, self.conversation.parts[part].span);
            if let Some(block) = block.filter(|_| pinned.is_none()) {
                self.assign(described, PinnedAnswer::Result(RealResult::Block(block)));
            }
            return Some(moved);
        }
        // Two equal calls with one result: the second gets a copy. Its new id is counted already.
        if let Some((first, _)) = call.repeats.filter(|_| call.equal)
            && let Some(row) = self.pairing.calls[first].answer
            && let Some(left) = self.copies_left.checked_sub(self.length_of(row))
        {
            self.copies_left = left;
            return Some(Source::Part(self.pairing.results[row].part));
        }
        if let Some(real) = self.known.results.get(&described.key) {
            self.count(Action::Restore);
            self.assign(described, PinnedAnswer::Result(real.clone()));
            return Some(Source::Real(real.clone()));
        }
        if !self.may(Applicability::Inventive) {
            return None;
        }
        self.count(Action::Placeholder);
        let placeholder = self.policy.placeholder(&described.tool);
        self.assign(described, PinnedAnswer::Placeholder(placeholder));
        Some(Source::Placeholder(placeholder))
    }

    /// Notes an answer that the call is given for the first time.
    fn assign(&mut self, call: &BodyCall, answer: PinnedAnswer) {
        self.plan.assigned.push(Assignment {
            call: call.key,
            answer,
            is_unique: call.is_unique,
        });
    }

    /// Returns the bytes of a result.
    fn length_of(&self, row: usize) -> usize {
        let part = self.pairing.results[row].part;
        self.conversation.parts[part].span.len()
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

    /// Gives a call its pinned answer. The same result elsewhere in the body is that answer; any other is quoted.
    fn apply_pin(&mut self, pinned: PinnedAnswer, call: &CallRow) -> Source {
        if let (PinnedAnswer::Result(real), Some(row)) = (&pinned, call.answer)
            && equal::says(self.conversation, self.pairing.results[row].part, real)
        {
            return self.moved(call, row);
        }
        if let Some(row) = call.answer {
            self.quote(row);
        }
        let (source, action) = match pinned {
            PinnedAnswer::Result(real) => (Source::Real(real), Action::Restore),
            PinnedAnswer::Placeholder(placeholder) => (Source::Placeholder(placeholder), Action::Placeholder),
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
