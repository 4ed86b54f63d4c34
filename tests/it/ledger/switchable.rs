//! A ledger of several processes that tests slow down, stall or break.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use antiphon::{
    auth::PrincipalHash,
    ledger::{
        CommitOutcome, CommitResult, CommitStep, Index, Ledger, LedgerChanges, LedgerError, LedgerFault, LedgerReply,
        LedgerSettings, LedgerSize, MemoryLedger, Moment, PlacedRecord, Record, RecordChange, RecordKey, RecordKind,
        TimedCommit,
    },
};

use super::injection::{self, Breach, EarlierRecords, InjectedFault, LATENESS};
use crate::support::wire::spawn;

/// Returns an empty ledger of one process, which a test carries over restarts. As that of [`kept`](crate::support::kept),
/// and with the fault of [`with_fault`](injection::with_fault).
pub(crate) fn durable() -> Arc<dyn Ledger> {
    SwitchableLedger::new()
}

/// Selects steps of commits.
type StepFilter = fn(&CommitStep) -> bool;

/// A ledger that can be made to stall or to fail.
#[derive(Debug)]
pub(crate) struct SwitchableLedger {
    inner: Arc<MemoryLedger>,
    /// Milliseconds that every operation takes.
    delay: Arc<AtomicU64>,
    /// Milliseconds that every commit takes besides.
    sync_delay: Arc<AtomicU64>,
    pub(crate) stalls: Arc<AtomicBool>,
    pub(crate) fails: Arc<AtomicBool>,
    /// `true` while commits fail and reads do not, as on a full disk.
    pub(crate) fails_commits: Arc<AtomicBool>,
    /// `true` while single commits are carried out and never answered.
    pub(crate) answers_no_commit: Arc<AtomicBool>,
    /// `true` while there is no room for records of verified callers.
    pub(crate) has_no_room_for_callers: Arc<AtomicBool>,
    /// Selects the writes that fail while others succeed.
    pub(crate) damaged: Arc<Mutex<Option<StepFilter>>>,
    /// Number of commits that came.
    pub(crate) commits: Arc<AtomicU64>,
    /// Number of questions that came.
    pub(crate) questions: Arc<AtomicU64>,
    /// Number of keys that were read.
    pub(crate) keys: Arc<AtomicU64>,
    /// `true` if other processes write to the store too.
    is_shared: Arc<AtomicBool>,
    /// The changes that each process is told of, if it is told of any.
    told: Arc<Mutex<Vec<LedgerChanges>>>,
    /// The changes by other processes.
    changes: LedgerChanges,
    /// `true` once the process of this handle was killed: none of its operations ends any more.
    is_killed: Arc<AtomicBool>,
    /// The number of the process of this handle.
    process: u64,
    /// The number of processes.
    processes: Arc<AtomicU64>,
    /// The promise that the ledger breaks, if it breaks one.
    injected: Option<InjectedFault>,
    /// The records of the injected kind before their last write.
    earlier: Arc<EarlierRecords>,
}

/// The way from one process to the others.
struct Notices {
    /// The changes that each process is told of.
    told: Arc<Mutex<Vec<LedgerChanges>>>,
    /// Those that this process is told of.
    own: LedgerChanges,
    /// The kind of which nobody is told.
    untold: Option<RecordKind>,
}

impl Notices {
    /// Tells the other processes of changes.
    fn tell(&self, steps: &[CommitStep]) {
        let change = |step: &CommitStep| {
            let key = step.key();
            RecordChange {
                kind: key.kind,
                principal: key.principal,
                name: key.name,
            }
        };
        let changes = steps.iter().map(change);
        let changes: Vec<RecordChange> = changes.filter(|change| Some(change.kind) != self.untold).collect();
        let told = self.told.lock().unwrap();
        for other in told.iter().filter(|other| !other.is_same(&self.own)) {
            other.note_changes(&changes);
        }
    }
}

