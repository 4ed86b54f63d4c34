//! Verified callers: those that a provider has answered with success.
//!
//! A caller that no provider has accepted yet stores nothing in the ledger and reads nothing from it.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::{
    KnownPrincipals, MemoryLimit, RowChange, StoredRow, Table, TableParts, TablePolicy, TableState, WritePolicy,
    unstored_rows::{AwaitedRows, UnstoredRow},
};
use crate::{
    clock,
    digest_cache::Lifetime,
    ledger::{CommitResult, CommitStep, LedgerError, Record, RecordKey, RecordKind, RecordName, TimedCommit, Unread},
    principal::{Principal, PrincipalHash},
    writer::{Subject, TryEnd, Update, UpdateSize, Work, WriteTrack},
};

/// The most callers in memory.
const CALLERS_MAX: u64 = 100_000;
/// The time for which a caller stays verified in the ledger: 30 days. The next success after that verifies it again.
const RECORD_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The time for which a caller stays verified in memory: 24 hours. Shorter than in the ledger, so that an expired record is
/// written again within a day.
const MEMORY_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The timeout of [`VerifiedCallers::is_verified`].
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// Bytes that the write of a caller counts.
const CALLER_BYTES: usize = 512;
/// The name of every record: there is one under each caller's own principal.
const NAME: RecordName = [0; 32];

/// The verified callers. The handle is cheap to clone.
#[derive(Clone, Debug)]
pub struct VerifiedCallers(Table<Verified>);

/// A verified caller. The existence of its record is all that it says.
#[derive(Clone, Copy, Debug)]
struct Verified {
    principal: Principal,
    /// `true` if the ledger is known to have the record.
    is_stored: bool,
}

impl Verified {
    const fn new(principal: Principal) -> Self {
        Self {
            principal,
            is_stored: false,
        }
    }
}

impl StoredRow for Verified {
    fn encode(&self) -> Option<Bytes> {
        Some(Bytes::new())
    }

    fn decode(record: &Record) -> Option<Self> {
        Some(Self {
            is_stored: true,
            ..Self::new(Principal::from_bytes(record.key.principal))
        })
    }

    fn merged(self, read: Self) -> Self {
        read
    }
}

impl VerifiedCallers {
    /// Creates the handle. Until a provider's next success it knows only the callers in the ledger.
    pub fn new(parts: &TableParts) -> Self {
        let policy = TablePolicy {
            kind: RecordKind::Principal,
            writes: WritePolicy::BeforeHead,
            memory: MemoryLimit::Rows(CALLERS_MAX),
            lifetime: Lifetime::SinceWrite(MEMORY_TTL),
            record_ttl: RECORD_TTL,
            principals: KnownPrincipals::Any,
            // Anybody can invent credentials, which would push the verified ones out of memory.
            caches_absence: false,
            needs_lasting_ledger: false,
            restores_lost: false,
            daily: None,
        };
        Self(Table::for_callers(parts, None, policy))
    }

    /// Marks a caller as verified: a provider has answered it with success. Ignores callers without a credential.
    ///
    /// The record is written in the background: a slow ledger must not delay the answer.
    pub fn mark_verified(&self, caller: impl Into<Principal>) {
        let principal = caller.into();
        // Most successes are of a caller in memory: they cost no write.
        if principal == Principal::NONE || self.is_verified_in_memory(principal) {
            return;
        }
        let mut is_new = false;
        let verify = |known: Option<&Verified>| {
            is_new = known.is_none();
            if is_new {
                RowChange::Remember(Verified::new(principal))
            } else {
                RowChange::Keep
            }
        };
        self.0.change(principal, [(NAME, verify)]);
        if is_new {
            self.queue_record(principal);
        }
    }

    /// Has a verified caller stored that the ledger is not known to have. Does not wait.
    ///
    /// Later processes look for the records of stored callers only.
    pub fn store_unless_known(&self, caller: impl Into<Principal>) {
        let principal = caller.into();
        let is_stored = self.0.get(principal, NAME).is_some_and(|known| known.is_stored);
        // The first write may have been lost.
        if !is_stored && !self.is_queued(principal) {
            self.queue_record(principal);
        }
    }

    /// Returns the record of a caller, as one that a request is to wait for.
    pub(super) fn unstored_record(&self, principal: Principal) -> UnstoredRow {
        let table: Arc<dyn AwaitedRows> = Arc::<TableState<Verified>>::clone(&self.0.0);
        (table, caller_key(principal))
    }

