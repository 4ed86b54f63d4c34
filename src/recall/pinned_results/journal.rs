//! The journal: pins that are not stored yet, and those whose requests wait for their provider.
//!
//! The first decision on a call stays. It leaves the journal only when the ledger has it, so that no eviction can change
//! it before. The journal itself waits for nothing: it says what is to be written, and is told the outcome.

use std::collections::{BTreeMap, HashMap};

use crate::{
    auth::{Caller, PrincipalHash},
    digest::DigestHashBuilder,
    ledger::{CommitStep, FIRST_VERSION, Moment, ROWS_MAX, Record, RecordKey},
    recall::{PinnedRow, ROW_BYTES},
    repair::PinnedResult,
};

/// The limit of all pins in the journal, in bytes.
const JOURNAL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The limit of one caller's pins, in bytes: no caller can fill the journal alone.
const CALLER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most callers that wait to be stored.
const CALLERS_MAX: usize = 10_000;
/// The most pins that are written at once. Each takes two steps of a commit at most.
const ROUND_PINS_MAX: usize = ROWS_MAX / 2;
/// Bytes of results after which no further pin is written at once.
const ROUND_BYTES_MAX: usize = 8 * 1024 * 1024;

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
    is_writing: bool,
    /// `true` if the head of an answer was sent before the decision was stored.
    is_late: bool,
    /// The place in the queue. `None` if nothing is to be written, or the write is on its way.
    place: Option<u64>,
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
        !self.is_writing && !self.decided.as_ref().is_some_and(is_open)
    }

    /// Returns `true` if a crash of the process cannot change the answer any more.
    fn is_durable(&self) -> bool {
        let has_answer = |known: KnownRow| known.is_certain && known.generation == Some(self.generation);
        self.decided.is_none() || matches!(self.stored, RowState::Present(known) if has_answer(known))
    }
}

/// The write of a caller that the ledger may not have yet.
#[derive(Debug)]
struct CallerWrite {
    /// `false` while it is on its way.
    is_queued: bool,
    /// `true` if the head of an answer was sent before.
    is_late: bool,
}

/// A write of one pin that is on its way.
#[derive(Debug)]
pub(super) struct PinWrite {
    pub(super) key: RecordKey,
    pub(super) steps: Vec<CommitStep>,
    /// The row after the write.
    then: RowState,
}

/// A row that has left the journal.
pub(super) type SettledRow = (RecordKey, PinnedRow);

/// The pins of the journal, within limits.
#[derive(Debug, Default)]
pub(super) struct PinJournal {
    entries: HashMap<RecordKey, JournalEntry, DigestHashBuilder>,
    /// Entries that are to be written, oldest first.
    queue: BTreeMap<u64, RecordKey>,
    /// Callers that the ledger may not have yet.
    callers: HashMap<Caller, CallerWrite, DigestHashBuilder>,
    next_place: u64,
    writing: usize,
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

    /// Has a caller stored with the next writes: later processes look for the pins of stored callers only.
    pub(super) fn add_caller(&mut self, caller: Caller) {
        // The write in the background stores the others.
        if self.callers.len() < CALLERS_MAX {
            self.callers.entry(caller).or_insert(CallerWrite {
                is_queued: true,
                is_late: false,
            });
        }
    }

    /// Takes the callers that are to be stored.
    pub(super) fn take_callers(&mut self) -> Vec<Caller> {
        let queued = self.callers.iter_mut().filter(|(_, write)| write.is_queued);
        queued
            .map(|(caller, write)| {
                write.is_queued = false;
                *caller
            })
            .collect()
    }

    /// Notes the end of a caller's write, which is repeated unless it `has_ended` for good.
    pub(super) fn end_caller(&mut self, caller: Caller, has_ended: bool) {
        if has_ended {
            self.callers.remove(&caller);
        } else if let Some(write) = self.callers.get_mut(&caller) {
            write.is_queued = true;
        }
    }

    /// Returns `true` if the head of an answer must wait for its caller to be stored.
    pub(super) fn delays_caller(&self, caller: Caller) -> bool {
        self.callers.get(&caller).is_some_and(|write| !write.is_late)
    }

    /// Notes that the head of an answer did not wait any longer for its caller.
    pub(super) fn note_late_caller(&mut self, caller: Caller) {
        if let Some(write) = self.callers.get_mut(&caller) {
            write.is_late = true;
        }
    }

