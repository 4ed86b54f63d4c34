//! What the walk as a whole tells: open server calls, the places of answers, the fields that may be mended.

use std::collections::{HashMap, HashSet};

use crate::conversation::{
    Flaw, FlawKind, Open, Part, PartKind, Role,
    pairing::{
        Fate, Half, id_of,
        walk::{Server, Walk},
    },
    rules::{ResultPlace, Unique},
    turns::{Anchor, Unit},
};

impl Walk<'_, '_> {
    /// Which results stand where those of their calls may stand.
    pub(super) fn find_homes(&mut self) {
        let runs = if self.rules.place == ResultPlace::ItemRun {
            self.item_runs()
        } else {
            Vec::new()
        };
        for row in &mut self.pairing.results {
            let Fate::Answers(call) = row.fate else { continue };
            let call = &self.pairing.calls[call];
            row.home = match self.rules.place {
                ResultPlace::Anywhere => true,
                ResultPlace::ItemRun => {
                    let message = self.conversation.parts[call.part].message;
                    call.part < row.part && runs.get(message) == runs.get(self.conversation.parts[row.part].message)
                }
                _ => row.turn == Some(call.turn) && row.leads(),
            };
        }
    }

    /// For each message the run of calls and results that it belongs to, by number.
    fn item_runs(&self) -> Vec<usize> {
        let mut run = 0;
        let ends_run = |part: &Part<'_>| !matches!(part.kind, PartKind::Call(_) | PartKind::Result(_));
        let messages = self.conversation.messages.iter();
        messages
            .map(|message| {
                run += usize::from(self.conversation.parts_of(message).iter().any(ends_run));
                run
            })
            .collect()
    }

    /// Where an id must be the only one in the body, a call may repeat one of an earlier turn.
    pub(super) fn number_repeats(&mut self) {
        if self.rules.unique != Unique::Body {
            return;
        }
        let mut seen: HashMap<&[u8], (usize, usize)> = HashMap::new();
        for row in 0..self.pairing.calls.len() {
            let id = id_of(self.conversation, self.pairing.calls[row].part);
            let (first, count) = seen.entry(id).or_insert((row, 0));
            *count += 1;
            if *count > 1 {
                self.pairing.calls[row].repeats = Some((*first, *count));
            }
        }
    }

    /// Calls at the end of a history, none of which is answered yet: one answer wants all others.
    pub(super) fn judge_open_end(&mut self) {
        let last = self.pairing.turns.last();
        let Some(turn) = last.filter(|turn| self.rules.open_end && turn.gap.is_empty()) else {
            return;
        };
        let calls = self.pairing.calls.get_mut(turn.calls.clone()).unwrap_or_default();
        if calls.iter().all(|call| call.answer.is_none()) {
            for call in calls {
                call.open = Open::Legal;
            }
        }
    }

    /// An open server call is legal in a pause, in a mixed turn and under running code; elsewhere it is a half.
    pub(super) fn judge_servers(&mut self) {
        let last = self.pairing.turns.len().saturating_sub(1);
        // Looked up once: the gap behind the last turn may be as long as the history.
        let mut spoke = None;
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
            let closed = turn != last || *spoke.get_or_insert_with(|| self.user_spoke(last));
            let found = &mut self.pairing.turns[turn];
            let droppable = !found.thinking && !found.programmatic;
            if resolved.is_none() && closed {
                self.pairing.halves.push(Half { part, droppable });
                found.only_results |= !droppable;
            } else {
                found.only_results = true;
            }
        }
        self.pairing.halves.sort_by_key(|half| half.part);
        self.keep_beside_thinking();
    }

    /// Marks halves in units with thinking: they stay.
    fn keep_beside_thinking(&mut self) {
        let thinks = |part: &Part<'_>| matches!(part.kind, PartKind::Thinking);
        // The halves of one unit follow each other, so that each unit is searched once.
        let mut searched: Option<(usize, bool)> = None;
        for index in 0..self.pairing.halves.len() {
            let unit = self.unit_of(self.pairing.halves[index].part).parts.clone();
            let known = searched.filter(|(first, _)| *first == unit.start);
            let (first, thinking) =
                known.unwrap_or_else(|| (unit.start, self.conversation.parts[unit].iter().any(thinks)));
            searched = Some((first, thinking));
            self.pairing.halves[index].droppable &= !thinking;
        }
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
                Fate::Repeats(_) | Fate::RepeatsResult(_) | Fate::RepeatsHeld | Fate::Orphan => false,
            };
            if row.leads() && stays {
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
        self.find_wrong_kinds();
        self.find_split_turns();
        if self.conversation.flaws.is_empty() {
            return;
        }
        // By message and first part: pieces of one message may belong to several turns.
        let name = |unit: &Unit| (unit.message, unit.parts.start);
        let mut thinking = HashSet::new();
        for turn in self.pairing.turns.iter().filter(|turn| turn.thinking) {
            thinking.extend(self.pairing.units[turn.units.clone()].iter().map(name));
        }
        let messages: HashSet<usize> = thinking.iter().map(|(message, _)| *message).collect();
        let begin = self.conversation.parts.get(self.begin).map_or(0, |part| part.message);
        for flaw in &self.conversation.flaws {
            let thinks = match flaw.part {
                Some(part) => thinking.contains(&name(self.unit_of(part))),
                None => messages.contains(&flaw.message),
            };
            let hidden = self.begin > 0 && flaw.message <= begin && flaw.part.is_none_or(|part| part < self.begin);
            let models_own = thinks && flaw.kind == FlawKind::BlankText;
            if !hidden && !models_own {
                self.pairing.flaws.push((*flaw, !thinks));
            }
        }
    }

    /// Results that answer their calls in the form of another kind of call.
    fn find_wrong_kinds(&mut self) {
        if self.rules.place != ResultPlace::Anywhere {
            return;
        }
        let kind = |part: usize| match &self.conversation.parts[part].kind {
            PartKind::Call(call) => call.family.kind,
            PartKind::Result(result) => result.family.kind,
            _ => 0,
        };
        for row in &self.pairing.results {
            if let Fate::Answers(call) = row.fate
                && kind(row.part) != kind(self.pairing.calls[call].part)
            {
                let message = self.conversation.parts[row.part].message;
                let flaw = Flaw {
                    message,
                    part: Some(row.part),
                    kind: FlawKind::ResultKind,
                };
                self.pairing.flaws.push((flaw, true));
            }
        }
    }

    /// Gemini: a turn of the model with calls stands in one content; what would move must not be signed.
    fn find_split_turns(&mut self) {
        if self.rules.place != ResultPlace::NextContent {
            return;
        }
        let signed = |part: &Part<'_>| match &part.kind {
            PartKind::Call(call) => call.signed,
            kind => matches!(kind, PartKind::Thinking),
        };
        for turn in self.pairing.turns.iter().filter(|turn| !turn.calls.is_empty()) {
            for unit in &self.pairing.units[turn.units.clone()][1..] {
                let flaw = Flaw {
                    message: unit.message,
                    part: None,
                    kind: FlawKind::SplitTurn,
                };
                let moves = !self.conversation.parts[unit.parts.clone()].iter().any(signed);
                self.pairing.flaws.push((flaw, moves));
            }
        }
    }
}
