//! Callers that a provider has answered with success: a credential that nobody has checked yet keeps nothing and reads
//! nothing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use moka::sync::Cache;

use crate::{
    auth::{Caller, Principal},
    clock,
    ledger::{Key, Kind, Later, Ledger, Step},
};

/// Callers that are remembered in memory.
const CALLERS_MAX: u64 = 100_000;
/// How long a caller is remembered in the ledger; the next success behind that begins anew.
const LASTING: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long one is remembered in memory.
const IN_MEMORY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a caller waits for the ledger.
const PATIENCE: Duration = Duration::from_millis(250);

/// The callers that are known. A cheap handle.
#[derive(Clone, Debug)]
pub struct Callers {
    ledger: Arc<dyn Ledger>,
    later: Later,
    proven: Cache<Principal, ()>,
}

impl Callers {
    /// Nobody but who is in the ledger.
    pub fn new(ledger: Arc<dyn Ledger>, later: Later) -> Self {
        Self {
            ledger,
            later,
            proven: Cache::builder()
                .max_capacity(CALLERS_MAX)
                .time_to_live(IN_MEMORY)
                .build(),
        }
    }

    /// A provider has answered this caller with success. Who presents nothing proves nothing.
    pub fn prove(&self, caller: Caller) {
        let principal = caller.principal();
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
        self.later.write(vec![insert]);
    }

    /// Whether this caller was ever answered with success, as far as this process has seen.
    pub fn is_known(&self, caller: Caller) -> bool {
        self.proven.contains_key(&caller.principal())
    }

    /// Whether this caller was ever answered with success. A ledger that does not answer in time knows nobody.
    pub async fn is_proven(&self, caller: Caller) -> bool {
        let principal = caller.principal();
        if self.is_known(caller) {
            return true;
        }
        if !caller.is_authenticated() {
            return false;
        }
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
