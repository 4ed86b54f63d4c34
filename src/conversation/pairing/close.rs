//! What the walk as a whole tells: open server calls, the places of answers, the fields that may be mended.

use std::collections::HashSet;

use crate::conversation::{
    FlawKind, Part, PartKind, Role,
    pairing::{
        Fate, Half,
        walk::{Server, Walk},
    },
    rules::ResultPlace,
    turns::{Anchor, Unit},
};

impl Walk<'_, '_> {
    /// An open server call is legal in a pause, in a mixed turn and under running code; elsewhere it is a half.
    pub(super) fn judge_servers(&mut self) {
        let last = self.pairing.turns.len().saturating_sub(1);
        for index in 0..self.servers.len() {
            let Server {
                part,
                turn,
                known,
                resolved,
            } = self.servers[index];
            if !known || resolved == Some(turn) {
                continue;
            }
            let closed = turn != last || self.user_spoke(turn);
            let found = &mut self.pairing.turns[turn];
            let droppable = !found.thinking && !found.programmatic;
            if resolved.is_none() && closed {
                self.pairing.halves.push(Half { part, droppable });
                found.only_results |= !droppable;
            } else {
                found.only_results = true;
            }
        }
        for index in 0..self.pairing.halves.len() {
            let part = self.pairing.halves[index].part;
            let thinks = |part: &Part<'_>| matches!(part.kind, PartKind::Thinking);
            let beside = &self.conversation.parts[self.unit_of(part).parts.clone()];
            self.pairing.halves[index].droppable &= !beside.iter().any(thinks);
        }
        self.pairing.halves.sort_by_key(|half| half.part);
    }

    /// The unit that holds a part: a piece of a message that is cut up will be a message of its own.
    fn unit_of(&self, part: usize) -> &Unit {
        let behind = self.pairing.units.partition_point(|unit| unit.parts.start <= part);
        &self.pairing.units[behind - 1]
    }

    /// Whether the gap holds words of the user, or anything at all where the turn has no client call to answer.
    fn user_spoke(&self, turn: usize) -> bool {
        let found = &self.pairing.turns[turn];
        let says = |part: usize| !matches!(self.conversation.parts[part].kind, PartKind::Result(_));
        self.pairing.units[found.gap.clone()]
            .iter()
            .filter(|unit| unit.role == Role::User)
            .any(|unit| found.calls.is_empty() || unit.parts.clone().any(says))
    }

    /// Where what is put in goes: behind the last result that stays, else in front of the answering user message.
    pub(super) fn place_anchors(&mut self) {
        for row in &self.pairing.results {
            let Some(turn) = row.turn else { continue };
            let stays = match row.fate {
                Fate::Answers(call) => self.pairing.calls[call].turn == turn,
                Fate::Elsewhere => true,
                Fate::Repeats(_) | Fate::Orphan => false,
            };
            if row.leading && stays {
                self.pairing.turns[turn].anchor = Some(Anchor {
                    unit: row.unit,
                    behind: Some(row.part),
                });
            }
        }
        if self.rules.place == ResultPlace::UserTurn {
            for turn in self.pairing.turns.iter_mut().filter(|turn| turn.anchor.is_none()) {
                let user = turn
                    .gap
                    .clone()
                    .find(|unit| self.pairing.units[*unit].role == Role::User);
                turn.anchor = user.map(|unit| Anchor { unit, behind: None });
            }
        }
    }

    /// Hygiene never touches a turn with thinking, where blank text is the model's own, nor what stands behind a
    /// compaction.
    pub(super) fn keep_flaws(&mut self) {
        if self.conversation.flaws.is_empty() {
            return;
        }
        // By message and first part: pieces of one message may belong to several turns.
        let name = |unit: &Unit| (unit.message, unit.parts.start);
        let mut thinking = HashSet::new();
        for turn in self.pairing.turns.iter().filter(|turn| turn.thinking) {
            thinking.extend(self.pairing.units[turn.units.clone()].iter().map(name));
        }
        let begin = self.conversation.parts.get(self.begin).map_or(0, |part| part.message);
        for flaw in &self.conversation.flaws {
            let thinks = match flaw.part {
                Some(part) => thinking.contains(&name(self.unit_of(part))),
                None => thinking.iter().any(|(message, _)| *message == flaw.message),
            };
            let hidden = self.begin > 0 && flaw.message <= begin && flaw.part.is_none_or(|part| part < self.begin);
            let models_own = thinks && flaw.kind == FlawKind::BlankText;
            if !hidden && !models_own {
                self.pairing.flaws.push((*flaw, !thinks));
            }
        }
    }
}
