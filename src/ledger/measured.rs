//! A ledger that reports the duration and the errors of its operations to telemetry.

use std::sync::Arc;

use futures_util::FutureExt;

use super::{Index, Key, Kind, Ledger, LedgerError, Moment, Outcome, PrincipalHash, Record, Reply, Step, Usage};
use crate::{clock, telemetry::Telemetry};

/// A ledger that measures each operation and delegates it to another ledger.
#[derive(Debug)]
pub struct Measured {
    ledger: Arc<dyn Ledger>,
    telemetry: Telemetry,
}

impl Measured {
    /// Wraps `ledger`, and makes its size available to `telemetry`.
    pub fn new(ledger: Arc<dyn Ledger>, telemetry: &Telemetry) -> Self {
        let asked = Arc::clone(&ledger);
        telemetry.set_ledger_usage_source(Box::new(move || {
            // A metrics scrape must not wait for a ledger that would have to compute its size.
            let Usage { records, bytes } = asked.usage().now_or_never()?.ok()?;
            Some((records, bytes))
        }));
        let telemetry = telemetry.clone();
        Self { ledger, telemetry }
    }

    /// Waits for a reply and records it as operation `op`.
    ///
    /// A dropped reply is not recorded here: the caller that gave up counts a timeout itself.
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
        // The metric has one label for both kinds of removal.
        self.told("clear", self.ledger.expire(now))
    }

    fn clear(&self, now: Moment) -> Reply<'_, u64> {
        self.told("clear", self.ledger.clear(now))
    }

    fn usage(&self) -> Reply<'_, Usage> {
        // Not an operation of an exchange: each scrape of the metrics would be recorded.
        self.ledger.usage()
    }

    fn secret(&self) -> [u8; 32] {
        self.ledger.secret()
    }

    fn survives_restart(&self) -> bool {
        self.ledger.survives_restart()
    }
}
