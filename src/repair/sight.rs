//! Calls as those who remember calls see them.

use std::{cell::RefCell, collections::HashMap};

use crate::{
    conversation::{
        CallDetails, Conversation, PartKind,
        pairing::{CallRow, Pairing, id_of},
    },
    digest::Digest as _,
    repair::{
        answers::{CallSight, Spelling},
        append::told,
        naming::{CallKey, is_strong, letters},
    },
    wire::json::Json,
};

/// The id of a call, or its tool where there is no id.
fn key_of<'c>(conversation: &'c Conversation<'_>, part: usize) -> &'c [u8] {
    match conversation.parts.get(part).map(|part| &part.kind) {
        Some(PartKind::Call(call)) => call.key(),
        _ => b"",
    }
}

/// What only a look at the whole history tells of its calls.
pub(super) struct Sights<'c> {
    conversation: &'c Conversation<'c>,
    pairing: &'c Pairing,
    /// By letters and digits: the first id that has them, and whether another has them too.
    spelled: HashMap<Vec<u8>, (&'c [u8], bool)>,
    /// For each call how many of its id stand before it.
    occurrences: Vec<usize>,
    /// For each turn how many turns with thinking stand up to it, itself included.
    thinking: Vec<usize>,
    /// What messages say that stand in front of calls whose ids may come again, once it was asked for.
    said: RefCell<HashMap<usize, [u8; 32]>>,
    /// For turns with calls without ids, once it was asked for: the calls of the turn before.
    called_before: RefCell<HashMap<usize, [u8; 32]>>,
}

impl<'c> Sights<'c> {
    /// Looks at the whole history.
    pub(super) fn new(conversation: &'c Conversation<'c>, pairing: &'c Pairing) -> Self {
        let mut seen: HashMap<&[u8], usize> = HashMap::new();
        let count = |call: &CallRow| {
            let count = seen.entry(key_of(conversation, call.part)).or_default();
            *count += 1;
            *count - 1
        };
        let mut thinking = 0;
        let upto = pairing.turns.iter().map(|turn| {
            thinking += usize::from(turn.thinking);
            thinking
        });
        let mut spelled: HashMap<Vec<u8>, (&[u8], bool)> = HashMap::new();
        for call in &pairing.calls {
            let id = id_of(conversation, call.part);
            let (first, twin) = spelled.entry(letters(id)).or_insert((id, false));
            *twin |= *first != id;
        }
        Self {
            conversation,
            pairing,
            spelled,
            thinking: upto.collect(),
            occurrences: pairing.calls.iter().map(count).collect(),
            said: RefCell::default(),
            called_before: RefCell::default(),
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
        let id = id_of(self.conversation, call.part);
        let tool = tool.map(|span| json.decode(span)).unwrap_or_default();
        let spelled = self.spelled.get(&letters(id));
        CallSight {
            id,
            before: (!is_strong(id, &tool)).then(|| self.said_before(call.part)),
            tool,
            input: input.map_or(b"", |span| json.bytes(span)),
            occurrence: self.occurrences[index],
            spelling: match spelled {
                Some((first, _)) if *first != id => Spelling::Again,
                Some((_, true)) => Spelling::First,
                _ => Spelling::Alone,
            },
            place,
            turns_behind: self.pairing.turns.len().saturating_sub(call.turn + 1),
            thought_behind: self.thinking.last().is_some_and(|all| *all > self.thinking[call.turn]),
            crossing: answered.is_some_and(thought_between),
        }
    }

    /// What the message in front of the one that holds a part says.
    fn said_before(&self, part: usize) -> [u8; 32] {
        let Some(before) = self.conversation.parts[part].message.checked_sub(1) else {
            return [0; 32];
        };
        let mut said = self.said.borrow_mut();
        let message = &self.conversation.messages[before];
        *said
            .entry(before)
            .or_insert_with(|| told(message.span.of(self.conversation.body)))
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
        hash.add(&(index.saturating_sub(own.start) as u64).to_le_bytes());
        hash.add(&self.called_before(call.turn));
        Some(hash.finalize().into())
    }

    /// The calls of the turn with calls before this one.
    fn called_before(&self, turn: usize) -> [u8; 32] {
        if let Some(known) = self.called_before.borrow().get(&turn) {
            return *known;
        }
        let mut hash = blake3::Hasher::new();
        let turns = self.pairing.turns.get(..turn).unwrap_or_default();
        if let Some(before) = turns.iter().rev().find(|turn| !turn.calls.is_empty()) {
            for earlier in before.calls.clone() {
                let sight = self.sight(earlier, None);
                hash.add(CallKey::of(&sight).as_bytes());
            }
        }
        let hash = hash.finalize().into();
        self.called_before.borrow_mut().insert(turn, hash);
        hash
    }
}
