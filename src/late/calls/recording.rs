//! Calls on their way to the ledger: those that a service may answer, each once.

use std::sync::Arc;

use super::{Calls, CallsState, ObservedCall};
use crate::{
    auth::Caller,
    clock,
    late::{
        LateError,
        changes::LateChange,
        matching,
        records::{RecordedCall, RecordedCallState, call_names},
        update::{LateUpdate, call_subject},
    },
    ledger::{
        CommitOutcome, CommitStep, LedgerError, Moment, ROWS_MAX, Record, RecordKey, RecordKind, retry_conflicts,
    },
    table::RecordValue,
    writer::{Subject, UpdateEnd},
};

/// Bytes that a call counts in addition to its texts.
const CALL_BYTES: usize = 512;

/// A call to be recorded.
#[derive(Debug)]
struct NewCall {
    /// The key of its record, unless another call has it.
    key: RecordKey,
    call: RecordedCall,
    /// The hash of the observation.
    observed: [u8; 32],
}

/// The recording of the calls of one turn.
struct RecordCalls(Vec<NewCall>);

impl LateUpdate for RecordCalls {
    type Feature = CallsState;

    fn subjects(&self) -> Vec<Subject> {
        let subjects = |new: &NewCall| [call_subject(&new.call.id), Subject::of_name(new.key.name)];
        self.0.iter().flat_map(subjects).collect()
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Call, self.0.len())
    }

    fn text_bytes(&self) -> usize {
        let label = |call: &RecordedCall| call.session_label.as_ref().map_or(0, |label| label.len());
        let bytes = |new: &NewCall| CALL_BYTES + new.call.id.len() + new.call.tool.len() + label(&new.call);
        self.0.iter().map(bytes).fold(0, usize::saturating_add)
    }

    fn is_repeated(&self) -> bool {
        false
    }

    async fn apply(&self, calls: Arc<CallsState>) -> Result<bool, LateError> {
        let calls = Calls(calls);
        calls.write_calls(&self.0).await
    }

    fn note_lost(&self, calls: &CallsState) {
        // The next request that shows these calls must record them.
        for new in &self.0 {
            calls.recorded.remove(&new.observed);
        }
    }
}

impl Calls {
    /// Returns `true` if calls of this tool are recorded: a service answers them, and this process knows the caller as
    /// verified.
    pub fn is_recorded(&self, caller: Caller, tool: &[u8]) -> bool {
        // A call that no service can answer would only fill the ledger. An unverified credential stores nothing: anyone could
        // invent one.
        self.0.parts.is_served(caller, tool) && self.0.parts.callers.is_verified_in_memory(caller)
    }

    /// Returns `true` if the end of an answer waits until a call of this tool is recorded. For the service of this machine it
    /// does not: that one keeps what it cannot post, and the next request shows the call once more.
    pub fn is_recording_awaited(&self, caller: Caller, tool: &[u8]) -> bool {
        self.0.parts.is_served_by_configured(caller, tool)
    }

    /// Queues those calls for recording that [`is_recorded`](Self::is_recorded) names.
    ///
    /// Returns the end of their write, or `None` if none of the calls is new. A queued call may be lost with the process; a post that
    /// names it is then parked.
    pub fn record_calls(&self, caller: Caller, calls: impl IntoIterator<Item = ObservedCall>) -> Option<UpdateEnd> {
        let served = calls
            .into_iter()
            .filter(|opened| self.is_recorded(caller, &opened.tool));
        let new_records: Vec<NewCall> = served
            .filter_map(|opened| self.prepare_record(caller, opened))
            .collect();
        if new_records.is_empty() {
            return None;
        }
        self.0.parts.queue_with_end(&self.0, RecordCalls(new_records))
    }

    /// Builds the record of a call. Returns `None` if the call is recorded already, or queued.
    fn prepare_record(&self, caller: Caller, opened: ObservedCall) -> Option<NewCall> {
        let lane = opened.lane.map(|lane| *lane.as_bytes());
        let name = call_names::call_name(&opened.id, &opened.tool, lane.as_ref(), opened.input.as_ref());
        let key = RecordKey::new(RecordKind::Call, caller.principal(), name);
        let named = (&opened.id[..], &opened.tool[..]);
        let observed = call_names::observation(&key, named, opened.input.as_ref(), opened.session.as_ref());
        if self.0.recorded.contains_key(&observed) {
            return None;
        }
        let now = clock::unix_time();
        let settings = &self.0.parts.settings;
        let tool = settings.tool_settings(&opened.tool);
        let deadline = now + self.0.parts.run_limit(&opened.tool);
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
            deadline,
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
        self.0.participants.note(LateChange::Opened(key, &call), now);
        // A queued call counts as recorded, until its update is lost.
        self.0.recorded.insert(&observed, ());
        Some(NewCall { key, call, observed })
    }

