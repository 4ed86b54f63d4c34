//! A ledger that reports the duration and the errors of its operations to telemetry.

use std::sync::Arc;

use futures_util::FutureExt;

use super::Telemetry;
use crate::{
    auth::PrincipalHash,
    clock,
    ledger::{
        CommitOutcome, CommitResult, CommitStep, Index, Ledger, LedgerChanges, LedgerError, LedgerFault, LedgerReply,
        LedgerSize, Moment, PlacedRecord, Record, RecordKey, RecordKind, TimedCommit,
    },
};

/// A ledger that measures each operation and delegates it to another ledger.
#[derive(Debug)]
pub struct MeasuredLedger {
    ledger: Arc<dyn Ledger>,
    telemetry: Telemetry,
}

impl MeasuredLedger {
    /// Wraps `ledger`, and makes its size available to `telemetry`.
    pub fn new(ledger: Arc<dyn Ledger>, telemetry: &Telemetry) -> Self {
        let asked = Arc::clone(&ledger);
        telemetry.set_ledger_usage_source(move || {
            // A metrics scrape must not wait for a ledger that would have to compute its size.
            let LedgerSize { records, bytes } = asked.usage().now_or_never()?.ok()?;
            Some([records, bytes])
        });
        let telemetry = telemetry.clone();
        Self { ledger, telemetry }
    }

    /// Waits for a reply and records it as operation `op`.
    ///
    /// A dropped reply is not recorded here: the code that gave up waiting counts a timeout itself.
    fn measure_op<'l, T: 'l>(&'l self, op: &'static str, reply: LedgerReply<'l, T>) -> LedgerReply<'l, T> {
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

impl Ledger for MeasuredLedger {
    fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        self.measure_op("commit", self.ledger.commit(steps, now))
    }

    fn commit_each(&self, commits: Vec<TimedCommit>) -> LedgerReply<'_, Vec<CommitResult>> {
        let began = clock::now();
        Box::pin(async move {
            let done = self.ledger.commit_each(commits).await;
            let took = clock::now().duration_since(began);
            // One operation, however many commits it has. Of several errors the first is counted.
            let error = match &done {
                Ok(results) => results.iter().find_map(|result| result.as_ref().err()),
                Err(error) => Some(error),
            };
            self.telemetry
                .record_ledger_op("commit", took, error.map(LedgerError::label));
            done
        })
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        self.measure_op("read", self.ledger.read(keys, now))
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        self.measure_op("list", self.ledger.list_records(kind, principal, limit, now))
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        self.measure_op("list", self.ledger.list_after(kind, principal, after, limit, now))
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        self.measure_op("list", self.ledger.list_principals(kind, after, limit))
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        self.measure_op("find", self.ledger.find_by_index(kind, index, limit, now))
    }

    fn remove_expired(&self, now: Moment) -> LedgerReply<'_, u64> {
        // The metric has one label for both kinds of removal.
        self.measure_op("clear", self.ledger.remove_expired(now))
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.measure_op("clear", self.ledger.remove_unusable(now))
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        // Not an operation of an exchange: each scrape of the metrics would be recorded.
        self.ledger.usage()
    }

    fn find_fault(&self) -> LedgerReply<'_, Option<LedgerFault>> {
        // Not an operation of an exchange either.
        self.ledger.find_fault()
    }

    fn clock_skew(&self) -> Option<i64> {
        self.ledger.clock_skew()
    }

    fn secret(&self) -> [u8; 32] {
        self.ledger.secret()
    }

    fn survives_restart(&self) -> bool {
        self.ledger.survives_restart()
    }

    fn is_exclusive(&self) -> bool {
        self.ledger.is_exclusive()
    }

    fn changes(&self) -> LedgerChanges {
        self.ledger.changes()
    }
}
