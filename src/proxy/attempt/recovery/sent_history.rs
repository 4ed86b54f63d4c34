//! The history of a request that was sent, and what its resends have changed so far.

use bytes::Bytes;

use super::{
    base::{RecoveryContext, ReplacedBytes, ResendBase},
    proposal::{LeftOutResults, Proposal, ResendStep},
};
use crate::proxy::{data_path::DataPath, exchange_log::ExchangeLog, mends::BodyMends, request::SentBody};
use crate::{
    auth::Caller,
    explain::tool_name,
    provider::ServerHash,
    recall::{KeyedFact, LearnedFact, ShapeVerdict},
    repair::{LearnedRules, Paired},
    session::LaneId,
    splice::Segments,
    telemetry::events::RowOutcome,
    wire::Refusal,
};

/// The history of a request that was sent, with the changes of its resends.
pub(in crate::proxy::attempt) struct SentHistory {
    pub(super) base: ResendBase,
    /// `true` if a placeholder may override a result that the client has added in place since.
    pub(super) may_override: bool,
    /// The changes of the resends that the exchange follows, in their order.
    pub(super) steps: Vec<ResendStep>,
    /// The changes that were tried and have not helped.
    pub(super) failed_trials: Vec<ResendStep>,
    /// The refusals whose demands the body meets.
    pub(super) met: Vec<Refusal>,
    /// The reason why the demand of the present refusal is not met. `None` if no recovery has named one.
    pub(super) unmet: Option<RowOutcome>,
}

impl SentHistory {
    /// Creates the history of a request that was sent to `server`.
    pub(in crate::proxy::attempt) fn new(sent: Box<SentBody>, server: ServerHash) -> Self {
        Self {
            may_override: true,
            steps: Vec::new(),
            failed_trials: Vec::new(),
            met: Vec::new(),
            unmet: None,
            base: ResendBase::new(sent, server),
        }
    }

    /// Returns `true` if these bytes were sent last. The provider would refuse them again.
    pub(super) fn is_last_sent(&self, body: &Segments) -> bool {
        let last_sent = &self.base.sent.body;
        last_sent.len() == body.len() && last_sent.to_vec() == body.to_vec()
    }

    /// Returns a planned body with its mends, as it is sent.
    pub(super) fn finished(&self, path: &DataPath, planned: &Segments) -> Segments {
        self.finished_with(path, &self.base.sent.mends, planned)
    }

    /// Returns a planned body with other mends.
    pub(super) fn finished_with(&self, path: &DataPath, mends: &BodyMends, planned: &Segments) -> Segments {
        let mended = mends.make(planned, self.base.sent.wire, path, self.base.fact_scope());
        mended.map_or_else(|| planned.clone(), |mended| Segments::whole(mended.body))
    }

    /// Keeps mends for the conversation's next request if the server has refused the body for another reason after them.
    ///
    /// Without that, a body with more faults than there are sends would never be accepted.
    pub(super) fn keep_unproven(&self, path: &DataPath, last: Option<&Refusal>) {
        let is_news = !self.met.is_empty() && last.is_some_and(|refusal| !self.met.contains(refusal));
        let (sent, scope) = (&self.base.sent, self.base.fact_scope());
        let mends = sent.mends.unproven().filter(|_| is_news);
        if let (Some(lane), Some(mends)) = (sent.mends.lane(), mends) {
            let lane = scope.lane_key(lane.as_bytes(), sent.model.as_deref());
            path.facts.taught.keep_unproven(lane, mends);
        }
    }

    /// Forgets the mends of the conversation that no success has proven.
    pub(in crate::proxy::attempt) fn forget_unproven(&self, path: &DataPath, lane: LaneId) {
        let (scope, model) = (self.base.fact_scope(), self.base.sent.model.as_deref());
        path.facts
            .taught
            .forget_unproven(|| scope.lane_key(lane.as_bytes(), model));
    }

    /// Returns the size of the body that resends are planned from.
    pub(in crate::proxy::attempt) const fn body_len(&self) -> usize {
        self.base.body.len()
    }

    /// Returns the name of the tool with this index. Neither repairs nor mends touch tools.
    pub(in crate::proxy::attempt) fn tool_name(&self, index: usize) -> Option<String> {
        tool_name(&self.base.sent.plain, self.base.sent.wire.format, index)
    }

