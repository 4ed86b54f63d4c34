//! News of other replicas: the feeds, the messages and the parked results that depend on what they store.

use std::{sync::Weak, time::Duration};

use tokio::{
    sync::{Notify, broadcast::error::RecvError},
    time::timeout,
};

use super::{LateError, LateFeatures, contents, feed::SettledEvent, records::delivery_value};
use crate::{
    auth::Principal,
    clock,
    ledger::{ChangeEvent, RecordChange, RecordKey, RecordKind},
};

/// Time between two warnings to the listeners of feeds while changes are not told.
const BLIND_PAUSE: Duration = Duration::from_secs(30);

/// Pause before a message of another replica is looked at.
const MESSAGE_PAUSE: Duration = Duration::from_secs(2);

/// Follows the changes of other replicas until the store is dropped. `missed` gets a notice when some were missed.
pub(super) async fn follow_replicas(store: Weak<LateFeatures>, missed: &Notify) {
    let Some(changes) = store.upgrade().map(|late| late.parts.ledger.changes()) else {
        return;
    };
    let Some(mut events) = changes.subscribe() else { return };
    loop {
        let received = timeout(BLIND_PAUSE, events.recv()).await;
        let Some(late) = store.upgrade() else {
            return;
        };
        match received {
            Ok(Ok(ChangeEvent::Changed(change))) => match change.kind {
                RecordKind::Delivery if late.feed.has_listeners() => announce(&late, &change).await,
                RecordKind::Parked => {
                    let key = RecordKey::new(change.kind, Principal::from_bytes(change.principal), change.name);
                    if let Err(error) = late.calls.note_parked_change(key).await {
                        tracing::warn!(%error, "failed to read a parked result: trying again in ten minutes");
                    }
                }
                RecordKind::Outgoing => {
                    let key = RecordKey::new(change.kind, Principal::from_bytes(change.principal), change.name);
                    // Looked at soon, for the case that the other replica dies. It belongs to that one until its time.
                    if !late.outbox.due().contains(&key) {
                        late.outbox.due().schedule(key, MESSAGE_PAUSE);
                    }
                }
                _ => {}
            },
            Ok(Ok(ChangeEvent::Gap) | Err(RecvError::Lagged(_))) => {
                late.feed.send_missed();
                // Not read here: further changes would be missed meanwhile.
                missed.notify_one();
            }
            Ok(Err(RecvError::Closed)) => return,
            Err(_) if changes.epoch().is_none() => late.feed.send_missed(),
            Err(_) => {}
        }
    }
}

/// Announces a result that another replica has stored. If it cannot be read, listeners are told that they have missed one.
async fn announce(late: &LateFeatures, change: &RecordChange) {
    match read_result(late, change).await {
        Ok(Some((principal, event))) => late.feed.send_settled(principal, event),
        Ok(None) => {}
        Err(_) => late.feed.send_missed(),
    }
}

/// Returns the announcement of a stored result, unless it does not wait for its caller any more.
async fn read_result(
    late: &LateFeatures,
    change: &RecordChange,
) -> Result<Option<(Principal, SettledEvent)>, LateError> {
    let RecordChange { principal, name, .. } = *change;
    let principal = Principal::from_bytes(principal);
    let keys = [RecordKind::Delivery, RecordKind::Call].map(|kind| RecordKey::new(kind, principal, name));
    let records = late.parts.ledger.read(keys.to_vec(), clock::unix_time()).await?;
    let [Some(delivery), Some(call)] = &records[..] else {
        return Ok(None);
    };
    let result = contents::posted_call(call).filter(|_| delivery.value != delivery_value::RECEIVED);
    Ok(result.map(|result| (principal, SettledEvent::from_result(result.0, &result.1))))
}
