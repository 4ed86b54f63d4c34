//! Plans repairs other than of client calls: server halves, rejected fields, and a missing first user turn.

use super::{Action, Applicability, history_plan::PartChange, planner::HistoryPlanner};
use crate::{
    conversation::{FlawKind, PartId, Role, pairing::begins_with_calls, rules::ResultPlace, turns::TurnUnit},
    work,
};

/// Plans the removal of server halves, as far as they may be dropped.
pub(super) fn drop_server_halves(planner: &mut HistoryPlanner<'_>) {
    for half in &planner.pairing.server_halves {
        work::count(1);
        // The provider refuses a half without its partner, and only the provider can write the other half.
        if half.droppable && planner.allows(Applicability::Lossy) {
            planner.plan.part_changes.insert(half.part, PartChange::Removed);
            planner.count(Action::Drop);
        } else {
            planner.plan.report.unrepairable += 1;
        }
    }
}

/// Plans the fixes of rejected fields.
pub(super) fn fix_fields(planner: &mut HistoryPlanner<'_>) {
    if !planner.policy.hygiene {
        return;
    }
    for (flaw, is_fixable) in &planner.pairing.flaws {
        work::count(1);
        if !is_fixable {
            planner.plan.report.unrepairable += 1;
            continue;
        }
        let first = planner
            .conversation
            .messages
            .get(flaw.message)
            .map(|message| message.parts.start);
        if flaw.kind == FlawKind::RepeatedItemId
            && first.is_some_and(|part| planner.plan.part_changes.contains_key(&PartId::new(part)))
        {
            // A dropped or quoted item loses its id anyway.
            continue;
        }
        if let (FlawKind::BlankText | FlawKind::EmptyPart, Some(part)) = (flaw.kind, flaw.part) {
            // No value of a blank block would be accepted, and an empty part has none, so the block is removed.
            planner.plan.part_changes.insert(part, PartChange::Removed);
        }
        planner.plan.fixes.push(*flaw);
        let merges = flaw.kind == FlawKind::SplitTurn;
        planner.count(if merges { Action::Merge } else { Action::Fix });
    }
}

/// Plans a user turn at the beginning, if the history would otherwise begin with the assistant.
pub(super) fn add_opening(planner: &mut HistoryPlanner<'_>) {
    if (planner.pairing.headless || loses_first_user_turn(planner)) && planner.allows(Applicability::Inventive) {
        planner.plan.adds_opening = true;
        planner.count(Action::Open);
    }
}

/// Returns `true` if everything before the first assistant message vanishes, instructions aside: results inside that
/// message, or empty instructions. A user's message leaves a note behind, and so does thinking.
fn loses_first_user_turn(planner: &HistoryPlanner<'_>) -> bool {
    let gone = |part: PartId| planner.plan.part_changes.get(&part) == Some(&PartChange::Removed);
    // A message that loses its thinking, and has nothing else left, keeps a note.
    let removed = &planner.conversation.removed_thinking;
    let is_thinking = |part: PartId| removed.binary_search(&part).is_ok();
    // A deferred quote goes into its message, which then does not vanish.
    let vanishes = |index: usize, unit: &TurnUnit| {
        (unit.inner || unit.role != Role::User)
            && !unit.parts.is_empty()
            && PartId::all(unit.parts.clone()).all(|part| gone(part) && !is_thinking(part))
            && !planner.plan.deferred_quotes.contains_key(&index)
    };
    // As in `first_speaker`, of the history that is left.
    let mut units = planner.pairing.units.iter().enumerate();
    let head = units.find(|(index, unit)| {
        work::count(1);
        unit.role != Role::System && !vanishes(*index, unit)
    });
    let head = head.filter(|(_, unit)| unit.role == Role::Assistant);
    let whole = !planner.conversation.may_have_remote_calls && planner.conversation.compaction.is_none();
    // Gemini refuses only a leading turn with calls.
    let is_refused = |(head, _): (usize, &TurnUnit)| {
        planner.rules.place != ResultPlace::NextContent
            || begins_with_calls(planner.conversation, &planner.pairing.units[head..])
    };
    planner.rules.user_first && whole && head.is_some_and(is_refused)
}
