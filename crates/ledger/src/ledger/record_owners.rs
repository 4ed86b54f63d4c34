//! The principals that have records of some kinds, in memory: an exchange of any other principal reads nothing.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use antiphon_core::digest::DigestHashBuilder;

use super::{ChangeEvent, Ledger, LedgerChanges, RecordKind};
use tokio::sync::broadcast::error::RecvError;

use crate::principal::{Principal, PrincipalHash};

/// Principals in memory, about 48 bytes each. With more of them every principal may have records.
const PRINCIPALS_MAX: usize = 100_000;
/// Pause before the next try after the ledger has failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The principals that have records of some kinds. Cheap to clone.
///
/// Until [`RecordOwners::follow`] has read them, every principal may have records. The same holds while other processes may
/// have written records that this one was not told of.
#[derive(Clone, Debug)]
pub struct RecordOwners(Arc<RwLock<KnownOwners>>);

/// A mark that changes whenever another process changes a principal's records of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsStamp {
    epoch: u64,
    changes: u64,
}

/// The records of a principal of one kind, as far as this process has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// There are none.
    Absent,
    /// There are some, or there were.
    Present(RecordsStamp),
    /// The ledger must be asked.
    Unknown,
}

#[derive(Debug)]
struct KnownOwners {
    kinds: &'static [RecordKind],
    /// Each principal with records of a kind, with the number of changes that other processes have made to them.
    principals: HashMap<(RecordKind, PrincipalHash), u64, DigestHashBuilder>,
    /// The kinds of which anybody has records.
    owned_kinds: Vec<RecordKind>,
    /// The period of the ledger's changes in which a principal that is not in `principals` has no records.
    complete_in: Option<u64>,
    changes: LedgerChanges,
}

impl RecordOwners {
    /// Creates a set for records of these kinds in a ledger with these changes.
    pub fn new(kinds: &'static [RecordKind], changes: LedgerChanges) -> Self {
        Self(Arc::new(RwLock::new(KnownOwners {
            kinds,
            principals: HashMap::default(),
            owned_kinds: Vec::new(),
            complete_in: None,
            changes,
        })))
    }

    /// Returns `true` if the principal has records of this kind, or if that is unknown.
    pub fn may_have(&self, kind: RecordKind, principal: Principal) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !known.is_complete() || known.principals.contains_key(&(kind, *principal.as_bytes()))
    }

    /// Returns `true` if the principal is known to have had records of this kind.
    pub fn has_known(&self, kind: RecordKind, principal: Principal) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.principals.contains_key(&(kind, *principal.as_bytes()))
    }

    /// Returns what is known of the principal's records of this kind. Take it before these records are read.
    pub fn state_of(&self, kind: RecordKind, principal: Principal) -> RecordState {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(epoch) = known.complete_in.filter(|_| known.is_complete()) else {
            return RecordState::Unknown;
        };
        let changes = known.principals.get(&(kind, *principal.as_bytes()));
        changes.map_or(RecordState::Absent, |changes| {
            let changes = *changes;
            RecordState::Present(RecordsStamp { epoch, changes })
        })
    }

    /// Returns `true` if any principal has records of this kind, or if that is unknown.
    pub fn may_have_any(&self, kind: RecordKind) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !known.is_complete() || known.owned_kinds.contains(&kind)
    }

    /// Notes a record that is about to be written.
    pub fn note(&self, kind: RecordKind, principal: Principal) {
        let owner = (kind, *principal.as_bytes());
        if !self.has_known(kind, principal) {
            self.0.write().unwrap_or_else(PoisonError::into_inner).add(owner);
        }
    }

    /// Reads the principals from the ledger, and follows the changes of other processes for as long as the ledger is in use.
    pub async fn follow(self, ledger: Weak<dyn Ledger>) {
        let (kinds, changes) = {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            (known.kinds, known.changes.clone())
        };
        let mut events = changes.subscribe();
        loop {
            // The epoch before the read: a gap during the read needs another one.
            let epoch = changes.epoch();
            if epoch.is_some() && !self.load(kinds, epoch, &ledger).await {
                return;
            }
            let Some(events) = &mut events else { return };
            loop {
                match events.recv().await {
                    Ok(ChangeEvent::Changed(change)) if kinds.contains(&change.kind) => {
                        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
                        known.add_change((change.kind, change.principal));
                    }
                    Ok(ChangeEvent::Changed(_)) => {}
                    Ok(ChangeEvent::Gap) => break,
                    Err(RecvError::Lagged(_)) => {
                        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
                        known.complete_in = None;
                        // Any of them may have changed.
                        for changes in known.principals.values_mut() {
                            *changes = changes.wrapping_add(1);
                        }
                        break;
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        }
    }

    /// Reads the principals. Tries again until the ledger answers. Returns `false` if the ledger is not used any more.
    async fn load(&self, kinds: &'static [RecordKind], epoch: Option<u64>, ledger: &Weak<dyn Ledger>) -> bool {
        for kind in kinds {
            let found = loop {
                let Some(ledger) = ledger.upgrade() else { return false };
                let listed = ledger.list_principals(*kind, None, PRINCIPALS_MAX).await;
                drop(ledger);
                match listed {
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
        known.complete_in = epoch.filter(|_| known.principals.len() < PRINCIPALS_MAX);
        true
    }
}

impl KnownOwners {
    fn add(&mut self, owner: (RecordKind, PrincipalHash)) {
        if self.principals.len() < PRINCIPALS_MAX {
            self.principals.entry(owner).or_default();
            if !self.owned_kinds.contains(&owner.0) {
                self.owned_kinds.push(owner.0);
            }
        } else {
            self.complete_in = None;
        }
    }

    /// Adds the owner of a record that another process has changed.
    fn add_change(&mut self, owner: (RecordKind, PrincipalHash)) {
        self.add(owner);
        if let Some(changes) = self.principals.get_mut(&owner) {
            *changes = changes.wrapping_add(1);
        }
    }

    fn is_complete(&self) -> bool {
        self.complete_in.is_some() && self.complete_in == self.changes.epoch()
    }
}
