//! The queue of background writes, bounded in rows and bytes. A full queue loses what matters least.
//!
//! The queue itself waits for nothing. The worker takes batches out of it, and puts back what is to be tried again.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{
    CommitStep, Moment, RECORD_BYTES, ROWS_MAX, RecordKey, RecordKind, TimedCommit, WriteFailures,
    worker_queue::Positions,
};

/// The most rows that wait: one for each step of a write.
const QUEUED_ROWS_MAX: usize = 200_000;
/// The most bytes that wait. Each row counts [`RECORD_BYTES`] in addition to its value.
const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most bytes of a batch, unless its only write is larger.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The kinds in the order of their loss: those whose loss costs least come first.
///
/// The worker of the queue writes only some of them. The others have their place all the same.
const LOSS_ORDER: [RecordKind; RecordKind::ALL.len()] = [
    // A response that its provider loses later is not left out, and its client gets the refusal.
    RecordKind::ResponseChain,
    // The beginning of a conversation changes once, if its server has refused its shape in another one.
    RecordKind::DisputedShape,
    // The provider refuses the block or the body once more, and the request is sent again.
    RecordKind::Thinking,
    RecordKind::LearnedFact,
    // A later process may send a request about the object with another key.
    RecordKind::ObjectOwner,
    // A later process writes a placeholder, if the client has dropped its result since.
    RecordKind::ClientResult,
    // Only operators read refused results.
    RecordKind::RefusedResult,
    // A later process cannot put the value back, which the provider may refuse.
    RecordKind::Continuity,
    // A later process does not append a text that the provider has seen, or appends one that was taken back.
    RecordKind::AppendedText,
    // A later process may answer a call with other bytes than before.
    RecordKind::PinnedResult,
    // A result that a tool service has posted finds no call, or does not reach its owner.
    RecordKind::CompactedCalls,
    RecordKind::Parked,
    RecordKind::ResultContent,
    RecordKind::Delivery,
    RecordKind::Call,
    // Never queued: a result is reserved before it is sent.
    RecordKind::Reservation,
    // Never queued: a link is stored before anybody gets it.
    RecordKind::TaskLink,
    // Never queued: its worker writes it again.
    RecordKind::SharedCooldown,
    // A tool that cannot be undone does not run, until its caller reads its results once more.
    RecordKind::Reader,
    // A tool service is not asked to undo an effect, or is asked by another process although its conversation goes on.
    RecordKind::Outgoing,
    RecordKind::LaneSign,
    // Never queued: a claim is granted once it is stored.
    RecordKind::Intent,
    // A later process looks for no record of the caller at all.
    RecordKind::Principal,
];

/// Returns the rank of a kind in the order of loss. Those with the lowest are lost first.
fn loss_rank(kind: RecordKind) -> usize {
    let rank = LOSS_ORDER.iter().position(|other| *other == kind);
    rank.unwrap_or(LOSS_ORDER.len())
}

/// A write of one record: its steps are tried in order, and each on its own.
#[derive(Debug)]
pub(super) struct RecordWrite {
    kind: RecordKind,
    position: u64,
    steps: Vec<CommitStep>,
    /// The time of queueing: a late write is judged against expiry as of then.
    queued_at: Moment,
    failures: WriteFailures,
}

impl RecordWrite {
    /// Returns the kind of the record.
    pub(super) const fn kind(&self) -> RecordKind {
        self.kind
    }

    /// Returns the number of its steps.
    pub(super) const fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// Returns one commit for each step.
    pub(super) fn commits(&self) -> impl Iterator<Item = TimedCommit> {
        self.steps.iter().map(|step| TimedCommit {
            steps: vec![step.clone()],
            now: self.queued_at,
        })
    }

    /// Returns the failed tries.
    pub(super) const fn failures(&mut self) -> &mut WriteFailures {
        &mut self.failures
    }

    /// Returns its position in the queue.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the key of its record.
    fn key(&self) -> Option<RecordKey> {
        self.steps.first().map(|step| *step.key())
    }

