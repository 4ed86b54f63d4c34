//! Judgements that need the whole walk: places of results, open server calls, and fields that may be fixed.

use std::collections::{HashMap, HashSet};

use crate::{
    conversation::{
        CallRowId, Flaw, FlawKind, Part, PartId, PartKind, Role, TurnId, WithoutResult,
        pairing::{
            ResultRole, ServerHalf, id_of,
            in_turn::{OpenServerCall, PairingWalk},
        },
        rules::{IdScope, ResultPlace},
        turns::{InsertPoint, TurnUnit},
    },
    work,
};

/// Marks the results that are in the place of their call's results.
pub(super) fn find_results_in_place(walk: &mut PairingWalk<'_, '_>) {
    let runs = if walk.rules.place == ResultPlace::ItemRun {
        item_runs(walk)
    } else {
        Vec::new()
    };
    for row in &mut walk.pairing.results {
        work::count(1);
        let ResultRole::Answers(call) = row.role else { continue };
        let call = &walk.pairing.calls[call];
        row.in_place = match walk.rules.place {
            ResultPlace::Anywhere => true,
            ResultPlace::ItemRun => {
                let message = walk.conversation.parts[call.part].message;
                call.part < row.part && runs.get(message) == runs.get(walk.conversation.parts[row.part].message)
            }
            _ => row.turn == Some(call.turn) && row.is_leading(),
        };
    }
}

/// Returns the number of the run of calls and results to which each message belongs.
fn item_runs(walk: &PairingWalk<'_, '_>) -> Vec<usize> {
    let mut run = 0;
    let ends_run = |part: &Part<'_>| !matches!(part.kind, PartKind::Call(_) | PartKind::Result(_));
    let messages = walk.conversation.messages.iter();
    messages
        .map(|message| {
            work::count(1);
            run += usize::from(walk.conversation.parts_of(message).iter().any(ends_run));
            run
        })
        .collect()
}

/// Numbers the calls whose id repeats, if an id must be unique in the whole body.
pub(super) fn number_repeats(walk: &mut PairingWalk<'_, '_>) {
    if walk.rules.id_scope != IdScope::Body {
        return;
    }
    let mut seen: HashMap<&[u8], (CallRowId, usize)> = HashMap::new();
    for row in CallRowId::all(0..walk.pairing.calls.len()) {
        let id = id_of(walk.conversation, walk.pairing.calls[row].part);
        let (first, count) = seen.entry(id).or_insert((row, 0));
        *count += 1;
        if *count > 1 {
            walk.pairing.calls[row].repeats = Some((*first, *count));
        }
    }
}

/// Lets the calls at the end of a history stay open if the format permits that and none of them is answered.
pub(super) fn judge_open_end(walk: &mut PairingWalk<'_, '_>) {
    let last = walk.pairing.turns.last();
    let Some(turn) = last.filter(|turn| walk.rules.open_end && turn.gap.is_empty()) else {
        return;
    };
    let calls = walk.pairing.calls.get_mut(turn.calls.clone()).unwrap_or_default();
    work::count(calls.len());
    // Gemini requires as many results as calls, so one result requires all others.
    if calls.iter().all(|call| call.result.is_none()) {
        for call in calls {
            call.without_result = WithoutResult::Legal;
        }
    }
}

/// Judges open server calls. They are legal in a pause, in a mixed turn and under running code.
///
/// Elsewhere they are server halves.
pub(super) fn judge_servers(walk: &mut PairingWalk<'_, '_>) {
    let last = TurnId::new(walk.pairing.turns.len().saturating_sub(1));
    // Computed once, because the gap after the last turn may be as long as the history.
    let mut spoke = None;
    for index in 0..walk.servers.len() {
        work::count(1);
        let OpenServerCall {
            part,
            turn,
            known,
            resolved,
        } = walk.servers[index];
        // Kinds without documented rules may have no result at all.
        if !known || resolved == Some(turn) {
            continue;
        }
        // The provider resumes only its last turn, and only if the user has not spoken since.
        let closed = turn != last || *spoke.get_or_insert_with(|| user_spoke(walk, last));
        let found = &mut walk.pairing.turns[turn];
        // Thinking covers the whole turn, and running code needs its server call.
        let droppable = !found.thinking && !found.programmatic;
        if resolved.is_none() && closed {
            walk.pairing.server_halves.push(ServerHalf { part, droppable });
            // Text after an open server call is refused, so a half that stays forbids it.
            found.only_results |= !droppable;
        } else {
            // The provider still works on this call: it accepts nothing but results.
            found.only_results = true;
        }
    }
    walk.pairing.server_halves.sort_by_key(|half| half.part);
    keep_beside_thinking(walk);
}

