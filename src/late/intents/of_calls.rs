//! The intent of a recorded call: a result of the call settles it too.

use crate::{
    late::{
        LateError,
        intent_of_call::{intent_of_call, scope_of_call},
        parts::LateParts,
        records::{ContentPlace, IntentRecord, IntentRun, IntentState, PostedResult, RecordedCall, intent_rules},
    },
    ledger::{CommitStep, Moment, RecordKey},
    table::RecordValue,
};

/// The change of an intent that belongs to the change of its call.
#[derive(Debug, Default)]
pub(in crate::late) struct IntentChange {
    /// The step for the commit of the call.
    pub(in crate::late) step: Option<CommitStep>,
    /// The time until which the call's content is replayed.
    pub(in crate::late) content_until: Moment,
}

/// Returns the change that settles the intent of a call whose result is `posted`.
pub(in crate::late) async fn settle_with_call(
    parts: &LateParts,
    call_key: RecordKey,
    call: &RecordedCall,
    posted: &PostedResult,
    now: Moment,
) -> Result<IntentChange, LateError> {
    let principal = call_key.owner();
    let Some(name) = intent_of_call(parts, principal, call_key.name, call) else {
        return Ok(IntentChange::default());
    };
    let key = IntentRecord::key(principal, name);
    let (step, settled) = if let Some(stored) = parts.intents.read(key, now).await? {
        if !intent_rules::is_settled_by(&stored.value, &call_key.name, posted.failed, now) {
            return Ok(IntentChange::default());
        }
        let mut intent = stored.value.clone();
        if intent.run.call != Some(call_key.name) {
            // The holder of an earlier run has no part in this one.
            intent.run = IntentRun {
                started_at: intent.run.started_at,
                ..IntentRun::of_call(call_key.name)
            };
        }
        intent.settle_by_call(call_key.name, posted);
        (parts.intents.replace_step(&stored.record, &intent), intent)
    } else {
        let Some(mut intent) = unclaimed_intent(parts, call_key, call) else {
            return Ok(IntentChange::default());
        };
        intent.settle_by_call(call_key.name, posted);
        (parts.intents.insert_step(key, &intent, now), intent)
    };
    Ok(IntentChange {
        step: Some(step),
        content_until: intent_rules::retained_until(&settled),
    })
}

/// Returns the intent of a call that no holder has claimed. `None` if the input is not known.
fn unclaimed_intent(parts: &LateParts, call_key: RecordKey, call: &RecordedCall) -> Option<IntentRecord> {
    let settings = parts.settings.tool_settings(&call.tool);
    let principal = call_key.owner();
    Some(IntentRecord {
        account: call.account,
        tool: call.tool.clone(),
        tier: call.tier,
        scope: scope_of_call(parts, principal, call_key.name, call).0,
        input: call.intent_input?,
        window_seconds: intent_rules::tool_window(settings, call.tier).as_secs(),
        state: IntentState::Settled,
        run: IntentRun::of_call(call_key.name),
        result: None,
    })
}

/// Returns the change that takes back the settle of a call whose result is withdrawn: its holder goes on.
pub(in crate::late) async fn reopen_with_call(
    parts: &LateParts,
    call_key: RecordKey,
    call: &RecordedCall,
    now: Moment,
) -> Result<Option<CommitStep>, LateError> {
    let principal = call_key.owner();
    let Some(name) = intent_of_call(parts, principal, call_key.name, call) else {
        return Ok(None);
    };
    let stored = parts.intents.read(IntentRecord::key(principal, name), now).await?;
    Ok(stored.and_then(|stored| {
        let is_of_call = |place: &ContentPlace| *place == ContentPlace::Call(call_key.name);
        if !stored
            .value
            .result
            .as_ref()
            .is_some_and(|result| is_of_call(&result.place))
        {
            return None;
        }
        // Nobody has claimed it.
        if stored.value.run.lease_seconds == 0 {
            return Some(stored.record.remove_step());
        }
        let mut intent = stored.value.clone();
        intent_rules::reopen(&mut intent, now);
        Some(parts.intents.replace_step(&stored.record, &intent))
    }))
}
