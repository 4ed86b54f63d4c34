//! The journal: pins that are not stored yet, and those whose requests wait for their provider.
//!
//! The first decision on a call stays. It leaves the journal only when the ledger has it, so that no eviction can change
//! it before. The journal itself waits for nothing: it says what is to be written, and is told the outcome.

use std::collections::HashMap;

use crate::{
    auth::PrincipalHash,
    digest::DigestHashBuilder,
    ledger::{CommitStep, FIRST_VERSION, Moment, Record, RecordKey},
    recall::{PinnedRow, ROW_BYTES},
    repair::PinnedResult,
};

/// The limit of all pins in the journal, in bytes.
const JOURNAL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The limit of one caller's pins, in bytes: no caller can fill the journal alone.
const CALLER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The knowledge about the row of a pin in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowState {
    /// There is no row.
    Absent,
    /// A write has failed, and may have been applied.
    Unknown,
    /// There is a row.
    Present(KnownRow),
}

/// A row in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownRow {
    version: u64,
    is_committed: bool,
    /// The generation of the decision whose result it has. `None` for any other.
    generation: Option<u64>,
    /// `false` if another request may be removing it.
    is_certain: bool,
}

impl RowState {
    /// Describes a row that was read earlier, and that no provider has accepted.
    ///
    /// With `is_same` it has the result of the entry's first decision.
    pub(super) const fn read_earlier(is_same: bool) -> Self {
        Self::Present(KnownRow {
            version: FIRST_VERSION,
            is_committed: false,
            generation: if is_same { Some(0) } else { None },
            is_certain: false,
        })
    }
}

/// One decision.
#[derive(Debug)]
struct JournalEntry {
    /// `None` if the pin was rolled back, and its row is to be removed.
    decided: Option<PinnedRow>,
    /// The number of earlier results.
    generation: u64,
    stored: RowState,
    /// `true` if nothing may be written before a provider accepts the request: the caller is not verified.
    is_held: bool,
    /// The row after the write that is under way.
    writing: Option<RowState>,
    /// `true` if the head of an answer was sent before the decision was stored.
    is_late: bool,
    /// `true` if the background writer is to ask for the next write.
    is_queued: bool,
}

/// The next write of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextWrite {
    Insert,
    Replace(u64),
    Remove(u64),
    /// Removes the row of another result and inserts the decided one, whose version then says that it is new.
    Exchange(u64),
}

impl JournalEntry {
    /// Returns the next write. `None` if the ledger has what was decided.
    fn next_write(&self) -> Option<NextWrite> {
        if self.is_held {
            return None;
        }
        match (&self.decided, self.stored) {
            (Some(_), RowState::Absent | RowState::Unknown) => Some(NextWrite::Insert),
            (None, RowState::Absent) => None,
            (None, RowState::Unknown) => Some(NextWrite::Remove(FIRST_VERSION)),
            (Some(row), RowState::Present(known)) if known.generation == Some(self.generation) => {
                (row.is_committed && !known.is_committed).then_some(NextWrite::Replace(known.version))
            }
            // A provider has accepted the row's result: only another accepted one may take its place.
            (Some(row), RowState::Present(known)) if known.is_committed => {
                row.is_committed.then_some(NextWrite::Replace(known.version))
            }
            (Some(_), RowState::Present(known)) => Some(NextWrite::Exchange(known.version)),
            (None, RowState::Present(known)) => (!known.is_committed).then_some(NextWrite::Remove(known.version)),
        }
    }

    /// Returns `true` if the journal need not know the entry any more, once nothing is left to write.
    fn is_settled(&self) -> bool {
        let is_open = |row: &PinnedRow| !row.is_committed;
        self.writing.is_none() && !self.decided.as_ref().is_some_and(is_open)
    }

    /// Returns `true` if a crash of the process cannot change the answer any more.
    fn is_durable(&self) -> bool {
        let has_answer = |known: KnownRow| known.is_certain && known.generation == Some(self.generation);
        self.decided.is_none() || matches!(self.stored, RowState::Present(known) if has_answer(known))
    }
}

