//! The write of one pin by the background writer.

use std::sync::{Arc, Weak};

use super::CachedRow;
use crate::{
    clock,
    ledger::{CommitOutcome, CommitResult, LedgerError, Record, RecordKey, RecordKind, TimedCommit},
    recall::{PinnedRow, RecallStoreState},
    writer::{Subject, TryEnd, Update, UpdateSize, Work, WriteTrack},
};

/// Bytes that a write counts. The journal counts the result.
const WRITE_BYTES: usize = 256;

/// The next write of a pin, which the journal knows when it begins.
#[derive(Debug)]
pub(super) struct PinWrite {
    // Weak, since a queue that no task empties would keep the store, and so itself.
    store: Weak<RecallStoreState>,
    key: RecordKey,
}

impl PinWrite {
    pub(super) fn new(store: &Arc<RecallStoreState>, key: RecordKey) -> Self {
        Self {
            store: Arc::downgrade(store),
            key,
        }
    }
}

impl Update for PinWrite {
    fn track(&self) -> WriteTrack {
        WriteTrack::Awaited
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_record(&self.key)]
    }

    fn size(&self) -> UpdateSize {
        // The removal of another result and the insert of the decided one.
        UpdateSize {
            rows: 2,
            bytes: WRITE_BYTES,
        }
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (self.key.kind, 1)
    }

    fn begin(self: Arc<Self>) -> Work {
        let Some(store) = self.store.upgrade() else {
            return Work::Nothing;
        };
        let begun = store.pinned.lock_journal().begin_write(&self.key, store.expires_at());
        match begun {
            Ok(steps) => Work::Commits(vec![TimedCommit {
                steps,
                now: clock::unix_time(),
            }]),
            Err(settled) => {
                store.pinned.keep_settled(settled);
                Work::Nothing
            }
        }
    }

    fn end_commits(&self, results: Result<&[CommitResult], &LedgerError>) -> TryEnd {
        let Some(store) = self.store.upgrade() else {
            return TryEnd::Done;
        };
        let end = TryEnd::of_results(results);
        if end == TryEnd::Failed {
            store.pinned.lock_journal().doubt_write(&self.key);
        }
        match results {
            Ok([Ok(CommitOutcome::Conflict(records))]) => note_conflict(&store, &self.key, records),
            _ if end == TryEnd::Done => {
                let mut journal = store.pinned.lock_journal();
                let ended = journal.finish_write(&self.key);
                // Under the lock, so that the row is in the cache before it leaves the journal for others.
                store.pinned.keep_settled(ended.settled);
                end_of(ended.is_open)
            }
            _ => end,
        }
    }

    fn note_lost(&self) {
        let Some(store) = self.store.upgrade() else { return };
        let mut journal = store.pinned.lock_journal();
        // The result stays in memory, as long as there is room.
        if let Some(row) = journal.forget_entry(&self.key) {
            let lost = CachedRow { row, is_stored: false };
            store.pinned.rows.insert(&self.key, lost);
        }
    }
}

/// Corrects what the journal knows about the row that has prevented a write.
fn note_conflict(store: &RecallStoreState, key: &RecordKey, records: &[Option<Record>]) -> TryEnd {
    let pins = &store.pinned;
    // A pin has one or two steps.
    let found = records.iter().flatten().next();
    let mut journal = pins.lock_journal();
    let other = found.and_then(|record| PinnedRow::decode(&record.value));
    if found.is_some() && other.is_none() {
        // A newer version wrote the record, and may have had it accepted: it is neither replaced nor removed.
        return TryEnd::Refused;
    }
    let decided = journal.find_decision(key);
    // Of an accepted result and one that is not, the accepted one stays.
    let is_other = |row: &PinnedRow| {
        let wins = |decided: &PinnedRow| decided.result != row.result && (row.is_committed || !decided.is_committed);
        decided.is_some_and(wins)
    };
    if let Some(row) = other.filter(is_other).filter(|_| !store.ledger.is_exclusive()) {
        // Another process was first, and its result stays. One that a provider has accepted meanwhile stays here.
        let own = journal.forget_entry(key).filter(|own| own.is_committed);
        let row = own.unwrap_or(row);
        if row.is_committed {
            pins.rows.insert(key, CachedRow { row, is_stored: true });
        } else {
            // It may still be rolled back: only the requests that wait get it.
            pins.overruled.insert(key, row.result);
        }
        return TryEnd::Done;
    }
    let ended = journal.correct_write(key, found);
    pins.keep_settled(ended.settled);
    end_of(ended.is_open)
}

const fn end_of(is_open: bool) -> TryEnd {
    if is_open { TryEnd::Again } else { TryEnd::Done }
}
