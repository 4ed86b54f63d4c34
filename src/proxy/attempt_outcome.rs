//! The outcome of one attempt: reported once, to the profile, the endpoint and the session it belongs to.

use std::{sync::Arc, time::Instant};

use super::late_results::LateResults;
use crate::{
    auth::{Caller, rotation::ProfileId},
    clock,
    policy::{Class, Hints, Verdict, course::Snapshot},
    profiles::{Profiles, Shown},
    session::Lane,
    session_table::{Came, SessionTable},
    wire::watch::Facts,
};

/// Everything that the end of one attempt is reported to.
#[derive(Debug)]
pub(super) struct AttemptOutcome {
    pub(super) profiles: Profiles,
    pub(super) sessions: Arc<SessionTable>,
    pub(super) upstream: String,
    pub(super) profile: Option<ProfileId>,
    pub(super) model: Option<String>,
    pub(super) began: Instant,
    /// The name of the logical request.
    pub(super) request: [u8; 32],
    /// Whether the attempt is the first of its exchange.
    pub(super) first: bool,
    /// Whether a model was asked.
    pub(super) asks_model: bool,
    /// From 0 to 1.
    pub(super) jitter: f64,
    pub(super) caller: Caller,
    /// The conversation.
    pub(super) lane: Option<Lane>,
    /// Late-result context. `None` if no tool service is configured.
    pub(super) results: Option<LateResults>,
    /// Whether requests of this format may continue from the answer by its id alone.
    pub(super) is_continued_by_id: bool,
}

impl AttemptOutcome {
    /// Reports the verdict.
    pub(super) fn report(self, verdict: Verdict, hints: &Hints) {
        let shown = Shown {
            upstream: &self.upstream,
            profile: self.profile,
            verdict,
            hints,
            model: self.model.as_deref(),
            began: self.began,
            request: self.request,
            first: self.first,
            asks_model: self.asks_model,
        };
        self.profiles.note(&shown, self.jitter, clock::instant());
    }

    /// Notes the answer in its session. Returns the number of its calls that the client no longer waits for.
    pub(super) fn note_answer(&self, facts: &Facts, verdict: Verdict, tool: Option<&Snapshot>) -> usize {
        if let Some(results) = &self.results {
            results.record_answer(&facts.calls, came(verdict.class) == Came::Dropped);
        }
        let Some(lane) = self.lane else { return 0 };
        let now = clock::now();
        // A session that the client names itself is never looked up by an answer.
        let looked_up = self.is_continued_by_id || lane.source.is_looked_up();
        let id = facts.answer_id.as_deref().filter(|_| looked_up);
        if let Some(tool) = tool {
            self.sessions.stalled(lane.id, tool.clone(), now);
        }
        let came = came(verdict.class);
        self.sessions
            .answered(self.caller.principal().as_bytes(), lane, &facts.calls, came, id, now)
    }
}

const fn came(class: Class) -> Came {
    match class {
        Class::Success => Came::Whole,
        Class::ClientGone | Class::ClientGaveUp | Class::ClientStalled => Came::Dropped,
        _ => Came::Broken,
    }
}
