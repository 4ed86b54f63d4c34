//! Memory that stands in for the file of a ledger, for a process that may leave nothing behind.

use crate::{
    auth::PrincipalHash,
    ledger::{
        CommitOutcome, CommitStep, Index, Ledger, LedgerReply, LedgerSize, MemoryLedger, Moment, PlacedRecord, Record,
        RecordKey, RecordKind,
    },
};

/// Memory that counts as lasting: nobody starts this process anew and goes on with its conversations.
#[derive(Debug)]
pub(super) struct LastingMemory(pub(super) MemoryLedger);

impl Ledger for LastingMemory {
    fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        self.0.commit(steps, now)
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        self.0.read(keys, now)
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        self.0.list_records(kind, principal, limit, now)
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        self.0.list_after(kind, principal, after, limit, now)
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        self.0.list_principals(kind, after, limit)
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        self.0.find_by_index(kind, index, limit, now)
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.0.remove_unusable(now)
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        self.0.usage()
    }

    fn secret(&self) -> [u8; 32] {
        self.0.secret()
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        self.0.is_exclusive()
    }
}
