//! The calls of a request that are lost, or repeat a lost one: described before the send, counted once it is accepted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{call_lookup::CallLookup, context::RequestContext};
use crate::{
    auth::Caller,
    clock,
    conversation::Outline,
    proxy::{catch_core_panic::catch_core_panic, data_path::DataPath, late_results::LateTexts},
    repair::{BodyCall, BodyResult, CallKey, Paired, PinnedResult, Plan, RepairPolicy},
    session::LaneId,
    session_table::{LossKind, SessionTable, ShownCall},
    telemetry::Telemetry,
};

/// Calls of one request, and everything that learns of them.
#[derive(Debug)]
pub(in crate::proxy) struct RepeatWatch {
    pub(in crate::proxy) sessions: Arc<SessionTable>,
    pub(in crate::proxy) telemetry: Telemetry,
    pub(in crate::proxy) caller: Caller,
    /// Lane of the request. `None` if nothing identifies it.
    pub(in crate::proxy) lane: Option<LaneId>,
    pub(in crate::proxy) calls: Vec<ShownCall>,
}

impl RepeatWatch {
    /// Notes the calls, and counts those that repeat a lost one.
    pub(in crate::proxy) fn note_calls(self) {
        let sessions = &self.sessions;
        for repeated in sessions.note_shown_calls(&self.caller, self.lane, &self.calls, clock::now()) {
            self.telemetry.record_repeated_call(repeated);
        }
    }
}

/// Describes every call of a body. `None` if no call of its last turn is lost, nor an earlier one of the caller.
pub(super) fn watch_calls(
    path: &DataPath,
    context: &RequestContext,
    paired: &Paired<'_>,
    plan: &Plan,
    outline: &Outline,
    lookup: &CallLookup,
    texts: &LateTexts,
) -> Option<RepeatWatch> {
    // Describing a call hashes its input, so most requests must not get this far.
    let is_last = |call: &BodyCall| call.turns_after == 0;
    let loses = paired.open_calls().any(is_last) || outline.last_results.iter().any(|result| result.lost);
    if !loses && !path.sessions.has_lost_calls(&context.caller) {
        return None;
    }
    let sources = LossSources {
        open: paired.open_calls().map(|call| call.key).collect(),
        assigned: plan.assigned.iter().map(|given| (given.call, &given.result)).collect(),
        lookup,
        texts,
        policy: &path.settings.policy,
        unattended: &context.unattended_calls,
    };
    let calls = catch_core_panic(|| Some(paired.all_calls()))?;
    Some(RepeatWatch {
        sessions: Arc::clone(&path.sessions),
        telemetry: path.telemetry.clone(),
        caller: context.caller,
        lane: context.lane.map(|lane| lane.id),
        calls: calls.iter().map(|call| sources.describe_call(call)).collect(),
    })
}

/// Everything that tells which calls of a body are lost.
struct LossSources<'s> {
    /// Calls that must have an answer and have none. Others may legally wait for theirs.
    open: HashSet<CallKey>,
    /// Answers that the plan gives.
    assigned: HashMap<CallKey, &'s PinnedResult>,
    lookup: &'s CallLookup,
    texts: &'s LateTexts,
    policy: &'s RepairPolicy,
    /// Hashes of the ids of calls that no client waited for any more.
    unattended: &'s [[u8; 32]],
}

impl LossSources<'_> {
    fn describe_call(&self, call: &BodyCall) -> ShownCall {
        let given = self.assigned.get(&call.key).copied();
        let given = given.or_else(|| self.lookup.known.pinned.get(&call.key));
        // A late result may also stand as text in a later message.
        let has_text = self.texts.calls.contains(call.key.as_bytes());
        let loss = match (call.in_body, given) {
            _ if has_text => None,
            (BodyResult::Nothing, None) => self.open.contains(&call.key).then_some(LossKind::Abandoned),
            (BodyResult::Nothing, Some(PinnedResult::Placeholder(_))) | (BodyResult::InPlace { is_lost: true }, _) => {
                Some(LossKind::Placeholder)
            }
            _ => None,
        };
        let was_unattended = || self.unattended.contains(blake3::hash(&call.id).as_bytes());
        let mut intent = blake3::Hasher::new();
        intent.update(&(call.tool.len() as u64).to_le_bytes());
        intent.update(&call.tool);
        intent.update(&call.input_hash);
        ShownCall {
            key: *call.key.as_bytes(),
            intent: intent.finalize().into(),
            tier: self.policy.tier_of(&call.tool),
            // Whatever stands in the body, the reason of the loss is that no client waited.
            loss: loss.map(|loss| if was_unattended() { LossKind::Detached } else { loss }),
            is_in_last_turn: call.turns_after == 0,
        }
    }
}
