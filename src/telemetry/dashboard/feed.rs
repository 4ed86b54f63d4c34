//! The last repairs, each with the structure of its body before and after, and news of them as they come.
//!
//! A body is sketched behind its exchange, by one task, a few a second: repairs in a flood are listed without.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{broadcast, mpsc};

pub use super::structure::{BlockStructure, BodyStructure, MessageStructure};

use super::structure as sketch;
use crate::{
    clock,
    conversation::Finding,
    repair::{Action, Mode},
    splice::Segments,
    telemetry::events::ExchangeEnded,
    wire::{Format, Wire},
};

/// Repairs that are kept.
pub const REPAIRS_MAX: usize = 500;
/// Findings that are kept of one.
pub const FINDINGS_MAX: usize = 20;
/// What became of late results that is kept.
const LATE_MAX: usize = 100;
/// Bodies that wait to be sketched.
const DRAFTS_MAX: usize = 4;
/// Sketches of exchanges that have not ended.
const EARLY_MAX: usize = 64;
/// Bytes of a body that is sketched.
const BODY_MAX: usize = 4 * 1024 * 1024;
/// Time between two sketches.
const PAUSE: Duration = Duration::from_millis(200);
/// News that a slow listener may be behind.
const NEWS_MAX: usize = 256;

/// A request in whose body something was found.
#[derive(Clone, Debug)]
pub struct RepairEntry {
    /// `x-antiphon-request-id`.
    pub id: String,
    /// When it ended, since 1970.
    pub at: Duration,
    /// The upstream.
    pub upstream: Option<String>,
    /// The format.
    pub format: Option<Format>,
    /// The mode in force.
    pub mode: Option<Mode>,
    /// `repaired`, `rejected` or `observed`.
    pub outcome: &'static str,
    /// The status that the client was given.
    pub status: u16,
    /// The first [`FINDINGS_MAX`] findings.
    pub findings: Vec<Finding>,
    /// How many there were.
    pub finding_count: usize,
    /// What was done, how often.
    pub actions: BTreeMap<Action, usize>,
    /// The sketches of its body.
    pub sketches: Option<Arc<StructureChange>>,
}

/// A body before and after.
#[derive(Clone, Debug, Default)]
pub struct StructureChange {
    /// As it came.
    pub before: Option<BodyStructure>,
    /// As it went up, where it was changed.
    pub after: Option<BodyStructure>,
}

/// What became of a late result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateResultChange {
    /// When, since 1970.
    pub at: Duration,
    /// One of [`LATE_RESULT_EVENTS`](crate::telemetry::LATE_RESULT_EVENTS).
    pub event: &'static str,
    /// Since it was posted, where it was delivered.
    pub age: Option<Duration>,
}

/// Something that those who watch are told at once.
#[derive(Clone, Debug)]
pub enum DashboardUpdate {
    /// A request in whose body something was found has ended.
    Repair(Arc<RepairEntry>),
    /// Something became of a late result.
    LateResult(LateResultChange),
    /// A profile rests, or serves again.
    Profiles,
}

/// A body to be sketched.
#[derive(Debug)]
pub struct StructureJob {
    /// The request's id.
    pub id: String,
    /// The body as it came.
    pub before: Bytes,
    /// What went up in its place.
    pub after: Option<Segments>,
    /// How it is read.
    pub wire: Wire,
    /// The messages in which something was found.
    pub found: Vec<usize>,
}

/// The last repairs, and news.
#[derive(Debug)]
pub(in crate::telemetry) struct Recent {
    kept: Mutex<Kept>,
    news: broadcast::Sender<DashboardUpdate>,
    drafts: mpsc::Sender<StructureJob>,
}

#[derive(Debug, Default)]
struct Kept {
    repairs: VecDeque<Arc<RepairEntry>>,
    late: VecDeque<LateResultChange>,
    early: VecDeque<(String, Arc<StructureChange>)>,
    /// Requests whose bodies wait to be sketched, or are being: the news of them comes behind that.
    drafted: Vec<String>,
    /// Until the task is taken to be run.
    waiting: Option<mpsc::Receiver<StructureJob>>,
}

impl Default for Recent {
    fn default() -> Self {
        let (drafts, waiting) = mpsc::channel(DRAFTS_MAX);
        let kept = Kept {
            waiting: Some(waiting),
            ..Kept::default()
        };
        Self {
            kept: Mutex::new(kept),
            news: broadcast::Sender::new(NEWS_MAX),
            drafts,
        }
    }
}

impl Recent {
    /// News from now on.
    pub(in crate::telemetry) fn listen(&self) -> broadcast::Receiver<DashboardUpdate> {
        self.news.subscribe()
    }

    /// The last repairs, the newest first.
    pub(in crate::telemetry) fn repairs(&self, limit: usize) -> Vec<Arc<RepairEntry>> {
        self.lock().repairs.iter().take(limit).cloned().collect()
    }

    /// How many there are.
    pub(in crate::telemetry) fn kept(&self) -> usize {
        self.lock().repairs.len()
    }

