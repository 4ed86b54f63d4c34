//! Verified callers: those that a provider has answered with success.
//!
//! A caller that no provider has accepted yet stores nothing in the ledger and reads nothing from it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    auth::{Caller, Principal, PrincipalHash},
    clock,
    digest_cache::{DigestCache, Lifetime},
    ledger::{self, CommitStep, Ledger, LedgerError, RecordKey, RecordKind, Unread, WriteBehind},
};

/// Maximum number of callers in memory.
const CALLERS_MAX: u64 = 100_000;
/// Time for which a caller stays verified in the ledger: 30 days. The next success after that verifies it again.
const LEDGER_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Time for which a caller stays verified in memory: 24 hours.
const MEMORY_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Timeout of [`Callers::is_verified`].
const READ_TIMEOUT: Duration = Duration::from_millis(250);

/// Verified callers. A cheap handle.
#[derive(Clone, Debug)]
pub struct Callers {
    ledger: Arc<dyn Ledger>,
    later: WriteBehind,
    /// The callers in memory, each with `true` if the ledger is known to have it.
    verified: DigestCache<Principal, bool>,
}

impl Callers {
    /// Creates the handle. Until a provider's next success it knows only the callers in the ledger.
    pub fn new(ledger: Arc<dyn Ledger>, later: WriteBehind) -> Self {
        Self {
            ledger,
            later,
            // Shorter than in the ledger, so that an expired record is written again within a day.
            verified: DigestCache::new(CALLERS_MAX, Lifetime::SinceWrite(MEMORY_TTL)),
        }
    }

    /// Marks a caller as verified: a provider has answered it with success. Ignores callers without a credential.
    pub fn mark_verified(&self, caller: Caller) {
        let principal = caller.principal();
        // Most successes are of a caller in memory: they cost no write.
        if !caller.is_authenticated() || self.verified.contains_key(&principal) {
            return;
        }
        self.verified.insert(&principal, false);
        // Written after the answer: a slow ledger must not delay it.
        self.later.queue_write(insert_step(principal));
    }

    /// Returns `true` if the ledger is known to have this caller, so that a later process finds its records.
    pub fn is_known_stored(&self, caller: Caller) -> bool {
        self.verified.get(&caller.principal()) == Some(true)
    }

    /// Stores a verified caller now, instead of later.
    pub async fn store_verified(&self, caller: Caller) -> Result<(), LedgerError> {
        let principal = caller.principal();
        let stored = self.ledger.commit(vec![insert_step(principal)], clock::unix_time());
        // A conflict is fine: the write in the background may have been first.
        stored.await?;
        self.verified.insert(&principal, true);
        Ok(())
    }

    /// Returns `true` if this process knows the caller as verified. Never reads the ledger.
    pub fn is_verified_in_memory(&self, caller: Caller) -> bool {
        self.verified.contains_key(&caller.principal())
    }

    /// Returns `true` if the caller is verified. Returns `false` if the ledger fails or does not answer within 250 ms.
    pub async fn is_verified(&self, caller: Caller) -> bool {
        let by = clock::now() + READ_TIMEOUT;
        matches!(self.verify(caller, by).await, Ok(true))
    }

    /// Returns `true` if at most one caller was ever verified. Returns `false` if that is unknown.
    pub async fn is_at_most_one(&self) -> bool {
        if self.verified.iter().take(2).count() > 1 {
            return false;
        }
        let list = self.ledger.list_principals(RecordKind::Principal, None, 2);
        let found = tokio::time::timeout(READ_TIMEOUT, list).await;
        let Ok(Ok(found)) = found else { return false };
        // A caller in memory may not be written yet.
        let mut all: HashSet<PrincipalHash> = found.into_iter().collect();
        all.extend(self.verified.iter().map(|(principal, _)| *principal.as_bytes()));
        all.len() <= 1
    }

    /// Returns `true` if the caller is verified, unless that is unknown at the deadline.
    pub async fn verify(&self, caller: Caller, deadline: Instant) -> Result<bool, Unread> {
        let principal = caller.principal();
        if self.is_verified_in_memory(caller) {
            return Ok(true);
        }
        if !caller.is_authenticated() {
            return Ok(false);
        }
        // One record without content under each caller's own principal: its mere existence is the answer.
        let found = ledger::read_by(&*self.ledger, vec![caller_key(principal)], deadline).await?;
        let is_verified = found.iter().any(Option::is_some);
        if is_verified {
            self.verified.insert(&principal, true);
        }
        Ok(is_verified)
    }
}

fn insert_step(principal: Principal) -> CommitStep {
    CommitStep::insert_record(caller_key(principal), Bytes::new(), clock::unix_time() + LEDGER_TTL)
}

fn caller_key(principal: Principal) -> RecordKey {
    RecordKey {
        kind: RecordKind::Principal,
        principal: *principal.as_bytes(),
        name: [0; 32],
    }
}
