//! Calls as those who remember calls see them.

use std::collections::HashMap;

use crate::{
    conversation::{
        CallDetails, Conversation, PartKind,
        pairing::{CallRow, Pairing, id_of},
    },
    repair::{
        answers::CallSight,
        naming::{self, CallKey, letters},
    },
    wire::json::Json,
};

/// What only a look at the whole history tells of its calls.
pub(super) struct Sights<'c> {
    conversation: &'c Conversation<'c>,
    pairing: &'c Pairing,
    /// For each call the letters and digits of its id.
    letters: Vec<Vec<u8>>,
    /// For each call how many of its id stand before it.
    occurrences: Vec<usize>,
    /// For each turn how many turns with thinking stand up to it, itself included.
    thinking: Vec<usize>,
}

impl<'c> Sights<'c> {
    /// Looks at the whole history.
    pub(super) fn new(conversation: &'c Conversation<'c>, pairing: &'c Pairing) -> Self {
        let mut seen: HashMap<&[u8], usize> = HashMap::new();
        let count = |call: &CallRow| {
            let count = seen.entry(id_of(conversation, call.part)).or_default();
            *count += 1;
            *count - 1
        };
        let mut thinking = 0;
        let upto = pairing.turns.iter().map(|turn| {
            thinking += usize::from(turn.thinking);
            thinking
        });
        Self {
            conversation,
            pairing,
            thinking: upto.collect(),
            letters: pairing
                .calls
                .iter()
                .map(|call| letters(id_of(conversation, call.part)))
                .collect(),
            occurrences: pairing.calls.iter().map(count).collect(),
        }
    }

    /// The call at `index`.
    pub(super) fn of(&self, index: usize) -> CallSight<'c> {
        self.sight(index, self.place(index))
    }

    fn sight(&self, index: usize, place: Option<[u8; 32]>) -> CallSight<'c> {
        let json = Json::new(self.conversation.body);
        let call = &self.pairing.calls[index];
        let CallDetails { name: tool, input, .. } = self.conversation.details(call.part);
        let answered = call.answer.and_then(|row| self.pairing.results[row].turn);
        let thought_between = |turn: usize| turn > call.turn && self.thinking[turn] > self.thinking[call.turn];
        CallSight {
            id: id_of(self.conversation, call.part),
            tool: tool.map(|span| json.decode(span)).unwrap_or_default(),
            input: input.map_or(b"", |span| json.bytes(span)),
            occurrence: self.occurrences[index],
            has_twin: self.has_twin(index),
            before: self.before(call.part),
            place,
            turns_behind: self.pairing.turns.len().saturating_sub(call.turn + 1),
            thought_behind: self.thinking.last().is_some_and(|all| *all > self.thinking[call.turn]),
            crossing: answered.is_some_and(thought_between),
        }
    }

    fn has_twin(&self, index: usize) -> bool {
        let id = |index: usize| id_of(self.conversation, self.pairing.calls[index].part);
        let own = &self.letters[index];
        let alike = self.letters.iter().enumerate().filter(|(_, other)| *other == own);
        alike.into_iter().any(|(other, _)| id(other) != id(index))
    }

    /// The message in front of the one that holds a part.
    fn before(&self, part: usize) -> &'c [u8] {
        let message = self.conversation.parts[part].message.checked_sub(1);
        let message = message.and_then(|before| self.conversation.messages.get(before));
        message.map_or(b"", |message| message.span.of(self.conversation.body))
    }

    /// Where a call without an id stands: its ordinal in its turn, and the calls of the turn with calls before.
    fn place(&self, index: usize) -> Option<[u8; 32]> {
        let call = &self.pairing.calls[index];
        let PartKind::Call(found) = &self.conversation.parts[call.part].kind else {
            return None;
        };
        if !found.id.is_empty() {
            return None;
        }
        let own = &self.pairing.turns[call.turn].calls;
        let mut hash = blake3::Hasher::new();
        naming::write(&mut hash, &(index.saturating_sub(own.start) as u64).to_le_bytes());
        let turns = self.pairing.turns.get(..call.turn).unwrap_or_default();
        if let Some(before) = turns.iter().rev().find(|turn| !turn.calls.is_empty()) {
            for earlier in before.calls.clone() {
                let sight = self.sight(earlier, None);
                naming::write(&mut hash, CallKey::of(&sight).as_bytes());
            }
        }
        Some(hash.finalize().into())
    }
}
