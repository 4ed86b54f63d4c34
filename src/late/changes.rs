//! Changes of the state of a recorded call: answered by its client, delivered, withheld or acknowledged.

use super::{
    LateError, LateStore,
    calls::CallQuery,
    events::Notices,
    matching,
    posted_results::delivery_value,
    records::{RecordedCall, RecordedCallState},
};
use crate::{
    auth::Principal,
    clock,
    ledger::{CommitStep, RecordKey, RecordKind, RecordName, update_records},
    repair::contains_result,
    telemetry::dashboard::LateCallLabel,
};

/// Marks a posted result as acknowledged. Returns `false` if the principal has no such result.
pub(super) async fn acknowledge_call(
    late: &LateStore,
    principal: Principal,
    name: RecordName,
) -> Result<bool, LateError> {
    let acked = change_call(late, principal, name, |call| {
        let waits = call.posted.is_some() && call.state != RecordedCallState::Acked;
        waits.then(|| call.state = RecordedCallState::Acked).is_some()
    });
    let Some((call, changed)) = acked.await? else {
        return Ok(false);
    };
    // A repeated acknowledgement succeeds too, but is counted once.
    if changed {
        let label = LateCallLabel::new(&call.id, Some(&call.tool));
        late.0.telemetry.record_late_event_of("acked", label);
    }
    Ok(call.state == RecordedCallState::Acked)
}

/// Marks a call as delivered, because its client has brought an answer. A posted result that this answer does not
/// contain goes on waiting.
pub(super) async fn mark_answered(
    late: &LateStore,
    principal: Principal,
    names: &[RecordName],
    wanted: &CallQuery,
    content: Option<&str>,
) -> Result<(), LateError> {
    for name in names {
        let answered = change_call(late, principal, *name, |call| {
            let is_open = call.state.is_open();
            let is_it = matching::is_call_of_body(call, wanted);
            (is_open && is_it)
                .then(|| call.state = RecordedCallState::Delivered)
                .is_some()
        });
        let Some((call, _)) = answered
            .await?
            .filter(|(call, _)| matching::is_call_of_body(call, wanted))
        else {
            continue;
        };
        late.0
            .watched_lanes
            .remove_call(&RecordKey::new(RecordKind::Call, principal, *name));
        Notices::forget_deadline(late, (principal, Principal::from_bytes(call.account)), *name);
        if let Some(content) = content.filter(|_| call.state == RecordedCallState::Settled)
            && late
                .posted_content(principal, *name, clock::unix_time())
                .await?
                .is_some_and(|posted| contains_result(content, &posted))
        {
            mark_delivered(late, principal, *name).await?;
        }
        return Ok(());
    }
    Ok(())
}

/// Marks a posted result as refused by a provider.
pub(super) async fn mark_withheld(late: &LateStore, principal: Principal, name: RecordName) -> Result<(), LateError> {
    let withheld = change_call(late, principal, name, |call| {
        let is_put_in = call.posted.is_some() && !call.is_withheld;
        is_put_in.then(|| call.is_withheld = true).is_some()
    });
    if let Some((call, true)) = withheld.await? {
        let label = LateCallLabel::new(&call.id, Some(&call.tool));
        late.0.telemetry.record_late_event_of("withheld", label);
        tracing::warn!("a provider refused a posted result: no request gets it until its service corrects it");
    }
    Ok(())
}

/// Marks a call as delivered, and records the time since its result was posted.
pub(super) async fn mark_delivered(late: &LateStore, principal: Principal, name: RecordName) -> Result<(), LateError> {
    let delivered = change_call(late, principal, name, |call| {
        // An acknowledged call stays acknowledged: the client has more than received it.
        let open = call.state.is_open() || call.state == RecordedCallState::Settled;
        open.then(|| call.state = RecordedCallState::Delivered).is_some()
    });
    if let Some((call, true)) = delivered.await?
        && let Some(posted) = call.posted
    {
        let age = clock::unix_time().saturating_sub(posted.posted_at);
        let label = LateCallLabel::new(&call.id, Some(&call.tool));
        late.0.telemetry.record_late_delivery(age, Some(label));
    }
    Ok(())
}

/// Applies `change` to a recorded call, and writes it if `change` returns `true`.
///
/// Returns the call, and `true` if it was written. Returns `None` if there is no such call.
async fn change_call(
    late: &LateStore,
    principal: Principal,
    name: RecordName,
    change: impl Fn(&mut RecordedCall) -> bool,
) -> Result<Option<(RecordedCall, bool)>, LateError> {
    let keys = [RecordKind::Call, RecordKind::Delivery].map(|kind| RecordKey::new(kind, principal, name));
    let changed = update_records(&*late.0.ledger, keys, |[record, waiting], _| {
        let Some((record, mut call)) = record.and_then(|record| {
            let call = RecordedCall::decode(&record.value)?;
            Some((record, call))
        }) else {
            return (Vec::new(), None);
        };
        if !change(&mut call) {
            return (Vec::new(), Some((call, None)));
        }
        let mut steps = vec![late.replace_step(&record, &call)];
        let waits = call.state == RecordedCallState::Settled;
        // The delivery goes in the same commit: a crash must not leave an acknowledged result that still waits.
        // It stays as received: another branch of the conversation may still lack the result.
        steps.extend(waiting.filter(|_| !waits).map(|record| CommitStep::Replace {
            key: record.key,
            version: record.version,
            value: delivery_value::RECEIVED,
            expires_at: record.expires_at,
        }));
        (steps, Some((call, Some(record.expires_at))))
    });
    let changed: Result<_, LateError> = changed.await;
    Ok(changed?.map(|(call, written_until)| {
        if let Some(until) = written_until
            && call.state != RecordedCallState::Settled
            && call.posted.is_some()
        {
            late.0.posted.mark_received(principal, name, until);
        }
        (call, written_until.is_some())
    }))
}
