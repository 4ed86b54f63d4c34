//! Chooses the result of each call: a pinned one, a result elsewhere in the body, a copy, a known one, a placeholder.

use std::collections::HashMap;

use super::{
    Action, Applicability, BodyCall, OnLate,
    history_plan::{PartChange, PlannedResult, ResultSource},
    known_results::{Assignment, PinnedResult, RealResult},
    planner::HistoryPlanner,
    result_block,
    salvage::quote_result,
    same_result,
    texts::Placeholder,
};
use crate::{
    conversation::{
        CallRowId, PartId, ResultRowId, TurnId, WithoutResult,
        pairing::{CallRow, ResultPosition},
    },
    work,
};

/// Gives each call the first result that applies.
pub(super) fn assign_results(planner: &mut HistoryPlanner<'_>) {
    let (history, pairing) = (planner.history, planner.pairing);
    let overrides = overrides_by_call(planner);
    // Open calls are in document order, as the rows are.
    let mut open = history.open.iter().peekable();
    for (index, call) in pairing.calls.iter().enumerate() {
        work::count(1);
        let index = CallRowId::new(index);
        let described = open.next_if(|described| described.row == index);
        if let Some(row) = call.result.map(|row| &pairing.results[row])
            && row.in_place
        {
            match overrides.get(&index) {
                // Only a refusal about bound thinking outranks the client's result in its place.
                Some(placeholder) => override_result(planner, call, row.part, *placeholder),
                None => keep_result_in_place(planner, call.turn, row.unit),
            }
            continue;
        }
        // A screenshot cannot be invented, so an open call for one is the only call that repair removes.
        if call.result.is_none() && call.without_result == WithoutResult::Unanswerable {
            turn_call_into_text(planner, call.part);
            continue;
        }
        let Some(source) = described.and_then(|described| find_source(planner, call, described)) else {
            continue;
        };
        let plan = planner.plan.turns.entry(call.turn).or_default();
        plan.results.push(PlannedResult {
            call: call.part,
            source,
        });
        // Anthropic accepts no system message between calls and their results.
        plan.moves_systems = true;
    }
}

/// Returns the placeholders that replace results in their places, by call.
fn overrides_by_call(planner: &HistoryPlanner<'_>) -> HashMap<CallRowId, Placeholder> {
    if planner.known.overrides.is_empty() {
        return HashMap::new();
    }
    let calls = planner.history.answered_calls().into_iter();
    calls
        .filter_map(|call| Some((call.row, *planner.known.overrides.get(&call.key)?)))
        .collect()
}

/// Replaces a result that the client has put in its place by the placeholder of earlier requests.
fn override_result(planner: &mut HistoryPlanner<'_>, call: &CallRow, result: PartId, placeholder: Placeholder) {
    planner.count(Action::Placeholder);
    // Thinking is bound to the placeholder. The caller keeps the result as text at the end of the body.
    planner.plan.part_changes.insert(result, PartChange::Removed);
    planner
        .plan
        .turns
        .entry(call.turn)
        .or_default()
        .results
        .push(PlannedResult {
            call: call.part,
            source: ResultSource::Placeholder(placeholder),
        });
}

