//! The feed itself: bounded lists of entries, the history of counts, and the channel of updates.
//!
//! One background task builds the structures of bodies, five per second at most. Under heavy load most repairs are
//! listed without a structure.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{broadcast, mpsc};

use super::{
    entries::{DashboardUpdate, FailureEntry, LateCallLabel, LateResultChange, RepairEntry},
    history::{CountHistory, HistoryStep},
    structure::{StructureChange, StructureJob},
    stuck_sessions::{RefusedSessions, StuckSession},
    taught_rules::{TaughtRule, TaughtRules},
    usage::{UsageCounts, UsageHistory, UsageKind},
};
use crate::{
    auth::Caller,
    clock,
    session_table::DetachReason,
    telemetry::events::{AskedConversation, ExchangeEnded, UnknownRefusal},
};

/// Limit of repairs in the feed.
const REPAIRS_MAX: usize = 500;
/// Limit of failures that clients caused, and of all others. Clients that hang up must not hide what else fails.
const FAILURES_MAX: usize = 250;
/// Limit of late result events in the feed.
const LATE_RESULTS_MAX: usize = 100;
/// Limit of bodies that wait for their structure. Each keeps its bytes in memory.
const STRUCTURE_JOBS_MAX: usize = 4;
/// Limit of structures whose exchanges have not ended.
const EARLY_STRUCTURES_MAX: usize = 64;
/// Minimum interval between two structures.
const STRUCTURE_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum interval between two structures, as a multiple of the time that building one took: at most a fiftieth of a
/// core, however slow it is.
const STRUCTURE_PAUSE: u32 = 50;
/// Limit of updates that a slow subscriber may be behind.
const UPDATES_MAX: usize = 256;

/// The feed of the dashboard.
#[derive(Debug)]
pub struct DashboardFeed {
    entries: Mutex<FeedEntries>,
    history: Mutex<CountHistory>,
    usage: Mutex<UsageHistory>,
    refused: RefusedSessions,
    taught: TaughtRules,
    updates: broadcast::Sender<DashboardUpdate>,
    structure_jobs: mpsc::Sender<StructureJob>,
}

/// The lists of the feed, the newest entry first.
#[derive(Debug, Default)]
struct FeedEntries {
    repairs: VecDeque<Arc<RepairEntry>>,
    /// Failures that clients caused.
    client_failures: VecDeque<Arc<FailureEntry>>,
    /// All other failures.
    other_failures: VecDeque<Arc<FailureEntry>>,
    late_results: VecDeque<LateResultChange>,
    /// Structures, by request id, that were built before their exchange ended; the oldest first.
    early_structures: VecDeque<(String, Arc<StructureChange>)>,
    /// Requests whose structure is not built yet. The update about them is sent with it.
    pending_structures: Vec<String>,
    /// The jobs, until the worker takes them.
    unclaimed_jobs: Option<mpsc::Receiver<StructureJob>>,
}

impl FeedEntries {
    /// Takes the structure of a request, if it was built before the exchange ended.
    fn take_early_structure(&mut self, id: &str) -> Option<Arc<StructureChange>> {
        let at = self.early_structures.iter().position(|(early, _)| early == id)?;
        self.early_structures.remove(at).map(|(_, structure)| structure)
    }
}

impl Default for DashboardFeed {
    fn default() -> Self {
        let (structure_jobs, unclaimed_jobs) = mpsc::channel(STRUCTURE_JOBS_MAX);
        let entries = FeedEntries {
            unclaimed_jobs: Some(unclaimed_jobs),
            ..FeedEntries::default()
        };
        Self {
            entries: Mutex::new(entries),
            history: Mutex::default(),
            usage: Mutex::default(),
            refused: RefusedSessions::default(),
            taught: TaughtRules::default(),
            updates: broadcast::Sender::new(UPDATES_MAX),
            structure_jobs,
        }
    }
}

