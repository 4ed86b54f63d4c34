//! Matching of results outside the gap of their call. A match requires that exactly one call of the id is open, or that
//! the open ones share a result.

use std::collections::{HashMap, hash_map::Entry};

use crate::{
    conversation::{
        CallRowId, PartKind, ResultOwner, ResultRowId, WithoutResult,
        pairing::{
            ResultRole,
            in_turn::{PairingKey, PairingWalk},
            key_of,
        },
        rules::{IdScope, ResultPlace},
    },
    work,
};

/// The calls of a history, indexed for results from outside their gaps.
struct CallsOfHistory<'c> {
    /// By the name in a result: its open calls.
    open: HashMap<PairingKey<'c>, UnansweredCalls>,
    /// By the name in a result: all calls, in document order.
    all: HashMap<PairingKey<'c>, Vec<CallRowId>>,
    /// By turn: the state of its calls.
    waiting: Vec<TurnWaiting>,
}

/// The unanswered calls of one name.
#[derive(Clone, Copy)]
struct UnansweredCalls {
    count: usize,
    first: CallRowId,
    last: CallRowId,
}

/// The state of the calls of one turn.
#[derive(Clone, Copy, Default)]
struct TurnWaiting {
    /// Number of calls without a result.
    open: usize,
    /// The last of their results.
    last: Option<ResultRowId>,
    /// The number of gaps with messages before the turn: the same for turns that follow each other.
    gaps_before: usize,
}

/// Matches results outside the gap of their call, if exactly one open call of the id remains.
pub(super) fn match_across_turns<'c>(walk: &mut PairingWalk<'c, '_>) {
    if walk
        .pairing
        .results
        .iter()
        .all(|row| matches!(row.role, ResultRole::Answers(_)))
    {
        return;
    }
    work::count(walk.pairing.results.len());
    // Counted before any match: two open calls of one id must stay ambiguous for every result.
    let mut calls = index_calls(walk);
    let mut first_results: HashMap<PairingKey<'c>, ResultRowId> = HashMap::new();
    for row in ResultRowId::all(0..walk.pairing.results.len()) {
        if walk.pairing.results[row].role == ResultRole::Orphan {
            let mut role = role_across_turns(walk, row, &mut calls);
            if role == ResultRole::NotJudged {
                // Only a result without any call in the body can belong to a remote call.
                role = remote_role(walk, row, &mut first_results);
            }
            // A result that is not judged must not be reported as nameless either.
            walk.pairing.results[row].nameless &= role != ResultRole::NotJudged;
            if let ResultRole::Answers(call) = role {
                walk.pairing.calls[call].result = Some(row);
                let waiting = &mut calls.waiting[walk.pairing.calls[call].turn.index()];
                // Later results of this turn must see that the call no longer waits.
                waiting.open -= 1;
                waiting.last = waiting.last.max(Some(row));
            }
            walk.pairing.results[row].role = role;
        }
    }
}

/// Indexes the calls once, so that a result costs a look-up and no pass over the history.
fn index_calls<'c>(walk: &PairingWalk<'c, '_>) -> CallsOfHistory<'c> {
    let mut calls = CallsOfHistory {
        open: HashMap::new(),
        all: HashMap::new(),
        waiting: vec![TurnWaiting::default(); walk.pairing.turns.len()],
    };
    work::count(walk.pairing.turns.len());
    let mut gaps = 0;
    for (turn, waiting) in walk.pairing.turns.iter().zip(&mut calls.waiting) {
        waiting.gaps_before = gaps;
        gaps += usize::from(!turn.gap.is_empty());
    }
    for (call, row) in walk.pairing.calls.iter().enumerate() {
        let call = CallRowId::new(call);
        let key = walk.call_key(call);
        work::count_bytes(key.0.len());
        calls.all.entry(key).or_default().push(call);
        // Such a call shares the result of an earlier one, so it never waits for one.
        if row.result.is_none() && !row.equals_first && !row.shares_id {
            let open = calls.open.entry(key).or_insert(UnansweredCalls {
                count: 0,
                first: call,
                last: call,
            });
            (open.count, open.last) = (open.count + 1, call);
        }
        let waiting = &mut calls.waiting[row.turn.index()];
        waiting.open += usize::from(row.result.is_none());
        waiting.last = waiting.last.max(row.result);
    }
    calls
}

