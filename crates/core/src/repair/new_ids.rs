//! New ids for calls whose ids the provider rejects, and for the results that answer them.

use std::collections::{HashMap, HashSet};

use super::{Action, legal_ids, planner::HistoryPlanner};
use crate::{
    conversation::{
        pairing::{CallRow, ResultRole, id_of},
        rules::{IdRule, IdScope},
    },
    work,
};

/// The ids that are taken, and the next free ordinal of each new one.
#[derive(Default)]
struct TakenIds {
    ids: HashSet<Vec<u8>>,
    /// No ordinal is tried twice, which keeps this linear.
    free: HashMap<String, usize>,
}

impl TakenIds {
    /// Takes a new id in place of `old`, with this ordinal or the next that is free.
    fn take_new(&mut self, old: &[u8], rule: IdRule, ordinal: usize) -> String {
        let free = self.free.entry(legal_ids::legal_id(old, rule, 1)).or_insert(1);
        let mut ordinal = ordinal.max(*free);
        let mut new = legal_ids::legal_id(old, rule, ordinal);
        while !self.ids.insert(new.clone().into_bytes()) {
            work::count(1);
            ordinal += 1;
            new = legal_ids::legal_id(old, rule, ordinal);
        }
        *free = ordinal + 1;
        new
    }
}

/// Gives new ids to calls and to the results that answer them.
pub(super) fn rename_calls(planner: &mut HistoryPlanner<'_>) {
    let is_renamed = |call: &&CallRow| call.bad_id || call.repeats.is_some();
    let is_body_wide =
        planner.rules.id_scope == IdScope::Body && planner.pairing.calls.iter().any(|call| is_renamed(&call));
    let mut taken = TakenIds::default();
    for turn in &planner.pairing.turns {
        if !is_body_wide {
            // Only the ids of this turn are taken. In the whole body, later turns never change an earlier new id.
            taken = TakenIds::default();
        }
        let calls = || {
            work::count(turn.calls.len().saturating_add(1));
            planner.pairing.calls[turn.calls.clone()].iter()
        };
        let id = |call: &CallRow| {
            let id = id_of(planner.conversation, call.part);
            work::count_bytes(id.len());
            id.to_vec()
        };
        // An earlier new id may be the own id of this call.
        let is_due = |call: &&CallRow| is_renamed(call) || is_body_wide && taken.ids.contains(&id(call));
        let due: Vec<&CallRow> = calls().filter(is_due).collect();
        if is_body_wide || !due.is_empty() {
            // A new id must not repeat the id of another call, which would be a new finding.
            taken.ids.extend(calls().map(id));
        }
        rename_turn(planner, &due, &mut taken);
    }
    rename_nameless_results(planner);
    rename_further_results(planner);
}

/// Gives new ids to these calls of one turn.
fn rename_turn(planner: &mut HistoryPlanner<'_>, due: &[&CallRow], taken: &mut TakenIds) {
    // By old id, where calls may share one.
    let mut shared: HashMap<&[u8], String> = HashMap::new();
    for call in due {
        let old = id_of(planner.conversation, call.part);
        work::count_bytes(old.len());
        planner.count(Action::Rename);
        if let Some(new) = shared.get(old) {
            // Both calls keep the result that they share.
            insert_new_id(planner, call, new);
            continue;
        }
        let new = taken.take_new(old, planner.rules.ids, call.repeats.map_or(1, |(_, count)| count));
        let renamed = (new.clone(), String::from_utf8_lossy(old).into_owned());
        planner.plan.report.renamed.push(renamed);
        insert_new_id(planner, call, &new);
        if planner.rules.id_scope == IdScope::Shared {
            shared.insert(old, new);
        }
    }
}

/// Gives a new id to a call and to its result, because the two pair by id.
fn insert_new_id(planner: &mut HistoryPlanner<'_>, call: &CallRow, new: &str) {
    if let Some(row) = call.result {
        let result = planner.pairing.results[row].part;
        planner.plan.new_ids.insert(result, new.to_owned());
    }
    planner.plan.new_ids.insert(call.part, new.to_owned());
}

/// Gives the further results of a call its new id.
fn rename_further_results(planner: &mut HistoryPlanner<'_>) {
    work::count(planner.pairing.results.len());
    for row in &planner.pairing.results {
        if let ResultRole::AlsoAnswers(call) = row.role
            && let Some(id) = planner.plan.new_ids.get(&planner.pairing.calls[call].part).cloned()
        {
            planner.plan.new_ids.insert(row.part, id);
        }
    }
}

/// Gives results without an id the id of the call that they answer.
fn rename_nameless_results(planner: &mut HistoryPlanner<'_>) {
    work::count(planner.pairing.results.len());
    for row in planner.pairing.results.iter().filter(|row| row.nameless) {
        if let ResultRole::Answers(call) = row.role {
            let call = planner.pairing.calls[call].part;
            let old = id_of(planner.conversation, call);
            let id = String::from_utf8_lossy(old).into_owned();
            let id = planner.plan.new_ids.get(&call).cloned().unwrap_or(id);
            if id.as_bytes() != old {
                // A lone surrogate cannot be written as text, so the call takes the result's new id too.
                planner.plan.new_ids.insert(call, id.clone());
            }
            planner.plan.new_ids.insert(row.part, id);
            planner.count(Action::Rename);
        }
    }
}
