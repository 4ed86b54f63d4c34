//! Results of earlier runs: a call without a result gets that of an earlier call with the same intent.

use tokio::time::{Instant, timeout_at};

use super::{
    LateStore,
    calls::{CallQuery, FoundResult},
    intents::{intent_of_call, records::IntentState, rules, storing},
    queries::{self, RecordedMatch},
    records::RecordedCall,
    settings::IntentUse,
};
use crate::{
    auth::{Caller, Principal},
    clock,
    ledger::{RecordName, Unread},
    session::LaneId,
};

/// Returns the results of these calls, in their order. See [`LateStore::find_results`].
pub(super) async fn find_results(
    late: &LateStore,
    caller: Caller,
    lane: Option<LaneId>,
    wanted: &[CallQuery],
    uses_earlier: bool,
    by: Instant,
) -> Result<Vec<Option<FoundResult>>, Unread> {
    let mut results = Vec::with_capacity(wanted.len());
    for matched in queries::find_calls(late, caller, lane, wanted, by).await? {
        results.push(match matched {
            None => None,
            Some(RecordedMatch::Posted(found)) => Some(found),
            Some(RecordedMatch::Open(..)) if !uses_earlier => None,
            Some(RecordedMatch::Open(name, call)) => {
                match timeout_at(by, find_earlier(late, caller.principal(), name, &call)).await {
                    Ok(found) => late.count_unread(found)?,
                    Err(_) => late.count_unread(Err(Unread))?,
                }
            }
        });
    }
    Ok(results)
}

/// Returns the result of an earlier run with the intent of this call. Only tools that are configured for it have one.
async fn find_earlier(
    late: &LateStore,
    principal: Principal,
    name: RecordName,
    call: &RecordedCall,
) -> Result<Option<FoundResult>, Unread> {
    // A result that a provider refused would be refused again.
    if call.is_withheld || late.0.settings.tool_settings(&call.tool).intent == IntentUse::Off {
        return Ok(None);
    }
    let Some(intent) = intent_of_call(late, principal, name, call) else {
        return Ok(None);
    };
    let now = clock::unix_time();
    let key = storing::intent_key(*principal.as_bytes(), intent);
    let Some(stored) = storing::read_intent(late, key, now).await.map_err(|_| Unread)? else {
        return Ok(None);
    };
    // A failed run says nothing about the next one.
    let is_settled = stored.intent.state == IntentState::Settled;
    if !is_settled || !rules::is_replayed(&stored.intent, std::time::Duration::ZERO, now) {
        return Ok(None);
    }
    let content = storing::read_content(late, &stored, now).await.map_err(|_| Unread)?;
    Ok(content.map(|content| FoundResult {
        call: name,
        id: call.id.clone(),
        content,
        failed: false,
        earlier_run: stored.intent.result.as_ref().map(|result| result.settled_at),
    }))
}
