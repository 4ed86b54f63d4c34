//! Verified callers: those that a provider has answered with success.
//!
//! A caller that no provider has accepted yet stores nothing in the ledger and reads nothing from it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use moka::sync::Cache;

use crate::{
    auth::{Caller, Principal},
    clock,
    ledger::{Key, Kind, Later, Ledger, Step},
};

/// Maximum number of callers in memory.
const CALLERS_MAX: u64 = 100_000;
/// Time for which a caller stays verified in the ledger: 30 days. The next success after that verifies it again.
const LASTING: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Time for which a caller stays verified in memory: 24 hours.
const IN_MEMORY: Duration = Duration::from_secs(24 * 60 * 60);
/// Timeout of one read of the ledger: 250 ms.
const PATIENCE: Duration = Duration::from_millis(250);

/// Verified callers. A cheap handle.
#[derive(Clone, Debug)]
pub struct Callers {
    ledger: Arc<dyn Ledger>,
    later: Later,
    proven: Cache<Principal, ()>,
}

impl Callers {
    /// Creates the handle. Until a provider's next success it knows only the callers in the ledger.
    pub fn new(ledger: Arc<dyn Ledger>, later: Later) -> Self {
        Self {
            ledger,
            later,
            proven: Cache::builder()
                .max_capacity(CALLERS_MAX)
                // Shorter than in the ledger, so that an expired record is written again within a day.
                .time_to_live(IN_MEMORY)
                .build(),
        }
    }

    /// Marks a caller as verified: a provider has answered it with success. Ignores callers without a credential.
    pub fn prove(&self, caller: Caller) {
        let principal = caller.principal();
        // Most successes are of a caller in memory: they cost no write.
        if !caller.is_authenticated() || self.proven.contains_key(&principal) {
            return;
        }
        self.proven.insert(principal, ());
        let insert = Step::Insert {
            key: key(principal),
            index: None,
            value: Bytes::new(),
            expires_at: clock::since_1970() + LASTING,
        };
        // Written behind the answer: a slow ledger must not delay it.
        self.later.write(vec![insert]);
    }

    /// Returns `true` if this process knows the caller as verified. Never reads the ledger.
    pub fn is_known(&self, caller: Caller) -> bool {
        self.proven.contains_key(&caller.principal())
    }

    /// Returns `true` if the caller is verified. Returns `false` if the ledger fails or does not answer in time.
    pub async fn is_proven(&self, caller: Caller) -> bool {
        let principal = caller.principal();
        if self.is_known(caller) {
            return true;
        }
        if !caller.is_authenticated() {
            return false;
        }
        // One record without content under each caller's own principal: its mere existence is the answer.
        let read = self.ledger.read(vec![key(principal)], clock::since_1970());
        let found = tokio::time::timeout(PATIENCE, read).await;
        let proven = matches!(found, Ok(Ok(records)) if records.iter().any(Option::is_some));
        if proven {
            self.proven.insert(principal, ());
        }
        proven
    }
}

fn key(principal: Principal) -> Key {
    Key {
        kind: Kind::Principal,
        principal: *principal.as_bytes(),
        name: [0; 32],
    }
}
