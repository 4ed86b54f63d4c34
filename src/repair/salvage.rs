//! What becomes of results that answer no call: an equal duplicate goes, everything else is kept as marked text.

use std::collections::HashSet;

use crate::{
    conversation::{
        Role,
        pairing::Fate,
        rules::ResultPlace,
        turns::{Turn, Unit},
    },
    repair::{
        Action, Applicability, equal,
        plan::{Lift, Planner},
    },
};

impl Planner<'_> {
    /// Results that answer no call: equal duplicates go, everything else is kept as marked text.
    pub(super) fn salvage(&mut self) {
        for (index, row) in self.pairing.results.iter().enumerate() {
            match row.fate {
                Fate::Answers(_) | Fate::Elsewhere => {}
                Fate::Repeats(call) => {
                    let kept = self.pairing.calls[call]
                        .answer
                        .map(|row| self.pairing.results[row].part);
                    let same = kept.is_some_and(|kept| equal::results(self.conversation, kept, row.part));
                    if same && self.may(Applicability::Lossy) {
                        self.plan.lifts.insert(row.part, Lift::Gone);
                        self.count(Action::Drop);
                    } else {
                        self.quote(index);
                    }
                }
                Fate::Orphan => self.quote(index),
            }
        }
    }

    /// Keeps a result as marked user text: behind all results of its turn, or in front of later words.
    pub(super) fn quote(&mut self, row: usize) {
        if !self.may(Applicability::Salvage) {
            return;
        }
        let row = &self.pairing.results[row];
        let part = row.part;
        let turn = row.turn.map(|turn| &self.pairing.turns[turn]);
        if turn.is_some_and(|found| self.holds_no_words(found, row.leading)) {
            self.plan.lifts.insert(part, Lift::Gone);
            match self.later_words(row.unit) {
                Some(unit) => {
                    self.plan.deferred.entry(unit).or_default().push(part);
                    self.count(Action::Quote);
                }
                None => self.plan.report.deferred += 1,
            }
            return;
        }
        self.count(Action::Quote);
        let Some((turn, found)) = row.turn.zip(turn) else {
            self.plan.lifts.insert(part, Lift::Quoted);
            return;
        };
        let in_front = match (self.rules.place, found.anchor) {
            (_, Some(anchor)) => anchor.behind.is_some_and(|behind| part < behind) && row.unit <= anchor.unit,
            (ResultPlace::ToolRun, None) => row.leading && !found.calls.is_empty(),
            (ResultPlace::UserTurn, None) => false,
        };
        if in_front {
            self.plan.lifts.insert(part, Lift::Gone);
            self.plan.turns.entry(turn).or_default().quotes.push(part);
        } else {
            self.plan.lifts.insert(part, Lift::Quoted);
        }
    }

    fn holds_no_words(&self, turn: &Turn, leading: bool) -> bool {
        turn.only_results || (!self.rules.words_behind_results && leading && !turn.calls.is_empty())
    }

    /// The next unit behind `unit` in which the user may speak.
    fn later_words(&mut self, unit: usize) -> Option<usize> {
        let pairing = self.pairing;
        let words = self.words.get_or_insert_with(|| {
            let gaps = pairing
                .turns
                .iter()
                .filter(|turn| turn.only_results)
                .flat_map(|turn| turn.gap.clone());
            let closed: HashSet<usize> = gaps.collect();
            let speaks =
                |(index, unit): &(usize, &Unit)| unit.role == Role::User && !unit.inner && !closed.contains(index);
            pairing
                .units
                .iter()
                .enumerate()
                .filter(speaks)
                .map(|(index, _)| index)
                .collect()
        });
        let found = words.get(words.partition_point(|index| *index <= unit)).copied()?;
        // Results come first: behind them, if they stand in a later message of the same gap.
        let turn = pairing
            .turns
            .get(pairing.turns.partition_point(|turn| turn.gap.end <= found));
        let anchor = turn
            .filter(|turn| turn.gap.contains(&found))
            .and_then(|turn| turn.anchor);
        let blocks = self.rules.place == ResultPlace::UserTurn;
        Some(anchor.filter(|_| blocks).map_or(found, |anchor| anchor.unit.max(found)))
    }
}
