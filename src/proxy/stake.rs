//! What one attempt may cost or clear: reported once, to the profile, the endpoint and the session it belongs to.

use std::{sync::Arc, time::Instant};

use super::owed::Owed;
use crate::{
    auth::{Principal, rotation::ProfileId},
    clock,
    policy::{Class, Hints, Verdict, course::Snapshot},
    profiles::{Profiles, Shown},
    session::Lane,
    session_table::{Came, SessionTable},
    wire::watch::Facts,
};

/// The stake of one attempt.
#[derive(Debug)]
pub(super) struct Stake {
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
    /// From 0 to 1.
    pub(super) jitter: f64,
    /// Who asks.
    pub(super) principal: Principal,
    /// Whose conversation it is.
    pub(super) lane: Option<Lane>,
    /// Who is owed the results of the answer's calls; none where no service posts any.
    pub(super) debtor: Option<Owed>,
    /// Whether requests of this format may go on from the answer by its id alone.
    pub(super) is_gone_on_from: bool,
}

impl Stake {
    /// Reports what happened.
    pub(super) fn settle(self, verdict: Verdict, hints: &Hints) {
        let shown = Shown {
            upstream: &self.upstream,
            profile: self.profile,
            verdict,
            hints,
            model: self.model.as_deref(),
            began: self.began,
            request: self.request,
            first: self.first,
        };
        self.profiles.note(&shown, self.jitter, clock::instant());
    }

    /// Notes in the session what the answer said that ended so; how many of its calls nobody waits for already.
    pub(super) fn answered(&self, facts: &Facts, verdict: Verdict, tool: Option<&Snapshot>) -> usize {
        if let Some(debtor) = &self.debtor {
            debtor.answered(&facts.calls, came(verdict.class) == Came::Dropped);
        }
        let Some(lane) = self.lane else { return 0 };
        let (principal, now) = (self.principal.as_bytes(), clock::now());
        // Where the client names the session itself, nobody has to look it up by an answer.
        let looked_up = self.is_gone_on_from || lane.source.is_looked_up();
        let id = facts.answer_id.as_deref().filter(|_| looked_up);
        if let Some(tool) = tool {
            self.sessions.stalled(lane.id, tool.clone(), now);
        }
        let came = came(verdict.class);
        self.sessions.answered(principal, lane, &facts.calls, came, id, now)
    }
}

const fn came(class: Class) -> Came {
    match class {
        Class::Success => Came::Whole,
        Class::ClientGone | Class::ClientGaveUp | Class::ClientStalled => Came::Dropped,
        _ => Came::Broken,
    }
}
