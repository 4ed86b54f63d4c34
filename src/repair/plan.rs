//! The plan of one body: the repair of each of its histories, decided but not yet written.
//!
//! A function of the paired body, the known answers and the policy.

use bytes::Bytes;

use super::{
    Action, Assignment, KnownAnswers, Paired, RemoteAnswers, RepairPolicy, Report, edits, history_plan::HistoryPlan,
    parsed::PairedHistory,
};
use crate::{
    splice::{Edit, EditList, Segments},
    wire::{
        Unreadable,
        json::{Json, validate},
    },
};

/// The repair of one body, decided but not yet written.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// One plan for each history; `None` for a history that stays as it came.
    histories: Vec<Option<HistoryPlan>>,
    /// The edit that lets the provider drop thinking which it has bound to another prefix.
    unbinding: Option<Edit>,
    /// What was found and what is done about it.
    pub report: Report,
    /// Answers that calls are given for the first time: to be pinned before the body is sent.
    pub assigned: Vec<Assignment>,
    /// Remote calls that are answered because the provider's refusal named them.
    pub remote_answers: Vec<RemoteAnswers>,
}

/// Plans the repair of one body.
///
/// Fails if the body has findings and is no JSON: such a body is never edited, nor judged. In a batch only that entry
/// stays as it came.
pub fn plan(paired: &Paired<'_>, known: &KnownAnswers, policy: &RepairPolicy) -> Result<Plan, Unreadable> {
    let mut all = Plan::default();
    all.report.unread = paired.unread;
    for history in &paired.histories {
        match HistoryPlan::new(history, paired, known, policy) {
            Ok(plan) => all.add(plan, history),
            Err(reason) if paired.is_batch => {
                all.report.unread.get_or_insert(reason);
                all.histories.push(None);
            }
            Err(reason) => return Err(reason),
        }
    }
    if paired.is_batch && !all.report.findings.is_empty() {
        validate(paired.body)?;
    }
    Ok(all)
}

impl Plan {
    fn add(&mut self, mut plan: HistoryPlan, history: &PairedHistory<'_>) {
        let report = std::mem::take(&mut plan.report);
        let changes = !report.actions.is_empty() || report.deferred > 0;
        self.report.findings.extend(history.placed(report.findings));
        for (action, count) in report.actions {
            *self.report.actions.entry(action).or_default() += count;
        }
        self.report.deferred += report.deferred;
        self.report.unrepairable += report.unrepairable;
        self.report.renamed.extend(report.renamed);
        self.assigned.append(&mut plan.assigned);
        self.remote_answers.extend(plan.remote_answers.take());
        self.histories.push(changes.then_some(plan));
    }

    /// Adds the documented setting that lets the provider drop thinking which it has bound to another prefix.
    ///
    /// Returns `false` if the format has no such setting, or the body sets it already: then nothing changes.
    pub fn drop_bound_thinking(&mut self, paired: &Paired<'_>) -> Result<bool, Unreadable> {
        let Some(edit) = paired.wire.format.drop_bound(Json::new(paired.body)) else {
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
            let list = edits::edits(plan, history, paired.wire).map_err(|_| Unreadable::Overlap)?;
            let edits = list.into_edits().into_iter();
            all.extend(edits.map(|edit| edit.shifted(history.offset)));
        }
        all.extend(self.unbinding.clone());
        if all.is_empty() {
            return Ok(Segments::whole(body.clone()));
        }
        // An overlap is our own bug: the provider then judges the original.
        let list = EditList::new(all, body.len()).map_err(|_| Unreadable::Overlap)?;
        Ok(list.apply(body))
    }
}
