//! The journal of a decided table: decisions that are not stored yet, and those whose requests wait for their provider.
//!
//! The first decision on a row stays. It leaves the journal only when the ledger has it, so that no eviction can change
//! it before. The journal itself waits for nothing: it says what is to be written, and is told the outcome.

use std::collections::HashMap;

use antiphon_core::digest::DigestHashBuilder;

use super::DecidedRow;
use crate::{
    ledger::{CommitStep, FIRST_VERSION, Moment, RecordKey},
    principal::PrincipalHash,
    table::{StoredRow, row::ENTRY_BYTES},
};

/// The limit of all decisions in the journal, in bytes.
const JOURNAL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The limit of one principal's decisions, in bytes: none can fill the journal alone.
const PRINCIPAL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Everything that is known of a decision's record in the ledger.
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
    is_accepted: bool,
    /// The generation of the decision whose content it has. `None` for any other.
    generation: Option<u64>,
    /// `false` if another request may be removing it.
    is_certain: bool,
}

impl RowState {
    /// Describes a row that was read earlier, and that no provider has accepted.
    ///
    /// With `is_same` it has the content of the first decision.
    pub(super) const fn read_earlier(is_same: bool) -> Self {
        Self::Present(KnownRow {
            version: FIRST_VERSION,
            is_accepted: false,
            generation: if is_same { Some(0) } else { None },
            is_certain: false,
        })
    }
}

/// One decision.
#[derive(Debug)]
struct Decision<V> {
    /// `None` if it was rolled back, and its row is to be removed.
    row: Option<V>,
    /// The number of earlier contents.
    generation: u64,
    stored: RowState,
    /// `true` if nothing may be written before a provider accepts the request: the caller is not verified.
    is_held: bool,
    /// The row after the write that is under way.
    writing: Option<RowState>,
    /// `true` if the background writer is to ask for the next write.
    is_queued: bool,
}

/// The next write of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextWrite {
    Insert,
    Replace(u64),
    Remove(u64),
    /// Removes the row of another content and inserts the decided one, whose version then says that it is new.
    Exchange(u64),
}

impl<V: DecidedRow> Decision<V> {
    /// Returns the next write. `None` if the ledger has what was decided.
    fn next_write(&self) -> Option<NextWrite> {
        if self.is_held {
            return None;
        }
        match (&self.row, self.stored) {
            (Some(_), RowState::Absent | RowState::Unknown) => Some(NextWrite::Insert),
            (None, RowState::Absent) => None,
            (None, RowState::Unknown) => Some(NextWrite::Remove(FIRST_VERSION)),
            (Some(row), RowState::Present(known)) if known.generation == Some(self.generation) => {
                (row.is_accepted() && !known.is_accepted).then_some(NextWrite::Replace(known.version))
            }
            // A provider has accepted the row that is there: only another accepted one may take its place.
            (Some(row), RowState::Present(known)) if known.is_accepted => {
                row.is_accepted().then_some(NextWrite::Replace(known.version))
            }
            (Some(_), RowState::Present(known)) => Some(NextWrite::Exchange(known.version)),
            (None, RowState::Present(known)) => (!known.is_accepted).then_some(NextWrite::Remove(known.version)),
        }
    }

    /// Returns `true` if the journal need not know the entry any more, once nothing is left to write.
    fn is_settled(&self) -> bool {
        let is_open = |row: &V| !row.is_accepted();
        self.writing.is_none() && !self.row.as_ref().is_some_and(is_open)
    }

    /// Returns `true` if a crash of the process cannot change the decision any more.
    fn is_durable(&self) -> bool {
        let is_it = |known: KnownRow| known.is_certain && known.generation == Some(self.generation);
        self.row.is_none() || matches!(self.stored, RowState::Present(known) if is_it(known))
    }
}

/// A row that has left the journal.
pub(super) type SettledRow<V> = (RecordKey, V);

/// The end of a write.
#[derive(Debug)]
pub(super) struct EndedWrite<V> {
    /// The row, if the journal need not know it any more.
    pub(super) settled: Option<SettledRow<V>>,
    /// `true` if more is to be written.
    pub(super) is_open: bool,
}

/// The decisions of the journal, within limits.
#[derive(Debug)]
pub(super) struct Decisions<V> {
    entries: HashMap<RecordKey, Decision<V>, DigestHashBuilder>,
    /// Entries that are to be queued for the background writer.
    unqueued: Vec<RecordKey>,
    bytes: usize,
    principal_bytes: HashMap<PrincipalHash, usize, DigestHashBuilder>,
}

