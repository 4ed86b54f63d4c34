//! What becomes of results that answer no call: an equal duplicate goes, everything else is kept as marked text.

use std::collections::HashSet;

use crate::{
    conversation::{
        Role,
        pairing::Fate,
        rules::{ResultPlace, WordsPlace},
        turns::{Turn, Unit},
    },
    repair::{Action, Applicability, equal, history_plan::Lift, planner::Planner},
};

/// Results that answer no call: equal duplicates go, everything else is kept as marked text.
pub(super) fn salvage_results(planner: &mut Planner<'_>) {
    let mut originals = equal::Originals::new(planner.conversation);
    for (index, row) in planner.pairing.results.iter().enumerate() {
        match row.fate {
            Fate::Answers(_) | Fate::Elsewhere => {}
            Fate::Repeats(_) | Fate::RepeatsResult(_) => {
                let kept = match row.fate {
                    Fate::Repeats(call) => planner.pairing.calls[call].answer,
                    Fate::RepeatsResult(first) => Some(first),
                    _ => None,
                };
                let kept = kept.map(|row| planner.pairing.results[row].part);
                let same = kept.is_some_and(|kept| originals.is_repeated(kept, row.part));
                if same && planner.may(Applicability::Lossy) {
                    planner.plan.lifts.insert(row.part, Lift::Gone);
                    planner.count(Action::Drop);
                } else {
                    quote(planner, index);
                }
            }
            Fate::RepeatsHeld | Fate::Orphan => quote(planner, index),
        }
    }
}

/// Keeps a result as marked user text: behind all results of its turn, or in front of later words.
pub(super) fn quote(planner: &mut Planner<'_>, row: usize) {
    if !planner.may(Applicability::Salvage) {
        return;
    }
    let row = &planner.pairing.results[row];
    let part = row.part;
    if planner.rules.place.is_items() {
        return quote_item(planner, part, row.unit);
    }
    let turn = row.turn.map(|turn| &planner.pairing.turns[turn]);
    if turn.is_some_and(|found| holds_no_words(planner, found, row.leads())) {
        planner.plan.lifts.insert(part, Lift::Gone);
        match later_words(planner, row.unit) {
            Some(unit) => {
                planner.plan.deferred.entry(unit).or_default().push(part);
                planner.count(Action::Quote);
            }
            None => planner.plan.report.deferred += 1,
        }
        return;
    }
    planner.count(Action::Quote);
    let Some((turn, found)) = row.turn.zip(turn) else {
        planner.plan.lifts.insert(part, Lift::Quoted);
        return;
    };
    let in_front = match (planner.rules.place, found.anchor) {
        (_, Some(anchor)) => anchor.behind.is_some_and(|behind| part < behind) && row.unit <= anchor.unit,
        (ResultPlace::ToolRun, None) => row.leads() && !found.calls.is_empty(),
        (_, None) => false,
    };
    if in_front {
        planner.plan.lifts.insert(part, Lift::Gone);
        planner.plan.turns.entry(turn).or_default().quotes.push(part);
    } else {
        planner.plan.lifts.insert(part, Lift::Quoted);
    }
}

/// Keeps a result item as a message of its own: where it stands, or, where words would come between a call and its
/// result, behind that result.
fn quote_item(planner: &mut Planner<'_>, part: usize, unit: usize) {
    planner.count(Action::Quote);
    let place = match planner.rules.place {
        ResultPlace::ItemRun => clear_from(planner, unit),
        _ => unit,
    };
    if place == unit {
        planner.plan.lifts.insert(part, Lift::Quoted);
    } else {
        planner.plan.lifts.insert(part, Lift::Gone);
        planner.plan.behind.entry(place).or_default().push(part);
    }
}

/// The first unit from `unit` on behind which no call waits for its result.
fn clear_from(planner: &mut Planner<'_>, unit: usize) -> usize {
    let pairing = planner.pairing;
    let conversation = planner.conversation;
    let clear = planner.clear.get_or_insert_with(|| {
        let mut settled: Vec<usize> = (0..pairing.units.len()).collect();
        for call in &pairing.calls {
            let turn = &pairing.turns[call.turn];
            let answered = call.answer.map(|row| &pairing.results[row]).filter(|row| row.home);
            let put_in = turn.anchor.map_or(turn.units.end - 1, |anchor| anchor.unit);
            let at = conversation.parts[call.part].message;
            settled[at] = settled[at].max(answered.map_or(put_in, |row| row.unit));
        }
        let mut until = 0;
        for (unit, settled) in settled.iter_mut().enumerate() {
            until = until.max(*settled);
            *settled = if until <= unit { unit } else { usize::MAX };
        }
        let mut next = pairing.units.len().saturating_sub(1);
        for (unit, clear) in settled.iter_mut().enumerate().rev() {
            next = if *clear == unit { unit } else { next };
            *clear = next;
        }
        settled
    });
    clear.get(unit).copied().unwrap_or(unit)
}

fn holds_no_words(planner: &Planner<'_>, turn: &Turn, leading: bool) -> bool {
    turn.only_results || (planner.rules.words == WordsPlace::NotBehindResults && leading && !turn.calls.is_empty())
}

/// The next unit behind `unit` in which the user may speak.
fn later_words(planner: &mut Planner<'_>, unit: usize) -> Option<usize> {
    let pairing = planner.pairing;
    let words = planner.words.get_or_insert_with(|| {
        let gaps = pairing
            .turns
            .iter()
            .filter(|turn| turn.only_results)
            .flat_map(|turn| turn.gap.clone());
        let closed: HashSet<usize> = gaps.collect();
        let speaks = |(index, unit): &(usize, &Unit)| unit.role == Role::User && !unit.inner && !closed.contains(index);
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
    let blocks = planner.rules.place.is_user_parts();
    Some(anchor.filter(|_| blocks).map_or(found, |anchor| anchor.unit.max(found)))
}