/// Marks the halves in units with thinking as not droppable.
fn keep_beside_thinking(walk: &mut PairingWalk<'_, '_>) {
    // Halves of one unit follow each other, so each unit is searched once.
    let mut searched: Option<(usize, bool)> = None;
    for index in 0..walk.pairing.server_halves.len() {
        work::count(1);
        let unit = unit_of(walk, walk.pairing.server_halves[index].part).parts.clone();
        let known = searched.filter(|(first, _)| *first == unit.start);
        let (first, thinking) =
            known.unwrap_or_else(|| (unit.start, PartId::all(unit).any(|part| walk.conversation.thinks(part))));
        searched = Some((first, thinking));
        walk.pairing.server_halves[index].droppable &= !thinking;
    }
}

/// Returns the unit that contains a part.
///
/// Thinking is looked up by unit, not by message, because a split message is sent as several.
fn unit_of<'w>(walk: &'w PairingWalk<'_, '_>, part: PartId) -> &'w TurnUnit {
    let after = walk
        .pairing
        .units
        .partition_point(|unit| unit.parts.start <= part.index());
    &walk.pairing.units[after - 1]
}

/// Returns `true` if the gap contains user text. In a turn without client calls any user message counts.
fn user_spoke(walk: &PairingWalk<'_, '_>, turn: TurnId) -> bool {
    let found = &walk.pairing.turns[turn];
    work::count(found.gap.len());
    let says = |part: PartId| !matches!(walk.conversation.parts[part].kind, PartKind::Result(_));
    walk.pairing.units[found.gap.clone()]
        .iter()
        .filter(|unit| unit.role == Role::User)
        .any(|unit| found.calls.is_empty() || PartId::all(unit.parts.clone()).any(says))
}

/// Finds the place for inserted results.
///
/// It is after the last result that stays, or at the beginning of the answering user message.
pub(super) fn place_insert_points(walk: &mut PairingWalk<'_, '_>) {
    for row in &walk.pairing.results {
        work::count(1);
        let Some(turn) = row.turn else { continue };
        // A result that leaves takes the place with it, so only one that stays may mark it.
        let stays = match row.role {
            ResultRole::Answers(call) => walk.pairing.calls[call].turn == turn,
            ResultRole::AlsoAnswers(_) | ResultRole::NotJudged => true,
            ResultRole::Repeats(_)
            | ResultRole::Strays(_)
            | ResultRole::RepeatsResult(_)
            | ResultRole::RepeatsRemote
            | ResultRole::Orphan => false,
        };
        if row.is_leading() && stays {
            walk.pairing.turns[turn].insert_at = Some(InsertPoint {
                unit: row.unit,
                after: Some(row.part),
            });
        }
    }
    // Elsewhere results without a neighbour form a message of their own, and need no such place.
    if walk.rules.place == ResultPlace::UserTurn {
        for turn in walk.pairing.turns.iter_mut().filter(|turn| turn.insert_at.is_none()) {
            let user = turn.gap.clone().find(|unit| {
                work::count(1);
                walk.pairing.units[*unit].role == Role::User
            });
            turn.insert_at = user.map(|unit| InsertPoint { unit, after: None });
        }
    }
}

