//! The plan of one body: the repair of each of its histories, decided but not yet written.
//!
//! A function of the paired body, the known results and the policy.

use bytes::Bytes;

use super::{
    Action, Applicability, KnownResults, RepairPolicy, RepairReport,
    arrange::arrange_words,
    broken_calls::{BROKEN_CALLS_MAX, broken_calls},
    call_results::assign_results,
    edits,
    fields::{add_opening, drop_server_halves, fix_fields},
    foreign_thinking::remove_foreign_thinking,
    history_plan::HistoryPlan,
    known_results::{Assignment, RemoteResults},
    new_ids::rename_calls,
    parsed::{Paired, PairedHistory},
    planner::HistoryPlanner,
    refusal_constraints::due_calls,
    salvage::salvage_results,
};
use crate::{
    conversation::Finding,
    splice::{Edit, EditList, Segments},
    wire::{
        Unreadable,
        json::{Json, validate},
    },
    work,
};

/// The repair of one body, decided but not yet written.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// One plan for each history. `None` for a history that stays unchanged.
    histories: Vec<Option<HistoryPlan>>,
    /// Edit that lets the provider drop thinking which it has bound to another prefix.
    unbinding: Option<Edit>,
    /// Findings and actions.
    pub report: RepairReport,
    /// Results given to calls for the first time. They must be pinned before the body is sent.
    pub assigned: Vec<Assignment>,
    /// Remote calls that are answered because the provider's refusal named them.
    pub remote_results: Vec<RemoteResults>,
}

/// Plans the repair of one body.
///
/// Fails if the body has findings and is no JSON, because such a body is never edited or judged. In a batch only the
/// entry that fails stays unchanged.
pub fn plan(paired: &Paired<'_>, known: &KnownResults, policy: &RepairPolicy) -> Result<Plan, Unreadable> {
    let mut all = Plan::default();
    all.report.unread = paired.unread;
    for history in &paired.histories {
        match plan_history(history, paired, known, policy) {
            Ok(plan) => all.add_history(plan, history),
            Err(reason) if paired.is_batch => {
                all.report.unread.get_or_insert(reason);
                // The position must stay, because plans and histories are matched by it.
                all.histories.push(None);
            }
            Err(reason) => return Err(reason),
        }
    }
    // Removed thinking and placeholders of remote calls are edits without findings.
    if paired.is_batch && (!all.report.findings.is_empty() || all.histories.iter().any(Option::is_some)) {
        validate(paired.body)?;
    }
    Ok(all)
}

/// Plans the repair of one history.
fn plan_history(
    history: &PairedHistory<'_>,
    paired: &Paired<'_>,
    known: &KnownResults,
    policy: &RepairPolicy,
) -> Result<HistoryPlan, Unreadable> {
    let mut planner = HistoryPlanner::new(history, known, policy);
    work::count(history.findings.len());
    planner.plan.report.findings.clone_from(&history.findings);
    planner.plan.report.broken_calls = broken_calls(history);
    // A healthy history needs no planning, unless a placeholder has to go back into it or thinking was refused.
    let has_known = !known.overrides.is_empty() || !history.conversation.removed_thinking.is_empty();
    if !planner.plan.report.findings.is_empty() || has_known {
        // First, so that the moves of text and results see what is left of each message.
        remove_foreign_thinking(&mut planner, paired.wire.format);
        rename_calls(&mut planner);
        // The order matters: calls take results first, and only the rest is quoted or dropped.
        assign_results(&mut planner);
        salvage_results(&mut planner);
        drop_server_halves(&mut planner);
        fix_fields(&mut planner);
        // Last of the moves, because text that lost its neighbours may stay.
        arrange_words(&mut planner);
        add_opening(&mut planner);
    }
    let mut plan = planner.plan;
    // Nothing is known of a remote call but its id, so its result is always a placeholder.
    if policy.least_safe <= Applicability::Inventive {
        let constraints = history.constraints.as_ref();
        let due = due_calls(&history.conversation, &history.remote, constraints, paired.wire.format);
        answer_remote_calls(&mut plan, due.calls);
        plan.remote_results = due.learned;
    }
    history.json?;
    // A remote call or a returning placeholder causes edits without findings, so the JSON is not checked yet.
    if history.findings.is_empty() && !plan.report.actions.is_empty() {
        validate(history.conversation.body)?;
    }
    Ok(plan)
}

/// Plans placeholders for remote calls, before everything else.
fn answer_remote_calls(plan: &mut HistoryPlan, calls: Vec<String>) {
    let found = calls.iter().map(|id| Finding::unanswered_remote_call(id.clone()));
    // Their results come first in the body, so their findings come first too.
    plan.report.findings.splice(0..0, found);
    if !calls.is_empty() {
        *plan.report.actions.entry(Action::Placeholder).or_default() += calls.len();
    }
    plan.remote_calls = calls;
}

impl Plan {
    fn add_history(&mut self, mut plan: HistoryPlan, history: &PairedHistory<'_>) {
        let report = std::mem::take(&mut plan.report);
        // A deferred quote counts as no action, but its result leaves the body.
        let changes = !report.actions.is_empty() || report.deferred > 0;
        self.report.findings.extend(history.place_findings(report.findings));
        self.report.broken_calls.extend(report.broken_calls);
        self.report.broken_calls.truncate(BROKEN_CALLS_MAX);
        for (action, count) in report.actions {
            *self.report.actions.entry(action).or_default() += count;
        }
        self.report.deferred += report.deferred;
        self.report.unrepairable += report.unrepairable;
        work::count(report.renamed.len().saturating_add(plan.assigned.len()));
        self.report.renamed.extend(report.renamed);
        self.assigned.append(&mut plan.assigned);
        self.remote_results.extend(plan.remote_results.take());
        // Without changes the bytes must stay the very same handle.
        self.histories.push(changes.then_some(plan));
    }

    /// Adds the documented setting that lets the provider drop thinking which it has bound to another prefix.
    ///
    /// Returns `false` without a change if the format has no such setting, or the body already contains it.
    pub fn drop_bound_thinking(&mut self, paired: &Paired<'_>) -> Result<bool, Unreadable> {
        let Some(edit) = paired.wire.format.drop_bound_thinking(Json::new(paired.body)) else {
            return Ok(false);
        };
        validate(paired.body)?;
        self.unbinding = Some(edit);
        self.report.actions.insert(Action::Unbind, 1);
        Ok(true)
    }

    /// Writes the edits over the bytes that were parsed. Without edits the result is the very same handle.
    pub fn splice(&self, paired: &Paired<'_>, body: &Bytes) -> Result<Segments, Unreadable> {
        let mut all = Vec::new();
        for (plan, history) in self.histories.iter().zip(&paired.histories) {
            let Some(plan) = plan else { continue };
            let list = edits::edits_of(plan, history, paired.wire).map_err(|_| Unreadable::Overlap)?;
            let edits = list.into_edits().into_iter();
            all.extend(edits.map(|edit| edit.shifted(history.offset)));
        }
        all.extend(self.unbinding.clone());
        if all.is_empty() {
            return Ok(Segments::whole(body.clone()));
        }
        // Overlapping edits are a bug of the proxy. The original is then sent, and the provider judges it.
        let list = EditList::new(all, body.len()).map_err(|_| Unreadable::Overlap)?;
        Ok(list.apply(body))
    }
}
