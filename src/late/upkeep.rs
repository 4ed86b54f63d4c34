//! The tasks that keep memory up to date: the callers with records, the news of other replicas, and the parked results.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{LateStore, other_replicas, parking};

/// Runs all of them until all other handles of the store are dropped.
pub(super) async fn run(late: LateStore) {
    if !late.is_used() {
        return;
    }
    let (owners, ledger) = (late.0.record_owners.clone(), Arc::downgrade(&late.0.ledger));
    // The handle is dropped first: these tasks must not keep the store alive.
    let store = Arc::downgrade(&late.0);
    drop(late);
    // Several notices during one search ask for one more.
    let missed = Notify::new();
    let news = other_replicas::follow_replicas(store.clone(), &missed);
    tokio::join!(owners.follow(ledger), news, parking::settle_and_expire(store, &missed));
}
