//! Pinned results: the table of the results with which bodies are sent, in place of those that their clients lack.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{AssignedResult, PinnedRow, RecallScope, RecallStore, UNUSED_ROW_MAX};
use crate::{
    digest::digest_of,
    digest_cache::Lifetime,
    ledger::{RecordKind, RecordName, RecordOwners, Unread},
    repair::{CallKey, PinnedResult},
    table::{
        DecidedTable, KnownPrincipals, MemoryLimit, TableParts, TablePolicy, UnstoredRows, VerifiedCallers, WritePolicy,
    },
};

/// The limit of the rows in memory, in bytes. Those that are not stored yet have a limit of their own.
const MEMORY_BYTES: u64 = 32 * 1024 * 1024;

/// Creates the table of pinned results. `owners` are the callers with rows.
pub(super) fn pin_table(
    parts: &TableParts,
    callers: &VerifiedCallers,
    owners: RecordOwners,
    record_ttl: Duration,
) -> DecidedTable<PinnedRow> {
    let policy = TablePolicy {
        kind: RecordKind::PinnedResult,
        writes: WritePolicy::first_stays(&**parts.ledger()),
        memory: MemoryLimit::Bytes(MEMORY_BYTES),
        lifetime: Lifetime::SinceUse(UNUSED_ROW_MAX),
        record_ttl,
        // Another process may have pinned the first result a moment ago.
        principals: KnownPrincipals::Unannounced(owners),
        caches_absence: false,
        needs_lasting_ledger: false,
        restores_lost: false,
        daily: None,
    };
    DecidedTable::new(parts, callers, policy)
}

impl RecallStore {
    /// Returns the pinned result of a call from memory.
    pub fn cached_result(&self, scope: RecallScope, call: CallKey) -> Option<PinnedResult> {
        let pinned = self.0.pinned.get(scope.caller.principal(), pin_name(scope, call));
        pinned.map(|row| row.result)
    }

    /// Reads the pinned results of these calls from the ledger. Calls without one are left out.
    ///
    /// Returns nothing for a caller that is not verified.
    pub async fn fetch_results(
        &self,
        scope: RecallScope,
        calls: &[CallKey],
        deadline: Instant,
    ) -> Result<HashMap<CallKey, PinnedResult>, Unread> {
        let names: Vec<RecordName> = calls.iter().map(|call| pin_name(scope, *call)).collect();
        let rows = self
            .0
            .pinned
            .read_rows(scope.caller.principal(), &names, deadline)
            .await?;
        let found = calls.iter().zip(rows);
        Ok(found.filter_map(|(call, row)| Some((*call, row?.result))).collect())
    }

    /// Pins these results before they are sent. Only a ledger that other processes share is waited for.
    ///
    /// Returns the results of calls that have another pinned result already. It stays, and the request must use it.
    pub async fn pin_results(
        &self,
        scope: RecallScope,
        given: &[AssignedResult],
        deadline: Instant,
    ) -> HashMap<CallKey, PinnedResult> {
        let rows = pinned_rows(scope, given, false);
        let standing = self.0.pinned.decide(scope.caller.principal(), rows, deadline).await;
        let existing = given.iter().zip(standing).filter_map(|((call, result), row)| {
            let other = row?.result;
            (other != *result).then_some((*call, other))
        });
        existing.collect()
    }

    /// Commits these results: a provider has accepted a request with them. They are the calls' results from now on.
    ///
    /// Returns those that the ledger does not have yet. The client must see nothing of the provider's answer before.
    #[must_use]
    pub fn commit_results(&self, scope: RecallScope, used: &[AssignedResult]) -> UnstoredRows {
        let rows = pinned_rows(scope, used, true);
        self.0.pinned.accept(scope.caller.principal(), rows)
    }

    /// Rolls back these results, which this request was the first to use, and which no provider has accepted.
    ///
    /// A result that another request has committed meanwhile stays.
    pub fn roll_back_results<'g>(&self, scope: RecallScope, given: impl IntoIterator<Item = &'g AssignedResult>) {
        let given = given.into_iter().map(|(call, result)| {
            let is_it = move |row: &PinnedRow| row.result == *result;
            (pin_name(scope, *call), is_it)
        });
        self.0.pinned.roll_back(scope.caller.principal(), given);
    }
}

/// Returns the rows of these results with their names.
fn pinned_rows(scope: RecallScope, given: &[AssignedResult], is_committed: bool) -> Vec<(RecordName, PinnedRow)> {
    let rows = given.iter().map(|(call, result)| {
        let result = result.clone();
        (pin_name(scope, *call), PinnedRow { result, is_committed })
    });
    rows.collect()
}

fn pin_name(scope: RecallScope, call: CallKey) -> RecordName {
    // The format is included, since a result fits no other one.
    digest_of([scope.format.label().as_bytes(), call.as_bytes()])
}
