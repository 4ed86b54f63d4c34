//! The answer of each call: pinned, elsewhere in the body, copied, known, or a placeholder.

use std::collections::HashMap;

use super::{
    Action, Applicability, BodyCall, OnLate, equal,
    history_plan::{Answer, Lift, Source},
    kept,
    known_answers::{Assignment, PinnedAnswer, RealResult},
    planner::Planner,
    salvage::quote,
    words::Placeholder,
};
use crate::conversation::{
    Open,
    pairing::{CallRow, Standing},
};

/// Gives each call the first answer that applies.
pub(super) fn assign_answers(planner: &mut Planner<'_>) {
    let (history, pairing) = (planner.history, planner.pairing);
    let overrides = overrides(planner);
    // Open calls are in document order, as the rows are.
    let mut open = history.open.iter().peekable();
    for (index, call) in pairing.calls.iter().enumerate() {
        let described = open.next_if(|described| described.row == index);
        if let Some(row) = call.answer.map(|row| &pairing.results[row])
            && row.home
        {
            match overrides.get(&index) {
                Some(placeholder) => overrule(planner, call, row.part, *placeholder),
                None => answered_in_place(planner, call.turn, row.unit),
            }
            continue;
        }
        if call.answer.is_none() && call.open == Open::Unanswerable {
            fold(planner, call.part);
            continue;
        }
        let Some(source) = described.and_then(|described| source(planner, call, described)) else {
            continue;
        };
        let plan = planner.plan.turns.entry(call.turn).or_default();
        plan.answers.push(Answer {
            call: call.part,
            source,
        });
        plan.systems = true;
    }
}

/// Returns the placeholders that replace results in their places, by the row of the call.
fn overrides(planner: &Planner<'_>) -> HashMap<usize, Placeholder> {
    if planner.known.overrides.is_empty() {
        return HashMap::new();
    }
    let calls = planner.history.answered_calls().into_iter();
    calls
        .filter_map(|call| Some((call.row, *planner.known.overrides.get(&call.key)?)))
        .collect()
}

/// A placeholder goes back into the place where the client has put a result since.
fn overrule(planner: &mut Planner<'_>, call: &CallRow, result: usize, placeholder: Placeholder) {
    planner.count(Action::Placeholder);
    planner.plan.lifts.insert(result, Lift::Gone);
    planner.plan.turns.entry(call.turn).or_default().answers.push(Answer {
        call: call.part,
        source: Source::Placeholder(placeholder),
    });
}

/// Finds the answer of a call that has none in its place: pinned, elsewhere in the body, copied, known, invented.
fn source(planner: &mut Planner<'_>, call: &CallRow, described: &BodyCall) -> Option<Source> {
    let pinned = planner.known.pinned.get(&described.key);
    let overtaken = |pinned: &PinnedAnswer| {
        planner.policy.late == OnLate::Move && call.answer.is_some() && matches!(pinned, PinnedAnswer::Placeholder(_))
    };
    if let Some(pinned) = pinned.filter(|pinned| !overtaken(pinned)) {
        return Some(apply_pin(planner, pinned.clone(), call));
    }
    if let Some(row) = call.answer {
        let moved = moved(planner, call, row);
        let part = planner.pairing.results[row].part;
        let block = kept::cut(planner.conversation.body, planner.conversation.parts[part].span);
        if let Some(block) = block.filter(|_| pinned.is_none()) {
            assign(planner, described, PinnedAnswer::Result(RealResult::Block(block)));
        }
        return Some(moved);
    }
    // Two equal calls with one result: the second gets a copy. Its new id is counted already.
    if let Some((first, _)) = call.repeats.filter(|_| call.equal)
        && let Some(row) = planner.pairing.calls[first].answer
        && let Some(left) = planner.copies_left.checked_sub(length_of(planner, row))
    {
        planner.copies_left = left;
        return Some(Source::Part(planner.pairing.results[row].part));
    }
    if let Some(real) = planner.known.results.get(&described.key) {
        planner.count(Action::Restore);
        assign(planner, described, PinnedAnswer::Result(real.clone()));
        return Some(Source::Real(real.clone()));
    }
    if !planner.may(Applicability::Inventive) {
        return None;
    }
    planner.count(Action::Placeholder);
    let placeholder = planner.policy.placeholder(&described.tool);
    assign(planner, described, PinnedAnswer::Placeholder(placeholder));
    Some(Source::Placeholder(placeholder))
}

/// Notes an answer that the call is given for the first time.
fn assign(planner: &mut Planner<'_>, call: &BodyCall, answer: PinnedAnswer) {
    planner.plan.assigned.push(Assignment {
        call: call.key,
        answer,
        is_unique: call.is_unique,
    });
}

/// Returns the bytes of a result.
fn length_of(planner: &Planner<'_>, row: usize) -> usize {
    let part = planner.pairing.results[row].part;
    planner.conversation.parts[part].span.len()
}

/// A result of the body goes to its call.
fn moved(planner: &mut Planner<'_>, call: &CallRow, row: usize) -> Source {
    let found = &planner.pairing.results[row];
    let merged = found.standing == Standing::Split && found.turn == Some(call.turn);
    planner.count(if merged { Action::Merge } else { Action::Move });
    planner.plan.lifts.insert(found.part, Lift::Gone);
    Source::Part(found.part)
}

/// An open call that nobody can answer becomes text, with the reasoning that would lose the item it belongs to.
fn fold(planner: &mut Planner<'_>, call: usize) {
    if !planner.may(Applicability::Salvage) {
        planner.plan.report.unrepairable += 1;
        return;
    }
    planner.plan.lifts.insert(call, Lift::Folded);
    for part in planner.conversation.reasoning_before(call) {
        planner.plan.lifts.insert(part, Lift::Gone);
    }
    planner.count(Action::Quote);
}

/// A result in its place may still have to be cut out of an assistant message, or put before a system message.
fn answered_in_place(planner: &mut Planner<'_>, turn: usize, unit: usize) {
    let behind_system = !planner.pairing.turns[turn].systems.is_empty();
    if behind_system {
        planner.plan.turns.entry(turn).or_default().systems = true;
    }
    if behind_system || planner.pairing.units[unit].inner {
        planner.count(Action::Move);
    }
}

/// Gives a call its pinned answer. The same result elsewhere in the body is that answer; any other is quoted.
fn apply_pin(planner: &mut Planner<'_>, pinned: PinnedAnswer, call: &CallRow) -> Source {
    if let (PinnedAnswer::Result(real), Some(row)) = (&pinned, call.answer)
        && equal::says(planner.conversation, planner.pairing.results[row].part, real)
    {
        return moved(planner, call, row);
    }
    if let Some(row) = call.answer {
        quote(planner, row);
    }
    let (source, action) = match pinned {
        PinnedAnswer::Result(real) => (Source::Real(real), Action::Restore),
        PinnedAnswer::Placeholder(placeholder) => (Source::Placeholder(placeholder), Action::Placeholder),
    };
    planner.count(action);
    source
}
