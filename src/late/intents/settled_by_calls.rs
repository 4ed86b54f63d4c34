//! Intents that are settled with their calls: a result of a call settles its intent too.

use std::sync::Arc;

use crate::{
    late::{
        LateError,
        changes::{ChangeParticipant, JoinedSteps, Joining, LateChange},
        parts::LateParts,
        records::{ContentPlace, IntentRecord, IntentRun, IntentState, RecordedCall, intent_rules},
    },
    ledger::{Moment, RecordKey},
    table::RecordValue,
};

/// The part that intents take in changes of calls.
pub(in crate::late) struct IntentsOfCalls(pub(in crate::late) Arc<LateParts>);

impl ChangeParticipant for IntentsOfCalls {
    fn join<'j>(&'j self, change: LateChange<'j>, now: Moment) -> Joining<'j> {
        Box::pin(async move {
            match change {
                LateChange::Settled(key, call) | LateChange::Corrected(key, call) => {
                    settle_with_call(&self.0, key, call, now).await
                }
                LateChange::Withdrawn(key, call) => reopen_with_call(&self.0, key, call, now).await,
                // These leave the intent as it is, or write it themselves.
                LateChange::Opened(..)
                | LateChange::Conflict(..)
                | LateChange::Answered(..)
                | LateChange::Heartbeat(_)
                | LateChange::CancelRequested(..)
                | LateChange::Claimed(..)
                | LateChange::SessionClosed(_) => Ok(JoinedSteps::default()),
            }
        })
    }
}

/// Returns the change that settles the intent of a call with a result.
async fn settle_with_call(
    parts: &LateParts,
    call_key: RecordKey,
    call: &RecordedCall,
    now: Moment,
) -> Result<JoinedSteps, LateError> {
    let principal = call_key.owner();
    let name = parts.intent_of_call(principal, call_key.name, call);
    let Some((name, posted)) = name.zip(call.posted.as_ref()) else {
        return Ok(JoinedSteps::default());
    };
    let key = IntentRecord::key(principal, name);
    let (step, settled) = if let Some(stored) = parts.intents.read(key, now).await? {
        if !intent_rules::is_settled_by(&stored.value, &call_key.name, posted.failed, now) {
            return Ok(JoinedSteps::default());
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
            return Ok(JoinedSteps::default());
        };
        intent.settle_by_call(call_key.name, posted);
        (parts.intents.insert_step(key, &intent, now), intent)
    };
    Ok(JoinedSteps {
        steps: vec![step],
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
        scope: parts.scope_of_call(principal, call_key.name, call).0,
        input: call.intent_input?,
        window_seconds: intent_rules::tool_window(settings, call.tier).as_secs(),
        state: IntentState::Settled,
        run: IntentRun::of_call(call_key.name),
        result: None,
    })
}

/// Returns the change that takes back the settle of a call whose result is withdrawn: its holder goes on.
async fn reopen_with_call(
    parts: &LateParts,
    call_key: RecordKey,
    call: &RecordedCall,
    now: Moment,
) -> Result<JoinedSteps, LateError> {
    let principal = call_key.owner();
    let Some(name) = parts.intent_of_call(principal, call_key.name, call) else {
        return Ok(JoinedSteps::default());
    };
    let stored = parts.intents.read(IntentRecord::key(principal, name), now).await?;
    let step = stored.and_then(|stored| {
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
    });
    Ok(JoinedSteps {
        steps: step.into_iter().collect(),
        ..JoinedSteps::default()
    })
}
