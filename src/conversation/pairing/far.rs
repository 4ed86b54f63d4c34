//! Results outside the gap of their call: matched only where one open call of the id remains.

use std::collections::{HashMap, hash_map::Entry};

use crate::conversation::{
    Disowned, PartKind,
    pairing::{
        Fate, key_of,
        walk::{Key, Walk},
    },
    rules::ResultPlace,
};

/// The calls of a history, as results from outside their gaps look for them.
struct Calls<'c> {
    /// By what a result names: how many are open, and the first of them.
    open: HashMap<Key<'c>, (usize, usize)>,
    /// By what a result names: all, in document order.
    all: HashMap<Key<'c>, Vec<usize>>,
    /// By turn: what its calls still wait for.
    waiting: Vec<Waiting>,
}

/// What the calls of one turn still wait for.
#[derive(Clone, Copy, Default)]
struct Waiting {
    /// How many of them have no result.
    open: usize,
    /// The last of their results.
    last: Option<usize>,
}

/// Results outside the gap of their call: only where one open call of the id remains.
pub(super) fn match_far<'c>(walk: &mut Walk<'c, '_>) {
    if walk
        .pairing
        .results
        .iter()
        .all(|row| matches!(row.fate, Fate::Answers(_)))
    {
        return;
    }
    let mut calls = calls(walk);
    let mut held: HashMap<Key<'c>, usize> = HashMap::new();
    for row in 0..walk.pairing.results.len() {
        if walk.pairing.results[row].fate == Fate::Orphan {
            let mut fate = far_fate(walk, row, &mut calls);
            if fate == Fate::Elsewhere {
                fate = held_fate(walk, row, &mut held);
            }
            walk.pairing.results[row].nameless &= fate != Fate::Elsewhere;
            if let Fate::Answers(call) = fate {
                walk.pairing.calls[call].answer = Some(row);
                let waiting = &mut calls.waiting[walk.pairing.calls[call].turn];
                waiting.open -= 1;
                waiting.last = waiting.last.max(Some(row));
            }
            walk.pairing.results[row].fate = fate;
        }
    }
}

fn calls<'c>(walk: &Walk<'c, '_>) -> Calls<'c> {
    let mut calls = Calls {
        open: HashMap::new(),
        all: HashMap::new(),
        waiting: vec![Waiting::default(); walk.pairing.turns.len()],
    };
    for (call, row) in walk.pairing.calls.iter().enumerate() {
        let key = walk.call_key(call);
        calls.all.entry(key).or_default().push(call);
        if row.answer.is_none() && !row.equal {
            let entry = calls.open.entry(key).or_insert((0, call));
            entry.0 += 1;
        }
        let waiting = &mut calls.waiting[row.turn];
        waiting.open += usize::from(row.answer.is_none());
        waiting.last = waiting.last.max(row.answer);
    }
    calls
}

/// Whether a call of the turn it follows still waits for its result there.
fn comes_between<'c>(walk: &Walk<'c, '_>, row: usize, calls: &Calls<'c>) -> bool {
    let found = &walk.pairing.results[row];
    let waiting = found.turn.map(|turn| calls.waiting[turn]).unwrap_or_default();
    found.leads() && (waiting.open > 0 || waiting.last > Some(row))
}

/// A call outside the body has one result too: the first.
fn held_fate<'c>(walk: &Walk<'c, '_>, row: usize, held: &mut HashMap<Key<'c>, usize>) -> Fate {
    let key = key_of(walk.conversation, walk.pairing.results[row].part);
    match held.entry(key) {
        Entry::Vacant(free) => {
            free.insert(row);
            Fate::Elsewhere
        }
        Entry::Occupied(_) if key.0.is_empty() || walk.hidden.contains(key.0) => Fate::Elsewhere,
        Entry::Occupied(first) => Fate::RepeatsResult(*first.get()),
    }
}

fn far_fate<'c>(walk: &Walk<'c, '_>, row: usize, calls: &mut Calls<'c>) -> Fate {
    let found = &walk.pairing.results[row];
    let key = key_of(walk.conversation, found.part);
    let id = key.0;
    let part = &walk.conversation.parts[found.part];
    if id.is_empty() {
        let free = matches!(&part.kind, PartKind::Result(result) if result.free);
        return if free && !comes_between(walk, row, calls) {
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
    if walk.hidden.contains(id) {
        return Fate::Elsewhere;
    }
    if let Some((count, call)) = calls.open.get_mut(&key)
        && *count > 0
    {
        let begins = walk.pairing.turns[walk.pairing.calls[*call].turn].units.start;
        // A counter starts anew with every run: what stands before the call belongs to a call that is gone.
        let ahead = found.unit < begins && walk.rules.place != ResultPlace::Anywhere;
        if *count > 1 || (ahead && is_counter(id)) {
            return Fate::Orphan;
        }
        *count = 0;
        return Fate::Answers(*call);
    }
    // Of several calls with this id the last before the result, else the last of all.
    let named = calls.all.get(&key).map(Vec::as_slice).unwrap_or_default();
    let before = named.partition_point(|call| walk.pairing.calls[*call].part < found.part);
    match before
        .checked_sub(1)
        .map_or_else(|| named.last(), |last| named.get(last))
        .copied()
    {
        Some(call) if walk.pairing.calls[call].answer.is_some() => Fate::Repeats(call),
        None if walk.conversation.calls_elsewhere => Fate::Elsewhere,
        Some(_) | None => Fate::Orphan,
    }
}

/// Whether an id is a counter (`call_0`, `functions.Bash:12`, `7`): the same one comes again in another run.
fn is_counter(id: &[u8]) -> bool {
    let digits = id.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let name = &id[..id.len() - digits];
    let separated = name.last().is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (1..=4).contains(&digits) && separated && !name.iter().any(u8::is_ascii_digit)
}
