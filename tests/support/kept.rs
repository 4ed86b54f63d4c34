//! A ledger in memory that counts as durable, since a test carries it over restarts. It can ignore principals.

use std::sync::Arc;

use antiphon::{
    auth::PrincipalHash,
    ledger::{
        CommitOutcome, CommitStep, Index, Ledger, LedgerReply, LedgerSettings, LedgerSize, MemoryLedger, Moment,
        PlacedRecord, Record, RecordKey, RecordKind,
    },
};

/// A ledger that is carried from one world to the next.
#[derive(Debug)]
struct CarriedLedger {
    inner: MemoryLedger,
    ignores_principals: bool,
}

const SHARED_PRINCIPAL: PrincipalHash = [0; 32];

/// Returns an empty ledger.
pub fn durable() -> Arc<dyn Ledger> {
    over(false)
}

/// Returns an empty ledger that ignores principals.
pub fn without_principals() -> Arc<dyn Ledger> {
    over(true)
}

fn over(ignores_principals: bool) -> Arc<dyn Ledger> {
    let inner = MemoryLedger::new(LedgerSettings::default(), [9; 32]);
    Arc::new(CarriedLedger {
        inner,
        ignores_principals,
    })
}

impl CarriedLedger {
    const fn stored_principal(&self, principal: PrincipalHash) -> PrincipalHash {
        if self.ignores_principals {
            SHARED_PRINCIPAL
        } else {
            principal
        }
    }

    fn key(&self, key: RecordKey) -> RecordKey {
        RecordKey {
            principal: self.stored_principal(key.principal),
            ..key
        }
    }
}

impl Ledger for CarriedLedger {
    fn commit(&self, mut steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        for step in &mut steps {
            let (CommitStep::Insert { key, .. } | CommitStep::Replace { key, .. } | CommitStep::Remove { key, .. }) =
                step;
            *key = self.key(*key);
        }
        self.inner.commit(steps, now)
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        self.inner
            .read(keys.into_iter().map(|key| self.key(key)).collect(), now)
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        self.inner
            .list_records(kind, self.stored_principal(principal), limit, now)
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        self.inner
            .list_after(kind, self.stored_principal(principal), after, limit, now)
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        self.inner.list_principals(kind, after, limit)
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        self.inner.find_by_index(kind, index, limit, now)
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.inner.remove_unusable(now)
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        self.inner.usage()
    }

    fn secret(&self) -> [u8; 32] {
        self.inner.secret()
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}
