//! What those who watch are shown: the dashboard, by way of the admin API.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::{
    LATE_RESULT_EVENTS, Telemetry,
    history::Step,
    recent::{self, DashboardUpdate, LateResultChange, RepairEntry, StructureJob},
};
use crate::{clock, session_table::Detached};

impl Telemetry {
    /// A body in which something was found: its structure is kept, if there is time for it.
    pub fn draft(&self, draft: StructureJob) {
        self.recent.draft(draft);
    }

    /// Sketches bodies for as long as the process lives; ends at once where somebody else does.
    pub async fn sketching(self) {
        if let Some(waiting) = self.recent.waiting() {
            recent::sketching(&self.recent, waiting).await;
        }
    }

    /// News from now on.
    pub fn listen(&self) -> broadcast::Receiver<DashboardUpdate> {
        self.recent.listen()
    }

    /// The last requests in which something was found, the newest first.
    pub fn repairs(&self, limit: usize) -> Vec<Arc<RepairEntry>> {
        self.recent.repairs(limit)
    }

    /// How many of them are kept.
    pub fn repairs_kept(&self) -> usize {
        self.recent.kept()
    }

    /// One of them, by its request's id.
    pub fn repair(&self, id: &str) -> Option<Arc<RepairEntry>> {
        self.recent.repair(id)
    }

    /// What last became of late results, the newest first.
    pub fn late_news(&self) -> Vec<LateResultChange> {
        self.recent.late()
    }

    /// What happened in the last hour, the oldest step first; steps without anything are left out.
    pub fn history(&self) -> Vec<Step> {
        self.steps().steps(clock::since_1970())
    }

    /// The step that runs.
    pub fn running(&self) -> Step {
        self.steps().now(clock::since_1970())
    }

    /// The step before it.
    pub fn finished(&self) -> Step {
        self.steps().before(clock::since_1970())
    }

    /// A profile rests, or serves again.
    pub fn announce_profiles(&self) {
        self.recent.tell(DashboardUpdate::Profiles);
    }

    /// Answers whose bodies are flowing.
    pub fn streams_active(&self) -> i64 {
        self.metrics.streams_active.get()
    }

    /// How many calls nobody is known to wait for any more, by why.
    pub fn detached(&self) -> [(&'static str, u64); Detached::ALL.len()] {
        Detached::ALL.map(|why| (why.label(), self.metrics.tools.detached_so_far(why.label())))
    }

    /// What became of posted results so far.
    pub fn late_events(&self) -> [(&'static str, u64); LATE_RESULT_EVENTS.len()] {
        LATE_RESULT_EVENTS.map(|event| (event, self.metrics.late.so_far(event)))
    }
}
