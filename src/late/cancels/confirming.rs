//! Requests about cancels: the owner of a call wants it undone, and its service reports that it was, or will not be.

use std::time::Duration;

use super::{evidence, sending};
use crate::{
    auth::Caller,
    clock,
    late::{
        CHANGE_TRIES_MAX, LateError, LateStore,
        leave_reason::LeaveReason,
        matching::{self, NamedCall},
        outbox::{self, OutgoingRecord, Purpose},
        record_names,
        records::{RecordedCall, RecordedCallState},
        settling::{self, MatchedCall},
    },
    ledger::{CommitOutcome, ROWS_MAX, Record, RecordKey, RecordKind},
    repair::Tier,
};

/// The outcome of a request about a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The call is in this state.
    State(RecordedCallState),
    /// The call has a result, or its client has answered it.
    Ended,
    /// The effect of the tool cannot be undone, or nobody can be asked to.
    NotUndoable,
    /// The id does not identify one call.
    Ambiguous,
    /// No such call is recorded.
    Unknown,
}

/// Asks the tool of the caller's call to undo it. See [`Cancels::request`](super::Cancels::request).
pub(super) async fn request(late: &LateStore, caller: Caller, id: &[u8]) -> Result<CancelAnswer, LateError> {
    // The call may have come with an answer a moment ago.
    late.0.jobs.await_call(id).await;
    let now = clock::unix_time();
    let index = record_names::call_index(id);
    let found = late
        .0
        .ledger
        .find_by_index(RecordKind::Call, index, ROWS_MAX, now)
        .await?;
    let own = found
        .into_iter()
        .filter(|record| record.key.principal == *caller.principal().as_bytes());
    let decoded = own.filter_map(|record| Some((record.key, RecordedCall::decode(&record.value)?)));
    let own: Vec<(RecordKey, RecordedCall)> = decoded.collect();
    let mut calls = matching::calls_of_id(own, id, |(_, call)| &call.id);
    let Some((key, _)) = calls.pop() else {
        return Ok(CancelAnswer::Unknown);
    };
    if !calls.is_empty() {
        return Ok(CancelAnswer::Ambiguous);
    }
    for _ in 0..CHANGE_TRIES_MAX {
        // On a conflict another request, or the sender, was first: the next round finds what it has stored.
        if let Some(answer) = request_of_call(late, key).await? {
            return Ok(answer);
        }
    }
    Err(LateError::Busy)
}

/// Stores the message that asks for a cancel, or lets that of an earlier evidence be sent at once.
///
/// A message that the owner asked for before stays as it is: one cancel is one message. Returns `None` if another writer
/// was first.
async fn request_of_call(late: &LateStore, key: RecordKey) -> Result<Option<CancelAnswer>, LateError> {
    let now = clock::unix_time();
    let message_key = evidence::cancel_key(&key);
    // Read together: between two reads the message could be sent and answered.
    let mut records = late.0.ledger.read(vec![key, message_key], now).await?.into_iter();
    let (call, stored) = (records.next().flatten(), records.next().flatten());
    let Some(call) = call.and_then(|record| RecordedCall::decode(&record.value)) else {
        return Ok(Some(CancelAnswer::Unknown));
    };
    if let Some(answer) = answer_without_request(late, &call) {
        return Ok(Some(answer));
    }
    let requested = || OutgoingRecord {
        give_up_at: call.deadline.max(now),
        ..evidence::cancel_message(late, &key, call.lane, LeaveReason::Requested, now)
    };
    let is_sent = call.state == RecordedCallState::CancelRequested;
    let known = stored.as_ref().and_then(|record| OutgoingRecord::decode(&record.value));
    let step = match (stored.as_ref(), known) {
        (Some(record), Some(message)) if message.is_dead => Some(outbox::replace_step(record, &requested())),
        // It has its own tries and its own end.
        (_, Some(message)) if is_sent || is_requested(&message) => None,
        (Some(record), Some(message)) => {
            let at_once = OutgoingRecord {
                made_at: message.made_at,
                ..requested()
            };
            Some(outbox::replace_step(record, &at_once))
        }
        // The service has accepted it, and will report.
        _ if is_sent => None,
        // It cannot be decoded, so nobody would ever send it.
        (Some(record), None) => Some(outbox::replace_step(record, &requested())),
        (None, _) => Some(outbox::insert_step(message_key, &requested())),
    };
    if let Some(step) = step {
        if late.0.ledger.commit(vec![step], now).await? != CommitOutcome::Done {
            return Ok(None);
        }
        late.0.outbox.schedule(message_key, Duration::ZERO);
    }
    late.0.watched_lanes.lock().make_final(&key, clock::now());
    Ok(Some(CancelAnswer::State(RecordedCallState::CancelRequested)))
}

fn is_requested(message: &OutgoingRecord) -> bool {
    let Purpose::Cancel { reason, .. } = message.purpose else {
        return false;
    };
    reason == LeaveReason::Requested
}

/// Returns the answer for a call that needs no cancel, or can have none. `None` if its service is to be asked.
fn answer_without_request(late: &LateStore, call: &RecordedCall) -> Option<CancelAnswer> {
    let is_undoable = late.0.settings.tool_settings(&call.tool).cancel_url.is_some();
    match call.state {
        _ if call.tier != Tier::Revertible || !is_undoable => Some(CancelAnswer::NotUndoable),
        RecordedCallState::Cancelled => Some(CancelAnswer::State(call.state)),
        _ if !matching::is_running(call) => Some(CancelAnswer::Ended),
        RecordedCallState::CancelRefused => Some(CancelAnswer::State(call.state)),
        _ => None,
    }
}

/// Notes the end of a cancel. See [`Cancels::confirm`](super::Cancels::confirm).
pub(super) async fn confirm(
    late: &LateStore,
    named: &NamedCall<'_>,
    is_refused: bool,
) -> Result<CancelAnswer, LateError> {
    late.0.jobs.await_call(named.call_id).await;
    for _ in 0..CHANGE_TRIES_MAX {
        let now = clock::unix_time();
        let (record, call): (Record, RecordedCall) = match settling::find_call(late, named, None, now).await? {
            MatchedCall::None => return Ok(CancelAnswer::Unknown),
            MatchedCall::Several => return Ok(CancelAnswer::Ambiguous),
            MatchedCall::One(found) => *found,
        };
        if call.tier != Tier::Revertible {
            return Ok(CancelAnswer::NotUndoable);
        }
        let wanted = if is_refused {
            RecordedCallState::CancelRefused
        } else {
            RecordedCallState::Cancelled
        };
        if call.state == wanted {
            return Ok(CancelAnswer::State(wanted));
        }
        if !matching::is_running(&call) {
            return Ok(CancelAnswer::Ended);
        }
        let mut steps = sending::end_steps(late, &record, call, is_refused, now).await?;
        let message = evidence::cancel_key(&record.key);
        let waiting = late.0.ledger.read(vec![message], now).await?.into_iter().flatten();
        steps.extend(waiting.map(|record| outbox::remove_step(&record)));
        if late.0.ledger.commit(steps, now).await? == CommitOutcome::Done {
            late.0.outbox.remove(&message);
            late.0.watched_lanes.remove_call(&record.key);
            sending::count_end(late, is_refused);
            return Ok(CancelAnswer::State(wanted));
        }
    }
    Err(LateError::Busy)
}