    /// Inserts calls into the ledger, then settles the results that are parked for them. Returns `true` if a call was written.
    async fn write_calls(&self, calls: &[NewCall]) -> Result<bool, LateError> {
        let (mut is_written, mut last_error) = (false, None);
        for batch in calls.chunks(ROWS_MAX) {
            // One commit, so that a crash records either the whole turn or nothing of it.
            let insert = |new: &NewCall| self.0.parts.calls.insert_step(new.key, &new.call, clock::unix_time());
            let steps = batch.iter().map(insert).collect();
            let existing = match self.0.parts.ledger.commit(steps, clock::unix_time()).await {
                Ok(CommitOutcome::Done) => {
                    is_written = true;
                    continue;
                }
                Ok(CommitOutcome::Conflict(existing)) => existing,
                // If the ledger is full for one caller, the others must not lose their calls.
                Err(LedgerError::Full { .. } | LedgerError::TooLarge) if batch.len() > 1 => {
                    for new in batch {
                        match self.record_call(new).await {
                            Ok(written) => is_written |= written,
                            Err(LateError::Ledger(LedgerError::Full { .. } | LedgerError::TooLarge)) => {
                                self.0.parts.writer.count_lost(RecordKind::Call);
                                self.0.parts.telemetry.record_late_event("lost");
                                self.0.recorded.remove(&new.observed);
                            }
                            Err(error) => last_error = Some(error),
                        }
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // At least one call is recorded already, which fails the whole batch: only these are inserted one by one.
            let (recorded, unrecorded): (Vec<_>, Vec<_>) =
                batch.iter().zip(existing).partition(|(_, record)| record.is_some());
            let steps: Vec<_> = unrecorded.iter().map(|(new, _)| insert(new)).collect();
            let has_steps = !steps.is_empty();
            let remaining = if self.0.parts.commit(steps, clock::unix_time()).await? {
                is_written |= has_steps;
                recorded
            } else {
                batch.iter().map(|new| (new, None)).collect()
            };
            for (new, _) in remaining {
                is_written |= self.record_call(new).await?;
            }
        }
        for new in calls {
            self.settle_parked(call_names::call_index(&new.call.id)).await?;
        }
        last_error.map_or(Ok(is_written), Err)
    }

    /// Inserts a call. If its record exists, adds what the record lacks; a different call of the same id gets a record of
    /// its own. Returns `true` if it wrote to the store.
    async fn record_call(&self, new: &NewCall) -> Result<bool, LateError> {
        retry_conflicts(|| async {
            let now = clock::unix_time();
            let insert = self.0.parts.calls.insert_step(new.key, &new.call, now);
            let CommitOutcome::Conflict(existing) = self.0.parts.ledger.commit(vec![insert], now).await? else {
                return Ok(Some(true));
            };
            // A record that another version wrote, or that was removed meanwhile, is left alone.
            let Some(record) = existing.into_iter().flatten().next() else {
                return Ok(None);
            };
            let Some(recorded) = RecordedCall::decode(&record.value) else {
                return Ok(Some(false));
            };
            let twin = twin_key(&recorded, new);
            let steps = self.change_steps(&record, recorded, (new, now));
            let has_steps = !steps.is_empty();
            if self.0.parts.commit(steps, now).await? {
                return Ok(Some(has_steps));
            }
            // The twin exists already, or another writer was first. Only the latter needs another try.
            let has_twin = self.0.parts.read_record(twin, now).await?.is_some();
            Ok(has_twin.then_some(false))
        })
        .await
    }

    /// Returns the steps that record a call whose name another record has already.
    fn change_steps(&self, record: &Record, recorded: RecordedCall, (new, now): (&NewCall, Moment)) -> Vec<CommitStep> {
        let is_unique = !call_names::may_have_twin(&new.call.id, &new.call.tool);
        if is_unique || matching::is_same_call(&recorded, &new.call) {
            let mut merged = recorded.clone();
            merged.input = merged.input.or(new.call.input);
            merged.session = merged.session.or(new.call.session);
            merged.intent_input = merged.intent_input.or(new.call.intent_input);
            // A request may have shown the call before its answer was recorded.
            if new.call.is_emitted && !merged.is_emitted {
                // Its client may strip characters from ids. The service gets the one of the answer.
                merged.id.clone_from(&new.call.id);
                merged.is_emitted = true;
            }
            return if merged == recorded {
                Vec::new()
            } else {
                vec![self.0.parts.calls.replace_step(record, &merged)]
            };
        }
        let mut steps = vec![self.0.parts.calls.insert_step(twin_key(&recorded, new), &new.call, now)];
        let has_same_id = recorded.id == new.call.id;
        // Only the session tells these calls apart, so the first one must say so.
        if has_same_id && recorded.tool == new.call.tool && recorded.input == new.call.input && !recorded.has_twin {
            let marked = RecordedCall {
                has_twin: true,
                ..recorded
            };
            steps.push(self.0.parts.calls.replace_step(record, &marked));
        }
        steps
    }
}

/// Returns the key of a second call with the letters and digits of a recorded one.
fn twin_key(recorded: &RecordedCall, new: &NewCall) -> RecordKey {
    let call = &new.call;
    let name_of = if recorded.id == call.id {
        call_names::twin_call_name
    } else {
        call_names::spelled_call_name
    };
    let name = name_of(&call.id, &call.tool, call.input.as_ref(), call.session.as_ref());
    RecordKey { name, ..new.key }
}