impl<V> Default for Decisions<V> {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
            unqueued: Vec::new(),
            bytes: 0,
            principal_bytes: HashMap::default(),
        }
    }
}

impl<V: DecidedRow> Decisions<V> {
    /// Returns the decision on a row. `None` if the journal has none.
    pub(super) fn find_row(&self, key: &RecordKey) -> Option<&V> {
        self.entries.get(key)?.row.as_ref()
    }

    /// Returns `true` if the journal has an entry of this row: a decision, or the removal of one.
    pub(super) fn has_entry(&self, key: &RecordKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns the generation of a decision that a crash may still lose. `None` if there is none.
    pub(super) fn unstored_generation(&self, key: &RecordKey) -> Option<u64> {
        let entry = self.entries.get(key).filter(|entry| !entry.is_durable())?;
        Some(entry.generation)
    }

    /// Takes the entries that are to be queued for the background writer.
    pub(super) fn take_unqueued(&mut self) -> Vec<RecordKey> {
        std::mem::take(&mut self.unqueued)
    }

    /// Decides on a row. Returns it if there is no room for it.
    pub(super) fn decide_row(&mut self, key: RecordKey, row: V, stored: RowState, is_held: bool) -> Result<(), V> {
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

    /// Notes that a provider has accepted the present decision, or this row in its place.
    ///
    /// Returns the row if the ledger has it already.
    pub(super) fn accept_row(&mut self, key: &RecordKey, row: V) -> Option<SettledRow<V>> {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.is_held = false;
            self.set_decision(key, Some(row));
        }
        self.update_entry(key)
    }

    /// Takes a decision back that no provider has accepted.
    pub(super) fn roll_back(&mut self, key: &RecordKey, is_it: impl FnOnce(&V) -> bool) {
        if self.find_row(key).is_some_and(|row| !row.is_accepted() && is_it(row)) {
            self.set_decision(key, None);
            self.update_entry(key);
        }
    }

    /// Removes a row that no provider has accepted, and of which the journal has no entry.
    ///
    /// Returns `false` if there is no room.
    pub(super) fn remove_row(&mut self, key: RecordKey) -> bool {
        let has_room = self.has_room(&key, row_bytes::<V>(None));
        if has_room {
            self.add_entry(key, None, RowState::read_earlier(false), false);
        }
        has_room
    }

    fn add_entry(&mut self, key: RecordKey, row: Option<V>, stored: RowState, is_held: bool) {
        let bytes = row_bytes(row.as_ref());
        let entry = Decision {
            row,
            generation: 0,
            stored,
            is_held,
            writing: None,
            is_queued: false,
        };
        self.entries.insert(key, entry);
        self.count_bytes(&key, 0, bytes);
        self.update_entry(&key);
    }

    /// Removes an entry that is not to be written. Returns its decision.
    pub(super) fn forget_entry(&mut self, key: &RecordKey) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.count_bytes(key, row_bytes(entry.row.as_ref()), 0);
        entry.row
    }

