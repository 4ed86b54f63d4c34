//! The queue of updates, bounded in number and bytes. A full queue loses what matters least.
//!
//! The queue itself waits for nothing. The task takes updates out of it, and puts back what is to be retried.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    Subject, Update, UpdateSize, WriteTrack,
    failures::WriteFailures,
    loss_order::{RANKS, loss_rank},
};
use crate::ledger::ROWS_MAX;

/// The most that is queued, including what is under way.
const QUEUED_MAX: QueuedSize = QueuedSize {
    updates: 200_000,
    bytes: 128 * 1024 * 1024,
};
/// The most bytes of a batch, as its updates count them, unless its only update is larger.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The pause before a failed update is retried: the first, and the longest. Each failure doubles it.
pub(super) const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The time for which an update is retried that fails although others succeed.
const ALONE_TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// An update that waits, or that the task has taken.
#[derive(Debug)]
pub(super) struct PendingUpdate {
    pub(super) update: Arc<dyn Update>,
    track: WriteTrack,
    position: u64,
    /// Its subjects, each once.
    subjects: Box<[Subject]>,
    /// The number of its subjects of which an earlier update has not ended.
    blockers: usize,
    size: UpdateSize,
    rank: usize,
    /// Set by the first failure.
    retry: Option<Box<Retry>>,
    /// Tells a receiver that the update is done or lost.
    end: Option<oneshot::Sender<()>>,
}

/// The state of an update that has failed.
#[derive(Clone, Copy, Debug)]
struct Retry {
    failures: WriteFailures,
    pause: Duration,
    pause_end: Instant,
}

impl PendingUpdate {
    /// Notes a failed try. Returns `false` if it has failed for five minutes while others succeeded.
    fn note_failure(&mut self, now: Instant, last_stored_at: Option<Instant>) -> bool {
        let (mut failures, pause) = match self.retry.as_deref() {
            Some(retry) => (retry.failures, retry.pause.saturating_mul(2).min(RETRY_PAUSE.1)),
            None => (WriteFailures::default(), RETRY_PAUSE.0),
        };
        let alone_for = failures.note(now, last_stored_at);
        self.retry = Some(Box::new(Retry {
            failures,
            pause,
            pause_end: now + pause,
        }));
        alone_for < ALONE_TIME_MAX
    }

    /// Returns `true` if a try of it has failed.
    pub(super) const fn has_failed(&self) -> bool {
        self.retry.is_some()
    }

    fn queued_size(&self) -> QueuedSize {
        QueuedSize {
            updates: 1,
            bytes: self.size.bytes,
        }
    }

    /// Returns its place among those that are ready: what has not failed comes first, then what waits for longest.
    fn turn(&self) -> QueueTurn {
        (self.retry.as_deref().map(|retry| retry.pause_end), self.position)
    }
}

/// The place of an update among those that are ready.
type QueueTurn = (Option<Instant>, u64);

/// A number of updates and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueuedSize {
    updates: usize,
    bytes: usize,
}