/// Returns `true` if the result comes between the preceding turn and a result that the turn still needs.
fn comes_between<'c>(walk: &PairingWalk<'c, '_>, row: ResultRowId, calls: &CallsOfHistory<'c>) -> bool {
    let found = &walk.pairing.results[row];
    let waiting = found.turn.map(|turn| calls.waiting[turn.index()]).unwrap_or_default();
    found.is_leading() && (waiting.open > 0 || waiting.last > Some(row))
}

/// Returns the role of a result for a remote call. Like any call it has one result, the first.
fn remote_role<'c>(
    walk: &PairingWalk<'c, '_>,
    row: ResultRowId,
    first_results: &mut HashMap<PairingKey<'c>, ResultRowId>,
) -> ResultRole {
    let key = key_of(walk.conversation, walk.pairing.results[row].part);
    work::count_bytes(key.0.len());
    if !walk.rules.one_result {
        return ResultRole::NotJudged;
    }
    match first_results.entry(key) {
        Entry::Vacant(free) => {
            free.insert(row);
            ResultRole::NotJudged
        }
        // Without an id, or with a call before the compaction, a second result proves nothing.
        Entry::Occupied(_) if key.0.is_empty() || walk.hidden.contains(key.0) => ResultRole::NotJudged,
        Entry::Occupied(first) => ResultRole::RepeatsResult(*first.get()),
    }
}

/// Returns the role of a result that no call of its own gap has claimed.
fn role_across_turns<'c>(
    walk: &mut PairingWalk<'c, '_>,
    row: ResultRowId,
    calls: &mut CallsOfHistory<'c>,
) -> ResultRole {
    let found = &walk.pairing.results[row];
    let key = key_of(walk.conversation, found.part);
    let id = key.0;
    // It is looked up below.
    work::count_bytes(id.len());
    let part = &walk.conversation.parts[found.part];
    if id.is_empty() {
        if !walk.rules.named_results && matches!(&part.kind, PartKind::Result(result) if result.standalone) {
            return ResultRole::NotJudged;
        }
        let free = matches!(&part.kind, PartKind::Result(result) if result.free);
        // DeepSeek accepts such a result, but not between a call and its own result.
        return if free && !comes_between(walk, row, calls) {
            ResultRole::NotJudged
        } else {
            ResultRole::Orphan
        };
    }
    if let PartKind::Result(result) = &part.kind {
        match result.owner {
            ResultOwner::Unknown => {}
            ResultOwner::NoCall => return ResultRole::Orphan,
            ResultOwner::AnsweredCall => return ResultRole::RepeatsRemote,
        }
    }
    // Its call precedes the compaction, where the provider ignores blocks.
    if walk.hidden.contains(id) {
        return ResultRole::NotJudged;
    }
    if let Some(open) = calls.open.get(&key).copied() {
        return role_for_open(walk, row, open, calls);
    }
    // No call waits, so the result repeats one. The nearest call before it is the likeliest, else the last of all.
    let named = calls.all.get(&key).map(Vec::as_slice).unwrap_or_default();
    let before = named.partition_point(|call| walk.pairing.calls[*call].part < found.part);
    match before
        .checked_sub(1)
        .map_or_else(|| named.last(), |last| named.get(last))
        .copied()
    {
        Some(call) if walk.pairing.calls[call].result.is_some() => {
            let is_in_run = found.turn == Some(walk.pairing.calls[call].turn) && found.is_leading();
            if walk.rules.one_result {
                ResultRole::Repeats(call)
            } else if is_in_run || walk.rules.place.is_items() {
                ResultRole::AlsoAnswers(call)
            } else {
                // A message of a tool outside the run of its call is refused like one without a call.
                ResultRole::Strays(call)
            }
        }
        // The call may exist only at the provider, and the provider decides.
        None if walk.conversation.may_have_remote_calls => ResultRole::NotJudged,
        Some(_) | None => ResultRole::Orphan,
    }
}