/// Selects the flaws that may be fixed. Flaws before a compaction are ignored.
pub(super) fn select_flaws(walk: &mut PairingWalk<'_, '_>) {
    find_wrong_kinds(walk);
    find_split_turns(walk);
    if walk.conversation.flaws.is_empty() {
        return;
    }
    // Identified by message and first part, because pieces of one message may belong to several turns.
    let name = |unit: &TurnUnit| (unit.message, unit.parts.start);
    let mut thinking = HashSet::new();
    work::count(walk.pairing.turns.len());
    for turn in walk.pairing.turns.iter().filter(|turn| turn.thinking) {
        work::count(turn.units.len());
        thinking.extend(walk.pairing.units[turn.units.clone()].iter().map(name));
    }
    let messages: HashSet<usize> = thinking.iter().map(|(message, _)| *message).collect();
    let begin = walk.conversation.part(walk.begin).map_or(0, |part| part.message);
    for flaw in &walk.conversation.flaws {
        work::count(1);
        let thinks = match flaw.part {
            Some(part) => thinking.contains(&name(unit_of(walk, part))),
            None => messages.contains(&flaw.message),
        };
        let hidden =
            walk.begin > PartId::default() && flaw.message <= begin && flaw.part.is_none_or(|part| part < walk.begin);
        // The model wrote the blank text of a turn with thinking, and the signature covers it.
        let models_own = thinks && flaw.kind == FlawKind::BlankText;
        if !hidden && !models_own {
            let is_fixable = !thinks || is_always_refused(flaw.kind, walk.rules.place);
            walk.pairing.flaws.push((*flaw, is_fixable));
        }
    }
}

/// Returns `true` for a flaw that the provider has never accepted, so that no thinking can be bound to it.
///
/// Anthropic's thinking is bound to what stands before it. Its flaws are left in a turn with thinking, until a refusal.
const fn is_always_refused(kind: FlawKind, place: ResultPlace) -> bool {
    match kind {
        FlawKind::ResultContent | FlawKind::InputPart | FlawKind::EmptyPart => true,
        FlawKind::Call(_) => place.is_items(),
        FlawKind::EmptyMessage => matches!(place, ResultPlace::NextContent),
        _ => false,
    }
}

/// Finds results that answer their calls in the form of another kind of call.
fn find_wrong_kinds(walk: &mut PairingWalk<'_, '_>) {
    // Only OpenAI is known to require that the kinds of call and result match (codex).
    if walk.rules.place != ResultPlace::Anywhere {
        return;
    }
    let kind = |part: PartId| match &walk.conversation.parts[part].kind {
        PartKind::Call(call) => call.family.kind,
        PartKind::Result(result) => result.family.kind,
        _ => 0,
    };
    for row in &walk.pairing.results {
        work::count(1);
        if let ResultRole::Answers(call) = row.role
            && kind(row.part) != kind(walk.pairing.calls[call].part)
        {
            let message = walk.conversation.parts[row.part].message;
            let flaw = Flaw {
                message,
                part: Some(row.part),
                kind: FlawKind::ResultKind,
            };
            walk.pairing.flaws.push((flaw, true));
        }
    }
}

/// Finds model turns with calls that are split over several contents (Gemini). Signed parts must not move.
fn find_split_turns(walk: &mut PairingWalk<'_, '_>) {
    if walk.rules.place != ResultPlace::NextContent {
        return;
    }
    let signed = |part: PartId| match &walk.conversation.parts[part].kind {
        PartKind::Call(call) => call.signed && walk.conversation.removed_thinking.binary_search(&part).is_err(),
        _ => walk.conversation.thinks(part),
    };
    let flaws = walk.conversation.flaws.iter().inspect(|_| work::count(1));
    let empty = flaws.filter(|flaw| flaw.kind == FlawKind::EmptyMessage);
    let empty: HashSet<usize> = empty.map(|flaw| flaw.message).collect();
    for turn in walk.pairing.turns.iter().filter(|turn| !turn.calls.is_empty()) {
        work::count(turn.units.len());
        let units = walk.pairing.units[turn.units.clone()].iter();
        // The first content stays, and the others merge into it. Empty ones go.
        for unit in units.filter(|unit| !empty.contains(&unit.message)).skip(1) {
            let flaw = Flaw {
                message: unit.message,
                part: None,
                kind: FlawKind::SplitTurn,
            };
            // A signature holds only in the content in which Gemini sent it.
            let moves = !PartId::all(unit.parts.clone()).any(signed);
            walk.pairing.flaws.push((flaw, moves));
        }
    }
}
