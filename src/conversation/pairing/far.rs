//! Results outside the gap of their call: matched only where one open call of the id remains.

use std::collections::{HashMap, hash_map::Entry};

use crate::conversation::{
    Disowned, PartKind,
    pairing::{
        CallRow, Fate, key_of,
        walk::{Key, Walk},
    },
    rules::ResultPlace,
};

impl<'c> Walk<'c, '_> {
    /// Results outside the gap of their call: only where one open call of the id remains.
    pub(super) fn match_far(&mut self) {
        if self
            .pairing
            .results
            .iter()
            .all(|row| matches!(row.fate, Fate::Answers(_)))
        {
            return;
        }
        let mut open: HashMap<Key<'c>, (usize, usize)> = HashMap::new();
        let mut all: HashMap<Key<'c>, Vec<usize>> = HashMap::new();
        for (call, row) in self.pairing.calls.iter().enumerate() {
            let key = self.call_key(call);
            all.entry(key).or_default().push(call);
            if row.answer.is_none() && !row.equal {
                let entry = open.entry(key).or_insert((0, call));
                entry.0 += 1;
            }
        }
        let mut held: HashMap<Key<'c>, usize> = HashMap::new();
        for row in 0..self.pairing.results.len() {
            if self.pairing.results[row].fate == Fate::Orphan {
                let mut fate = self.far_fate(row, &mut open, &all);
                if fate == Fate::Elsewhere {
                    fate = self.held_fate(row, &mut held);
                }
                self.pairing.results[row].nameless &= fate != Fate::Elsewhere;
                if let Fate::Answers(call) = fate {
                    self.pairing.calls[call].answer = Some(row);
                }
                self.pairing.results[row].fate = fate;
            }
        }
    }

    /// Whether a call of the turn it follows still waits for its result there.
    fn comes_between(&self, row: usize) -> bool {
        let found = &self.pairing.results[row];
        let calls = found.turn.map_or(0..0, |turn| self.pairing.turns[turn].calls.clone());
        let waits = |call: &CallRow| call.answer.is_none_or(|answer| answer > row);
        found.leads() && self.pairing.calls[calls].iter().any(waits)
    }

    /// A call outside the body has one result too: the first.
    fn held_fate(&self, row: usize, held: &mut HashMap<Key<'c>, usize>) -> Fate {
        let key = key_of(self.conversation, self.pairing.results[row].part);
        match held.entry(key) {
            Entry::Vacant(free) => {
                free.insert(row);
                Fate::Elsewhere
            }
            Entry::Occupied(_) if key.0.is_empty() || self.hidden.contains(key.0) => Fate::Elsewhere,
            Entry::Occupied(first) => Fate::RepeatsResult(*first.get()),
        }
    }

    fn far_fate(
        &self,
        row: usize,
        open: &mut HashMap<Key<'c>, (usize, usize)>,
        all: &HashMap<Key<'c>, Vec<usize>>,
    ) -> Fate {
        let found = &self.pairing.results[row];
        let key = key_of(self.conversation, found.part);
        let id = key.0;
        let part = &self.conversation.parts[found.part];
        if id.is_empty() {
            let free = matches!(&part.kind, PartKind::Result(result) if result.free);
            return if free && !self.comes_between(row) {
                Fate::Elsewhere
            } else {
                Fate::Orphan
            };
        }
        if let PartKind::Result(result) = &part.kind {
            match result.disowned {
                Disowned::No => {}
                Disowned::OfNoCall => return Fate::Orphan,
                Disowned::Spent => return Fate::RepeatsHeld,
            }
        }
        if self.hidden.contains(id) {
            return Fate::Elsewhere;
        }
        if let Some((count, call)) = open.get_mut(&key)
            && *count > 0
        {
            let begins = self.pairing.turns[self.pairing.calls[*call].turn].units.start;
            // A counter starts anew with every run: what stands before the call belongs to a call that is gone.
            let ahead = found.unit < begins && self.rules.place != ResultPlace::Anywhere;
            if *count > 1 || (ahead && is_counter(id)) {
                return Fate::Orphan;
            }
            *count = 0;
            return Fate::Answers(*call);
        }
        // Of several calls with this id the last before the result, else the last of all.
        let calls = all.get(&key).map(Vec::as_slice).unwrap_or_default();
        let before = calls.partition_point(|call| self.pairing.calls[*call].part < found.part);
        match before
            .checked_sub(1)
            .map_or_else(|| calls.last(), |last| calls.get(last))
            .copied()
        {
            Some(call) if self.pairing.calls[call].answer.is_some() => Fate::Repeats(call),
            None if self.conversation.calls_elsewhere => Fate::Elsewhere,
            Some(_) | None => Fate::Orphan,
        }
    }
}

/// Whether an id is a counter (`call_0`, `functions.Bash:12`, `7`): the same one comes again in another run.
fn is_counter(id: &[u8]) -> bool {
    let digits = id.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let name = &id[..id.len() - digits];
    let separated = name.last().is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (1..=4).contains(&digits) && separated && !name.iter().any(u8::is_ascii_digit)
}
