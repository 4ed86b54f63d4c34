//! Look-up of what other processes, or earlier ones, have learned about a caller.
//!
//! It costs a wait only for callers with such facts, and only if the ledger may have new ones.

use crate::{
    auth::Caller,
    clock,
    ledger::OwnedRecords,
    provider::Upstream,
    proxy::{data_path::DataPath, provider_facts::FactKey},
    recall::{LedgerBudget, ProviderFact, ServerHash, ShapeScope, ShapeVerdict},
};

/// Loads the facts of a caller into memory, if the ledger may have new ones.
pub(super) async fn load_facts(path: &DataPath, caller: Caller, ledger_budget: &mut LedgerBudget) {
    let (facts, recall) = (&path.facts, &path.recall);
    // Before the read: a change meanwhile needs another one.
    let records = recall.known_facts(caller);
    if !caller.is_authenticated() || !facts.must_load(caller, records, clock::now()) {
        return;
    }
    // Boxed, because it is rare, and the future of every exchange would be larger otherwise.
    let servers: Vec<ServerHash> = path.routes.upstreams().iter().map(Upstream::server_hash).collect();
    let read = ledger_budget.spend(|deadline| Box::pin(recall.read_facts(caller, &servers, deadline)));
    let read = read.await;
    let stamp = match records {
        OwnedRecords::Some(stamp) if read.is_ok() => Some(stamp),
        _ => None,
    };
    facts.note_loaded(caller, stamp, clock::now());
    let found = read.unwrap_or_default();
    facts.adopt_facts(caller, &found);
    if found.iter().any(|(_, fact)| *fact == ProviderFact::ContinuesById) {
        recall.response_chains().adopt_continuing(caller);
    }
}

/// Looks up if the provider has accepted a conversation in shapes that a rule forbids. Another process may know more.
///
/// `shapes` is what memory knows. Returns `true` if the ledger knows better: then the body must be read again.
pub(super) async fn load_shapes(
    path: &DataPath,
    upstream: &Upstream,
    caller: Caller,
    shapes: &[(FactKey, Option<bool>)],
    ledger_budget: &mut LedgerBudget,
) -> bool {
    let is_exclusive = path.recall.is_exclusive();
    let mut open = shapes.to_vec();
    // Without other processes memory is right about what it knows. A refusal stays in any case.
    open.retain(|(_, known)| known.is_none() || (!is_exclusive && *known == Some(true)));
    if open.is_empty() {
        return false;
    }
    let names: Vec<FactKey> = open.iter().map(|(shape, _)| *shape).collect();
    let server = upstream.server_hash();
    let scope = ShapeScope { caller, server };
    let read = |deadline| Box::pin(path.recall.read_shape_verdicts(scope, &names, deadline));
    let Ok(verdicts) = ledger_budget.spend(read).await else {
        return false;
    };
    let mut has_news = false;
    for ((shape, known), verdict) in open.into_iter().zip(verdicts) {
        match verdict {
            Some(ShapeVerdict::Accepted) => has_news |= known.is_none() && path.facts.note_accepted_shape(shape),
            Some(ShapeVerdict::Refused) => has_news |= path.facts.note_unaccepted_shape(shape),
            // Another process may still store that it was accepted.
            None if is_exclusive => drop(path.facts.note_unaccepted_shape(shape)),
            None => {}
        }
    }
    has_news
}
