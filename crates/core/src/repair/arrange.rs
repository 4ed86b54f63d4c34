//! Plans which text moves out of places where the provider accepts none.

use crate::{
    conversation::{PartId, PartKind, Role, pairing::MisplacedWords, rules::WordsPlace},
    repair::{Action, Applicability, planner::HistoryPlanner},
    work,
};

/// Marks the messages whose text moves.
///
/// It runs after all other moves are planned, because they may remove the text or its neighbours.
pub(super) fn arrange_words(planner: &mut HistoryPlanner<'_>) {
    // Inserted results must not join text either, even if the client's own messages are healthy.
    planner.plan.results_apart = planner.rules.words == WordsPlace::ApartFromResults;
    planner.plan.adds_bridges = planner.rules.words == WordsPlace::Bridged && planner.allows(Applicability::Inventive);
    if planner.rules.words == WordsPlace::Bridged && !planner.plan.adds_bridges {
        planner.plan.report.unrepairable += planner.pairing.misplaced_words.len();
        return;
    }
    for words in &planner.pairing.misplaced_words {
        work::count(1);
        if !words.movable {
            planner.plan.report.unrepairable += 1;
        } else if is_still_misplaced(planner, words) {
            let message = planner.pairing.units[words.unit].message;
            planner.plan.arranged.insert(message);
            planner.count(Action::Rearrange);
        }
    }
}

/// Returns `true` if the text and its neighbour both stay in the message.
fn is_still_misplaced(planner: &HistoryPlanner<'_>, words: &MisplacedWords) -> bool {
    if planner.plan.adds_bridges {
        return !planner.plan.part_changes.contains_key(&words.beside);
    }
    let unit = &planner.pairing.units[words.unit];
    let stay = |part: &PartId| !planner.plan.part_changes.contains_key(part);
    let kind = |part: PartId| &planner.conversation.parts[part].kind;
    let mut parts = PartId::all(unit.parts.clone()).filter(stay);
    if unit.role == Role::Assistant {
        // Both searches share one iterator, so only text after a remaining call counts.
        return parts.any(|part| matches!(kind(part), PartKind::Call(_)))
            && parts.any(|part| matches!(kind(part), PartKind::Other));
    }
    let results = parts
        .clone()
        .filter(|part| matches!(kind(*part), PartKind::Result(_)))
        .count();
    results > 0 && results < parts.count()
}
