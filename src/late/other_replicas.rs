//! News of other replicas: the feeds and the messages that depend on what they store.

use std::{sync::Weak, time::Duration};

use tokio::{sync::broadcast::error::RecvError, time::timeout};

use super::{LateError, LateStore, LateStoreInner, feed::SettledEvent, pending::delivery_value, queries};
use crate::{
    auth::Principal,
    clock,
    ledger::{ChangeEvent, RecordChange, RecordKey, RecordKind},
};

/// Time between two warnings to the listeners of feeds while changes are not told.
const BLIND_PAUSE: Duration = Duration::from_secs(30);

/// Pause before a message of another replica is looked at.
const MESSAGE_PAUSE: Duration = Duration::from_secs(2);

/// Follows the changes of other replicas until the store is dropped.
pub(super) async fn follow_replicas(store: Weak<LateStoreInner>) {
    let Some(changes) = store.upgrade().map(|store| store.changes.clone()) else {
        return;
    };
    let Some(mut events) = changes.subscribe() else { return };
    loop {
        let received = timeout(BLIND_PAUSE, events.recv()).await;
        let Some(late) = store.upgrade().map(LateStore) else {
            return;
        };
        match received {
            Ok(Ok(ChangeEvent::Changed(change))) => match change.kind {
                RecordKind::Delivery if late.0.feed.has_listeners() => {
                    if announce(&late, &change).await.is_err() {
                        late.0.feed.send_missed();
                    }
                }
                RecordKind::Outgoing => {
                    let key = RecordKey::new(change.kind, Principal::from_bytes(change.principal), change.name);
                    // Looked at soon, for the case that the other replica dies. It belongs to that one until its time.
                    if !late.0.outbox.contains(&key) {
                        late.0.outbox.schedule(key, MESSAGE_PAUSE);
                    }
                }
                _ => {}
            },
            Ok(Ok(ChangeEvent::Gap) | Err(RecvError::Lagged(_))) => late.0.feed.send_missed(),
            Ok(Err(RecvError::Closed)) => return,
            Err(_) if changes.epoch().is_none() => late.0.feed.send_missed(),
            Err(_) => {}
        }
    }
}

/// Announces a result that another replica has stored, if it waits for its caller.
async fn announce(late: &LateStore, change: &RecordChange) -> Result<(), LateError> {
    let RecordChange { principal, name, .. } = *change;
    let principal = Principal::from_bytes(principal);
    let keys = [RecordKind::Delivery, RecordKind::Call].map(|kind| RecordKey::new(kind, principal, name));
    let records = late.0.ledger.read(keys.to_vec(), clock::unix_time()).await?;
    let [Some(delivery), Some(call)] = &records[..] else {
        return Ok(());
    };
    if delivery.value != delivery_value::RECEIVED
        && let Some(result) = queries::posted_call(call)
    {
        late.0.feed.send_settled(principal, SettledEvent::from_result(result));
    }
    Ok(())
}
