//! The hook before a send: the late results that the body gets, and what it shows of its calls.

use std::collections::HashMap;

use tokio::time::Instant;

use super::LateResults;
use crate::{
    ledger::Unread,
    proxy::data_path::DataPath,
    recall::{RecallScope, RecallStore},
    repair::{BodyCall, CallKey, PinnedResult},
};

/// Everything that decides which late results go into the body of one request: its stores, scope, deadline and patience.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct BeforeSend<'r> {
    pub(in crate::proxy) path: &'r DataPath,
    pub(in crate::proxy) results: &'r LateResults,
    /// Owner of the results that are pinned to the body's calls.
    pub(in crate::proxy) scope: RecallScope,
    /// Deadline of every wait for the ledger.
    pub(in crate::proxy) deadline: Instant,
    /// `true` if the ledger is asked even in its cooldown.
    pub(in crate::proxy) is_patient: bool,
}

impl LateResults {
    /// Returns `true` if a tool service may have posted a result that the body lacks.
    pub(in crate::proxy) fn may_complete_body(&self) -> bool {
        self.late.is_used()
    }

    /// Returns `true` if the body may have got texts before, at the ends of its messages.
    pub(in crate::proxy) fn may_have_texts(&self, recall: &RecallStore, messages: usize) -> bool {
        // Just after a start it is not known yet who has texts. A first message follows no turn, so it has none.
        let is_continued = recall.survives_restart() && messages > 1;
        recall.has_texts(self.caller) || self.late.is_used() && is_continued && recall.may_have_texts(self.caller)
    }

    /// Detaches the calls of the lane if it went on without their results: no client waits for them any more.
    pub(in crate::proxy) fn note_detached(&self) {
        if let Some(lane) = self.lane.filter(|_| self.has_detached_calls) {
            self.late.calls().note_lane_left(lane.id);
        }
    }

    /// Notes what a body shows that is sent as it came. Returns its awaited calls, or `None` if nothing of it is to be
    /// recorded.
    pub(in crate::proxy) fn note_unedited(&self, calls: impl FnOnce() -> Vec<BodyCall>) -> Option<Vec<BodyCall>> {
        self.late.is_used().then(|| {
            self.note_detached();
            self.awaited_calls(calls)
        })
    }

    /// Returns those calls of a body for which parked results of the caller wait.
    pub(in crate::proxy) fn awaited_calls(&self, calls: impl FnOnce() -> Vec<BodyCall>) -> Vec<BodyCall> {
        let awaited = self.late.calls().awaited_calls(self.caller);
        if awaited.is_empty() {
            return Vec::new();
        }
        let mut calls = calls();
        calls.retain(|call| awaited.has_call(&call.id));
        calls
    }
}

impl BeforeSend<'_> {
    /// Returns the pinned results of calls to which the client sends no result.
    pub(super) async fn pinned_results(&self, calls: &[CallKey]) -> Result<HashMap<CallKey, PinnedResult>, Unread> {
        let recall = &self.path.recall;
        let cached = |key: &CallKey| Some((*key, recall.cached_result(self.scope, *key)?));
        let mut pinned: HashMap<CallKey, PinnedResult> = calls.iter().filter_map(cached).collect();
        // Memory first: only the ledger costs a wait.
        let missing: Vec<CallKey> = calls.iter().copied().filter(|key| !pinned.contains_key(key)).collect();
        if !missing.is_empty() {
            pinned.extend(recall.fetch_results(self.scope, &missing, self.deadline).await?);
        }
        Ok(pinned)
    }
}