    /// The repair of this request.
    pub(in crate::telemetry) fn repair(&self, id: &str) -> Option<Arc<RepairEntry>> {
        self.lock().repairs.iter().find(|mended| mended.id == id).cloned()
    }

    /// What last became of late results, the newest first.
    pub(in crate::telemetry) fn late(&self) -> Vec<LateResultChange> {
        self.lock().late.iter().copied().collect()
    }

    /// Takes what an exchange has shown, if anything was found in it or done about it.
    pub(in crate::telemetry) fn ended(&self, event: &ExchangeEnded) {
        let Some(report) = &event.report else { return };
        if report.findings.is_empty() && report.actions.is_empty() {
            return;
        }
        let outcome = match (event.rejected, report.actions.is_empty()) {
            (true, _) => "rejected",
            (false, true) => "observed",
            (false, false) => "repaired",
        };
        let mut kept = self.lock();
        let early = kept.early.iter().position(|(id, _)| *id == event.request_id);
        let mended = Arc::new(RepairEntry {
            id: event.request_id.clone(),
            at: clock::since_1970(),
            upstream: event.upstream.clone(),
            format: event.format,
            mode: event.mode,
            outcome,
            status: event.status,
            findings: report.findings.iter().take(FINDINGS_MAX).cloned().collect(),
            finding_count: report.findings.len(),
            actions: report.actions.clone(),
            sketches: early.and_then(|at| kept.early.remove(at)).map(|(_, sketches)| sketches),
        });
        kept.repairs.push_front(Arc::clone(&mended));
        kept.repairs.truncate(REPAIRS_MAX);
        let is_drafted = kept.drafted.contains(&mended.id);
        drop(kept);
        if !is_drafted {
            self.tell(DashboardUpdate::Repair(mended));
        }
    }

    /// Notes what became of a late result.
    pub(in crate::telemetry) fn late_news(&self, event: &'static str, age: Option<Duration>) {
        let at = clock::since_1970();
        let news = LateResultChange { at, event, age };
        let mut kept = self.lock();
        kept.late.push_front(news);
        kept.late.truncate(LATE_MAX);
        drop(kept);
        self.tell(DashboardUpdate::LateResult(news));
    }

    /// Nobody may listen.
    pub(in crate::telemetry) fn tell(&self, news: DashboardUpdate) {
        drop(self.news.send(news));
    }

    /// Hands a body to be sketched, unless enough others wait.
    pub(in crate::telemetry) fn draft(&self, draft: StructureJob) {
        let length = draft.after.as_ref().map_or(0, Segments::len).max(draft.before.len());
        if length > BODY_MAX {
            return;
        }
        // Under the lock, so that it is not sketched before it is noted. What does not fit is listed without a sketch.
        let (mut kept, id) = (self.lock(), draft.id.clone());
        if self.drafts.try_send(draft).is_ok() {
            kept.drafted.push(id);
        }
    }

    /// The bodies that wait to be sketched; once.
    pub(in crate::telemetry) fn waiting(&self) -> Option<mpsc::Receiver<StructureJob>> {
        self.lock().waiting.take()
    }

    /// Keeps the sketches of a request.
    fn sketched(&self, id: String, sketches: StructureChange) {
        let (mut kept, sketches) = (self.lock(), Arc::new(sketches));
        kept.drafted.retain(|drafted| *drafted != id);
        if let Some(mended) = kept.repairs.iter_mut().find(|mended| mended.id == id) {
            Arc::make_mut(mended).sketches = Some(sketches);
            let mended = Arc::clone(mended);
            drop(kept);
            return self.tell(DashboardUpdate::Repair(mended));
        }
        if kept.early.len() >= EARLY_MAX {
            kept.early.pop_front();
        }
        kept.early.push_back((id, sketches));
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sketches bodies as they come, until nobody hands in any more.
pub(in crate::telemetry) async fn sketching(recent: &Recent, mut drafts: mpsc::Receiver<StructureJob>) {
    while let Some(draft) = drafts.recv().await {
        let next = clock::now() + PAUSE;
        let id = draft.id.clone();
        // Milliseconds of work for a large body, and a panic of the reader would be our bug, not the task's end.
        let sketched = tokio::task::spawn_blocking(move || sketches(&draft)).await;
        recent.sketched(id, sketched.unwrap_or_default());
        tokio::time::sleep_until(next).await;
    }
}

fn sketches(draft: &StructureJob) -> StructureChange {
    let after = draft.after.as_ref().map(Segments::to_vec);
    let (before, after) = sketch::sketch(&draft.before, after.as_deref(), draft.wire, &draft.found);
    StructureChange { before, after }
}

/// The tools of a request's calls by id, as far as its sketches show them.
pub fn tools(mended: &RepairEntry) -> HashMap<&str, &str> {
    let sketches = mended.sketches.iter();
    let bodies = sketches
        .flat_map(|sketches| [&sketches.before, &sketches.after])
        .flatten();
    let blocks = bodies.flat_map(|body| &body.shown).flat_map(|message| &message.blocks);
    let named = blocks.filter_map(|block| Some((block.id.as_deref()?, block.tool.as_deref()?)));
    named.collect()
}
