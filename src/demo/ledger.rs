//! The ledger of the demonstration: memory that stands in for the file that `serve` has, since nothing may be left
//! behind.

use crate::ledger::{
    Index, Key, Kind, Ledger, LedgerSettings, MemoryLedger, Moment, Outcome, Record, Reply, Step, Usage,
};
use crate::session::PrincipalHash;

/// Memory that is taken for lasting: nobody starts this process anew and goes on with its conversations.
#[derive(Debug)]
pub(super) struct InPlaceOfAFile(MemoryLedger);

impl InPlaceOfAFile {
    pub(super) fn new(settings: LedgerSettings, secret: [u8; 32]) -> Self {
        Self(MemoryLedger::new(settings, secret))
    }
}

impl Ledger for InPlaceOfAFile {
    fn commit(&self, steps: Vec<Step>, now: Moment) -> Reply<'_, Outcome> {
        self.0.commit(steps, now)
    }

    fn read(&self, keys: Vec<Key>, now: Moment) -> Reply<'_, Vec<Option<Record>>> {
        self.0.read(keys, now)
    }

    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        self.0.list(kind, principal, limit, now)
    }

    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        self.0.find(kind, index, limit, now)
    }

    fn clear(&self, now: Moment) -> Reply<'_, u64> {
        self.0.clear(now)
    }

    fn usage(&self) -> Reply<'_, Usage> {
        self.0.usage()
    }

    fn secret(&self) -> [u8; 32] {
        self.0.secret()
    }

    fn survives_restart(&self) -> bool {
        true
    }
}
