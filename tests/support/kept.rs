//! A ledger in memory that says it outlives the process, since a test keeps it, and that may not tell callers apart.

use std::sync::Arc;

use antiphon::{
    ledger::{Index, Key, Kind, Ledger, LedgerSettings, MemoryLedger, Moment, Outcome, Record, Reply, Step, Usage},
    session::PrincipalHash,
};

/// A ledger that goes from one world to the next.
#[derive(Debug)]
struct Kept {
    inner: MemoryLedger,
    is_blind: bool,
}

const NOBODY: PrincipalHash = [0; 32];

/// An empty one.
pub fn lasting() -> Arc<dyn Ledger> {
    over(false)
}

/// An empty one, in which everything is nobody's.
pub fn blind() -> Arc<dyn Ledger> {
    over(true)
}

fn over(is_blind: bool) -> Arc<dyn Ledger> {
    let inner = MemoryLedger::new(LedgerSettings::default(), [9; 32]);
    Arc::new(Kept { inner, is_blind })
}

impl Kept {
    const fn whose(&self, principal: PrincipalHash) -> PrincipalHash {
        if self.is_blind { NOBODY } else { principal }
    }

    fn key(&self, key: Key) -> Key {
        Key {
            principal: self.whose(key.principal),
            ..key
        }
    }
}

impl Ledger for Kept {
    fn commit(&self, mut steps: Vec<Step>, now: Moment) -> Reply<'_, Outcome> {
        for step in &mut steps {
            let (Step::Insert { key, .. } | Step::Replace { key, .. } | Step::Remove { key, .. }) = step;
            *key = self.key(*key);
        }
        self.inner.commit(steps, now)
    }

    fn read(&self, keys: Vec<Key>, now: Moment) -> Reply<'_, Vec<Option<Record>>> {
        self.inner
            .read(keys.into_iter().map(|key| self.key(key)).collect(), now)
    }

    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        self.inner.list(kind, self.whose(principal), limit, now)
    }

    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        self.inner.find(kind, index, limit, now)
    }

    fn clear(&self, now: Moment) -> Reply<'_, u64> {
        self.inner.clear(now)
    }

    fn usage(&self) -> Reply<'_, Usage> {
        self.inner.usage()
    }

    fn secret(&self) -> [u8; 32] {
        self.inner.secret()
    }

    fn survives_restart(&self) -> bool {
        true
    }
}