/// Returns the role of a result for the unanswered calls of its name.
fn role_for_open<'c>(
    walk: &mut PairingWalk<'c, '_>,
    row: ResultRowId,
    open: UnansweredCalls,
    calls: &mut CallsOfHistory<'c>,
) -> ResultRole {
    let found = &walk.pairing.results[row];
    let key = key_of(walk.conversation, found.part);
    let begins = walk.pairing.turns[walk.pairing.calls[open.first].turn].units.start;
    // A counter restarts with every run. A result before the call therefore belongs to a call that is gone.
    // In a flat item list a result may precede its call.
    let ahead = found.unit < begins && walk.rules.place != ResultPlace::Anywhere;
    if (ahead && is_counter(key.0)) || (open.count > 1 && !share_result(walk, key, open, calls)) {
        return ResultRole::Orphan;
    }
    // The call is taken. The next result of this id is that of the next call which shares it, or a duplicate.
    match next_open(walk, key, open, calls) {
        Some(next) => calls.open.insert(key, next),
        None => calls.open.remove(&key),
    };
    ResultRole::Answers(open.first)
}

/// Lets the unanswered calls of one name share the result of the first, as those of one turn do, and returns `true`. An
/// inserted result of another call has parted their turn. Returns `false` if a message is between them.
fn share_result<'c>(
    walk: &mut PairingWalk<'c, '_>,
    name: PairingKey<'c>,
    open: UnansweredCalls,
    calls: &CallsOfHistory<'c>,
) -> bool {
    let gaps_before = |call: CallRowId| calls.waiting[walk.pairing.calls[call].turn.index()].gaps_before;
    let may_share = walk.rules.id_scope == IdScope::Shared && walk.rules.place == ResultPlace::Anywhere;
    if !may_share || gaps_before(open.first) != gaps_before(open.last) {
        return false;
    }
    if walk.pairing.calls[open.last].shares_id {
        // They were found to share it before.
        return true;
    }
    let same_name = calls.all.get(&name).map(Vec::as_slice).unwrap_or_default();
    work::count(same_name.len());
    for call in same_name.iter().filter(|call| **call > open.first) {
        let row = &mut walk.pairing.calls[*call];
        if row.result.is_none() {
            (row.shares_id, row.without_result) = (true, WithoutResult::Legal);
        }
    }
    true
}

/// Returns the unanswered calls of one name without the first.
fn next_open<'c>(
    walk: &PairingWalk<'c, '_>,
    name: PairingKey<'c>,
    open: UnansweredCalls,
    calls: &CallsOfHistory<'c>,
) -> Option<UnansweredCalls> {
    let same_name = calls.all.get(&name).filter(|_| open.count > 1)?;
    let after = same_name.partition_point(|call| *call <= open.first);
    let is_open = |call: &&CallRowId| {
        work::count(1);
        walk.pairing.calls[**call].result.is_none()
    };
    let first = *same_name.get(after..)?.iter().find(is_open)?;
    Some(UnansweredCalls {
        count: open.count - 1,
        first,
        ..open
    })
}

/// Returns `true` if an id is a counter (`call_0`, `functions.Bash:12`, `7`). Another run uses the same id again.
fn is_counter(id: &[u8]) -> bool {
    work::count(id.len());
    let digits = id.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let name = &id[..id.len() - digits];
    let separated = name.last().is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (1..=4).contains(&digits) && separated && !name.iter().any(u8::is_ascii_digit)
}