    fn is_queued(&self, principal: Principal) -> bool {
        let subject = Subject::of_record(&caller_key(principal));
        self.0.0.records.parts.writer.is_about(&subject)
    }

    fn queue_record(&self, principal: Principal) {
        let now = clock::unix_time();
        self.0.0.records.parts.writer.queue(CallerWrite {
            callers: Arc::downgrade(&self.0.0),
            principal,
            commit: TimedCommit {
                steps: vec![CommitStep::insert_record(
                    caller_key(principal),
                    Bytes::new(),
                    now + RECORD_TTL,
                )],
                now,
            },
        });
    }

    /// Returns `true` if this process knows the caller as verified. Never reads the ledger.
    pub fn is_verified_in_memory(&self, caller: impl Into<Principal>) -> bool {
        // Misses are not kept, so that an entry is a row.
        self.0.0.rows.contains_key(&caller_key(caller.into()))
    }

    /// Returns `true` if the caller is verified. Returns `false` if the ledger fails or does not answer within 250 ms.
    pub async fn is_verified(&self, caller: impl Into<Principal>) -> bool {
        let by = clock::now() + READ_TIMEOUT;
        matches!(self.verify(caller, by).await, Ok(true))
    }

    /// Returns `true` if at most one caller was ever verified. Returns `false` if that is unknown.
    pub async fn is_at_most_one(&self) -> bool {
        // A caller in memory may not be written yet.
        let mut all: HashSet<PrincipalHash> = HashSet::new();
        for row in self.0.0.rows.values().filter_map(|entry| entry.row) {
            all.insert(*row.principal.as_bytes());
            if all.len() > 1 {
                return false;
            }
        }
        let ledger = &self.0.0.records.parts.ledger;
        let list = ledger.list_principals(RecordKind::Principal, None, 2);
        let Ok(Ok(found)) = timeout(READ_TIMEOUT, list).await else {
            return false;
        };
        all.extend(found);
        all.len() <= 1
    }

    /// Returns `true` if the caller is verified.
    ///
    /// # Errors
    ///
    /// [`Unread`] if that is unknown at the deadline.
    pub async fn verify(&self, caller: impl Into<Principal>, deadline: Instant) -> Result<bool, Unread> {
        let principal = caller.into();
        // The ledger is asked for callers that are not in memory, which are few.
        if self.is_verified_in_memory(principal) {
            return Ok(true);
        }
        // Boxed, because a table asks this one before its own read.
        let found = Box::pin(self.0.load(principal, &[NAME], deadline)).await?;
        Ok(found.iter().any(Option::is_some))
    }
}

impl AwaitedRows for TableState<Verified> {
    fn parts(&self) -> &TableParts {
        &self.records.parts
    }

    fn unstored_generation(&self, key: &RecordKey) -> Option<u64> {
        let known = self.rows.get(key).and_then(|entry| entry.row);
        let is_stored = known.is_some_and(|known| known.is_stored);
        // The record never changes. A lost write is queued again with the caller's next decided row.
        (!is_stored && self.records.parts.writer.is_about(&Subject::of_record(key))).then_some(0)
    }
}

/// The write of a caller's record. An answer may wait for it.
#[derive(Debug)]
struct CallerWrite {
    // Weak, since a queue that no task empties would keep the table, and so itself.
    callers: Weak<TableState<Verified>>,
    principal: Principal,
    commit: TimedCommit,
}

impl Update for CallerWrite {
    fn track(&self) -> WriteTrack {
        WriteTrack::Awaited
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_record(&caller_key(self.principal))]
    }

    fn size(&self) -> UpdateSize {
        UpdateSize {
            rows: 1,
            bytes: CALLER_BYTES,
        }
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::Principal, 1)
    }

    fn begin(self: Arc<Self>) -> Work {
        Work::Commits(vec![self.commit.clone()])
    }

    fn end_commits(&self, results: Result<&[CommitResult], &LedgerError>) -> TryEnd {
        let end = TryEnd::of_results(results);
        if let Some(callers) = self.callers.upgrade().filter(|_| end == TryEnd::Done) {
            // A conflict is fine: another process may have been first.
            let stored = |_: Option<&Verified>| {
                RowChange::Remember(Verified {
                    principal: self.principal,
                    is_stored: true,
                })
            };
            Table(callers).change(self.principal, [(NAME, stored)]);
        }
        end
    }
}

const fn caller_key(principal: Principal) -> RecordKey {
    RecordKey::new(RecordKind::Principal, principal, NAME)
}
