//! Faults that a test puts into a ledger for one kind of records: what its processes rely on does not hold for them.
//!
//! Every [`SwitchableLedger`](super::switchable::SwitchableLedger) that is made within [`with_fault`] has the fault.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use antiphon::{
    auth::PrincipalHash,
    ledger::{CommitOutcome, CommitStep, Index, PlacedRecord, Record, RecordKey, RecordKind},
};

/// Time after which a commit is applied that was answered before: longer than any answer of a story takes to begin.
pub(crate) const LATENESS: Duration = Duration::from_secs(1);

/// The promise that a ledger breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A read returns what the ledger had before the last write of another process: an older record, or none.
    StaleRead,
    /// No process is told of the changes of the others.
    LostNotice,
    /// A commit is answered as done, and never applied.
    LostCommit,
    /// A commit is answered as done, and applied [`LATENESS`] later, unless its process was killed by then.
    LateCommit,
}

impl Breach {
    pub(crate) const ALL: [Self; 4] = [Self::StaleRead, Self::LostNotice, Self::LostCommit, Self::LateCommit];
}

/// A fault of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InjectedFault {
    /// The kind of the records for which the promise is broken.
    pub(crate) kind: RecordKind,
    pub(crate) breach: Breach,
}

thread_local! {
    /// The fault of the ledgers that this thread makes. Stories run on paused time, so that each has one thread.
    static INJECTED: Cell<Option<InjectedFault>> = const { Cell::new(None) };
}

/// Removes the fault when a story ends, however it ends.
struct InjectionGuard;

impl Drop for InjectionGuard {
    fn drop(&mut self) {
        INJECTED.set(None);
    }
}

/// Runs a story whose ledgers have a fault. `None` for honest ones.
pub(crate) fn with_fault<T>(fault: Option<InjectedFault>, story: impl FnOnce() -> T) -> T {
    INJECTED.set(fault);
    let _guard = InjectionGuard;
    story()
}

/// Returns the fault of a ledger that is made now.
pub(super) fn present_fault() -> Option<InjectedFault> {
    INJECTED.get()
}

/// The last write of a record.
#[derive(Debug)]
struct LastWrite {
    /// The number of the process.
    by: u64,
    /// The record before it.
    before: Option<Record>,
}

/// The last write of each record of one kind: what another process reads is what was there before.
#[derive(Debug, Default)]
pub(super) struct EarlierRecords(Mutex<HashMap<RecordKey, LastWrite>>);

impl EarlierRecords {
    /// Notes writes of a process, with the records before them.
    pub(super) fn note_writes(&self, by: u64, before: impl IntoIterator<Item = (RecordKey, Option<Record>)>) {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writes.extend(before.into_iter().map(|(key, before)| (key, LastWrite { by, before })));
    }

    /// Returns what a process reads under a key that has this record.
    pub(super) fn read_as(&self, process: u64, key: &RecordKey, present: Option<Record>) -> Option<Record> {
        let writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match writes.get(key).filter(|write| write.by != process) {
            Some(write) => write.before.clone(),
            None => present,
        }
    }

    /// Returns what a process finds among records of which these exist, and among removed ones that are `wanted`.
    fn list_as(&self, process: u64, present: Vec<Record>, wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
        let keys: Vec<RecordKey> = present.iter().map(|record| record.key).collect();
        let present = present.into_iter();
        let mut found: Vec<Record> = present
            .filter_map(|record| {
                let key = record.key;
                self.read_as(process, &key, Some(record))
            })
            .collect();
        let writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_others = writes.values().filter(|write| write.by != process);
        let removed = of_others.filter_map(|write| write.before.as_ref());
        found.extend(
            removed
                .filter(|record| wanted(record) && !keys.contains(&record.key))
                .cloned(),
        );
        found
    }

    /// As [`list_as`](Self::list_as), for the records of one principal.
    pub(super) fn list_principal_as(
        &self,
        process: u64,
        (kind, principal): (RecordKind, PrincipalHash),
        present: Vec<Record>,
    ) -> Vec<Record> {
        self.list_as(process, present, |record| {
            (record.key.kind, record.key.principal) == (kind, principal)
        })
    }

    /// As [`list_as`](Self::list_as), for the records under an index.
    pub(super) fn find_index_as(
        &self,
        process: u64,
        (kind, index): (RecordKind, Index),
        present: Vec<Record>,
    ) -> Vec<Record> {
        self.list_as(process, present, |record| {
            record.key.kind == kind && record.index == Some(index)
        })
    }

    /// As [`list_as`](Self::list_as), for a page of records that exist.
    pub(super) fn page_as(&self, process: u64, present: Vec<PlacedRecord>) -> Vec<PlacedRecord> {
        let old = |(place, record): PlacedRecord| {
            let key = record.key;
            Some((place, self.read_as(process, &key, Some(record))?))
        };
        present.into_iter().filter_map(old).collect()
    }

    /// Returns `true` if a process finds any record of this principal.
    pub(super) fn has_any_as(&self, process: u64, kind: RecordKind, principal: PrincipalHash) -> bool {
        let writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = writes
            .iter()
            .filter(|(key, _)| (key.kind, key.principal) == (kind, principal));
        own.any(|(_, write)| write.by == process || write.before.is_some())
    }
}

/// Divides the steps of a commit: those that the ledger applies, and those of `kind`, which it only acknowledges.
pub(super) fn split_steps(steps: Vec<CommitStep>, kind: RecordKind) -> (Vec<CommitStep>, Vec<CommitStep>) {
    steps.into_iter().partition(|step| step.key().kind != kind)
}

/// Returns the outcome of a whole commit, of which the steps of `kind` were only acknowledged.
pub(super) fn outcome_of_all(applied: CommitOutcome, kinds: &[RecordKind], kind: RecordKind) -> CommitOutcome {
    let CommitOutcome::Conflict(records) = applied else {
        return applied;
    };
    let mut records = records.into_iter();
    let entry = |of: &RecordKind| if *of == kind { None } else { records.next().flatten() };
    CommitOutcome::Conflict(kinds.iter().map(entry).collect())
}