    /// Begins the next write of an entry. Returns its steps, or the row if nothing is left to write.
    pub(super) fn begin_write(
        &mut self,
        key: &RecordKey,
        expires_at: impl Fn(&V) -> Moment,
    ) -> Result<Vec<CommitStep>, Option<SettledRow<V>>> {
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
    pub(super) fn finish_write(&mut self, key: &RecordKey) -> EndedWrite<V> {
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

    /// Notes the row and the version of the record that has prevented a write, or that there is none.
    pub(super) fn correct_write(&mut self, key: &RecordKey, found: Option<(&V, u64)>) -> EndedWrite<V> {
        let stored = self.entries.get(key).map(|entry| {
            found.map_or(RowState::Absent, |(row, version)| {
                let is_same = entry.row.as_ref().is_some_and(|decided| decided.has_same_content(row));
                RowState::Present(KnownRow {
                    version,
                    is_accepted: row.is_accepted(),
                    generation: is_same.then_some(entry.generation),
                    is_certain: true,
                })
            })
        });
        self.end_write(key, stored)
    }

    /// Ends a write, after which the row is known to be `stored`.
    fn end_write(&mut self, key: &RecordKey, stored: Option<RowState>) -> EndedWrite<V> {
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
    fn update_entry(&mut self, key: &RecordKey) -> Option<SettledRow<V>> {
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

    fn set_decision(&mut self, key: &RecordKey, decided: Option<V>) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let is_same = match (&entry.row, &decided) {
            (Some(known), Some(decided)) => known.has_same_content(decided),
            (known, decided) => known.is_none() && decided.is_none(),
        };
        if !is_same {
            entry.generation += 1;
        }
        let (before, after) = (row_bytes(entry.row.as_ref()), row_bytes(decided.as_ref()));
        entry.row = decided;
        self.count_bytes(key, before, after);
    }

    fn has_room(&self, key: &RecordKey, bytes: usize) -> bool {
        let of_principal = self.principal_bytes.get(&key.principal).copied().unwrap_or_default();
        self.bytes.saturating_add(bytes) <= JOURNAL_BYTES_MAX
            && of_principal.saturating_add(bytes) <= PRINCIPAL_BYTES_MAX
    }

    fn count_bytes(&mut self, key: &RecordKey, before: usize, after: usize) {
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        let of_principal = self.principal_bytes.entry(key.principal).or_default();
        *of_principal = of_principal.saturating_sub(before).saturating_add(after);
        // Principals without decisions must not fill memory.
        if *of_principal == 0 {
            self.principal_bytes.remove(&key.principal);
        }
    }
}

/// Returns the bytes that a decision counts.
fn row_bytes<V: DecidedRow>(decided: Option<&V>) -> usize {
    decided.map_or(0, StoredRow::byte_len).saturating_add(ENTRY_BYTES)
}

/// Returns the steps of the next write of an entry, and its row after them.
fn write_of<V: DecidedRow>(
    key: RecordKey,
    entry: &Decision<V>,
    expires_at: impl Fn(&V) -> Moment,
) -> Option<(Vec<CommitStep>, RowState)> {
    let present = |version| {
        RowState::Present(KnownRow {
            version,
            is_accepted: entry.row.as_ref().is_some_and(DecidedRow::is_accepted),
            generation: Some(entry.generation),
            is_certain: true,
        })
    };
    let insert = |row: &V| Some(CommitStep::insert_record(key, row.encode()?, expires_at(row)));
    Some(match (entry.next_write()?, &entry.row) {
        (NextWrite::Insert, Some(row)) => (vec![insert(row)?], present(FIRST_VERSION)),
        (NextWrite::Replace(version), Some(row)) => {
            let replace = CommitStep::Replace {
                key,
                version,
                value: row.encode()?,
                expires_at: expires_at(row),
            };
            (vec![replace], present(version.saturating_add(1)))
        }
        (NextWrite::Exchange(version), Some(row)) => {
            let steps = vec![CommitStep::Remove { key, version }, insert(row)?];
            (steps, present(FIRST_VERSION))
        }
        (NextWrite::Remove(version), None) => (vec![CommitStep::Remove { key, version }], RowState::Absent),
        // Only a removal is that of no row.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{ledger::RecordKind, table::decided_table::choice::Choice};

    const KEYS: u8 = 3;

    fn key(name: u8) -> RecordKey {
        RecordKey {
            kind: RecordKind::PinnedResult,
            principal: [name % 2; 32],
            name: [name; 32],
        }
    }

    fn row(text: u8, is_accepted: bool) -> Choice {
        let text = (text % 3).to_string();
        Choice { text, is_accepted }
    }

    /// A store with the semantics of a ledger, for a few keys.
    #[derive(Debug, Default)]
    struct Store(HashMap<RecordKey, (Choice, u64)>);

    impl Store {
        /// Applies all steps or none. Returns the record that prevents each step.
        fn commit(&mut self, steps: &[CommitStep]) -> Result<(), Vec<Option<(Choice, u64)>>> {
            let before = self.0.clone();
            let mut is_conflict = false;
            let conflicts = steps.iter().map(|step| {
                let key = *step.key();
                let found = self.0.get(&key).cloned();
                let is_possible = match step {
                    CommitStep::Insert { value, .. } if found.is_none() => {
                        self.0.insert(key, (Choice::from_bytes(value), 1));
                        true
                    }
                    CommitStep::Replace { version, value, .. }
                        if found.as_ref().is_some_and(|(_, known)| known == version) =>
                    {
                        self.0.insert(key, (Choice::from_bytes(value), version + 1));
                        true
                    }
                    CommitStep::Remove { version, .. } if found.as_ref().is_some_and(|(_, known)| known == version) => {
                        self.0.remove(&key);
                        true
                    }
                    _ => false,
                };
                is_conflict |= !is_possible;
                found.filter(|_| !is_possible)
            });
            let conflicts: Vec<_> = conflicts.collect();
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
        Decide(u8, u8),
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
            4 => (0..KEYS, 0..3_u8).prop_map(|(key, text)| Op::Decide(key, text)),
            2 => (0..KEYS, 0..3_u8).prop_map(|(key, text)| Op::Accept(key, text)),
            3 => (0..KEYS, 0..3_u8).prop_map(|(key, text)| Op::RollBack(key, text)),
            4 => Just(Op::Take),
            4 => outcome.prop_map(Op::End),
        ]
    }

    /// A journal with its store and cache, and the decisions that it must have.
    #[derive(Debug, Default)]
    struct Bench {
        journal: Decisions<Choice>,
        store: Store,
        cache: HashMap<RecordKey, Choice>,
        /// Entries that the writer is to ask for.
        queued: Vec<RecordKey>,
        running: Vec<(RecordKey, Vec<CommitStep>)>,
        wanted: HashMap<RecordKey, Choice>,
    }

    impl Bench {
        fn settle(&mut self, settled: Option<SettledRow<Choice>>) {
            self.cache.extend(settled);
        }

        fn apply(&mut self, op: Op) {
            match op {
                Op::Decide(name, text) => {
                    let key = key(name);
                    if self.journal.find_row(&key).is_none() && !self.cache.contains_key(&key) {
                        let fresh = row(text, false);
                        self.journal
                            .decide_row(key, fresh.clone(), RowState::Absent, false)
                            .unwrap();
                        self.wanted.insert(key, fresh);
                    }
                }
                Op::Accept(name, text) => {
                    let key = key(name);
                    if self.journal.find_row(&key).is_some_and(|row| !row.is_accepted) {
                        let settled = self.journal.accept_row(&key, row(text, true));
                        self.settle(settled);
                        self.wanted.insert(key, row(text, true));
                    }
                }
                Op::RollBack(name, text) => {
                    let (key, row) = (key(name), row(text, false));
                    if self.journal.find_row(&key) == Some(&row) {
                        self.wanted.remove(&key);
                    }
                    self.journal.roll_back(&key, |known| known.text == row.text);
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
                        match self.journal.begin_write(&key, |_| Duration::MAX) {
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
                    self.journal
                        .correct_write(&key, found.as_ref().map(|(row, version)| (row, *version)))
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
                let decided = self.journal.find_row(&key).or_else(|| self.cache.get(&key));
                assert_eq!(decided, wanted, "{name}");
                if let Some(wanted) = wanted.filter(|_| self.journal.unstored_generation(&key).is_none()) {
                    let stored = self.store.0.get(&key).map(|(row, _)| &row.text);
                    assert_eq!(stored, Some(&wanted.text), "{name}");
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
            let open = bench.journal.entries.values().all(|entry| entry.row.as_ref().is_some_and(|row| !row.is_accepted));
            prop_assert!(open);
        }
    }

    #[test]
    fn a_full_journal_takes_no_new_decision_and_forgets_none() {
        let mut journal = Decisions::default();
        let key = |principal: u8, name: u8| RecordKey {
            principal: [principal; 32],
            ..key(name)
        };
        let large = || Choice {
            text: "x".repeat(1024 * 1024),
            is_accepted: false,
        };
        let decide = |journal: &mut Decisions<Choice>, principal, name| {
            journal
                .decide_row(key(principal, name), large(), RowState::Absent, true)
                .is_ok()
        };
        let taken = |journal: &mut Decisions<Choice>, principal| {
            (0..100).take_while(|name| decide(journal, principal, *name)).count()
        };
        // The limit is the principal's own, until the journal is full.
        assert_eq!(
            [1, 2, 3, 4, 5].map(|principal| taken(&mut journal, principal)),
            [15, 15, 15, 15, 3]
        );
        assert!(journal.find_row(&key(1, 0)).is_some());
        // What is held is never written, and a rollback makes room.
        assert!(journal.take_unqueued().is_empty());
        journal.roll_back(&key(1, 0), |row| row.text == large().text);
        assert_eq!(taken(&mut journal, 6), 1);
        for principal in 1..=6 {
            for name in 0..100 {
                journal.forget_entry(&key(principal, name));
            }
        }
        assert_eq!((journal.bytes, journal.principal_bytes.len()), (0, 0));
    }
}
