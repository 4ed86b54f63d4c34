//! The write of one decision by the background writer.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use super::{CachedRow, DecidedRow, DecidedState};
use crate::{
    clock,
    ledger::{CommitOutcome, CommitResult, LedgerError, Record, RecordKey, RecordKind, TimedCommit},
    writer::{Subject, TryEnd, Update, UpdateSize, Work, WriteTrack},
};

/// Bytes that a write counts. The journal counts the row.
const WRITE_BYTES: usize = 256;

/// The next write of a decision, which the journal knows when it begins.
pub(super) struct DecidedWrite<V> {
    // Weak, since a queue that no task empties would keep the table, and so itself.
    table: Weak<DecidedState<V>>,
    key: RecordKey,
}

impl<V> DecidedWrite<V> {
    pub(super) fn new(table: &Arc<DecidedState<V>>, key: RecordKey) -> Self {
        Self {
            table: Arc::downgrade(table),
            key,
        }
    }
}

impl<V> fmt::Debug for DecidedWrite<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecidedWrite")
    }
}

impl<V: DecidedRow> Update for DecidedWrite<V> {
    fn track(&self) -> WriteTrack {
        WriteTrack::Awaited
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_record(&self.key)]
    }

    fn size(&self) -> UpdateSize {
        // The removal of another row and the insert of the decided one.
        UpdateSize {
            rows: 2,
            bytes: WRITE_BYTES,
        }
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (self.key.kind, 1)
    }

    fn begin(self: Arc<Self>) -> Work {
        let Some(table) = self.table.upgrade() else {
            return Work::Nothing;
        };
        let expires_at = |row: &V| table.records.expires_at(row);
        let begun = table.lock_decisions().begin_write(&self.key, expires_at);
        match begun {
            Ok(steps) => Work::Commits(vec![TimedCommit {
                steps,
                now: clock::unix_time(),
            }]),
            Err(settled) => {
                table.keep_settled(settled);
                Work::Nothing
            }
        }
    }

    fn end_commits(&self, results: Result<&[CommitResult], &LedgerError>) -> TryEnd {
        let Some(table) = self.table.upgrade() else {
            return TryEnd::Done;
        };
        let end = TryEnd::of_results(results);
        if end == TryEnd::Failed {
            table.lock_decisions().doubt_write(&self.key);
        }
        match results {
            Ok([Ok(CommitOutcome::Conflict(records))]) => note_conflict(&table, &self.key, records),
            _ if end == TryEnd::Done => {
                let mut decisions = table.lock_decisions();
                let ended = decisions.finish_write(&self.key);
                // Under the lock, so that the row is in the cache before it leaves the journal for others.
                table.keep_settled(ended.settled);
                end_of(ended.is_open)
            }
            _ => end,
        }
    }

    fn note_lost(&self) {
        let Some(table) = self.table.upgrade() else { return };
        let mut decisions = table.lock_decisions();
        // The row stays in memory, as long as there is room.
        if let Some(row) = decisions.forget_entry(&self.key) {
            let lost = CachedRow { row, is_stored: false };
            table.rows.insert(&self.key, lost);
        }
    }
}

/// Corrects what the journal knows about the record that has prevented a write.
fn note_conflict<V: DecidedRow>(table: &DecidedState<V>, key: &RecordKey, records: &[Option<Record>]) -> TryEnd {
    // A decision has one or two steps.
    let found = records.iter().flatten().next();
    let other = found.and_then(|record| Some((V::decode(record)?, record.version)));
    if found.is_some() && other.is_none() {
        // A newer version wrote the record, and may have had it accepted: it is neither replaced nor removed.
        return TryEnd::Refused;
    }
    let mut decisions = table.lock_decisions();
    // Of an accepted row and one that is not, the accepted one stays.
    let is_first = |(row, _): &(V, u64)| {
        let wins = |own: &V| !own.has_same_content(row) && (row.is_accepted() || !own.is_accepted());
        decisions.find_row(key).is_some_and(wins)
    };
    if !table.ledger_decides() || !other.as_ref().is_some_and(is_first) {
        let ended = decisions.correct_write(key, other.as_ref().map(|(row, version)| (row, *version)));
        table.keep_settled(ended.settled);
        return end_of(ended.is_open);
    }
    // Another process was first, and its row stays. One that a provider has accepted meanwhile stays here.
    let own = decisions.forget_entry(key).filter(DecidedRow::is_accepted);
    if let Some(row) = own.or_else(|| Some(other?.0)) {
        if row.is_accepted() {
            table.rows.insert(key, CachedRow { row, is_stored: true });
        } else {
            // It may still be rolled back: only the requests that wait get it.
            table.overruled.insert(key, row);
        }
    }
    TryEnd::Done
}

const fn end_of(is_open: bool) -> TryEnd {
    if is_open { TryEnd::Again } else { TryEnd::Done }
}
