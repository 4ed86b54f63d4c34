//! A ledger that tells how long it takes, and how it fails.

use std::sync::Arc;

use futures_util::FutureExt;

use super::{Index, Key, Kind, Ledger, LedgerError, Moment, Outcome, PrincipalHash, Record, Reply, Step, Usage};
use crate::{clock, telemetry::Telemetry};

/// A ledger, measured: everything is done by the one within.
#[derive(Debug)]
pub struct Measured {
    ledger: Arc<dyn Ledger>,
    telemetry: Telemetry,
}

impl Measured {
    /// Measures `ledger`, and has `telemetry` ask it how much it holds.
    pub fn new(ledger: Arc<dyn Ledger>, telemetry: &Telemetry) -> Self {
        let asked = Arc::clone(&ledger);
        telemetry.set_ledger_usage_source(Box::new(move || {
            // A ledger that would have to look it up is not waited for.
            let Usage { records, bytes } = asked.usage().now_or_never()?.ok()?;
            Some((records, bytes))
        }));
        let telemetry = telemetry.clone();
        Self { ledger, telemetry }
    }

    /// Waits for a reply that is asked for as `op`. One that nobody waits for any more is not told: whoever gave up
    /// counts that.
    fn told<'l, T: 'l>(&'l self, op: &'static str, reply: Reply<'l, T>) -> Reply<'l, T> {
        let began = clock::now();
        Box::pin(async move {
            let done = reply.await;
            let took = clock::now().duration_since(began);
            self.telemetry
                .record_ledger_op(op, took, done.as_ref().err().map(LedgerError::label));
            done
        })
    }
}

impl Ledger for Measured {
    fn commit(&self, steps: Vec<Step>, now: Moment) -> Reply<'_, Outcome> {
        self.told("commit", self.ledger.commit(steps, now))
    }

    fn read(&self, keys: Vec<Key>, now: Moment) -> Reply<'_, Vec<Option<Record>>> {
        self.told("read", self.ledger.read(keys, now))
    }

    fn list(&self, kind: Kind, principal: PrincipalHash, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        self.told("list", self.ledger.list(kind, principal, limit, now))
    }

    fn find(&self, kind: Kind, index: Index, limit: usize, now: Moment) -> Reply<'_, Vec<Record>> {
        self.told("find", self.ledger.find(kind, index, limit, now))
    }

    fn expire(&self, now: Moment) -> Reply<'_, u64> {
        self.told("clear", self.ledger.expire(now))
    }

    fn clear(&self, now: Moment) -> Reply<'_, u64> {
        self.told("clear", self.ledger.clear(now))
    }

    fn usage(&self) -> Reply<'_, Usage> {
        self.ledger.usage()
    }

    fn secret(&self) -> [u8; 32] {
        self.ledger.secret()
    }

    fn survives_restart(&self) -> bool {
        self.ledger.survives_restart()
    }
}
