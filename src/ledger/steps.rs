//! What the steps of a commit mean: the one place for every ledger that keeps its own records.

use super::{
    Key, LedgerError, LedgerSettings, MOMENT_MAX, Moment, Outcome, ROWS_MAX, Record, Step, VALUE_BYTES_MAX,
    tally::Tally,
};

/// Where records stand. What is done between [`Shelf::begin`] and [`Shelf::undo`] was never done.
pub(super) trait Shelf {
    /// Why the shelf fails.
    type Error;

    /// From here on [`Shelf::undo`] can take back what is done.
    fn begin(&mut self) -> Result<(), Self::Error>;
    /// What was done since [`Shelf::begin`] stays.
    fn keep(&mut self) -> Result<(), Self::Error>;
    /// Takes back what was done since [`Shelf::begin`].
    fn undo(&mut self) -> Result<(), Self::Error>;

    /// The record of this key, if it is sound and has not expired at `now`.
    fn living(&mut self, key: &Key, now: Moment) -> Result<Option<Record>, Self::Error>;
    /// Puts a record in, as the latest; what stood under its key has expired or is damaged, and goes.
    fn put(&mut self, record: Record) -> Result<(), Self::Error>;
    /// Gives a living record what this one says; it keeps its place in the order.
    fn replace(&mut self, record: Record) -> Result<(), Self::Error>;
    /// Takes a living record away.
    fn take(&mut self, key: &Key) -> Result<(), Self::Error>;

    /// Takes away all that has expired at `now`.
    fn clear_expired(&mut self, now: Moment) -> Result<(), Self::Error>;
    /// How much stands there.
    fn tally(&self) -> &Tally;
}

/// What can be told without a look at any record.
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

/// Does all of the steps or none. The outer error is the shelf's own: what it then holds is for its owner to say.
pub(super) fn carry_out<S: Shelf>(
    shelf: &mut S,
    settings: LedgerSettings,
    steps: &[Step],
    now: Moment,
) -> Result<Result<Outcome, LedgerError>, S::Error> {
    let now = now.min(MOMENT_MAX);
    let tried = attempt(shelf, settings, steps, now)?;
    if !matches!(tried, Err(LedgerError::Full { .. })) {
        return Ok(tried);
    }
    shelf.clear_expired(now)?;
    attempt(shelf, settings, steps, now)
}

fn attempt<S: Shelf>(
    shelf: &mut S,
    settings: LedgerSettings,
    steps: &[Step],
    now: Moment,
) -> Result<Result<Outcome, LedgerError>, S::Error> {
    let before: Vec<u64> = steps
        .iter()
        .map(|step| shelf.tally().of(&step.key().principal))
        .collect();
    let total_before = shelf.tally().usage().bytes;
    shelf.begin()?;
    let standing = apply(shelf, steps, now)?;
    let passes = |bytes: u64, before: u64, max: u64| bytes > max && bytes > before;
    let refusal = if let Some(standing) = standing {
        Ok(Outcome::Conflict(standing))
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

/// Does the steps that can be done; where one could not, says for each what stands in its way.
fn apply<S: Shelf>(shelf: &mut S, steps: &[Step], now: Moment) -> Result<Option<Vec<Option<Record>>>, S::Error> {
    let mut standing = Vec::with_capacity(steps.len());
    let mut conflict = false;
    for step in steps {
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
        conflict |= wrong;
        if wrong {
            standing.push(found);
        } else {
            standing.push(None);
            carry_out_one(shelf, step, found, now)?;
        }
    }
    Ok(conflict.then_some(standing))
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
