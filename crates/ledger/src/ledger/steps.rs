//! The semantics of a commit, shared by every ledger that stores its own records.

use super::{
    CommitOutcome, CommitStep, LedgerError, LedgerSettings, MOMENT_MAX, Moment, ROWS_MAX, Record, RecordKey,
    VALUE_BYTES_MAX, usage_counter::UsageCounter,
};

/// A transactional set of records. [`RecordStore::undo_changes`] reverts every change since
/// [`RecordStore::begin_commit`].
pub(super) trait RecordStore {
    /// The error of the underlying store.
    type Error;

    /// Starts a commit that [`RecordStore::undo_changes`] can revert.
    fn begin_commit(&mut self) -> Result<(), Self::Error>;
    /// Makes the changes since [`RecordStore::begin_commit`] permanent.
    fn keep_changes(&mut self) -> Result<(), Self::Error>;
    /// Reverts the changes since [`RecordStore::begin_commit`].
    fn undo_changes(&mut self) -> Result<(), Self::Error>;

    /// Returns the record of this key. `None` if there is none, it is damaged, or it has expired at `now`.
    fn find_live(&mut self, key: &RecordKey, now: Moment) -> Result<Option<Record>, Self::Error>;
    /// Inserts a record as the latest. An expired or damaged record under its key is removed.
    fn insert_record(&mut self, record: Record) -> Result<(), Self::Error>;
    /// Replaces a live record by this one, which takes over its place in the order of inserts.
    fn replace_record(&mut self, record: Record) -> Result<(), Self::Error>;
    /// Removes a live record.
    fn remove_record(&mut self, key: &RecordKey) -> Result<(), Self::Error>;

    /// Removes all records that have expired at `now`.
    fn clear_expired(&mut self, now: Moment) -> Result<(), Self::Error>;
    /// Returns the counter of the set's size.
    fn usage_counter(&self) -> &UsageCounter;
}

/// Checks the limits that do not depend on stored records.
pub(super) fn check_bounds(steps: &[CommitStep]) -> Result<(), LedgerError> {
    let too_long = |step: &CommitStep| match step {
        CommitStep::Insert { value, .. } | CommitStep::Replace { value, .. } => value.len() > VALUE_BYTES_MAX,
        CommitStep::Remove { .. } => false,
    };
    if steps.len() > ROWS_MAX || steps.iter().any(too_long) {
        return Err(LedgerError::TooLarge);
    }
    Ok(())
}

/// Applies all steps or none.
///
/// The outer error is that of the store, whose state must then be restored.
pub(super) fn commit_steps<S: RecordStore>(
    shelf: &mut S,
    settings: LedgerSettings,
    steps: &[CommitStep],
    now: Moment,
) -> Result<Result<CommitOutcome, LedgerError>, S::Error> {
    // Stores save moments as 64-bit nanoseconds.
    let now = now.min(MOMENT_MAX);
    let tried = try_commit(shelf, settings, steps, now)?;
    if !matches!(tried, Err(LedgerError::Full { .. })) {
        return Ok(tried);
    }
    // Expired records still count towards the limits. Their removal is deferred until the space is needed.
    shelf.clear_expired(now)?;
    try_commit(shelf, settings, steps, now)
}

fn try_commit<S: RecordStore>(
    shelf: &mut S,
    settings: LedgerSettings,
    steps: &[CommitStep],
    now: Moment,
) -> Result<Result<CommitOutcome, LedgerError>, S::Error> {
    // After a limit was lowered a principal may exceed it already. Commits that do not grow must still succeed then.
    let before: Vec<u64> = steps
        .iter()
        .map(|step| shelf.usage_counter().principal_bytes(&step.key().principal))
        .collect();
    let total_before = shelf.usage_counter().usage().bytes;
    shelf.begin_commit()?;
    let conflicts = apply_steps(shelf, steps, now)?;
    let passes = |bytes: u64, before: u64, max: u64| bytes > max && bytes > before;
    // A conflict comes first: the caller can resolve it, and then may need less space.
    let refusal = if let Some(conflicts) = conflicts {
        Ok(CommitOutcome::Conflict(conflicts))
    } else {
        let tally = shelf.usage_counter();
        let own = |(step, before): (&CommitStep, &u64)| {
            let bytes = tally.principal_bytes(&step.key().principal);
            passes(bytes, *before, settings.principal_bytes_max)
        };
        if steps.iter().zip(&before).any(own) {
            Err(LedgerError::Full { of_principal: true })
        } else if passes(tally.usage().bytes, total_before, settings.bytes_max) {
            Err(LedgerError::Full { of_principal: false })
        } else {
            shelf.keep_changes()?;
            return Ok(Ok(CommitOutcome::Done));
        }
    };
    shelf.undo_changes()?;
    Ok(refusal)
}

/// Applies the steps that are possible.
///
/// If one was impossible, returns for each step the record that prevents it. The caller then reverts the changes.
fn apply_steps<S: RecordStore>(
    shelf: &mut S,
    steps: &[CommitStep],
    now: Moment,
) -> Result<Option<Vec<Option<Record>>>, S::Error> {
    let mut conflicts = Vec::with_capacity(steps.len());
    let mut is_conflict = false;
    for step in steps {
        // Impossible steps do not end the loop: the caller learns all its conflicts at once, and retries once.
        let found = shelf.find_live(step.key(), now)?;
        let is_possible = match step {
            CommitStep::Insert { .. } => found.is_none(),
            CommitStep::Replace { version, .. } | CommitStep::Remove { version, .. } => {
                found.as_ref().is_some_and(|record| record.version == *version)
            }
        };
        if is_possible {
            conflicts.push(None);
            apply_step(shelf, step, found, now)?;
        } else {
            conflicts.push(found);
            is_conflict = true;
        }
    }
    Ok(is_conflict.then_some(conflicts))
}

fn apply_step<S: RecordStore>(
    shelf: &mut S,
    step: &CommitStep,
    found: Option<Record>,
    now: Moment,
) -> Result<(), S::Error> {
    match (step, found) {
        (CommitStep::Replace { value, expires_at, .. }, Some(record)) => shelf.replace_record(Record {
            value: value.clone(),
            version: record.version.saturating_add(1),
            expires_at: (*expires_at).min(MOMENT_MAX),
            ..record
        }),
        (
            CommitStep::Insert {
                key,
                index,
                value,
                expires_at,
            },
            _,
        ) => shelf.insert_record(Record {
            key: *key,
            index: *index,
            value: value.clone(),
            version: 1,
            made_at: now,
            expires_at: (*expires_at).min(MOMENT_MAX),
        }),
        (CommitStep::Remove { key, .. }, Some(_)) => shelf.remove_record(key),
        (CommitStep::Replace { .. } | CommitStep::Remove { .. }, None) => Ok(()),
    }
}
