//! Look-up of what other processes, or earlier ones, have learned about a caller.
//!
//! A caller without such facts waits for nothing, as long as the ledger tells of changes. Otherwise every caller waits, once a
//! second.

use crate::{
    auth::Caller,
    clock,
    ledger::RecordState,
    proxy::{
        data_path::{DataPath, OnOutage},
        fact_memory::ForbiddenShape,
    },
    recall::{FactKey, LearnedFact, LedgerBudget},
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
    let found = read.unwrap_or_default();
    facts.adopt_facts(caller, &found);
    facts.note_read(caller, stamp, clock::now());
    if found.iter().any(|(_, fact)| *fact == LearnedFact::ContinuesById) {
        recall.response_chains().adopt_continuing(caller);
    }
}

/// The result of a look-up of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShapeLookup {
    /// The body was read with the right verdicts.
    Known,
    /// Memory has other verdicts now, so the body must be read again.
    News,
    /// The ledger did not answer. The conversation may have been accepted in a shape that a rule forbids.
    Unread,
}

/// Looks up the shapes in which the provider has accepted a conversation, of those that a rule forbids.
///
/// `shapes` has the verdicts with which the body was read.
pub(super) async fn load_shapes(
    path: &DataPath,
    caller: Caller,
    shapes: &[ForbiddenShape],
    ledger_budget: &mut LedgerBudget,
) -> ShapeLookup {
    let is_open = |shape: &&ForbiddenShape| !path.recall.is_shape_certain(caller, shape.key);
    let open: Vec<&ForbiddenShape> = shapes.iter().filter(is_open).collect();
    if open.is_empty() {
        return ShapeLookup::Known;
    }
    if path.settings.on_outage != OnOutage::Degrade {
        ledger_budget.make_patient();
    }
    let keys: Vec<FactKey> = open.iter().map(|shape| shape.key).collect();
    let read = |deadline| Box::pin(path.recall.load_shapes(caller, &keys, deadline));
    let Ok(verdicts) = ledger_budget.spend(read).await else {
        return ShapeLookup::Unread;
    };
    let is_news = open
        .iter()
        .zip(verdicts)
        .any(|(shape, verdict)| shape.verdict != verdict);
    if is_news { ShapeLookup::News } else { ShapeLookup::Known }
}
