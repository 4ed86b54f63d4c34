//! The jobs as updates of the background writer: records calls and notes deliveries.

use std::sync::{Arc, Weak};

use super::{
    LateError, LateStore, LateStoreInner, cancels, changes, compactions,
    jobs::{LateJob, NewCall},
    matching, outbox, parking, record_names,
    records::RecordedCall,
    retention::retained_until,
    surfaces,
};
use crate::{
    clock,
    ledger::{
        CommitOutcome, CommitStep, Contended, LedgerError, ROWS_MAX, Record, RecordKey, RecordKind, retry_conflicts,
    },
    writer::{Subject, Update, UpdateError, UpdateSize, Work, WriteLane},
};

/// A job that waits for the background writer.
#[derive(Debug)]
pub(super) struct QueuedLateJob {
    // Weak, so that the queue closes when the last handle of the store is dropped.
    late: Weak<LateStoreInner>,
    job: LateJob,
}

impl QueuedLateJob {
    pub(super) fn new(late: &LateStore, job: LateJob) -> Self {
        Self {
            late: Arc::downgrade(&late.0),
            job,
        }
    }
}

impl Update for QueuedLateJob {
    fn lane(&self) -> WriteLane {
        WriteLane::Reading
    }

    fn subjects(&self) -> Vec<Subject> {
        self.job.subjects()
    }

    fn size(&self) -> UpdateSize {
        UpdateSize {
            rows: self.job.lost_records().1,
            bytes: self.job.byte_len(),
        }
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        self.job.lost_records()
    }

    fn is_repeated(&self) -> bool {
        self.job.is_repeated()
    }

    fn begin(self: Arc<Self>) -> Work {
        match self.late.upgrade() {
            Some(late) => Work::Change(Box::pin(async move { Ok(do_job(&LateStore(late), &self.job).await?) })),
            None => Work::Nothing,
        }
    }

    fn note_lost(&self) {
        if let Some(late) = self.late.upgrade() {
            note_lost(&LateStore(late), &self.job);
        }
    }
}

impl From<LateError> for UpdateError {
    fn from(error: LateError) -> Self {
        match error {
            LateError::Ledger(error) => Self::Ledger(error),
            LateError::Busy => Self::Contended(Contended),
            LateError::Random(_) | LateError::ClockStep => Self::Final(error.into()),
        }
    }
}

/// Does a job once. Returns `true` if it surely wrote to the store: many jobs find that nothing is to be written.
async fn do_job(late: &LateStore, job: &LateJob) -> Result<bool, LateError> {
    let done = match job {
        LateJob::Record(calls) => return record_calls(late, calls).await,
        LateJob::Compacted(principal, lane, calls) => {
            return compactions::store_compacted(late, *principal, *lane, calls)
                .await
                .map(|()| true);
        }
        LateJob::Answered(principal, names, call, content) => {
            changes::mark_answered(late, *principal, names, call, content.as_deref()).await
        }
        LateJob::Delivered(principal, name) => changes::mark_delivered(late, *principal, *name).await,
        LateJob::Withheld(principal, name) => changes::mark_withheld(late, *principal, *name).await,
        LateJob::Settle(index) => parking::settle_parked(late, *index).await,
        LateJob::Read(principal, at) => surfaces::store_read(late, *principal, *at).await,
        LateJob::StoreMessage(key, message) => outbox::store_message(late, *key, message).await,
        LateJob::RemoveMessage(key) => outbox::remove_message(late, *key).await,
        LateJob::StoreCancel(key, message) => cancels::store_cancel(late, *key, message).await,
        LateJob::RemoveCancel(key) => cancels::remove_cancel(late, *key).await,
        LateJob::LaneSign(principal, lane, at) => cancels::store_sign(late, *principal, *lane, *at).await,
        LateJob::Acked(principal, name) => changes::acknowledge_call(late, *principal, *name).await.map(drop),
    };
    done.map(|()| false)
}

/// Notes a lost job. Its records are counted already.
fn note_lost(late: &LateStore, job: &LateJob) {
    late.0.telemetry.record_late_event("lost");
    match job {
        // The next request that shows these calls must record them.
        LateJob::Record(new_records) => {
            for new in new_records {
                late.0.recorded.remove(&new.observed);
            }
        }
        // The next compaction must note its calls.
        LateJob::Compacted(principal, lane, _) => drop(late.0.compacted.remove(&(*principal, *lane))),
        _ => {}
    }
}