/// A row that has left the journal.
pub(super) type SettledRow = (RecordKey, PinnedRow);

/// The end of a write.
#[derive(Debug)]
pub(super) struct EndedWrite {
    /// The row, if the journal need not know it any more.
    pub(super) settled: Option<SettledRow>,
    /// `true` if more is to be written.
    pub(super) is_open: bool,
}

/// The pins of the journal, within limits.
#[derive(Debug, Default)]
pub(super) struct PinJournal {
    entries: HashMap<RecordKey, JournalEntry, DigestHashBuilder>,
    /// Entries that are to be queued for the background writer.
    unqueued: Vec<RecordKey>,
    bytes: usize,
    caller_bytes: HashMap<PrincipalHash, usize, DigestHashBuilder>,
}

impl PinJournal {
    /// Returns the decision on a call. `None` if the journal has none.
    pub(super) fn find_decision(&self, key: &RecordKey) -> Option<&PinnedRow> {
        self.entries.get(key)?.decided.as_ref()
    }

    /// Returns `true` if the journal has an entry of this call: a decision, or the removal of one.
    pub(super) fn has_entry(&self, key: &RecordKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns `true` if the head of an answer must wait for this decision. One that was late once delays no more.
    pub(super) fn delays_head(&self, key: &RecordKey) -> bool {
        let is_due = |entry: &JournalEntry| !entry.is_late && !entry.is_durable();
        self.entries.get(key).is_some_and(is_due)
    }

    /// Notes that the head of an answer did not wait any longer for this decision.
    pub(super) fn note_late(&mut self, key: &RecordKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.is_late = !entry.is_durable();
        }
    }

    /// Takes the entries that are to be queued for the background writer.
    pub(super) fn take_unqueued(&mut self) -> Vec<RecordKey> {
        std::mem::take(&mut self.unqueued)
    }

    /// Decides on a call. Returns the row if there is no room for it.
    pub(super) fn decide_row(
        &mut self,
        key: RecordKey,
        row: PinnedRow,
        stored: RowState,
        is_held: bool,
    ) -> Result<(), PinnedRow> {
        // An entry whose removal is on its way is used again, even without room: both writes must stay in order.
        if self.entries.contains_key(&key) {
            self.set_decision(&key, Some(row));
            self.update_entry(&key);
            return Ok(());
        }
        if !self.has_room(&key, row_bytes(Some(&row))) {
            return Err(row);
        }
        self.add_entry(key, Some(row), stored, is_held);
        Ok(())
    }

