//! Look-up of what other processes, or earlier ones, have learned about a caller.
//!
//! A caller without such facts waits for nothing, as long as the ledger tells of changes. Otherwise every caller waits, once a
//! second.

use crate::{
    auth::Caller,
    clock,
    ledger::RecordState,
    proxy::{data_path::DataPath, fact_memory::ForbiddenShape},
    recall::{FactKey, LearnedFact, LedgerBudget, ShapeVerdict},
};

/// Loads the facts of a caller into memory, if the ledger may have new ones.
pub(super) async fn load_facts(path: &DataPath, caller: Caller, ledger_budget: &mut LedgerBudget) {
    let (facts, recall) = (&path.facts, &path.recall);
    // Before the read: a change meanwhile needs another one.
    let state = recall.fact_state(caller);
    if !caller.is_authenticated() || !facts.must_read(caller, state, clock::now()) {
        return;
    }
    // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
    let read = ledger_budget.spend(|deadline| Box::pin(recall.read_facts(caller, deadline)));
    let read = read.await;
    let stamp = match state {
        RecordState::Present(stamp) if read.is_ok() => Some(stamp),
        _ => None,
    };
    facts.note_read(caller, stamp, clock::now());
    let found = read.unwrap_or_default();
    facts.adopt_facts(caller, &found);
    if found.iter().any(|(_, fact)| *fact == LearnedFact::ContinuesById) {
        recall.response_chains().adopt_continuing(caller);
    }
}

/// Looks up the shapes in which the provider has accepted a conversation, of those that a rule forbids.
///
/// Returns `true` if a verdict is new: then the body must be read again.
pub(super) async fn load_shapes(
    path: &DataPath,
    caller: Caller,
    shapes: &[ForbiddenShape],
    ledger_budget: &mut LedgerBudget,
) -> bool {
    let is_shared = !path.recall.is_exclusive();
    // A conversation that keeps to the rule never returns to its old shape. Another process may have changed one that does not.
    let is_open = |shape: &&ForbiddenShape| match shape.verdict {
        None => true,
        Some(ShapeVerdict::Accepted) => is_shared,
        Some(ShapeVerdict::Changed) => false,
    };
    let keys: Vec<FactKey> = shapes.iter().filter(is_open).map(|shape| shape.key).collect();
    if keys.is_empty() {
        return false;
    }
    let read = |deadline| Box::pin(path.recall.read_shape_verdicts(caller, &keys, deadline));
    let verdicts = ledger_budget.spend(read).await.unwrap_or_default();
    let mut has_news = false;
    for (key, verdict) in keys.into_iter().zip(verdicts) {
        has_news |= verdict.is_some_and(|verdict| path.facts.note_shape(key, verdict));
    }
    has_news
}