/// Returns the result for a call that has none in its place. `None` if the policy permits none.
///
/// The order is that of the module. A pin comes first, so that every later request contains the same bytes.
fn find_source(planner: &mut HistoryPlanner<'_>, call: &CallRow, described: &BodyCall) -> Option<ResultSource> {
    let pinned = planner.known.pinned.get(&described.key);
    // With `late = "move"` a real result in the body replaces an earlier placeholder.
    let overtaken = |pinned: &PinnedResult| {
        planner.policy.late == OnLate::Move && call.result.is_some() && matches!(pinned, PinnedResult::Placeholder(_))
    };
    // Earlier requests contained the pinned result, and prompt caches and thinking cover it.
    if let Some(pinned) = pinned.filter(|pinned| !overtaken(pinned)) {
        return Some(apply_pin(planner, pinned.clone(), call));
    }
    if let Some(row) = call.result {
        // Only this call can own the result, otherwise pairing would have called it an orphan.
        let moved = move_result(planner, call, row);
        let part = planner.pairing.results[row].part;
        let block = result_block::cut_block(planner.conversation.body, planner.conversation.parts[part].span);
        // With `late = "move"` the pinned placeholder stays on record, and each request moves the result anew.
        if let Some(block) = block.filter(|_| pinned.is_none()) {
            assign_result(planner, described, PinnedResult::Result(RealResult::Block(block)));
        }
        return Some(moved);
    }
    // Of two equal calls with one result the second gets a copy. Its new id is counted as an action already.
    if let Some((first, _)) = call.repeats.filter(|_| call.equals_first)
        && let Some(row) = planner.pairing.calls[first].result
        && let Some(left) = planner.copies_left.checked_sub(result_len(planner, row))
    {
        planner.copies_left = left;
        return Some(ResultSource::Part(planner.pairing.results[row].part));
    }
    if let Some(real) = planner.known.results.get(&described.key) {
        planner.count(Action::Restore);
        assign_result(planner, described, PinnedResult::Result(real.clone()));
        return Some(ResultSource::Real(real.clone()));
    }
    // The body then stays broken in this place, and the provider judges it.
    if !planner.allows(Applicability::Inventive) {
        return None;
    }
    planner.count(Action::Placeholder);
    let placeholder = planner.policy.placeholder(&described.tool);
    assign_result(planner, described, PinnedResult::Placeholder(placeholder));
    Some(ResultSource::Placeholder(placeholder))
}

/// Records a result that the call is given for the first time.
fn assign_result(planner: &mut HistoryPlanner<'_>, call: &BodyCall, result: PinnedResult) {
    planner.plan.assigned.push(Assignment {
        call: call.key,
        result,
        is_unique: call.is_unique,
    });
}

/// Returns the length of a result in bytes.
fn result_len(planner: &HistoryPlanner<'_>, row: ResultRowId) -> usize {
    let part = planner.pairing.results[row].part;
    planner.conversation.parts[part].span.len()
}

/// Moves a result of the body to its call.
fn move_result(planner: &mut HistoryPlanner<'_>, call: &CallRow, row: ResultRowId) -> ResultSource {
    let found = &planner.pairing.results[row];
    let merged = found.position == ResultPosition::Split && found.turn == Some(call.turn);
    planner.count(if merged { Action::Merge } else { Action::Move });
    planner.plan.part_changes.insert(found.part, PartChange::Removed);
    ResultSource::Part(found.part)
}

/// Turns an open call that cannot be answered into text. Removes the reasoning that would lose the item it belongs to.
fn turn_call_into_text(planner: &mut HistoryPlanner<'_>, call: PartId) {
    if !planner.allows(Applicability::Salvage) {
        planner.plan.report.unrepairable += 1;
        return;
    }
    planner.plan.part_changes.insert(call, PartChange::AsText);
    // The provider refuses reasoning "without its required following item".
    for part in planner.conversation.reasoning_before(call) {
        planner.plan.part_changes.insert(part, PartChange::Removed);
    }
    planner.count(Action::Quote);
}

/// Counts a move for a result in its place that is cut out of an assistant message, or put before a system message.
fn keep_result_in_place(planner: &mut HistoryPlanner<'_>, turn: TurnId, unit: usize) {
    let after_system = !planner.pairing.turns[turn].systems.is_empty();
    if after_system {
        planner.plan.turns.entry(turn).or_default().moves_systems = true;
    }
    // Both moves follow from the layout. No result is planned, and only the action is counted.
    if after_system || planner.pairing.units[unit].inner {
        planner.count(Action::Move);
    }
}

/// Gives a call its pinned result. An equal result elsewhere in the body moves to the call. Any other is quoted.
fn apply_pin(planner: &mut HistoryPlanner<'_>, pinned: PinnedResult, call: &CallRow) -> ResultSource {
    // The client has only put the pinned result elsewhere, so its own bytes serve.
    if let (PinnedResult::Result(real), Some(row)) = (&pinned, call.result)
        && same_result::is_same_result(planner.conversation, planner.pairing.results[row].part, real)
    {
        return move_result(planner, call, row);
    }
    if let Some(row) = call.result {
        quote_result(planner, row);
    }
    let (source, action) = match pinned {
        PinnedResult::Result(real) => (ResultSource::Real(real), Action::Restore),
        PinnedResult::Placeholder(placeholder) => (ResultSource::Placeholder(placeholder), Action::Placeholder),
    };
    planner.count(action);
    source
}