    /// Has a decision written that was held: its caller is verified by now.
    pub(super) fn release_row(&mut self, key: &RecordKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.is_held = false;
        }
        // The decision is not accepted, so that the entry stays.
        self.update_entry(key);
    }

    /// Notes that a provider has accepted the present decision, or this result in its place.
    ///
    /// Returns the row if the ledger has it already.
    pub(super) fn accept_row(&mut self, key: &RecordKey, row: PinnedRow) -> Option<SettledRow> {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.is_held = false;
            self.set_decision(key, Some(row));
        }
        self.update_entry(key)
    }

    /// Takes a decision back that no provider has accepted.
    pub(super) fn roll_back(&mut self, key: &RecordKey, result: &PinnedResult) {
        let is_it = |row: &PinnedRow| !row.is_committed && row.result == *result;
        if self.find_decision(key).is_some_and(is_it) {
            self.set_decision(key, None);
            self.update_entry(key);
        }
    }

    /// Removes the row of a result that no provider has accepted, and of which the journal has no entry.
    ///
    /// Returns `false` if there is no room.
    pub(super) fn remove_row(&mut self, key: RecordKey) -> bool {
        let has_room = self.has_room(&key, row_bytes(None));
        if has_room {
            self.add_entry(key, None, RowState::read_earlier(false), false);
        }
        has_room
    }

    fn add_entry(&mut self, key: RecordKey, decided: Option<PinnedRow>, stored: RowState, is_held: bool) {
        let bytes = row_bytes(decided.as_ref());
        let entry = JournalEntry {
            decided,
            generation: 0,
            stored,
            is_held,
            writing: None,
            is_late: false,
            is_queued: false,
        };
        self.entries.insert(key, entry);
        self.count_bytes(&key, 0, bytes);
        self.update_entry(&key);
    }

    /// Removes an entry that is not to be written. Returns its decision.
    pub(super) fn forget_entry(&mut self, key: &RecordKey) -> Option<PinnedRow> {
        let entry = self.entries.remove(key)?;
        self.count_bytes(key, row_bytes(entry.decided.as_ref()), 0);
        entry.decided
    }

    /// Begins the next write of an entry. Returns its steps, or the row if nothing is left to write.
    pub(super) fn begin_write(
        &mut self,
        key: &RecordKey,
        expires_at: Moment,
    ) -> Result<Vec<CommitStep>, Option<SettledRow>> {
        let Some(entry) = self.entries.get_mut(key) else {
            return Err(None);
        };
        let Some((steps, then)) = write_of(*key, entry, expires_at) else {
            entry.is_queued = false;
            return Err(self.update_entry(key));
        };
        entry.writing = Some(then);
        Ok(steps)
    }

    /// Notes that a write is stored.
    pub(super) fn finish_write(&mut self, key: &RecordKey) -> EndedWrite {
        let then = self.entries.get(key).and_then(|entry| entry.writing);
        self.end_write(key, then)
    }

    /// Notes that it is not known whether a write was applied. It is retried.
    pub(super) fn doubt_write(&mut self, key: &RecordKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.writing = None;
            entry.stored = RowState::Unknown;
        }
    }

    /// Notes the record that has prevented a write, or that there is none.
    pub(super) fn correct_write(&mut self, key: &RecordKey, found: Option<&Record>) -> EndedWrite {
        let stored = self.entries.get(key).map(|entry| {
            let decided = entry.decided.as_ref().map(|row| &row.result);
            found.map_or(RowState::Absent, |record| {
                // Bytes of another version count as another result.
                let row = PinnedRow::decode(&record.value);
                let is_same = row.as_ref().is_some_and(|row| Some(&row.result) == decided);
                RowState::Present(KnownRow {
                    version: record.version,
                    is_committed: row.is_some_and(|row| row.is_committed),
                    generation: is_same.then_some(entry.generation),
                    is_certain: true,
                })
            })
        });
        self.end_write(key, stored)
    }

    /// Ends a write, after which the row is known to be `stored`.
    fn end_write(&mut self, key: &RecordKey, stored: Option<RowState>) -> EndedWrite {
        let Some(entry) = self.entries.get_mut(key) else {
            return EndedWrite {
                settled: None,
                is_open: false,
            };
        };
        entry.writing = None;
        entry.stored = stored.unwrap_or(entry.stored);
        entry.is_queued = entry.next_write().is_some();
        EndedWrite {
            is_open: entry.is_queued,
            settled: self.update_entry(key),
        }
    }

    /// Queues the entry if something is to be written. Removes and returns it once it is settled.
    fn update_entry(&mut self, key: &RecordKey) -> Option<SettledRow> {
        let entry = self.entries.get_mut(key)?;
        if entry.writing.is_some() {
            // The next write follows the present one.
            return None;
        }
        if entry.next_write().is_some() {
            if !std::mem::replace(&mut entry.is_queued, true) {
                self.unqueued.push(*key);
            }
            return None;
        }
        if !entry.is_settled() {
            return None;
        }
        self.forget_entry(key).map(|row| (*key, row))
    }

    fn set_decision(&mut self, key: &RecordKey, decided: Option<PinnedRow>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.decided.as_ref().map(|row| &row.result) != decided.as_ref().map(|row| &row.result) {
            entry.generation += 1;
            // The head of an answer waits for the new decision.
            entry.is_late = false;
        }
        let (before, after) = (row_bytes(entry.decided.as_ref()), row_bytes(decided.as_ref()));
        entry.decided = decided;
        self.count_bytes(key, before, after);
    }

    fn has_room(&self, key: &RecordKey, bytes: usize) -> bool {
        let of_caller = self.caller_bytes.get(&key.principal).copied().unwrap_or_default();
        self.bytes.saturating_add(bytes) <= JOURNAL_BYTES_MAX && of_caller.saturating_add(bytes) <= CALLER_BYTES_MAX
    }

    fn count_bytes(&mut self, key: &RecordKey, before: usize, after: usize) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        let of_caller = self.caller_bytes.entry(key.principal).or_default();
        *of_caller = of_caller.saturating_sub(before).saturating_add(after);
        // Callers without pins must not fill memory.
        if *of_caller == 0 {
            self.caller_bytes.remove(&key.principal);
        }
    }
}

