//! Verified callers: those that a provider has answered with success.
//!
//! A caller that no provider has accepted yet stores nothing in the ledger and reads nothing from it.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::{KnownPrincipals, MemoryLimit, RowChange, RowWrite, StoredRow, Table, TableParts, TablePolicy};
use crate::{
    clock,
    digest_cache::Lifetime,
    ledger::{CommitStep, LedgerError, Record, RecordKey, RecordKind, RecordName, Unread},
    principal::{Principal, PrincipalHash},
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

impl StoredRow for Verified {
    fn encode(&self) -> Option<Bytes> {
        Some(Bytes::new())
    }

    fn decode(record: &Record) -> Option<Self> {
        Some(Self {
            principal: Principal::from_bytes(record.key.principal),
            is_stored: true,
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
        let verify = |known: Option<&Verified>| match known {
            Some(_) => RowChange::Keep,
            None => RowChange::Store(
                Verified {
                    principal,
                    is_stored: false,
                },
                RowWrite::Insert,
            ),
        };
        self.0.change(principal, [(NAME, verify)]);
    }

    /// Returns `true` if the ledger is known to have this caller, so that a later process finds its records.
    pub fn is_known_stored(&self, caller: impl Into<Principal>) -> bool {
        let known = self.0.get(caller.into(), NAME);
        known.is_some_and(|known| known.is_stored)
    }

    /// Stores a verified caller now, instead of later.
    pub async fn store_verified(&self, caller: impl Into<Principal>) -> Result<(), LedgerError> {
        let principal = caller.into();
        let insert = CommitStep::insert_record(caller_key(principal), Bytes::new(), clock::unix_time() + RECORD_TTL);
        // A conflict is fine: the write in the background may have been first.
        self.0.0.parts.ledger.commit(vec![insert], clock::unix_time()).await?;
        let stored = |_: Option<&Verified>| {
            RowChange::Remember(Verified {
                principal,
                is_stored: true,
            })
        };
        self.0.change(principal, [(NAME, stored)]);
        Ok(())
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
        let list = self.0.0.parts.ledger.list_principals(RecordKind::Principal, None, 2);
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

const fn caller_key(principal: Principal) -> RecordKey {
    RecordKey::new(RecordKind::Principal, principal, NAME)
}