    /// Returns `true` if any pin is not written yet.
    pub(super) fn has_unwritten(&self) -> bool {
        self.writing > 0 || !self.queue.is_empty()
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
            is_writing: false,
            is_late: false,
            place: None,
        };
        self.entries.insert(key, entry);
        self.count_bytes(&key, 0, bytes);
        self.update_entry(&key);
    }

    /// Removes an entry that is not to be written. Returns its decision.
    pub(super) fn forget_entry(&mut self, key: &RecordKey) -> Option<PinnedRow> {
        let entry = self.entries.remove(key)?;
        if let Some(place) = entry.place {
            self.queue.remove(&place);
        }
        self.writing = self.writing.saturating_sub(usize::from(entry.is_writing));
        self.count_bytes(key, row_bytes(entry.decided.as_ref()), 0);
        entry.decided
    }

    /// Takes the oldest writes out of the queue, one batch for each caller.
    pub(super) fn take_batches(&mut self, expires_at: Moment) -> Vec<Vec<PinWrite>> {
        let mut batches: HashMap<PrincipalHash, Vec<PinWrite>> = HashMap::new();
        let (mut pins, mut bytes) = (0, 0_usize);
        while pins < ROUND_PINS_MAX && bytes < ROUND_BYTES_MAX {
            let Some((_, key)) = self.queue.pop_first() else { break };
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            entry.place = None;
            let Some(write) = write_of(key, entry, expires_at) else {
                continue;
            };
            entry.is_writing = true;
            self.writing += 1;
            pins += 1;
            bytes = bytes.saturating_add(row_bytes(entry.decided.as_ref()));
            batches.entry(key.principal).or_default().push(write);
        }
        batches.into_values().collect()
    }

    /// Notes that a write is stored. Returns the row if the journal need not know it any more.
    pub(super) fn finish_write(&mut self, write: &PinWrite) -> Option<SettledRow> {
        self.end_write(write, write.then)
    }

    /// Notes that a write was not applied. Others may have been the reason.
    pub(super) fn release_write(&mut self, write: &PinWrite) {
        if let Some(stored) = self.entries.get(&write.key).map(|entry| entry.stored) {
            self.end_write(write, stored);
        }
    }

    /// Notes that it is not known whether a write was applied.
    pub(super) fn doubt_write(&mut self, write: &PinWrite) {
        self.end_write(write, RowState::Unknown);
    }

    /// Notes the record that has prevented a write, or that there is none. Returns the row if it is the decided one.
    pub(super) fn correct_write(&mut self, write: &PinWrite, found: Option<&Record>) -> Option<SettledRow> {
        let entry = self.entries.get(&write.key)?;
        let decided = entry.decided.as_ref().map(|row| &row.result);
        let stored = found.map_or(RowState::Absent, |record| {
            // Bytes of another version count as another result.
            let row = PinnedRow::decode(&record.value);
            let is_same = row.as_ref().is_some_and(|row| Some(&row.result) == decided);
            RowState::Present(KnownRow {
                version: record.version,
                is_committed: row.is_some_and(|row| row.is_committed),
                generation: is_same.then_some(entry.generation),
                is_certain: true,
            })
        });
        self.end_write(write, stored)
    }

    fn end_write(&mut self, write: &PinWrite, stored: RowState) -> Option<SettledRow> {
        let entry = self.entries.get_mut(&write.key)?;
        if std::mem::replace(&mut entry.is_writing, false) {
            self.writing = self.writing.saturating_sub(1);
        }
        entry.stored = stored;
        self.update_entry(&write.key)
    }

    /// Queues the entry if something is to be written. Removes and returns it once it is settled.
    fn update_entry(&mut self, key: &RecordKey) -> Option<SettledRow> {
        let entry = self.entries.get_mut(key)?;
        if entry.is_writing {
            // The next write follows the present one.
            return None;
        }
        if entry.next_write().is_some() {
            if entry.place.is_none() {
                entry.place = Some(self.next_place);
                self.queue.insert(self.next_place, *key);
                self.next_place += 1;
            }
            return None;
        }
        if let Some(place) = entry.place.take() {
            self.queue.remove(&place);
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

/// Returns the next write of an entry.
fn write_of(key: RecordKey, entry: &JournalEntry, expires_at: Moment) -> Option<PinWrite> {
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
    let (steps, then) = match (entry.next_write()?, value) {
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
    };
    Some(PinWrite { key, steps, then })
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
        running: Vec<Vec<PinWrite>>,
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
                Op::Take if self.running.is_empty() => self.running = self.journal.take_batches(Duration::MAX),
                Op::Take => {}
                Op::End(outcome) => {
                    for batch in std::mem::take(&mut self.running) {
                        self.end(&batch, outcome);
                    }
                }
            }
        }

        fn end(&mut self, batch: &[PinWrite], outcome: Outcome) {
            let steps: Vec<CommitStep> = batch.iter().flat_map(|write| write.steps.clone()).collect();
            let done = match outcome {
                Outcome::FailedUnapplied => Ok(()),
                Outcome::Written | Outcome::FailedApplied => self.store.commit(&steps),
            };
            match (outcome, done) {
                (Outcome::Written, Ok(())) => {
                    for write in batch {
                        let settled = self.journal.finish_write(write);
                        self.settle(settled);
                    }
                }
                (Outcome::Written, Err(_)) if batch.len() > 1 => {
                    for write in batch {
                        self.end(std::slice::from_ref(write), outcome);
                    }
                }
                (Outcome::Written, Err(found)) => {
                    let found = found.into_iter().fold(None, Option::or);
                    let settled = self.journal.correct_write(&batch[0], found.as_ref());
                    self.settle(settled);
                }
                _ => batch.iter().for_each(|write| self.journal.doubt_write(write)),
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
            prop_assert!(!bench.journal.has_unwritten());
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
        assert!(!journal.has_unwritten());
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
