//! Everything that learns the outcome of one attempt: its profile, its endpoint and its session. Each is told once.

use std::sync::Arc;

use super::{answer_note::AnswerNote, late_results::LateResults, owned_ids::ObjectNote, response_chain::ChainNote};
use crate::{
    auth::Caller,
    clock,
    keys::profiles::{ObservedAttempt, ProfilePool},
    ledger::RecordName,
    policy::{Class, LimitHints, Verdict, stream_timeouts::RunningTool},
    session_table::{AnswerEnd, AnsweredRequest, SessionTable},
    wire::watch::Facts,
};

/// The description of one attempt whose outcome is still unknown, and everything that learns it.
#[derive(Debug)]
pub(super) struct AttemptReporter {
    pub(super) pool: Arc<ProfilePool>,
    pub(super) sessions: Arc<SessionTable>,
    pub(super) attempt: ObservedAttempt,
    pub(super) caller: Caller,
    /// The request with its lane. `None` if nothing identifies the lane.
    pub(super) request: Option<AnsweredRequest>,
    /// Late-result context. `None` if no tool service is configured.
    pub(super) late_results: Option<LateResults>,
    /// Calls whose posted results stand in their places in the accepted request.
    pub(super) restored: Vec<RecordName>,
    /// The owner and key of the values that the answer carries. `None` if no provider wants any of them back.
    pub(super) note: Option<AnswerNote>,
    /// The items before the answer. `None` unless the answer's id stands for items that are all known.
    pub(super) chain: Option<ChainNote>,
    /// Note of the objects that the answer names. `None` if nothing of it is read.
    pub(super) objects: Option<Box<ObjectNote>>,
    /// `true` if a later request may continue from the answer by its id alone.
    pub(super) is_continued_by_id: bool,
}

impl AttemptReporter {
    /// Reports the verdict to the profile and its endpoint.
    pub(super) fn report_verdict(self, verdict: Verdict, hints: &LimitHints) {
        self.pool
            .record_attempt(&self.attempt, verdict, hints, clock::std_now());
    }

    /// Notes that the caller has received the posted results: the whole answer to them was relayed.
    pub(super) fn note_delivered(&self) {
        if let Some(results) = &self.late_results {
            results
                .late
                .calls()
                .note_delivered(self.caller, self.restored.iter().copied());
        }
    }

    /// Records the answer in its session. Returns the number of its calls that no client waits for any more.
    pub(super) fn record_answer(&self, facts: &Facts, verdict: Verdict, tool: Option<&RunningTool>) -> usize {
        if let Some(results) = &self.late_results {
            let end = answer_end(verdict.class);
            results.record_answer(&facts.calls, end == AnswerEnd::Complete, end == AnswerEnd::ClientLeft);
        }
        // Without a lane no session can wait for the calls.
        let Some(request) = self.request else { return 0 };
        let now = clock::now();
        // Storing the id of any other answer would only cost memory.
        let id = facts.answer_id.as_deref().filter(|_| self.is_continued_by_id);
        // A client that left, or an error of the provider, says nothing about the tool.
        if let Some(tool) = tool.filter(|_| verdict.class.is_silence()) {
            self.sessions.note_stall(request.lane.id, tool.clone(), now);
        }
        let came = answer_end(verdict.class);
        self.sessions
            .note_answer(&self.caller, request, &facts.calls, came, id, now)
    }
}

const fn answer_end(class: Class) -> AnswerEnd {
    match class {
        Class::Success => AnswerEnd::Complete,
        Class::ClientGone | Class::ClientGaveUp | Class::ClientStalled => AnswerEnd::ClientLeft,
        _ => AnswerEnd::Broken,
    }
}