    fn bytes(&self) -> usize {
        let value = |step: &CommitStep| step.value_bytes().saturating_add(ROW_BYTES);
        self.steps.iter().map(value).fold(0, usize::saturating_add)
    }
}

/// [`RECORD_BYTES`], as a size in memory.
#[expect(clippy::cast_possible_truncation, reason = "256 fits any usize")]
const ROW_BYTES: usize = RECORD_BYTES as usize;

/// Rows and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueuedSize {
    rows: usize,
    bytes: usize,
}

impl QueuedSize {
    fn of_write(write: &RecordWrite) -> Self {
        Self {
            rows: write.steps.len(),
            bytes: write.bytes(),
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_sub(other.rows),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    const fn fits(self, limit: Self) -> bool {
        self.rows <= limit.rows && self.bytes <= limit.bytes
    }
}

/// The background writes that wait, oldest first.
#[derive(Debug)]
pub(super) struct WriteQueue {
    limit: QueuedSize,
    waiting: BTreeMap<u64, RecordWrite>,
    /// The rank and the position of each write that waits.
    by_rank: BTreeSet<(usize, u64)>,
    /// The size of the writes that wait, by rank.
    rank_sizes: [QueuedSize; LOSS_ORDER.len()],
    /// The size of all writes, including those that the worker has taken.
    size: QueuedSize,
    next_position: u64,
    /// Set by the first loss, until the queue is less than half full.
    is_overflowing: bool,
}

impl Positions for WriteQueue {
    fn next_position(&self) -> u64 {
        self.next_position
    }

    fn first_open_position(&self) -> u64 {
        self.waiting
            .first_key_value()
            .map_or(self.next_position, |(position, _)| *position)
    }
}

impl Default for WriteQueue {
    fn default() -> Self {
        Self::with_limit(QUEUED_ROWS_MAX, QUEUED_BYTES_MAX)
    }
}

impl WriteQueue {
    fn with_limit(rows: usize, bytes: usize) -> Self {
        Self {
            limit: QueuedSize { rows, bytes },
            waiting: BTreeMap::new(),
            by_rank: BTreeSet::new(),
            rank_sizes: [QueuedSize::default(); LOSS_ORDER.len()],
            size: QueuedSize::default(),
            next_position: 0,
            is_overflowing: false,
        }
    }

    /// Adds the steps of one record. A full queue makes room by losing writes that matter less, or loses this one.
    ///
    /// Each lost write is reported to `note_loss`.
    pub(super) fn add_write(
        &mut self,
        steps: Vec<CommitStep>,
        queued_at: Moment,
        note_loss: &mut dyn FnMut(RecordKind),
    ) {
        let Some(kind) = steps.first().map(|step| step.key().kind) else {
            return;
        };
        let write = RecordWrite {
            kind,
            position: self.next_position,
            steps,
            queued_at,
            failures: WriteFailures::default(),
        };
        let size = QueuedSize::of_write(&write);
        if !self.make_room(loss_rank(kind), size, note_loss) {
            return note_loss(kind);
        }
        self.next_position += 1;
        self.size = self.size.plus(size);
        self.insert_waiting(write);
    }

    /// Removes writes of lower ranks until there is room. Returns `false`, and removes none, if that is not enough.
    fn make_room(&mut self, rank: usize, needed: QueuedSize, note_loss: &mut dyn FnMut(RecordKind)) -> bool {
        let lower = self.rank_sizes.iter().take(rank);
        let removable = lower.fold(QueuedSize::default(), |sum, size| sum.plus(*size));
        if !self.size.minus(removable).plus(needed).fits(self.limit) {
            return false;
        }
        while !self.size.plus(needed).fits(self.limit) {
            let Some(lost) = self.remove_least() else { return false };
            self.size = self.size.minus(QueuedSize::of_write(&lost));
            note_loss(lost.kind);
        }
        true
    }

    /// Removes the write whose loss costs least. Of one kind the latest is lost, so that what is stored was true once.
    fn remove_least(&mut self) -> Option<RecordWrite> {
        let (rank, _) = *self.by_rank.first()?;
        let (_, position) = *self.by_rank.range((rank, 0)..=(rank, u64::MAX)).next_back()?;
        self.remove_waiting(position)
    }

    /// Notes that a write was lost. Returns `true` for the first of an overflow, which is worth a log line.
    pub(super) const fn note_overflow(&mut self) -> bool {
        !std::mem::replace(&mut self.is_overflowing, true)
    }

    /// Takes the oldest writes after a position, as many as one commit takes. They count until they are ended or put back.
    ///
    /// A write waits for those of the same record that wait before that position.
    pub(super) fn take_batch(&mut self, after: Option<u64>) -> Vec<RecordWrite> {
        let held: HashSet<RecordKey> = match after {
            Some(position) => self
                .waiting
                .range(..=position)
                .filter_map(|(_, write)| write.key())
                .collect(),
            None => HashSet::new(),
        };
        let mut positions = Vec::new();
        let mut taken = QueuedSize::default();
        let candidates = self.waiting.range(after.map_or(0, |position| position + 1)..);
        for (position, write) in candidates.take(ROWS_MAX + held.len()) {
            if write.key().is_some_and(|key| held.contains(&key)) {
                continue;
            }
            let with_it = taken.plus(QueuedSize::of_write(write));
            // At least one, however large it is.
            if !positions.is_empty() && (with_it.rows > ROWS_MAX || with_it.bytes > BATCH_BYTES_MAX) {
                break;
            }
            taken = with_it;
            positions.push(*position);
        }
        positions
            .into_iter()
            .filter_map(|position| self.remove_waiting(position))
            .collect()
    }

    /// Ends a write that was taken: it is stored, or lost.
    pub(super) fn end_write(&mut self, write: &RecordWrite) {
        self.size = self.size.minus(QueuedSize::of_write(write));
        let QueuedSize { rows, bytes } = self.limit;
        let half = QueuedSize {
            rows: rows / 2,
            bytes: bytes / 2,
        };
        self.is_overflowing &= !self.size.fits(half);
    }

    /// Puts a write back that was taken, at its former position.
    pub(super) fn put_back(&mut self, write: RecordWrite) {
        self.insert_waiting(write);
    }

    fn insert_waiting(&mut self, write: RecordWrite) {
        let (rank, size) = (loss_rank(write.kind), QueuedSize::of_write(&write));
        self.by_rank.insert((rank, write.position));
        if let Some(sum) = self.rank_sizes.get_mut(rank) {
            *sum = sum.plus(size);
        }
        self.waiting.insert(write.position, write);
    }

    fn remove_waiting(&mut self, position: u64) -> Option<RecordWrite> {
        let write = self.waiting.remove(&position)?;
        let (rank, size) = (loss_rank(write.kind), QueuedSize::of_write(&write));
        self.by_rank.remove(&(rank, position));
        if let Some(sum) = self.rank_sizes.get_mut(rank) {
            *sum = sum.minus(size);
        }
        Some(write)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn insert(kind: RecordKind, name: u8, bytes: usize) -> Vec<CommitStep> {
        let key = RecordKey {
            kind,
            principal: [0; 32],
            name: [name; 32],
        };
        vec![CommitStep::insert_record(key, vec![0; bytes].into(), Duration::MAX)]
    }

    /// Adds one write of each name. Returns the kinds of the lost ones.
    fn add(queue: &mut WriteQueue, kind: RecordKind, names: std::ops::Range<u8>) -> Vec<RecordKind> {
        let mut lost = Vec::new();
        for name in names {
            queue.add_write(insert(kind, name, 1), Duration::ZERO, &mut |kind| lost.push(kind));
        }
        lost
    }

    fn waiting(queue: &WriteQueue) -> Vec<(RecordKind, u8)> {
        let name = |write: &RecordWrite| (write.kind, write.steps[0].key().name[0]);
        queue.waiting.values().map(name).collect()
    }

    #[test]
    fn every_kind_has_one_place_in_the_order_of_loss() {
        let mut ranks = RecordKind::ALL.map(loss_rank);
        ranks.sort_unstable();
        assert!(ranks.iter().copied().eq(0..RecordKind::ALL.len()), "{ranks:?}");
    }

    #[test]
    fn a_full_queue_loses_what_matters_least_and_of_that_the_latest() {
        use RecordKind::{ClientResult, PinnedResult, Principal, Thinking};
        let mut queue = WriteQueue::with_limit(4, usize::MAX);
        assert_eq!(add(&mut queue, Thinking, 0..2), []);
        assert_eq!(add(&mut queue, PinnedResult, 2..4), []);
        // A write that matters less than all that wait is lost itself.
        assert_eq!(add(&mut queue, Thinking, 9..11), [Thinking, Thinking]);
        assert_eq!(add(&mut queue, ClientResult, 4..5), [Thinking]);
        assert_eq!(
            waiting(&queue),
            [(Thinking, 0), (PinnedResult, 2), (PinnedResult, 3), (ClientResult, 4)]
        );
        assert_eq!(add(&mut queue, Principal, 5..8), [Thinking, ClientResult, PinnedResult]);
        assert_eq!(
            waiting(&queue),
            [(PinnedResult, 2), (Principal, 5), (Principal, 6), (Principal, 7)]
        );
        assert_eq!(add(&mut queue, PinnedResult, 8..9), [PinnedResult]);
    }

    #[test]
    fn nothing_is_lost_for_a_write_that_has_no_room_anyhow() {
        let mut queue = WriteQueue::with_limit(100, 10 * (ROW_BYTES + 1));
        assert_eq!(add(&mut queue, RecordKind::Thinking, 0..5), []);
        assert_eq!(add(&mut queue, RecordKind::Principal, 5..10), []);
        let mut lost = Vec::new();
        let large = insert(RecordKind::Call, 10, 6 * ROW_BYTES);
        queue.add_write(large, Duration::ZERO, &mut |kind| lost.push(kind));
        assert_eq!((lost, waiting(&queue).len()), (vec![RecordKind::Call], 10));
    }

    #[test]
    fn writes_that_the_worker_has_taken_count_until_they_end() {
        let mut queue = WriteQueue::with_limit(4, usize::MAX);
        add(&mut queue, RecordKind::Thinking, 0..4);
        let mut batch = queue.take_batch(None);
        assert_eq!((batch.len(), queue.first_open_position()), (4, 4));
        assert_eq!(add(&mut queue, RecordKind::Principal, 4..5).len(), 1);
        assert!(queue.note_overflow());
        assert!(!queue.note_overflow(), "one line for an overflow");
        queue.put_back(batch.pop().unwrap());
        assert_eq!((queue.first_open_position(), queue.next_position()), (3, 4));
        for write in &batch {
            queue.end_write(write);
        }
        assert!(queue.note_overflow(), "another overflow");
        assert_eq!(add(&mut queue, RecordKind::Principal, 4..7), []);
        assert_eq!(queue.size.rows, 4);
    }

    #[test]
    fn a_batch_is_what_one_commit_takes() {
        let mut queue = WriteQueue::default();
        for round in 0..9 {
            add(&mut queue, RecordKind::Thinking, 0..200);
            assert_eq!(queue.waiting.len(), (round + 1) * 200);
        }
        let sizes: Vec<usize> =
            std::iter::from_fn(|| Some(queue.take_batch(None).len()).filter(|len| *len > 0)).collect();
        assert_eq!(sizes, [ROWS_MAX, 1800 - ROWS_MAX]);
        for name in 0..3 {
            let large = insert(RecordKind::Thinking, name, BATCH_BYTES_MAX / 2);
            queue.add_write(large, Duration::ZERO, &mut |_| {});
        }
        assert_eq!(queue.take_batch(None).len(), 1);
    }
}
