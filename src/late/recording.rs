//! Calls on their way to the ledger: those that a service may answer, each once.

use super::{
    LateStore,
    calls::ObservedCall,
    event_kind::{EventKind, EventSubject},
    events::Notices,
    jobs::{LateJob, NewCall},
    record_names,
    records::{RecordedCall, RecordedCallState},
};
use crate::{
    auth::Caller,
    clock,
    ledger::{RecordKey, RecordKind},
    writer::QueuedUpdate,
};

impl LateStore {
    /// Returns `true` if calls of this tool are recorded: a service answers them, and this process knows the caller as
    /// verified.
    pub fn is_recorded(&self, caller: Caller, tool: &[u8]) -> bool {
        // A call that no service can answer would only fill the ledger. An unverified credential stores nothing: anyone could
        // invent one.
        self.is_served(caller, tool) && self.0.callers.is_verified_in_memory(caller)
    }

    /// Queues those calls for recording that [`is_recorded`](Self::is_recorded) names.
    ///
    /// Returns the job, or `None` if none of the calls is new. A queued call may be lost with the process; a post that
    /// names it is then parked.
    pub fn record_calls(&self, caller: Caller, calls: impl IntoIterator<Item = ObservedCall>) -> Option<QueuedUpdate> {
        let served = calls
            .into_iter()
            .filter(|opened| self.is_recorded(caller, &opened.tool));
        let new_records: Vec<NewCall> = served
            .filter_map(|opened| prepare_record(self, caller, opened))
            .collect();
        if new_records.is_empty() {
            return None;
        }
        self.queue_job(LateJob::Record(new_records))
    }
}

/// Builds the record of a call. Returns `None` if the call is recorded already, or queued.
fn prepare_record(late: &LateStore, caller: Caller, opened: ObservedCall) -> Option<NewCall> {
    let lane = opened.lane.map(|lane| *lane.as_bytes());
    let name = record_names::call_name(&opened.id, &opened.tool, lane.as_ref(), opened.input.as_ref());
    let key = RecordKey::new(RecordKind::Call, caller.principal(), name);
    let named = (&opened.id[..], &opened.tool[..]);
    let observed = record_names::observation(&key, named, opened.input.as_ref(), opened.session.as_ref());
    if late.0.recorded.contains_key(&observed) {
        return None;
    }
    let now = clock::unix_time();
    let settings = &late.0.settings;
    let tool = settings.tool_settings(&opened.tool);
    let call = RecordedCall {
        account: *caller.account().as_bytes(),
        lane,
        session: opened.session,
        session_label: opened.session_label,
        strength: opened.strength,
        id: opened.id,
        tool: opened.tool,
        input: opened.input,
        tier: tool.tier,
        opened_at: now,
        heartbeat_at: now,
        deadline: now + tool.max_duration.unwrap_or(settings.ttl),
        expires_at: now + settings.ttl,
        state: RecordedCallState::Open,
        posted: None,
        is_emitted: opened.is_emitted,
        has_twin: false,
        is_withheld: false,
        is_in_request: false,
        intent_input: opened.intent_input,
        intent: None,
        origin: opened.origin.filter(|_| tool.carries_over),
    };
    late.cancels().watch_call(key, &call);
    let owner = (caller.principal(), caller.account());
    let subject = EventSubject::Call(key.name);
    Notices::of_change(late, owner, EventKind::Expired, subject, (call.deadline, now)).queue(late);
    // A queued call counts as recorded. The worker removes the entry if it cannot write the record.
    late.0.recorded.insert(&observed, ());
    Some(NewCall { key, call, observed })
}