impl SwitchableLedger {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(MemoryLedger::new(LedgerSettings::default(), [7; 32])),
            delay: Arc::default(),
            sync_delay: Arc::default(),
            stalls: Arc::default(),
            fails: Arc::default(),
            fails_commits: Arc::default(),
            answers_no_commit: Arc::default(),
            has_no_room_for_callers: Arc::default(),
            damaged: Arc::default(),
            commits: Arc::default(),
            questions: Arc::default(),
            keys: Arc::default(),
            is_shared: Arc::default(),
            told: Arc::default(),
            changes: LedgerChanges::none(),
            is_killed: Arc::default(),
            process: 0,
            processes: Arc::default(),
            injected: injection::present_fault(),
            earlier: Arc::default(),
        })
    }

    /// Kills the process that has this handle. Returns the handle of the next one.
    pub(crate) fn restart(&self) -> Arc<Self> {
        self.is_killed.store(true, Ordering::Relaxed);
        self.replica()
    }

    /// Returns the handle of another process.
    pub(crate) fn replica(&self) -> Arc<Self> {
        let changes = if self.is_shared.load(Ordering::Relaxed) {
            LedgerChanges::of_shared()
        } else {
            LedgerChanges::none()
        };
        let mut told = self.told.lock().unwrap();
        if !told.is_empty() {
            changes.note_live();
            told.push(changes.clone());
        }
        drop(told);
        Arc::new(Self {
            told: Arc::clone(&self.told),
            changes,
            inner: Arc::clone(&self.inner),
            delay: Arc::clone(&self.delay),
            sync_delay: Arc::clone(&self.sync_delay),
            stalls: Arc::clone(&self.stalls),
            fails: Arc::clone(&self.fails),
            fails_commits: Arc::clone(&self.fails_commits),
            answers_no_commit: Arc::clone(&self.answers_no_commit),
            has_no_room_for_callers: Arc::clone(&self.has_no_room_for_callers),
            damaged: Arc::clone(&self.damaged),
            commits: Arc::clone(&self.commits),
            questions: Arc::clone(&self.questions),
            keys: Arc::clone(&self.keys),
            is_shared: Arc::clone(&self.is_shared),
            is_killed: Arc::default(),
            process: self.processes.fetch_add(1, Ordering::Relaxed) + 1,
            processes: Arc::clone(&self.processes),
            injected: self.injected,
            earlier: Arc::clone(&self.earlier),
        })
    }

    /// Returns a ledger for several processes at once. With `tells` each is told of the changes of the others.
    pub(crate) fn shared(tells: bool) -> Arc<Self> {
        let ledger = Self::new();
        ledger.is_shared.store(true, Ordering::Relaxed);
        if tells {
            ledger.told.lock().unwrap().push(LedgerChanges::of_shared());
        }
        ledger.replica()
    }

    /// Returns the kind of the records for which the ledger breaks this promise.
    fn injected_kind(&self, breach: Breach) -> Option<RecordKind> {
        let fault = self.injected.filter(|fault| fault.breach == breach);
        fault.map(|fault| fault.kind)
    }

    /// Returns the way to the other processes, by which they are told of changes.
    fn notices(&self) -> Notices {
        Notices {
            told: Arc::clone(&self.told),
            own: self.changes.clone(),
            untold: self.injected_kind(Breach::LostNotice),
        }
    }

    /// Applies a commit, and tells the other processes of it.
    async fn apply(&self, steps: Vec<CommitStep>, now: Moment) -> CommitResult {
        if let Some(kind) = self.injected_kind(Breach::StaleRead) {
            return self.apply_noting(steps, now, kind).await;
        }
        let lost = self.injected_kind(Breach::LostCommit);
        let Some(kind) = lost.or_else(|| self.injected_kind(Breach::LateCommit)) else {
            let done = self.inner.commit(steps.clone(), now).await;
            self.notices().tell(&steps);
            return done;
        };
        let kinds: Vec<RecordKind> = steps.iter().map(|step| step.key().kind).collect();
        let (applied, acknowledged) = injection::split_steps(steps, kind);
        let done = self.inner.commit(applied.clone(), now).await?;
        self.notices().tell(&applied);
        if lost.is_none() && done == CommitOutcome::Done && !acknowledged.is_empty() {
            let (inner, notices, is_killed) = (Arc::clone(&self.inner), self.notices(), Arc::clone(&self.is_killed));
            drop(spawn(async move {
                tokio::time::sleep(LATENESS).await;
                if !is_killed.load(Ordering::Relaxed) {
                    drop(inner.commit(acknowledged.clone(), now).await);
                    notices.tell(&acknowledged);
                }
            }));
        }
        Ok(injection::outcome_of_all(done, &kinds, kind))
    }

    /// Applies a commit, and notes the records of this kind that it changes.
    async fn apply_noting(&self, steps: Vec<CommitStep>, now: Moment, kind: RecordKind) -> CommitResult {
        let keys = steps.iter().map(|step| *step.key());
        let keys: Vec<RecordKey> = keys.filter(|key| key.kind == kind).collect();
        let before = self.inner.read(keys.clone(), now).await?;
        let done = self.inner.commit(steps.clone(), now).await?;
        if done == CommitOutcome::Done {
            self.earlier.note_writes(self.process, keys.into_iter().zip(before));
        }
        self.notices().tell(&steps);
        Ok(done)
    }

    /// Returns the reply to a read, which is an old one if reads of its kind are.
    fn read_through<'l, T: Send + 'l>(
        &'l self,
        kind: RecordKind,
        reply: LedgerReply<'l, T>,
        make_old: impl FnOnce(&EarlierRecords, u64, T) -> T + Send + 'l,
    ) -> LedgerReply<'l, T> {
        let is_old = self.injected_kind(Breach::StaleRead) == Some(kind);
        self.through(Box::pin(async move {
            let present = reply.await?;
            Ok(if is_old {
                make_old(&self.earlier, self.process, present)
            } else {
                present
            })
        }))
    }

    /// Makes every operation take this long.
    pub(crate) fn slow_down(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.delay.store(delay, Ordering::Relaxed);
    }

    /// Makes every commit take this long.
    pub(crate) fn delay_syncs(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.sync_delay.store(delay, Ordering::Relaxed);
    }

    /// Returns `true` if operations are slow or never end.
    pub(crate) fn is_slow(&self) -> bool {
        self.delay.load(Ordering::Relaxed) > 0 || self.stalls.load(Ordering::Relaxed)
    }

    /// Returns `true` if the writes fail while others succeed.
    fn damages(&self, steps: &[CommitStep]) -> bool {
        let damaged = *self.damaged.lock().unwrap();
        damaged.is_some_and(|is_damaged| steps.iter().any(is_damaged))
    }

    async fn take_time(&self) {
        let delay = self.delay.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if self.is_killed.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    fn through<'l, T: Send + 'l>(&'l self, reply: LedgerReply<'l, T>) -> LedgerReply<'l, T> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if self.stalls.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            self.take_time().await;
            if self.fails.load(Ordering::Relaxed) {
                return Err(LedgerError::Store("no space left".into()));
            }
            reply.await
        })
    }
}

