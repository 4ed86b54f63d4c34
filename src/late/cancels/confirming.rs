//! Requests about cancels: the owner of a call wants it undone, and its service reports that it was, or will not be.

use super::{evidence, sending};
use crate::{
    auth::Caller,
    clock,
    late::{
        CHANGE_TRIES_MAX, LateError, LateStore,
        leave_reason::LeaveReason,
        matching::{self, NamedCall},
        outbox::{self, OutgoingRecord},
        record_names,
        records::{RecordedCall, RecordedCallState},
        settling::{self, MatchedCall},
    },
    ledger::{CommitOutcome, ROWS_MAX, Record, RecordKey, RecordKind},
    repair::{Tier, id_letters},
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
    let now = clock::unix_time();
    let index = record_names::call_index(id);
    let found = late
        .0
        .ledger
        .find_by_index(RecordKind::Call, index, ROWS_MAX, now)
        .await?;
    let letters = id_letters(id);
    let own = found
        .into_iter()
        .filter(|record| record.key.principal == *caller.principal().as_bytes());
    let decoded = own.filter_map(|record| Some((record.key, RecordedCall::decode(&record.value)?)));
    let mut calls: Vec<(RecordKey, RecordedCall)> =
        decoded.filter(|(_, call)| id_letters(&call.id) == letters).collect();
    let Some((key, call)) = calls.pop() else {
        return Ok(CancelAnswer::Unknown);
    };
    if !calls.is_empty() {
        return Ok(CancelAnswer::Ambiguous);
    }
    if call.tier != Tier::Revertible || late.0.settings.tool_settings(&call.tool).cancel_url.is_none() {
        return Ok(CancelAnswer::NotUndoable);
    }
    if call.state == RecordedCallState::Cancelled {
        return Ok(CancelAnswer::State(call.state));
    }
    if !matching::is_running(&call) {
        return Ok(CancelAnswer::Ended);
    }
    if call.state == RecordedCallState::CancelRefused {
        return Ok(CancelAnswer::State(call.state));
    }
    let message_key = evidence::cancel_key(&key);
    // One that was sent has its own tries and its own end.
    let is_sent = call.state == RecordedCallState::CancelRequested;
    let stored = evidence::read_message(late, message_key).await?;
    if !is_sent || stored.is_none_or(|stored| stored.is_dead) {
        let message = OutgoingRecord {
            give_up_at: call.deadline.max(now),
            ..evidence::cancel_message(late, &key, call.lane, LeaveReason::Requested, now)
        };
        outbox::store_message(late, message_key, &message).await?;
    }
    late.0.watched_lanes.lock().make_final(&key, clock::now());
    Ok(CancelAnswer::State(RecordedCallState::CancelRequested))
}

/// Notes the end of a cancel. See [`Cancels::confirm`](super::Cancels::confirm).
pub(super) async fn confirm(
    late: &LateStore,
    named: &NamedCall<'_>,
    is_refused: bool,
) -> Result<CancelAnswer, LateError> {
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
