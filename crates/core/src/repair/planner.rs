//! The state of planning one history: its inputs and the plan so far.

use super::{Action, Applicability, KnownResults, RepairPolicy, history_plan::HistoryPlan, parsed::PairedHistory};
use crate::conversation::{Conversation, pairing::Pairing, rules::PairingRules};

/// Bytes of results that may be copied for equal calls.
///
/// Calls beyond them count as unanswered. Otherwise a body could grow by its length times its calls.
const COPIED_BYTES_MAX: usize = 1024 * 1024;

/// The planning of one history: constant inputs and the growing plan.
pub(super) struct HistoryPlanner<'c> {
    pub(super) history: &'c PairedHistory<'c>,
    pub(super) conversation: &'c Conversation<'c>,
    pub(super) pairing: &'c Pairing,
    pub(super) rules: PairingRules,
    pub(super) known: &'c KnownResults,
    pub(super) policy: &'c RepairPolicy,
    pub(super) plan: HistoryPlan,
    /// Bytes that may still be copied for equal calls.
    pub(super) copies_left: usize,
    /// Units that may contain user text. Filled on demand.
    pub(super) user_units: Option<Vec<usize>>,
    /// For each unit: the first unit from there on after which no call waits. Filled on demand.
    pub(super) clear_units: Option<Vec<usize>>,
}

impl<'c> HistoryPlanner<'c> {
    /// Returns an empty plan of `history`.
    pub(super) fn new(history: &'c PairedHistory<'c>, known: &'c KnownResults, policy: &'c RepairPolicy) -> Self {
        Self {
            history,
            conversation: &history.conversation,
            pairing: &history.pairing,
            rules: history.rules,
            known,
            policy,
            plan: HistoryPlan::default(),
            copies_left: COPIED_BYTES_MAX,
            user_units: None,
            clear_units: None,
        }
    }

    /// Counts an action for the report.
    pub(super) fn count(&mut self, action: Action) {
        *self.plan.report.actions.entry(action).or_default() += 1;
    }

    /// Returns `true` if the policy allows actions of this class.
    pub(super) fn allows(&self, class: Applicability) -> bool {
        class >= self.policy.least_safe
    }
}
