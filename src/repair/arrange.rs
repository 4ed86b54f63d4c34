//! Plans which messages change since words stand where the provider accepts none.

use crate::{
    conversation::{PartKind, Role, pairing::MisplacedWords, rules::WordsPlace},
    repair::{Action, history_plan::Planner},
};

impl Planner<'_> {
    /// Marks the messages whose words move. Reads what becomes of every other block first.
    pub(super) fn arrange(&mut self) {
        self.plan.results_apart = self.rules.words == WordsPlace::ApartFromResults;
        for words in &self.pairing.words {
            if !words.movable {
                self.plan.report.unrepairable += 1;
            } else if self.still_stands(words) {
                let message = self.pairing.units[words.unit].message;
                self.plan.arranged.insert(message);
                self.count(Action::Rearrange);
            }
        }
    }

    /// Whether words and what they stand beside are both still there once all else is done.
    fn still_stands(&self, words: &MisplacedWords) -> bool {
        let unit = &self.pairing.units[words.unit];
        let stay = |part: &usize| !self.plan.lifts.contains_key(part);
        let kind = |part: usize| &self.conversation.parts[part].kind;
        let mut parts = unit.parts.clone().filter(stay);
        if unit.role == Role::Assistant {
            return parts.any(|part| matches!(kind(part), PartKind::Call(_)))
                && parts.any(|part| matches!(kind(part), PartKind::Other));
        }
        let results = parts
            .clone()
            .filter(|part| matches!(kind(*part), PartKind::Result(_)))
            .count();
        results > 0 && results < parts.count()
    }
}