/// Getters for the admin API.
impl DashboardFeed {
    /// Returns a receiver of all updates from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<DashboardUpdate> {
        self.updates.subscribe()
    }

    /// Returns the last repairs, the newest first.
    pub fn latest_repairs(&self, limit: usize) -> Vec<Arc<RepairEntry>> {
        self.lock_entries().repairs.iter().take(limit).cloned().collect()
    }

    /// Returns the number of repairs in the feed.
    pub fn repair_count(&self) -> usize {
        self.lock_entries().repairs.len()
    }

    /// Returns the repair of the request with this id.
    pub fn find_repair(&self, id: &str) -> Option<Arc<RepairEntry>> {
        self.lock_entries().repairs.iter().find(|entry| entry.id == id).cloned()
    }

    /// Returns the last failures, the newest first, and the number of those in the feed.
    pub fn latest_failures(&self, limit: usize) -> (usize, Vec<Arc<FailureEntry>>) {
        let entries = self.lock_entries();
        let both = entries.client_failures.iter().chain(&entries.other_failures);
        let mut all: Vec<Arc<FailureEntry>> = both.cloned().collect();
        drop(entries);
        // A stable sort: failures of one moment stay in the order of their lists.
        all.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        let kept = all.len();
        all.truncate(limit);
        (kept, all)
    }

    /// Returns the sessions that a provider refuses in words that the proxy does not know, the last refusal first.
    pub fn stuck_sessions(&self) -> Vec<StuckSession> {
        self.refused.stuck_sessions()
    }

    /// Returns the rules that servers have taught this process, the last used first.
    pub fn taught_rules(&self) -> Vec<TaughtRule> {
        self.taught.all()
    }

    /// Returns the names of a kind with their counts in the last minutes, those with the most requests first.
    pub fn usage_of(&self, kind: UsageKind, limit: usize) -> Vec<(Box<str>, UsageCounts)> {
        self.lock_usage().names_of(clock::unix_time(), kind, limit)
    }

    /// Returns the last events of late results, the newest first.
    pub fn late_results(&self) -> Vec<LateResultChange> {
        self.lock_entries().late_results.iter().cloned().collect()
    }

    /// Returns the steps of the last hour in which anything was counted, the oldest first.
    pub fn history_steps(&self) -> Vec<HistoryStep> {
        self.lock_history().steps_of_hour(clock::unix_time())
    }

    /// Returns the step of the current time.
    pub fn current_step(&self) -> HistoryStep {
        self.lock_history().current_step(clock::unix_time())
    }

    /// Returns the last complete step.
    pub fn previous_step(&self) -> HistoryStep {
        self.lock_history().previous_step(clock::unix_time())
    }
}

/// Recording calls, for telemetry.
impl DashboardFeed {
    /// Records an exchange that ended: its counts, and its repair if there was one.
    pub(in crate::telemetry) fn record_exchange(&self, event: &ExchangeEnded) {
        let at = clock::unix_time();
        self.lock_history().record_exchange(at, event);
        self.lock_usage().record_exchange(at, event);
        if let Some(entry) = FailureEntry::from_exchange(at, event) {
            self.add_failure(entry);
        }
        if let Some(entry) = RepairEntry::from_exchange(at, event) {
            self.add_repair(entry);
        }
    }

    /// Records an event of a late result.
    pub(in crate::telemetry) fn record_late_result(
        &self,
        event: &'static str,
        age: Option<Duration>,
        call: Option<LateCallLabel>,
    ) {
        let at = clock::unix_time();
        self.lock_history().add_count(at, ("late", event), 1);
        let change = LateResultChange { at, event, age, call };
        let mut entries = self.lock_entries();
        entries.late_results.push_front(change.clone());
        entries.late_results.truncate(LATE_RESULTS_MAX);
        // Unlocked first, so that a subscriber which reads the lists at once does not wait.
        drop(entries);
        self.publish(DashboardUpdate::LateResult(change));
    }

    /// Records tool calls that no client waits for any more.
    pub(in crate::telemetry) fn record_detached_calls(&self, why: DetachReason, calls: u64) {
        self.lock_history()
            .add_count(clock::unix_time(), ("detached", why.label()), calls);
    }

    /// Counts a refusal that the proxy does not know. Returns `true` if the session is stuck from now on.
    pub(in crate::telemetry) fn record_refusal(&self, refusal: UnknownRefusal, event: &ExchangeEnded) -> bool {
        self.refused.record_refusal(refusal, event)
    }

    /// Forgets the refusals of a conversation that has gone on.
    pub(in crate::telemetry) fn record_success(&self, conversation: impl FnOnce() -> Option<AskedConversation>) {
        self.refused.record_success(conversation);
    }

    /// Counts the lasting mends of a body that a provider has accepted.
    pub(in crate::telemetry) fn record_mends(&self, caller: Caller, event: &ExchangeEnded) {
        self.taught.record_accepted(caller, event);
    }

