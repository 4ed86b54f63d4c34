//! The result of an earlier run: read for a claim, and stored for as long as claims may ask for it.

use std::time::Duration;

use super::storing;
use crate::{
    late::{
        LateError,
        parts::LateParts,
        records::{IntentId, IntentRecord, IntentScope},
    },
    ledger::{CommitStep, Moment},
    table::Stored,
};

/// The result of an earlier run.
#[derive(Clone)]
pub struct ReplayedResult {
    /// The intent.
    pub intent: IntentId,
    /// The content as JSON. `None` if only the fact is known that the tool ran.
    pub content: Option<String>,
    /// `true` if the tool reported an error.
    pub failed: bool,
    /// The time of the settle.
    pub settled_at: Moment,
    /// The conversations that share the intent.
    pub scope: IntentScope,
}

impl std::fmt::Debug for ReplayedResult {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReplayedResult({}, failed {})", self.intent, self.failed)
    }
}

/// Returns the stored result of an intent.
pub(super) async fn read_result(
    parts: &LateParts,
    existing: &Stored<IntentRecord>,
    now: Moment,
) -> Result<ReplayedResult, LateError> {
    let result = existing.value.result.as_ref();
    Ok(ReplayedResult {
        intent: IntentId::of_key(&existing.record.key),
        content: storing::read_content(parts, existing, now).await?,
        failed: result.is_some_and(|result| result.failed),
        settled_at: result.map_or(existing.value.run.claimed_at, |result| result.settled_at),
        scope: existing.value.scope,
    })
}

/// Stores a result until the end of a claim's window, which may be longer than that of the run.
pub(super) async fn keep_result(
    parts: &LateParts,
    existing: &Stored<IntentRecord>,
    window: Duration,
    now: Moment,
) -> Result<(), LateError> {
    let Some(result) = &existing.value.result else {
        return Ok(());
    };
    let until = result.settled_at.saturating_add(window);
    let contents = parts.ledger.read(storing::content_keys(existing), now).await?;
    let records = [existing.record.clone()]
        .into_iter()
        .chain(contents.into_iter().flatten());
    let steps: Vec<CommitStep> = records
        .filter(|record| record.expires_at < until)
        .map(|record| CommitStep::Replace {
            key: record.key,
            version: record.version,
            value: record.value,
            expires_at: until,
        })
        .collect();
    if !steps.is_empty() {
        // If another writer was first, the next claim does it.
        parts.ledger.commit(steps, now).await?;
    }
    Ok(())
}
