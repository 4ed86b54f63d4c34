//! Plans the treatment of results that answer no call. Equal duplicates are dropped, and all others become marked text.

use std::collections::HashSet;

use crate::{
    conversation::{
        PartId, ResultRowId, Role,
        pairing::ResultRole,
        rules::{ResultPlace, WordsPlace},
        turns::{Turn, TurnUnit},
    },
    repair::{Action, Applicability, history_plan::PartChange, planner::HistoryPlanner, same_result},
    work,
};

/// Drops or quotes every result that answers no call.
pub(super) fn salvage_results(planner: &mut HistoryPlanner<'_>) {
    let mut originals = same_result::RepeatedResults::new(planner.conversation);
    for (index, row) in planner.pairing.results.iter().enumerate() {
        work::count(1);
        let index = ResultRowId::new(index);
        match row.role {
            ResultRole::Answers(_) | ResultRole::AlsoAnswers(_) | ResultRole::NotJudged => {}
            ResultRole::Repeats(_) | ResultRole::Strays(_) | ResultRole::RepeatsResult(_) => {
                let kept = match row.role {
                    ResultRole::Repeats(call) | ResultRole::Strays(call) => planner.pairing.calls[call].result,
                    ResultRole::RepeatsResult(first) => Some(first),
                    _ => None,
                };
                let kept = kept.map(|row| planner.pairing.results[row].part);
                let same = kept.is_some_and(|kept| {
                    originals.is_repeated(kept, row.part) || originals.is_shortened_copy(kept, row.part)
                });
                if same && planner.allows(Applicability::Lossy) {
                    planner.plan.part_changes.insert(row.part, PartChange::Removed);
                    planner.count(Action::Drop);
                } else {
                    quote_result(planner, index);
                }
            }
            // The first result of a remote call is not in the body, so equality is unknown.
            ResultRole::RepeatsRemote | ResultRole::Orphan => quote_result(planner, index),
        }
    }
}

/// Turns a result into marked user text: after all results of its turn, or before later text.
pub(super) fn quote_result(planner: &mut HistoryPlanner<'_>, row: ResultRowId) {
    if !planner.allows(Applicability::Salvage) {
        return;
    }
    let row = &planner.pairing.results[row];
    let part = row.part;
    if planner.rules.place.is_items() {
        return quote_item(planner, part, row.unit);
    }
    let turn = row.turn.map(|turn| &planner.pairing.turns[turn]);
    if turn.is_some_and(|found| allows_no_text(planner, found, row.is_leading())) {
        planner.plan.part_changes.insert(part, PartChange::Removed);
        match next_user_unit(planner, row.unit) {
            Some(unit) => {
                planner.plan.deferred_quotes.entry(unit).or_default().push(part);
                planner.count(Action::Quote);
            }
            // A later request of the client contains the result again, and then perhaps text of the user.
            None => planner.plan.report.deferred += 1,
        }
        return;
    }
    planner.count(Action::Quote);
    let Some((turn, found)) = row.turn.zip(turn) else {
        planner.plan.part_changes.insert(part, PartChange::Quoted);
        return;
    };
    // A quote before the results would break their place, so it moves after them.
    let in_front = match (planner.rules.place, found.insert_at) {
        (_, Some(anchor)) => anchor.after.is_some_and(|after| part < after) && row.unit <= anchor.unit,
        (ResultPlace::ToolRun, None) => row.is_leading() && !found.calls.is_empty(),
        (_, None) => false,
    };
    if in_front {
        planner.plan.part_changes.insert(part, PartChange::Removed);
        planner.plan.turns.entry(turn).or_default().quotes.push(part);
    } else {
        planner.plan.part_changes.insert(part, PartChange::Quoted);
    }
}

/// Turns a result item into a message of its own.
///
/// The message takes the item's place. If that would separate a call from its result, it follows that result.
fn quote_item(planner: &mut HistoryPlanner<'_>, part: PartId, unit: usize) {
    planner.count(Action::Quote);
    let place = match planner.rules.place {
        // DeepSeek requires results before the next item that is neither call nor result.
        ResultPlace::ItemRun => first_clear_unit(planner, unit),
        _ => unit,
    };
    if place == unit {
        planner.plan.part_changes.insert(part, PartChange::Quoted);
    } else {
        planner.plan.part_changes.insert(part, PartChange::Removed);
        planner.plan.quotes_after.entry(place).or_default().push(part);
    }
}

/// Returns the first unit at or after `unit` after which no earlier call lacks its result.
fn first_clear_unit(planner: &mut HistoryPlanner<'_>, unit: usize) -> usize {
    let pairing = planner.pairing;
    let conversation = planner.conversation;
    let clear = planner.clear_units.get_or_insert_with(|| {
        work::count(pairing.units.len().saturating_add(pairing.calls.len()));
        let mut settled: Vec<usize> = (0..pairing.units.len()).collect();
        for call in &pairing.calls {
            let turn = &pairing.turns[call.turn];
            let answered = call.result.map(|row| &pairing.results[row]).filter(|row| row.in_place);
            let put_in = turn.insert_at.map_or(turn.units.end - 1, |anchor| anchor.unit);
            let at = conversation.parts[call.part].message;
            settled[at] = settled[at].max(answered.map_or(put_in, |row| row.unit));
        }
        let mut until = 0;
        for (unit, settled) in settled.iter_mut().enumerate() {
            // A unit is clear only once all earlier calls have their results.
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

/// Returns `true` if no text may follow the results of a turn.
fn allows_no_text(planner: &HistoryPlanner<'_>, turn: &Turn, leading: bool) -> bool {
    turn.only_results || (planner.rules.words == WordsPlace::NotAfterResults && leading && !turn.calls.is_empty())
}

/// Returns the next unit after `unit` that may contain user text.
fn next_user_unit(planner: &mut HistoryPlanner<'_>, unit: usize) -> Option<usize> {
    let pairing = planner.pairing;
    let words = planner.user_units.get_or_insert_with(|| {
        let gaps = pairing
            .turns
            .iter()
            .filter(|turn| turn.only_results)
            .flat_map(|turn| turn.gap.clone());
        let closed: HashSet<usize> = gaps.inspect(|_| work::count(1)).collect();
        work::count(pairing.units.len().saturating_add(pairing.turns.len()));
        let speaks =
            |(index, unit): &(usize, &TurnUnit)| unit.role == Role::User && !unit.inner && !closed.contains(index);
        pairing
            .units
            .iter()
            .enumerate()
            .filter(speaks)
            .map(|(index, _)| index)
            .collect()
    });
    let found = words.get(words.partition_point(|index| *index <= unit)).copied()?;
    // Results come first: the quote goes after them if they lie in a later message of the same gap.
    let turn = pairing
        .turns
        .get(pairing.turns.partition_point(|turn| turn.gap.end <= found));
    let anchor = turn
        .filter(|turn| turn.gap.contains(&found))
        .and_then(|turn| turn.insert_at);
    let blocks = planner.rules.place.is_user_parts();
    Some(anchor.filter(|_| blocks).map_or(found, |anchor| anchor.unit.max(found)))
}