/// Inserts calls into the ledger, then settles the results that are parked for them. Returns `true` if a call was written.
async fn record_calls(late: &LateStore, calls: &[NewCall]) -> Result<bool, LateError> {
    let (mut is_written, mut last_error) = (false, None);
    for batch in calls.chunks(ROWS_MAX) {
        // One commit, so that a crash records either the whole turn or nothing of it.
        let steps = batch.iter().map(|new| insert_step(late, new.key, &new.call)).collect();
        let existing = match late.0.ledger.commit(steps, clock::unix_time()).await {
            Ok(CommitOutcome::Done) => {
                is_written = true;
                continue;
            }
            Ok(CommitOutcome::Conflict(existing)) => existing,
            // If the ledger is full for one caller, the others must not lose their calls.
            Err(LedgerError::Full { .. } | LedgerError::TooLarge) if batch.len() > 1 => {
                for new in batch {
                    match record_call(late, new).await {
                        Ok(written) => is_written |= written,
                        Err(LateError::Ledger(LedgerError::Full { .. } | LedgerError::TooLarge)) => {
                            late.0.writer.count_lost(RecordKind::Call);
                            note_lost(late, &LateJob::Record(vec![new.clone()]));
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
        let steps: Vec<_> = unrecorded
            .iter()
            .map(|(new, _)| insert_step(late, new.key, &new.call))
            .collect();
        let has_steps = !steps.is_empty();
        let remaining = if late.0.ledger.commit(steps, clock::unix_time()).await? == CommitOutcome::Done {
            is_written |= has_steps;
            recorded
        } else {
            batch.iter().map(|new| (new, None)).collect()
        };
        for (new, _) in remaining {
            is_written |= record_call(late, new).await?;
        }
    }
    for new in calls {
        parking::settle_parked(late, record_names::call_index(&new.call.id)).await?;
    }
    last_error.map_or(Ok(is_written), Err)
}

/// Inserts a call. If its record exists, adds what the record lacks; a different call of the same id gets a record of
/// its own. Returns `true` if it wrote to the store.
async fn record_call(late: &LateStore, new: &NewCall) -> Result<bool, LateError> {
    retry_conflicts(|| async {
        let now = clock::unix_time();
        let insert = insert_step(late, new.key, &new.call);
        let CommitOutcome::Conflict(existing) = late.0.ledger.commit(vec![insert], now).await? else {
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
        let steps = change_steps(late, &record, recorded, new);
        let has_steps = !steps.is_empty();
        if late.0.ledger.commit(steps, now).await? == CommitOutcome::Done {
            return Ok(Some(has_steps));
        }
        // The twin exists already, or another writer was first. Only the latter needs another try.
        let has_twin = late.0.ledger.read(vec![twin], now).await?.iter().any(Option::is_some);
        Ok(has_twin.then_some(false))
    })
    .await
}

/// Returns the steps that record a call whose name another record has already.
fn change_steps(late: &LateStore, record: &Record, recorded: RecordedCall, new: &NewCall) -> Vec<CommitStep> {
    let is_unique = !record_names::may_have_twin(&new.call.id, &new.call.tool);
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
            vec![late.replace_step(record, &merged)]
        };
    }
    let mut steps = vec![insert_step(late, twin_key(&recorded, new), &new.call)];
    let has_same_id = recorded.id == new.call.id;
    // Only the session tells these calls apart, so the first one must say so.
    if has_same_id && recorded.tool == new.call.tool && recorded.input == new.call.input && !recorded.has_twin {
        let marked = RecordedCall {
            has_twin: true,
            ..recorded
        };
        steps.push(late.replace_step(record, &marked));
    }
    steps
}

/// Returns the key of a second call with the letters and digits of a recorded one.
fn twin_key(recorded: &RecordedCall, new: &NewCall) -> RecordKey {
    let call = &new.call;
    let name_of = if recorded.id == call.id {
        record_names::twin_call_name
    } else {
        record_names::spelled_call_name
    };
    let name = name_of(&call.id, &call.tool, call.input.as_ref(), call.session.as_ref());
    RecordKey { name, ..new.key }
}

fn insert_step(late: &LateStore, key: RecordKey, call: &RecordedCall) -> CommitStep {
    CommitStep::Insert {
        key,
        index: Some(record_names::call_index(&call.id)),
        value: call.encode(),
        expires_at: retained_until(call, late.0.settings.ttl),
    }
}
