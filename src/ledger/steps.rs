//! The semantics of a commit, shared by every ledger that stores its own records.

use super::{
    Key, LedgerError, LedgerSettings, MOMENT_MAX, Moment, Outcome, ROWS_MAX, Record, Step, VALUE_BYTES_MAX,
    tally::Tally,
};

/// A transactional set of records. [`Shelf::undo`] reverts every change since [`Shelf::begin`].
pub(super) trait Shelf {
    /// The error of the underlying store.
    type Error;

    /// Starts a commit that [`Shelf::undo`] can revert.
    fn begin(&mut self) -> Result<(), Self::Error>;
    /// Makes the changes since [`Shelf::begin`] permanent.
    fn keep(&mut self) -> Result<(), Self::Error>;
    /// Reverts the changes since [`Shelf::begin`].
    fn undo(&mut self) -> Result<(), Self::Error>;

    /// Returns the record of this key. `None` if there is none, it is damaged, or it has expired at `now`.
    fn living(&mut self, key: &Key, now: Moment) -> Result<Option<Record>, Self::Error>;
    /// Inserts a record as the latest. An expired or damaged record under its key is removed.
    fn put(&mut self, record: Record) -> Result<(), Self::Error>;
    /// Replaces a live record by this one, which takes over its place in the order of inserts.
    fn replace(&mut self, record: Record) -> Result<(), Self::Error>;
    /// Removes a live record.
    fn take(&mut self, key: &Key) -> Result<(), Self::Error>;

    /// Removes all records that have expired at `now`.
    fn clear_expired(&mut self, now: Moment) -> Result<(), Self::Error>;
    /// Returns the counter of the set's size.
    fn tally(&self) -> &Tally;
}

/// Checks the limits that do not depend on stored records.
pub(super) fn within_bounds(steps: &[Step]) -> Result<(), LedgerError> {
    let too_long = |step: &Step| match step {
        Step::Insert { value, .. } | Step::Replace { value, .. } => value.len() > VALUE_BYTES_MAX,
        Step::Remove { .. } => false,
    };
    if steps.len() > ROWS_MAX || steps.iter().any(too_long) {
        return Err(LedgerError::TooLarge);
    }
    Ok(())
}

/// Applies all steps or none.
///
/// The outer error is that of the store, whose state is then for the caller to restore.
pub(super) fn carry_out<S: Shelf>(
    shelf: &mut S,
    settings: LedgerSettings,
    steps: &[Step],
    now: Moment,
) -> Result<Result<Outcome, LedgerError>, S::Error> {
    // Stores save moments as 64-bit nanoseconds.
    let now = now.min(MOMENT_MAX);
    let tried = attempt(shelf, settings, steps, now)?;
    if !matches!(tried, Err(LedgerError::Full { .. })) {
        return Ok(tried);
    }
    // Expired records still count towards the limits. Their removal is deferred until the space is needed.
    shelf.clear_expired(now)?;
    attempt(shelf, settings, steps, now)
}

fn attempt<S: Shelf>(
    shelf: &mut S,
    settings: LedgerSettings,
    steps: &[Step],
    now: Moment,
) -> Result<Result<Outcome, LedgerError>, S::Error> {
    // After a limit was lowered a principal may exceed it already. Commits that do not grow must still succeed then.
    let before: Vec<u64> = steps
        .iter()
        .map(|step| shelf.tally().of(&step.key().principal))
        .collect();
    let total_before = shelf.tally().usage().bytes;
    shelf.begin()?;
    let conflicts = apply(shelf, steps, now)?;
    let passes = |bytes: u64, before: u64, max: u64| bytes > max && bytes > before;
    // A conflict comes first: the caller can resolve it, and then may need less space.
    let refusal = if let Some(conflicts) = conflicts {
        Ok(Outcome::Conflict(conflicts))
    } else {
        let tally = shelf.tally();
        let own = |(step, before): (&Step, &u64)| {
            let bytes = tally.of(&step.key().principal);
            passes(bytes, *before, settings.principal_bytes_max)
        };
        if steps.iter().zip(&before).any(own) {
            Err(LedgerError::Full { of_principal: true })
        } else if passes(tally.usage().bytes, total_before, settings.bytes_max) {
            Err(LedgerError::Full { of_principal: false })
        } else {
            shelf.keep()?;
            return Ok(Ok(Outcome::Done));
        }
    };
    shelf.undo()?;
    Ok(refusal)
}

/// Applies the steps that are possible.
///
/// If one was impossible, returns for each step the record that prevents it. The caller then reverts the changes.
fn apply<S: Shelf>(shelf: &mut S, steps: &[Step], now: Moment) -> Result<Option<Vec<Option<Record>>>, S::Error> {
    let mut conflicts = Vec::with_capacity(steps.len());
    let mut is_conflict = false;
    for step in steps {
        // Impossible steps do not end the loop: the caller learns all its conflicts at once, and retries once.
        let found = shelf.living(step.key(), now)?;
        let (wrong, found) = match (step, found) {
            (Step::Insert { .. }, None) => (false, None),
            (Step::Replace { version, .. } | Step::Remove { version, .. }, Some(record))
                if record.version == *version =>
            {
                (false, Some(record))
            }
            (_, found) => (true, found),
        };
        is_conflict |= wrong;
        if wrong {
            conflicts.push(found);
        } else {
            conflicts.push(None);
            carry_out_one(shelf, step, found, now)?;
        }
    }
    Ok(is_conflict.then_some(conflicts))
}

fn carry_out_one<S: Shelf>(shelf: &mut S, step: &Step, found: Option<Record>, now: Moment) -> Result<(), S::Error> {
    match (step, found) {
        (Step::Replace { value, expires_at, .. }, Some(record)) => shelf.replace(Record {
            value: value.clone(),
            version: record.version.saturating_add(1),
            expires_at: (*expires_at).min(MOMENT_MAX),
            ..record
        }),
        (
            Step::Insert {
                key,
                index,
                value,
                expires_at,
            },
            _,
        ) => shelf.put(Record {
            key: *key,
            index: *index,
            value: value.clone(),
            version: 1,
            made_at: now,
            expires_at: (*expires_at).min(MOMENT_MAX),
        }),
        (Step::Remove { key, .. }, Some(_)) => shelf.take(key),
        (Step::Replace { .. } | Step::Remove { .. }, None) => Ok(()),
    }
}