impl QueuedSize {
    const fn plus(self, other: Self) -> Self {
        Self {
            updates: self.updates.saturating_add(other.updates),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            updates: self.updates.saturating_sub(other.updates),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    const fn fits(self, limit: Self) -> bool {
        self.updates <= limit.updates && self.bytes <= limit.bytes
    }
}

/// The outcome of adding updates.
#[derive(Debug, Default)]
#[must_use]
pub struct Added {
    /// `true` if one of them is queued.
    pub(super) is_queued: bool,
    /// The updates that are lost: some of them, or others in their place.
    pub(super) lost: Vec<Arc<dyn Update>>,
    /// `true` if there is a first loss of an overflow, which is worth a log line.
    pub(super) is_new_overflow: bool,
}

impl Added {
    /// Adds the outcome of a later update.
    pub fn join(&mut self, later: Self) {
        self.is_queued |= later.is_queued;
        self.lost.extend(later.lost);
        self.is_new_overflow |= later.is_new_overflow;
    }
}

/// The updates about one subject.
#[derive(Debug, Default)]
struct SubjectUpdates {
    /// Their positions. Only the oldest of them may begin.
    positions: VecDeque<u64>,
    /// The generation of the subject for which requests wait no longer.
    late: Option<u64>,
}

/// The updates that wait, and the positions of those that are under way.
#[derive(Debug)]
pub(super) struct UpdateQueue {
    limit: QueuedSize,
    /// The updates by position: oldest first.
    waiting: BTreeMap<u64, PendingUpdate>,
    /// The positions of all updates that have not ended.
    open: BTreeSet<u64>,
    by_subject: HashMap<Subject, SubjectUpdates>,
    /// The updates of each track that wait for no other.
    ready: [BTreeSet<QueueTurn>; TRACKS.len()],
    /// The rank and the position of each update that waits.
    by_rank: BTreeSet<(usize, u64)>,
    /// The size of the updates that wait, by rank.
    rank_sizes: [QueuedSize; RANKS],
    /// The size of all updates.
    size: QueuedSize,
    /// The number of updates that have failed.
    failed: usize,
    next_position: u64,
    /// Set by the first loss, until the queue is less than half full.
    is_overflowing: bool,
    /// Set by a loss, until those that wait for ends are told.
    has_untold_losses: bool,
}

/// The tracks, in the order in which their updates begin.
pub(super) const TRACKS: [WriteTrack; 3] = [WriteTrack::Awaited, WriteTrack::Reading, WriteTrack::Behind];

impl WriteTrack {
    /// Returns its place in [`TRACKS`].
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Awaited => 0,
            Self::Reading => 1,
            Self::Behind => 2,
        }
    }
}

impl Default for UpdateQueue {
    fn default() -> Self {
        Self::with_limit(QUEUED_MAX)
    }
}

impl UpdateQueue {
    fn with_limit(limit: QueuedSize) -> Self {
        Self {
            limit,
            waiting: BTreeMap::new(),
            open: BTreeSet::new(),
            by_subject: HashMap::new(),
            ready: Default::default(),
            by_rank: BTreeSet::new(),
            rank_sizes: [QueuedSize::default(); RANKS],
            size: QueuedSize::default(),
            failed: 0,
            next_position: 0,
            is_overflowing: false,
            has_untold_losses: false,
        }
    }

    /// Adds an update. A full queue makes room by losing updates that matter less, or loses this one. `end` is told when it is
    /// done or lost.
    pub(super) fn add(&mut self, update: Arc<dyn Update>, end: Option<oneshot::Sender<()>>) -> Added {
        let mut subjects = update.subjects();
        subjects.sort_unstable();
        subjects.dedup();
        let mut pending = PendingUpdate {
            track: update.track(),
            position: self.next_position,
            subjects: subjects.into(),
            blockers: 0,
            size: update.size(),
            rank: loss_rank(update.lost_records().0, update.is_repeated()),
            retry: None,
            end,
            update,
        };
        let mut lost = Vec::new();
        let is_queued = self.make_room(pending.rank, pending.queued_size(), &mut lost);
        if is_queued {
            self.next_position += 1;
            self.size = self.size.plus(pending.queued_size());
            self.open.insert(pending.position);
            for subject in &pending.subjects {
                let updates = self.by_subject.entry(*subject).or_default();
                pending.blockers += usize::from(!updates.positions.is_empty());
                updates.positions.push_back(pending.position);
                // Nobody has waited for this one yet.
                updates.late = None;
            }
            self.put_back(pending);
        } else {
            lost.push(pending.update);
        }
        Added {
            is_queued,
            is_new_overflow: !lost.is_empty() && !std::mem::replace(&mut self.is_overflowing, true),
            lost,
        }
    }

    /// Removes updates of lower ranks until there is room. Returns `false`, and removes none, if that is not enough.
    fn make_room(&mut self, rank: usize, needed: QueuedSize, lost: &mut Vec<Arc<dyn Update>>) -> bool {
        if self.size.plus(needed).fits(self.limit) {
            return true;
        }
        let lower = self.rank_sizes.iter().take(rank);
        let removable = lower.fold(QueuedSize::default(), |sum, size| sum.plus(*size));
        if !self.size.minus(removable).plus(needed).fits(self.limit) {
            return false;
        }
        while !self.size.plus(needed).fits(self.limit) {
            let Some(least) = self.remove_least() else { return false };
            lost.push(self.end(least));
        }
        true
    }

