//! The principals that have records of some kinds, in memory: an exchange of any other principal reads nothing.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use super::{Ledger, RecordKind};
use crate::{
    auth::{Principal, PrincipalHash},
    digest::DigestHashBuilder,
};

/// Principals in memory, about 48 bytes each. With more of them every principal may have records.
const PRINCIPALS_MAX: usize = 100_000;
/// Pause before the next try after the ledger has failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The principals that have records of some kinds. Cheap to clone.
///
/// Until [`RecordOwners::load`] has finished, every principal may have records.
#[derive(Clone, Debug)]
pub struct RecordOwners(Arc<RwLock<KnownOwners>>);

#[derive(Debug)]
struct KnownOwners {
    kinds: &'static [RecordKind],
    principals: HashSet<(RecordKind, PrincipalHash), DigestHashBuilder>,
    /// `true` if a principal that is not in `principals` has no records.
    is_complete: bool,
}

impl RecordOwners {
    /// Creates a set for records of these kinds.
    pub fn new(kinds: &'static [RecordKind]) -> Self {
        Self(Arc::new(RwLock::new(KnownOwners {
            kinds,
            principals: HashSet::default(),
            is_complete: false,
        })))
    }

    /// Returns `true` if the principal has records of this kind, or if that is unknown.
    pub fn may_have(&self, kind: RecordKind, principal: Principal) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !known.is_complete || known.principals.contains(&(kind, *principal.as_bytes()))
    }

    /// Returns `true` if the principal is known to have had records of this kind.
    pub fn has_known(&self, kind: RecordKind, principal: Principal) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.principals.contains(&(kind, *principal.as_bytes()))
    }

    /// Notes a record that is about to be written.
    pub fn note(&self, kind: RecordKind, principal: Principal) {
        let owner = (kind, *principal.as_bytes());
        if !self.has_known(kind, principal) {
            self.0.write().unwrap_or_else(PoisonError::into_inner).add(owner);
        }
    }

    /// Reads the principals from the ledger. Tries again until the ledger answers.
    pub async fn load(self, ledger: Arc<dyn Ledger>) {
        let kinds = self.0.read().unwrap_or_else(PoisonError::into_inner).kinds;
        for kind in kinds {
            let found = loop {
                match ledger.list_principals(*kind, None, PRINCIPALS_MAX).await {
                    Ok(found) => break found,
                    Err(error) => {
                        tracing::debug!(%error, "failed to list the callers with records: trying again");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            };
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            for principal in found {
                known.add((*kind, principal));
            }
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A full set may lack some principals.
        known.is_complete = known.principals.len() < PRINCIPALS_MAX;
    }
}

impl KnownOwners {
    fn add(&mut self, owner: (RecordKind, PrincipalHash)) {
        if self.principals.len() < PRINCIPALS_MAX {
            self.principals.insert(owner);
        } else {
            self.is_complete = false;
        }
    }
}