/// Returns the bytes that a decision counts.
fn row_bytes(decided: Option<&PinnedRow>) -> usize {
    decided.map_or(0, PinnedRow::text_bytes).saturating_add(ROW_BYTES)
}

/// Returns the steps of the next write of an entry, and its row after them.
fn write_of(key: RecordKey, entry: &JournalEntry, expires_at: Moment) -> Option<(Vec<CommitStep>, RowState)> {
    let value = entry.decided.as_ref().map(PinnedRow::encode);
    let is_committed = entry.decided.as_ref().is_some_and(|row| row.is_committed);
    let present = |version| {
        RowState::Present(KnownRow {
            version,
            is_committed,
            generation: Some(entry.generation),
            is_certain: true,
        })
    };
    let insert = |value| CommitStep::insert_record(key, value, expires_at);
    Some(match (entry.next_write()?, value) {
        (NextWrite::Insert, Some(value)) => (vec![insert(value)], present(FIRST_VERSION)),
        (NextWrite::Replace(version), Some(value)) => {
            let replace = CommitStep::Replace {
                key,
                version,
                value,
                expires_at,
            };
            (vec![replace], present(version.saturating_add(1)))
        }
        (NextWrite::Exchange(version), Some(value)) => {
            let steps = vec![CommitStep::Remove { key, version }, insert(value)];
            (steps, present(FIRST_VERSION))
        }
        (NextWrite::Remove(version), None) => (vec![CommitStep::Remove { key, version }], RowState::Absent),
        // A removal has no value, and every other write has one.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        ledger::RecordKind,
        repair::{Placeholder, RealResult},
    };

    const KEYS: u8 = 3;

    fn key(name: u8) -> RecordKey {
        RecordKey {
            kind: RecordKind::PinnedResult,
            principal: [name % 2; 32],
            name: [name; 32],
        }
    }

    fn row(result: u8, is_committed: bool) -> PinnedRow {
        let result = match result % 3 {
            0 => PinnedResult::Placeholder(Placeholder::OutcomeUnknown),
            1 => PinnedResult::Placeholder(Placeholder::ReadInterrupted),
            _ => PinnedResult::Result(RealResult::Block("{}".to_owned())),
        };
        PinnedRow { result, is_committed }
    }

    /// A store with the semantics of a ledger, for a few keys.
    #[derive(Debug, Default)]
    struct Store(HashMap<RecordKey, (PinnedRow, u64)>);

    impl Store {
        /// Applies all steps or none. Returns the record that prevents each step.
        fn commit(&mut self, steps: &[CommitStep]) -> Result<(), Vec<Option<Record>>> {
            let before = self.0.clone();
            let mut is_conflict = false;
            let conflicts = steps.iter().map(|step| {
                let key = *step.key();
                let found = self.0.get(&key).cloned();
                let decode = |value: &[u8]| PinnedRow::decode(value).unwrap();
                let is_possible = match step {
                    CommitStep::Insert { value, .. } if found.is_none() => {
                        self.0.insert(key, (decode(value), 1));
                        true
                    }
                    CommitStep::Replace { version, value, .. }
                        if found.as_ref().is_some_and(|(_, known)| known == version) =>
                    {
                        self.0.insert(key, (decode(value), version + 1));
                        true
                    }
                    CommitStep::Remove { version, .. } if found.as_ref().is_some_and(|(_, known)| known == version) => {
                        self.0.remove(&key);
                        true
                    }
                    _ => false,
                };
                is_conflict |= !is_possible;
                found.filter(|_| !is_possible).map(|(row, version)| Record {
                    key,
                    index: None,
                    value: row.encode(),
                    version,
                    made_at: Duration::ZERO,
                    expires_at: Duration::MAX,
                })
            });
            let conflicts: Vec<Option<Record>> = conflicts.collect();
            if is_conflict {
                self.0 = before;
                return Err(conflicts);
            }
            Ok(())
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Outcome {
        Written,
        FailedApplied,
        FailedUnapplied,
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Pin(u8, u8),
        Accept(u8, u8),
        RollBack(u8, u8),
        Take,
        End(Outcome),
    }

    fn op() -> impl Strategy<Value = Op> {
        let outcome = prop_oneof![
            4 => Just(Outcome::Written),
            1 => Just(Outcome::FailedApplied),
            1 => Just(Outcome::FailedUnapplied),
        ];
        prop_oneof![
            4 => (0..KEYS, 0..3_u8).prop_map(|(key, result)| Op::Pin(key, result)),
            2 => (0..KEYS, 0..3_u8).prop_map(|(key, result)| Op::Accept(key, result)),
            3 => (0..KEYS, 0..3_u8).prop_map(|(key, result)| Op::RollBack(key, result)),
            4 => Just(Op::Take),
            4 => outcome.prop_map(Op::End),
        ]
    }

    /// A journal with its store and cache, and the decisions that it must have.
    #[derive(Debug, Default)]
    struct Bench {
        journal: PinJournal,
        store: Store,
        cache: HashMap<RecordKey, PinnedRow>,
        /// Entries that the writer is to ask for.
        queued: Vec<RecordKey>,
        running: Vec<(RecordKey, Vec<CommitStep>)>,
        wanted: HashMap<RecordKey, PinnedRow>,
    }

    impl Bench {
        fn settle(&mut self, settled: Option<SettledRow>) {
            self.cache.extend(settled);
        }

        fn apply(&mut self, op: Op) {
            match op {
                Op::Pin(name, result) => {
                    let key = key(name);
                    if self.journal.find_decision(&key).is_none() && !self.cache.contains_key(&key) {
                        let fresh = row(result, false);
                        self.journal
                            .decide_row(key, fresh.clone(), RowState::Absent, false)
                            .unwrap();
                        self.wanted.insert(key, fresh);
                    }
                }
                Op::Accept(name, result) => {
                    let key = key(name);
                    if self.journal.find_decision(&key).is_some_and(|row| !row.is_committed) {
                        let settled = self.journal.accept_row(&key, row(result, true));
                        self.settle(settled);
                        self.wanted.insert(key, row(result, true));
                    }
                }
                Op::RollBack(name, result) => {
                    let (key, result) = (key(name), row(result, false));
                    if self.journal.find_decision(&key) == Some(&result) {
                        self.wanted.remove(&key);
                    }
                    self.journal.roll_back(&key, &result.result);
                }
                Op::Take if self.running.is_empty() => {
                    let mut keys = std::mem::take(&mut self.queued);
                    keys.extend(self.journal.take_unqueued());
                    for key in keys {
                        // The writer does updates of one record one after the other.
                        if self.running.iter().any(|(other, _)| *other == key) {
                            self.queued.push(key);
                            continue;
                        }
                        match self.journal.begin_write(&key, Duration::MAX) {
                            Ok(steps) => self.running.push((key, steps)),
                            Err(settled) => self.settle(settled),
                        }
                    }
                }
                Op::Take => {}
                Op::End(outcome) => {
                    for (key, steps) in std::mem::take(&mut self.running) {
                        self.end(key, &steps, outcome);
                    }
                }
            }
        }

        fn end(&mut self, key: RecordKey, steps: &[CommitStep], outcome: Outcome) {
            let done = match outcome {
                Outcome::FailedUnapplied => Ok(()),
                Outcome::Written | Outcome::FailedApplied => self.store.commit(steps),
            };
            let ended = match (outcome, done) {
                (Outcome::Written, Ok(())) => self.journal.finish_write(&key),
                (Outcome::Written, Err(found)) => {
                    let found = found.into_iter().fold(None, Option::or);
                    self.journal.correct_write(&key, found.as_ref())
                }
                _ => {
                    self.journal.doubt_write(&key);
                    return self.queued.push(key);
                }
            };
            self.settle(ended.settled);
            if ended.is_open {
                self.queued.push(key);
            }
        }

        /// A decision never changes by itself, and what counts as durable is in the store.
        fn check(&self) {
            for name in 0..KEYS {
                let key = key(name);
                let wanted = self.wanted.get(&key);
                let decided = self.journal.find_decision(&key).or_else(|| self.cache.get(&key));
                assert_eq!(decided, wanted, "{name}");
                if let Some(wanted) = wanted.filter(|_| !self.journal.delays_head(&key)) {
                    let stored = self.store.0.get(&key).map(|(row, _)| &row.result);
                    assert_eq!(stored, Some(&wanted.result), "{name}");
                }
            }
        }
    }

    proptest! {
        /// Whatever fails and whatever overtakes whatever: at the end the store has what was decided.
        #[test]
        fn the_store_gets_every_decision(ops in prop::collection::vec(op(), 0..60)) {
            let mut bench = Bench::default();
            for op in ops {
                bench.apply(op);
                bench.check();
            }
            for _ in 0..8 {
                bench.apply(Op::End(Outcome::Written));
                bench.apply(Op::Take);
            }
            bench.check();
            prop_assert!(bench.queued.is_empty() && bench.journal.take_unqueued().is_empty());
            let stored: HashMap<_, _> = bench.store.0.iter().map(|(key, (row, _))| (*key, row.clone())).collect();
            prop_assert_eq!(stored, bench.wanted);
            // Only requests that wait for their provider are left.
            let open = bench.journal.entries.values().all(|entry| entry.decided.as_ref().is_some_and(|row| !row.is_committed));
            prop_assert!(open);
        }
    }

    #[test]
    fn a_full_journal_takes_no_new_pin_and_forgets_none() {
        let mut journal = PinJournal::default();
        let key = |caller: u8, name: u8| RecordKey {
            principal: [caller; 32],
            ..key(name)
        };
        let large = || PinnedRow {
            result: PinnedResult::Result(RealResult::Block("x".repeat(1024 * 1024))),
            is_committed: false,
        };
        let pin = |journal: &mut PinJournal, caller, name| {
            journal
                .decide_row(key(caller, name), large(), RowState::Absent, true)
                .is_ok()
        };
        let taken = |journal: &mut PinJournal, caller| (0..100).take_while(|name| pin(journal, caller, *name)).count();
        // The limit is the caller's own, until the journal is full.
        assert_eq!(
            [1, 2, 3, 4, 5].map(|caller| taken(&mut journal, caller)),
            [15, 15, 15, 15, 3]
        );
        assert!(journal.find_decision(&key(1, 0)).is_some());
        // What is held is never written, and a rollback makes room.
        assert!(journal.take_unqueued().is_empty());
        journal.roll_back(&key(1, 0), &large().result);
        assert_eq!(taken(&mut journal, 6), 1);
        for caller in 1..=6 {
            for name in 0..100 {
                journal.forget_entry(&key(caller, name));
            }
        }
        assert_eq!((journal.bytes, journal.caller_bytes.len()), (0, 0));
    }
}