    /// Forgets the rules of a caller that the server of an exchange does not demand any more.
    pub(in crate::telemetry) fn record_retracted_mends(&self, caller: Caller, event: &ExchangeEnded) {
        self.taught.record_retracted(caller, event);
    }

    /// Forgets every rule that a server has taught.
    pub(in crate::telemetry) fn forget_taught(&self) {
        self.taught.retain(|_| false);
    }

    /// Forgets the refusals and the rules of upstreams that are not configured any more.
    pub(in crate::telemetry) fn retain_upstreams(&self, is_configured: impl Fn(&str) -> bool) {
        self.taught.retain(|rule| is_configured(&rule.upstream));
        self.refused.retain_upstreams(is_configured);
    }

    /// Sends an update to all subscribers.
    pub(in crate::telemetry) fn publish(&self, update: DashboardUpdate) {
        // Fails without subscribers, which is not an error: the lists contain the entry.
        drop(self.updates.send(update));
    }

    /// Queues a body for its structure to be built, unless it is too large or the queue is full.
    pub(in crate::telemetry) fn queue_structure(&self, job: StructureJob) {
        // The structure is for display only and must not cost more than the request itself.
        if job.is_too_large() {
            return;
        }
        // Sent under the lock, so that the worker cannot finish before the request is pending.
        let (mut entries, id) = (self.lock_entries(), job.id.clone());
        if self.structure_jobs.try_send(job).is_ok() {
            entries.pending_structures.push(id);
        }
    }

    /// Builds the structures of queued bodies, until the feed is dropped. Returns at once if another task does.
    pub(in crate::telemetry) async fn build_structures(&self) {
        let Some(mut jobs) = self.lock_entries().unclaimed_jobs.take() else {
            return;
        };
        while let Some(job) = jobs.recv().await {
            let began = clock::now();
            let id = job.id.clone();
            // A large body takes milliseconds, which is too long for a thread of the runtime.
            let built = tokio::task::spawn_blocking(move || StructureChange::build_change(&job)).await;
            // After a panic the entry gets an empty structure, or it would stay pending.
            self.add_structure(id, built.unwrap_or_default());
            let took = clock::now().duration_since(began);
            tokio::time::sleep(STRUCTURE_INTERVAL.max(took.saturating_mul(STRUCTURE_PAUSE))).await;
        }
    }

    fn add_failure(&self, entry: FailureEntry) {
        let entry = Arc::new(entry);
        let mut entries = self.lock_entries();
        let list = if entry.is_by_client() {
            &mut entries.client_failures
        } else {
            &mut entries.other_failures
        };
        list.push_front(Arc::clone(&entry));
        list.truncate(FAILURES_MAX);
        drop(entries);
        self.publish(DashboardUpdate::Failure(entry));
    }

    fn add_repair(&self, mut entry: RepairEntry) {
        let mut entries = self.lock_entries();
        entry.structure = entries.take_early_structure(&entry.id);
        let entry = Arc::new(entry);
        entries.repairs.push_front(Arc::clone(&entry));
        entries.repairs.truncate(REPAIRS_MAX);
        // If the structure is pending, `add_structure` publishes the entry with it.
        let is_pending = entries.pending_structures.contains(&entry.id);
        drop(entries);
        if !is_pending {
            self.publish(DashboardUpdate::Repair(entry));
        }
    }

    /// Adds the structure of a request to its entry, or stores it until the exchange ends.
    fn add_structure(&self, id: String, structure: StructureChange) {
        let (mut entries, structure) = (self.lock_entries(), Arc::new(structure));
        entries.pending_structures.retain(|pending| *pending != id);
        if let Some(entry) = entries.repairs.iter_mut().find(|entry| entry.id == id) {
            // A clone if a reader still holds the entry, which keeps its version.
            Arc::make_mut(entry).structure = Some(structure);
            let entry = Arc::clone(entry);
            drop(entries);
            return self.publish(DashboardUpdate::Repair(entry));
        }
        // Bounded, because the entry may have left the list already and would never take it.
        if entries.early_structures.len() >= EARLY_STRUCTURES_MAX {
            entries.early_structures.pop_front();
        }
        entries.early_structures.push_back((id, structure));
    }

    fn lock_entries(&self) -> MutexGuard<'_, FeedEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_usage(&self) -> MutexGuard<'_, UsageHistory> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_history(&self) -> MutexGuard<'_, CountHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
