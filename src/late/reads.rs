//! Reads on behalf of one caller: its own calls and results, and nothing else.

use tokio::time::{Instant, timeout_at};

use super::{CallQuery, FoundResult, LateError, LateStore, record_names, records::RecordedCall};
use crate::{
    auth::Caller,
    clock,
    ledger::{ROWS_MAX, Record, RecordKey, RecordKind, RecordName, read_all},
    repair::is_strong,
    session::LaneId,
};

/// Returns the posted results of these calls, in their order. Every entry is `None` after an error or a timeout.
pub(super) async fn find_results(
    late: &LateStore,
    caller: Caller,
    lane: Option<LaneId>,
    wanted: &[CallQuery],
    by: Instant,
) -> Vec<Option<FoundResult>> {
    let mut found = vec![None; wanted.len()];
    if !late.is_used() || wanted.is_empty() {
        return found;
    }
    let lane = lane.map(|lane| *lane.as_bytes());
    let name = |call: &CallQuery| record_names::call_name(&call.id, &call.tool, lane.as_ref(), Some(&call.input_hash));
    let is_sure = |call: &CallQuery| lane.is_some() || is_strong(&call.id, &call.tool);
    // Without a lane a reusable id could be any conversation's, so such a call is not read at all.
    let asked: Vec<usize> = (0..wanted.len())
        .filter(|place| wanted.get(*place).is_some_and(is_sure))
        .collect();
    let keys = asked.iter().filter_map(|place| wanted.get(*place));
    let keys: Vec<RecordKey> = keys
        .map(|call| record_names::record_key(RecordKind::Call, caller.principal(), name(call)))
        .collect();
    let read = read_all(&*late.0.ledger, keys, clock::unix_time());
    // The exchange continues without the results: a slow ledger must not delay it.
    let Ok(Ok(records)) = timeout_at(by, read).await else {
        late.0.telemetry.record_late_event("unread");
        return found;
    };
    for (place, record) in asked.into_iter().zip(records) {
        let Some(record) = record else { continue };
        let call = RecordedCall::decode(&record.value);
        let posted = call.and_then(|call| Some((call.id, call.posted?)));
        if let (Some(slot), Some((id, posted))) = (found.get_mut(place), posted) {
            *slot = Some(FoundResult {
                call: record.key.name,
                id,
                content: posted.content,
                failed: posted.failed,
            });
        }
    }
    found
}

/// Returns the results that wait for the caller, in posting order.
pub(super) async fn outstanding_results(
    late: &LateStore,
    caller: Caller,
) -> Result<Vec<(RecordName, RecordedCall)>, LateError> {
    let now = clock::unix_time();
    // Deliveries are inserted with their results, so their order is the posting order.
    let deliveries = late
        .0
        .ledger
        .list_records(RecordKind::Delivery, *caller.principal().as_bytes(), ROWS_MAX, now);
    let deliveries = deliveries.await?;
    let keys = deliveries
        .iter()
        .map(|record| record_names::record_key(RecordKind::Call, caller.principal(), record.key.name));
    let calls = late.0.ledger.read(keys.collect(), now).await?;
    Ok(posted_calls(&calls))
}

/// Returns those results that wait for the caller and pass `among`, in posting order: none after an error or a timeout.
pub(super) async fn waiting_results(
    late: &LateStore,
    caller: Caller,
    among: impl Fn(&RecordName) -> bool,
    by: Instant,
) -> Vec<(RecordName, RecordedCall)> {
    let names = late.0.pending.filter_names(caller.principal(), among);
    // Most exchanges end here, without a read of the ledger.
    if names.is_empty() {
        return Vec::new();
    }
    let keys = names
        .iter()
        .map(|name| record_names::record_key(RecordKind::Call, caller.principal(), *name));
    let read = read_all(&*late.0.ledger, keys.collect(), clock::unix_time());
    let Ok(Ok(calls)) = timeout_at(by, read).await else {
        late.0.telemetry.record_late_event("unread");
        return Vec::new();
    };
    let mut waiting = posted_calls(&calls);
    // The names come from a hash map, so they have no order of their own.
    waiting.sort_by_key(|(_, call)| call.posted.as_ref().map(|posted| posted.posted_at));
    waiting
}

/// Reads the results that wait for the caller into memory, unless they were read before.
pub(super) async fn load_pending(late: &LateStore, caller: Caller, by: Instant) {
    if !late.is_used() || !caller.is_authenticated() || !late.0.pending.needs_load(caller.principal()) {
        return;
    }
    let now = clock::unix_time();
    let list = late
        .0
        .ledger
        .list_records(RecordKind::Delivery, *caller.principal().as_bytes(), ROWS_MAX, now);
    match timeout_at(by, list).await {
        Ok(Ok(records)) => late.0.pending.load(caller.principal(), &records),
        // Not marked as loaded, so that the next exchange reads again.
        Ok(Err(_)) | Err(_) => late.0.telemetry.record_late_event("unread"),
    }
}

/// Returns the caller's calls of these ids that have a posted result, in the order of the ids.
pub(super) async fn look_up_calls(
    late: &LateStore,
    caller: Caller,
    ids: &[Vec<u8>],
) -> Result<Vec<Option<(RecordName, RecordedCall)>>, LateError> {
    let now = clock::unix_time();
    let ids = ids.get(..ids.len().min(ROWS_MAX)).unwrap_or_default();
    // Calls with reusable ids have names of another form, so this read never finds them.
    let strong = ids
        .iter()
        .map(|id| record_names::record_key(RecordKind::Call, caller.principal(), record_names::strong_call_name(id)));
    let records = late.0.ledger.read(strong.collect(), now).await?;
    Ok(records.iter().map(|record| posted_call(record.as_ref()?)).collect())
}

fn posted_calls(records: &[Option<Record>]) -> Vec<(RecordName, RecordedCall)> {
    records.iter().flatten().filter_map(posted_call).collect()
}

/// Decodes a call. Returns `None` if it has no posted result.
fn posted_call(record: &Record) -> Option<(RecordName, RecordedCall)> {
    let call = RecordedCall::decode(&record.value)?;
    call.posted.is_some().then_some((record.key.name, call))
}