impl Ledger for SwitchableLedger {
    fn commit(&self, steps: Vec<CommitStep>, now: Moment) -> LedgerReply<'_, CommitOutcome> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if self.stalls.load(Ordering::Relaxed) || self.fails.load(Ordering::Relaxed) {
            return self.through(Box::pin(std::future::pending()));
        }
        let is_caller =
            |step: &CommitStep| matches!(step, CommitStep::Insert { key, .. } if key.kind == RecordKind::Principal);
        let has_no_room = self.has_no_room_for_callers.load(Ordering::Relaxed) && steps.iter().any(is_caller);
        Box::pin(async move {
            let delay = self.sync_delay.load(Ordering::Relaxed);
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            self.take_time().await;
            if self.fails_commits.load(Ordering::Relaxed) {
                return Err(LedgerError::Store("no space left".into()));
            }
            if has_no_room {
                return Err(LedgerError::Full { of_principal: true });
            }
            if self.damages(&steps) {
                return Err(LedgerError::Store("a page is damaged".into()));
            }
            let done = self.apply(steps, now).await;
            if self.answers_no_commit.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            done
        })
    }

    fn commit_each(&self, commits: Vec<TimedCommit>) -> LedgerReply<'_, Vec<CommitResult>> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if self.stalls.load(Ordering::Relaxed) || self.fails.load(Ordering::Relaxed) {
            return self.through(Box::pin(std::future::pending()));
        }
        Box::pin(async move {
            // One wait for the disk, however many commits there are.
            let delay = self.sync_delay.load(Ordering::Relaxed);
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            self.take_time().await;
            if self.fails_commits.load(Ordering::Relaxed) {
                return Err(LedgerError::Store("no space left".into()));
            }
            let has_no_room = self.has_no_room_for_callers.load(Ordering::Relaxed);
            let mut results = Vec::new();
            for TimedCommit { steps, now } in commits {
                let is_of = |kind: RecordKind| steps.iter().any(|step| step.key().kind == kind);
                results.push(if has_no_room && is_of(RecordKind::Principal) {
                    Err(LedgerError::Full { of_principal: true })
                } else if self.damages(&steps) {
                    Err(LedgerError::Store("a page is damaged".into()))
                } else {
                    self.apply(steps, now).await
                });
            }
            Ok(results)
        })
    }

    fn read(&self, keys: Vec<RecordKey>, now: Moment) -> LedgerReply<'_, Vec<Option<Record>>> {
        self.keys.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let reply = self.inner.read(keys.clone(), now);
        let Some(kind) = self.injected_kind(Breach::StaleRead) else {
            return self.through(reply);
        };
        self.read_through(kind, reply, move |earlier, process, present| {
            let found = keys.iter().zip(present);
            found
                .map(|(key, record)| earlier.read_as(process, key, record))
                .collect()
        })
    }

    fn list_records(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<Record>> {
        let reply = self.inner.list_records(kind, principal, limit, now);
        self.read_through(kind, reply, move |earlier, process, present| {
            earlier.list_principal_as(process, (kind, principal), present)
        })
    }

    fn list_after(
        &self,
        kind: RecordKind,
        principal: PrincipalHash,
        after: u64,
        limit: usize,
        now: Moment,
    ) -> LedgerReply<'_, Vec<PlacedRecord>> {
        let reply = self.inner.list_after(kind, principal, after, limit, now);
        self.read_through(kind, reply, |earlier, process, present| {
            earlier.page_as(process, present)
        })
    }

    fn list_principals(
        &self,
        kind: RecordKind,
        after: Option<PrincipalHash>,
        limit: usize,
    ) -> LedgerReply<'_, Vec<PrincipalHash>> {
        let reply = self.inner.list_principals(kind, after, limit);
        self.read_through(kind, reply, move |earlier, process, mut present| {
            present.retain(|principal| earlier.has_any_as(process, kind, *principal));
            present
        })
    }

    fn find_by_index(&self, kind: RecordKind, index: Index, limit: usize, now: Moment) -> LedgerReply<'_, Vec<Record>> {
        let reply = self.inner.find_by_index(kind, index, limit, now);
        self.read_through(kind, reply, move |earlier, process, present| {
            earlier.find_index_as(process, (kind, index), present)
        })
    }

    fn remove_unusable(&self, now: Moment) -> LedgerReply<'_, u64> {
        self.through(self.inner.remove_unusable(now))
    }

    fn usage(&self) -> LedgerReply<'_, LedgerSize> {
        self.inner.usage()
    }

    fn find_fault(&self) -> LedgerReply<'_, Option<LedgerFault>> {
        Box::pin(async {
            if self.stalls.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let has_failed = self.fails.load(Ordering::Relaxed) || self.fails_commits.load(Ordering::Relaxed);
            Ok(has_failed.then_some(LedgerFault::WriteFailed))
        })
    }

    fn secret(&self) -> [u8; 32] {
        self.inner.secret()
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn is_exclusive(&self) -> bool {
        !self.is_shared.load(Ordering::Relaxed)
    }

    fn changes(&self) -> LedgerChanges {
        self.changes.clone()
    }
}