    /// Removes the update whose loss costs least. Of one rank the latest is lost, so that what is stored was true once.
    fn remove_least(&mut self) -> Option<PendingUpdate> {
        let (rank, _) = *self.by_rank.first()?;
        let (_, position) = *self.by_rank.range((rank, 0)..=(rank, u64::MAX)).next_back()?;
        self.take_waiting(position)
    }

    /// Returns `true` if an update about this subject waits or is under way.
    pub(super) fn is_about(&self, subject: &Subject) -> bool {
        self.by_subject.contains_key(subject)
    }

    /// Notes that requests wait no longer for this generation of a subject. Holds until its updates have ended.
    pub(super) fn note_late(&mut self, subject: &Subject, generation: u64) {
        if let Some(updates) = self.by_subject.get_mut(subject) {
            updates.late = Some(generation);
        }
    }

    /// Returns `true` if requests wait no longer for this generation of a subject.
    pub(super) fn is_late(&self, subject: &Subject, generation: u64) -> bool {
        let updates = self.by_subject.get(subject);
        updates.is_some_and(|updates| updates.late == Some(generation))
    }

    /// Returns `true` if no update waits or is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the position of the next update.
    pub(super) const fn next_position(&self) -> u64 {
        self.next_position
    }

    /// Returns the position before which every update has ended.
    pub(super) fn first_open_position(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next_position)
    }

    /// Notes that updates were lost for others, and that they know it.
    pub(super) const fn note_losses(&mut self) {
        self.has_untold_losses = true;
    }

    /// Returns `true`, once, if updates were lost for others.
    pub(super) const fn take_losses(&mut self) -> bool {
        std::mem::replace(&mut self.has_untold_losses, false)
    }

    /// Returns `true` if an update has failed that has not ended.
    pub(super) const fn has_failed_updates(&self) -> bool {
        self.failed > 0
    }

    /// Notes a failed try of an update that was taken. `last_stored_at` is the last time at which the store did another one.
    ///
    /// Returns `false` if the update is lost: it has failed for five minutes while others succeeded. While the store fails
    /// for all, updates wait.
    pub(super) fn note_failure(
        &mut self,
        pending: &mut PendingUpdate,
        now: Instant,
        last_stored_at: Option<Instant>,
    ) -> bool {
        self.failed += usize::from(pending.retry.is_none());
        pending.note_failure(now, last_stored_at)
    }

    /// Takes the next update of a track that no earlier one of the same subject and no pause delays.
    pub(super) fn take_one(&mut self, track: WriteTrack, now: Instant) -> Option<PendingUpdate> {
        let (_, position) = *self.first_due(track, now)?;
        self.take_waiting(position)
    }

    /// Takes the latest update of a track that has not failed and that no earlier one of the same subject delays.
    pub(super) fn take_latest(&mut self, track: WriteTrack) -> Option<PendingUpdate> {
        let ready = self.ready.get(track.index())?;
        let (_, position) = *ready.range(..=(None, u64::MAX)).next_back()?;
        self.take_waiting(position)
    }

    /// Takes the next updates of a track, as many as one call of the ledger takes.
    pub(super) fn take_batch(&mut self, track: WriteTrack, now: Instant) -> Vec<PendingUpdate> {
        let mut batch = Vec::new();
        let mut taken = UpdateSize::default();
        while let Some((_, position)) = self.first_due(track, now).copied() {
            let size = self
                .waiting
                .get(&position)
                .map(|pending| pending.size)
                .unwrap_or_default();
            taken.rows = taken.rows.saturating_add(size.rows);
            taken.bytes = taken.bytes.saturating_add(size.bytes);
            // At least one, however large it is.
            if !batch.is_empty() && (taken.rows > ROWS_MAX || taken.bytes > BATCH_BYTES_MAX) {
                break;
            }
            batch.extend(self.take_waiting(position));
        }
        batch
    }

    fn first_due(&self, track: WriteTrack, now: Instant) -> Option<&QueueTurn> {
        let first = self.ready.get(track.index())?.first();
        first.filter(|(pause_end, _)| pause_end.is_none_or(|end| end <= now))
    }

    /// Returns the end of the next pause after `now`. What is due already waits for its track.
    pub(super) fn next_retry(&self, now: Instant) -> Option<Instant> {
        let first = self.ready.iter().filter_map(BTreeSet::first);
        first
            .filter_map(|(pause_end, _)| *pause_end)
            .filter(|end| *end > now)
            .min()
    }

    /// Puts an update back that was taken, at its former position.
    pub(super) fn put_back(&mut self, pending: PendingUpdate) {
        let position = pending.position;
        self.by_rank.insert((pending.rank, position));
        if let Some(sum) = self.rank_sizes.get_mut(pending.rank) {
            *sum = sum.plus(pending.queued_size());
        }
        self.waiting.insert(position, pending);
        self.note_ready(position);
    }

    /// Ends an update that was taken: it is done, or lost.
    pub(super) fn end(&mut self, pending: PendingUpdate) -> Arc<dyn Update> {
        self.size = self.size.minus(pending.queued_size());
        self.failed -= usize::from(pending.retry.is_some()).min(self.failed);
        self.open.remove(&pending.position);
        let half = QueuedSize {
            updates: self.limit.updates / 2,
            bytes: self.limit.bytes / 2,
        };
        self.is_overflowing &= !self.size.fits(half);
        for subject in &pending.subjects {
            let Some(SubjectUpdates { positions, .. }) = self.by_subject.get_mut(subject) else {
                continue;
            };
            // What was begun is the oldest of all its subjects. What a full queue loses may be any.
            if positions.front() != Some(&pending.position) {
                positions.retain(|position| *position != pending.position);
                continue;
            }
            positions.pop_front();
            match positions.front().copied() {
                Some(next) => self.unblock(next),
                None => drop(self.by_subject.remove(subject)),
            }
        }
        // An error means that nobody waits for the end.
        let _ = pending.end.map(|end| end.send(()));
        pending.update
    }

    /// Notes that an earlier update of one of its subjects has ended.
    fn unblock(&mut self, position: u64) {
        let Some(pending) = self.waiting.get_mut(&position) else {
            return;
        };
        pending.blockers = pending.blockers.saturating_sub(1);
        self.note_ready(position);
    }

    /// Notes that a waiting update is ready, if no earlier one of the same subject delays it.
    fn note_ready(&mut self, position: u64) {
        if let Some(pending) = self.waiting.get(&position).filter(|pending| pending.blockers == 0)
            && let Some(ready) = self.ready.get_mut(pending.track.index())
        {
            ready.insert(pending.turn());
        }
    }

    fn take_waiting(&mut self, position: u64) -> Option<PendingUpdate> {
        let pending = self.waiting.remove(&position)?;
        self.by_rank.remove(&(pending.rank, position));
        if let Some(sum) = self.rank_sizes.get_mut(pending.rank) {
            *sum = sum.minus(pending.queued_size());
        }
        if let Some(ready) = self.ready.get_mut(pending.track.index()) {
            ready.remove(&pending.turn());
        }
        Some(pending)
    }

    /// Ends the pauses of all updates: they are retried next.
    pub(super) fn end_pauses(&mut self, now: Instant) {
        let retries = self.waiting.values_mut().filter_map(|pending| pending.retry.as_mut());
        for retry in retries {
            // Those that have waited for longer stay before the others.
            retry.pause_end = retry.pause_end.min(now);
        }
        for ready in &mut self.ready {
            let turns = std::mem::take(ready).into_iter();
            *ready = turns
                .map(|(pause_end, position)| (pause_end.map(|end| end.min(now)), position))
                .collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Work, record_steps::ROW_BYTES},
        *,
    };
    use crate::{clock, ledger::RecordKind};

    /// An update of one row.
    #[derive(Debug)]
    struct Row {
        kind: RecordKind,
        name: u8,
        bytes: usize,
        track: WriteTrack,
    }

    impl Update for Row {
        fn track(&self) -> WriteTrack {
            self.track
        }

        fn subjects(&self) -> Vec<Subject> {
            vec![Subject::of_name([self.name; 32])]
        }

        fn size(&self) -> UpdateSize {
            UpdateSize {
                rows: 1,
                bytes: self.bytes,
            }
        }

        fn lost_records(&self) -> (RecordKind, usize) {
            (self.kind, 1)
        }

        fn begin(self: Arc<Self>) -> Work {
            Work::Nothing
        }
    }

    fn row(kind: RecordKind, name: u8, bytes: usize) -> Arc<dyn Update> {
        Arc::new(Row {
            kind,
            name,
            bytes,
            track: WriteTrack::Behind,
        })
    }

    fn queue_of(updates: usize) -> UpdateQueue {
        UpdateQueue::with_limit(QueuedSize {
            updates,
            bytes: usize::MAX,
        })
    }

    /// Adds one update of each name. Returns the kinds of the lost ones.
    fn add(queue: &mut UpdateQueue, kind: RecordKind, names: std::ops::Range<u8>) -> Vec<RecordKind> {
        let added = names.flat_map(|name| queue.add(row(kind, name, 1), None).lost);
        added.map(|lost| lost.lost_records().0).collect()
    }

    fn waiting(queue: &UpdateQueue) -> Vec<(RecordKind, u8)> {
        let of_update = |pending: &PendingUpdate| (pending.update.lost_records().0, pending.subjects[0].name[0]);
        queue.waiting.values().map(of_update).collect()
    }

    fn names(batch: &[PendingUpdate]) -> Vec<u8> {
        batch.iter().map(|pending| pending.subjects[0].name[0]).collect()
    }

    #[test]
    fn a_full_queue_loses_what_matters_least_and_of_that_the_latest() {
        use RecordKind::{ClientResult, PinnedResult, Principal, Thinking};
        let mut queue = queue_of(4);
        assert_eq!(add(&mut queue, Thinking, 0..2), []);
        assert_eq!(add(&mut queue, PinnedResult, 2..4), []);
        // An update that matters less than all that wait is lost itself.
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
        assert_eq!(names(&queue.take_batch(WriteTrack::Behind, clock::now())), [2, 5, 6, 7]);
    }

    #[test]
    fn nothing_is_lost_for_an_update_that_has_no_room_anyhow() {
        let mut queue = UpdateQueue::with_limit(QueuedSize {
            updates: 100,
            bytes: 10 * ROW_BYTES,
        });
        for (kind, names) in [(RecordKind::Thinking, 0..5), (RecordKind::Principal, 5..10)] {
            for name in names {
                assert!(queue.add(row(kind, name, ROW_BYTES), None).is_queued);
            }
        }
        let added = queue.add(row(RecordKind::Call, 10, 6 * ROW_BYTES), None);
        assert_eq!(
            (added.is_queued, added.lost.len(), waiting(&queue).len()),
            (false, 1, 10)
        );
    }

    #[test]
    fn of_several_updates_one_that_is_queued_is_enough_to_wake_the_task() {
        let mut queue = queue_of(1);
        let mut added = queue.add(row(RecordKind::Principal, 1, 1), None);
        added.join(queue.add(row(RecordKind::Thinking, 2, 1), None));
        assert_eq!((added.is_queued, added.lost.len()), (true, 1));
    }

    #[test]
    fn a_subject_is_late_in_one_generation_until_it_is_queued_again() {
        let mut queue = queue_of(4);
        let subject = Subject::of_name([7; 32]);
        let is_late = |queue: &UpdateQueue| [0, 1].map(|generation| queue.is_late(&subject, generation));
        // Without an update there is nothing to wait for.
        queue.note_late(&subject, 0);
        assert_eq!(is_late(&queue), [false, false]);
        add(&mut queue, RecordKind::PinnedResult, 7..8);
        queue.note_late(&subject, 0);
        assert_eq!(is_late(&queue), [true, false]);
        queue.note_late(&subject, 1);
        assert_eq!(is_late(&queue), [false, true]);
        add(&mut queue, RecordKind::PinnedResult, 7..8);
        assert_eq!(is_late(&queue), [false, false]);
    }

    #[test]
    fn what_is_under_way_counts_until_it_ends() {
        let mut queue = queue_of(4);
        let now = clock::now();
        add(&mut queue, RecordKind::Thinking, 0..4);
        let mut batch = queue.take_batch(WriteTrack::Behind, now);
        assert_eq!((batch.len(), queue.first_open_position()), (4, 0));
        let added = queue.add(row(RecordKind::Principal, 4, 1), None);
        assert!(added.is_new_overflow && !added.is_queued);
        let added = queue.add(row(RecordKind::Principal, 4, 1), None);
        assert!(!added.is_new_overflow, "one line for an overflow");
        queue.put_back(batch.pop().unwrap());
        for pending in batch {
            queue.end(pending);
        }
        assert_eq!((queue.first_open_position(), queue.next_position()), (3, 4));
        assert_eq!(add(&mut queue, RecordKind::Principal, 4..7), []);
        assert!(
            queue.add(row(RecordKind::Thinking, 9, 1), None).is_new_overflow,
            "another overflow"
        );
        assert_eq!(queue.size.updates, 4);
    }

    #[test]
    fn a_batch_is_what_one_call_of_the_ledger_takes() {
        let (mut queue, now) = (UpdateQueue::default(), clock::now());
        let of_one = |number: usize| {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            RowOfName(name)
        };
        for number in 0..1800 {
            drop(queue.add(Arc::new(of_one(number)), None));
        }
        let batches =
            std::iter::from_fn(|| Some(queue.take_batch(WriteTrack::Behind, now).len()).filter(|len| *len > 0));
        assert_eq!(batches.collect::<Vec<_>>(), [ROWS_MAX, 1800 - ROWS_MAX]);
        let mut queue = UpdateQueue::default();
        for name in 0..3 {
            drop(queue.add(row(RecordKind::Thinking, name, BATCH_BYTES_MAX / 2 + 1), None));
        }
        assert_eq!(queue.take_batch(WriteTrack::Behind, now).len(), 1);
    }

    #[derive(Debug)]
    struct RowOfName([u8; 32]);

    impl Update for RowOfName {
        fn track(&self) -> WriteTrack {
            WriteTrack::Behind
        }

        fn subjects(&self) -> Vec<Subject> {
            vec![Subject::of_name(self.0)]
        }

        fn size(&self) -> UpdateSize {
            UpdateSize { rows: 1, bytes: 1 }
        }

        fn lost_records(&self) -> (RecordKind, usize) {
            (RecordKind::Thinking, 1)
        }

        fn begin(self: Arc<Self>) -> Work {
            Work::Nothing
        }
    }

    #[test]
    fn updates_of_one_subject_keep_their_order_whatever_is_lost() {
        let (mut queue, now) = (queue_of(4), clock::now());
        add(&mut queue, RecordKind::Thinking, 1..2);
        add(&mut queue, RecordKind::PinnedResult, 1..2);
        add(&mut queue, RecordKind::Thinking, 1..2);
        add(&mut queue, RecordKind::PinnedResult, 2..3);
        // The second of one subject waits for the first.
        let mut first = queue.take_batch(WriteTrack::Behind, now);
        assert_eq!(names(&first), [1, 2]);
        assert_eq!(queue.take_batch(WriteTrack::Behind, now).len(), 0);
        // The last of the subject is lost, and the one under way fails once.
        assert_eq!(add(&mut queue, RecordKind::Principal, 3..4), [RecordKind::Thinking]);
        let other = first.pop().unwrap();
        queue.end(other);
        let mut failed = first.pop().unwrap();
        assert!(queue.note_failure(&mut failed, now, None) && queue.has_failed_updates());
        queue.put_back(failed);
        assert_eq!(names(&queue.take_batch(WriteTrack::Behind, now)), [3]);
        assert_eq!(queue.next_retry(now), Some(now + RETRY_PAUSE.0));
        queue.end_pauses(now);
        let again = queue.take_one(WriteTrack::Behind, now).unwrap();
        assert_eq!(again.position, 0);
        queue.end(again);
        let second = queue.take_one(WriteTrack::Behind, now).unwrap();
        assert_eq!(second.update.lost_records().0, RecordKind::PinnedResult);
        assert!(queue.is_about(&second.subjects[0]));
        queue.end(second);
        assert!(!queue.is_about(&Subject::of_name([1; 32])) && !queue.has_failed_updates());
    }
}