    /// Returns the memory that the plan of a resend takes: for reading the body, and for a copy of it.
    pub(in crate::proxy::attempt) const fn resend_bytes(&self) -> usize {
        self.base.sent.reading_bytes.saturating_add(self.base.body.len())
    }

    /// Returns `true` if a resend has made this change, with or without success.
    pub(super) fn has_tried(&self, step: ResendStep) -> bool {
        self.steps.contains(&step) || self.failed_trials.contains(&step)
    }

    /// Returns `true` if a resend because of bound thinking has made this change to the present body.
    pub(super) fn has_tried_for_bound(&self, step: ResendStep) -> bool {
        let of_body = self.steps.iter().rev().take_while(|step| !step.starts_over());
        of_body.into_iter().any(|made| *made == step)
    }

    /// Returns `true` if a resend because of bound thinking may have moved results of the present body.
    pub(super) fn has_moved_results(&self) -> bool {
        self.has_tried_for_bound(ResendStep::ResultsReplaced) || self.has_tried_for_bound(ResendStep::ThinkingDropped)
    }

    /// Returns the resend of the body with a change that is no matter of pairing. `None` if that fails.
    pub(super) fn resend_changed(
        &mut self,
        context: RecoveryContext<'_>,
        step: ResendStep,
        change: impl FnOnce(&Paired<'_>, &Bytes) -> Option<Bytes>,
    ) -> Option<Proposal> {
        // A recovery from bound thinking may have moved results: this change would undo that.
        if self.has_moved_results() {
            return None;
        }
        let changed = change(&self.base.pair(context)?, &self.base.body)?;
        self.resend_as(changed, context, step)
    }

    /// Plans another body in place of the present one. `None` if that fails.
    pub(super) fn resend_as(
        &mut self,
        body: Bytes,
        context: RecoveryContext<'_>,
        step: ResendStep,
    ) -> Option<Proposal> {
        let before = self.base.replace(body);
        let proposal = self.base.plan_resend(context, step);
        if proposal.is_none() {
            self.base.put_back(before);
        }
        proposal
    }

    /// Plans without these posted results from now on. Returns the bytes before that.
    pub(super) fn leave_out(&mut self, left_out: &LeftOutResults) -> ReplacedBytes {
        for call in &left_out.restored {
            self.base.sent.lookup.known.results.remove(call);
        }
        self.base.replace(left_out.body.clone())
    }

    /// Starts over with every result of the client in its place.
    pub(super) fn forbid_overrides(&mut self) {
        self.may_override = false;
        self.base.restore();
    }

    /// Stores the shape in which the provider has accepted the conversation. Call it after a success.
    pub(in crate::proxy::attempt) fn settle_shapes(&self, path: &DataPath) {
        for (shape, key) in &self.base.sent.shapes {
            // With a rule against it the body was sent in another shape.
            let verdict = if self.base.sent.learned.forbids(*shape) {
                ShapeVerdict::Changed
            } else {
                ShapeVerdict::Accepted
            };
            path.recall.note_shape(self.base.fact_scope().caller, *key, verdict);
        }
    }

    /// Returns the fact that the learned rules no longer hold: the server has accepted the body without them.
    pub(super) fn retract_rules(&mut self) -> KeyedFact {
        self.base.sent.learned = LearnedRules::NONE;
        self.base.rules_fact(LearnedFact::RulesRetracted)
    }

    /// Returns what a success proves about the mends of the body.
    pub(in crate::proxy::attempt) fn mend_facts(&self) -> Vec<KeyedFact> {
        let sent = &self.base.sent;
        sent.mends.facts(self.base.fact_scope(), sent.model.as_deref())
    }

    /// Reports the mends of a body that the provider has accepted, or that it has accepted the body without them.
    pub(in crate::proxy::attempt) fn report_mends(&self, caller: Caller, log: &ExchangeLog) {
        if self.base.sent.mends.takes_back() {
            log.telemetry().record_retracted_mends(caller, &log.event);
        } else if !log.event.mends.is_empty() {
            log.telemetry().record_mends(caller, &log.event);
        }
    }

    /// Stores which thinking the provider has accepted, and which it has refused. Call it after a success.
    pub(in crate::proxy::attempt) fn settle_thinking(&self, path: &DataPath) {
        let base = &self.base;
        base.removed_thinking
            .settle_thinking(path, base.fact_scope(), base.sent.lookup.last_thinking);
    }
}
