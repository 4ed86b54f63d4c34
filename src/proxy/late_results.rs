//! Calls of one request for the ledger: those that answers emit and requests show, and their posted results.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue};
use tokio::time::{Instant, timeout};

use super::headers;
use crate::{
    auth::Caller,
    conversation::Outline,
    late::{CallQuery, Calls, EarlierRun, FoundCall, LateStore, NamedCallRecord, NamedResult, NotedCall, ObservedCall},
    ledger::{RecordName, Unread},
    recall::{RecallScope, RecallStore},
    repair::{
        BodyCall, CallKey, PinnedResult, block_content, input_hash, is_strong, is_working_task, shorten_result,
        without_cache_control,
    },
    session::{Lane, LaneId, SessionStrength},
    wire::{Format, json::Json, watch::EmittedCalls},
    writer::UpdateEnd,
};

/// Longest time that the end of an answer, or a compaction, waits for its calls to be recorded.
const RECORDING_MAX: Duration = Duration::from_millis(50);

/// The recording of the calls of one answer. It ends with the write, or after 50 ms.
pub(super) type CallRecording = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A caller whose late results the head of an answer mentions.
#[derive(Clone, Debug)]
pub(super) struct ResultsCaller {
    pub(super) late: LateStore,
    pub(super) caller: Caller,
}

impl ResultsCaller {
    /// Adds headers for a verified caller: its name for tool services, and the number of results that wait.
    pub(super) fn add_headers(&self, fields: &mut HeaderMap) {
        // Others have no records. Their invented credentials must not be given names.
        if !self.late.callers().is_verified_in_memory(self.caller) {
            return;
        }
        if let Ok(owner) = HeaderValue::try_from(self.late.owner_of(self.caller).to_string()) {
            fields.insert(headers::OWNER, owner);
        }
        let pending = self.late.calls().waiting_count(self.caller);
        if pending > 0 {
            fields.insert(headers::PENDING_RESULTS, pending.into());
        }
    }
}

/// Late results and pinned results of one caller in one conversation. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LateResults {
    pub(super) late: LateStore,
    pub(super) recall: RecallStore,
    pub(super) caller: Caller,
    pub(super) format: Format,
    pub(super) lane: Option<Lane>,
    pub(super) session: Option<[u8; 32]>,
    /// Name of the session, as the client sends it.
    pub(super) session_label: Option<Box<str>>,
    /// Value of `x-antiphon-provisional`: ids of calls whose answers are not final, separated by commas, or `*`.
    pub(super) provisional: Option<Box<HeaderValue>>,
    /// `true` if no call may get the result of an earlier run: `x-antiphon-intent: new`.
    pub(super) wants_new_runs: bool,
    /// `true` if the request begins a conversation of the main agent, by a history of its own.
    pub(super) begins_conversation: bool,
    /// Hash of the upstream and the client program. `None` if no tool's results are carried over.
    pub(super) origin: Option<[u8; 32]>,
}

impl LateResults {
    /// Returns the owner of pinned results, without a guessed lane: it identifies no call with a reusable id.
    pub(super) fn pin_scope(&self) -> RecallScope {
        RecallScope {
            caller: self.caller,
            format: self.format,
            lane: self.certain_lane(),
        }
    }

    /// Returns the lane. `None` if it is a guess.
    pub(super) fn certain_lane(&self) -> Option<LaneId> {
        let certain = self.lane.filter(|lane| lane.strength == SessionStrength::Strong);
        certain.map(|lane| lane.id)
    }

    /// Records the calls of an answer that has ended. Detaches them if the client has left.
    ///
    /// The calls of half an answer may lack a part of their input.
    pub(super) fn record_answer(&self, calls: &EmittedCalls, is_whole: bool, client_left: bool) {
        if !self.late.is_used() {
            return;
        }
        self.record_emitted(calls, is_whole);
        if let Some(lane) = self.lane.filter(|_| client_left && !calls.list.is_empty()) {
            self.late.calls().note_lane_left(lane.id);
            // Calls of other answers may still run, for a client that has left this one alone.
            let is_of_stream = |id: &[u8]| calls.list.iter().any(|call| call.id.as_bytes() == id);
            self.late.cancels().note_dropped_stream(lane.id, is_of_stream);
        }
    }

    /// Records the calls of a whole answer. Returns `None` if none of them had to be recorded.
    pub(super) fn begin_recording(&self, calls: &EmittedCalls) -> Option<CallRecording> {
        self.record_emitted(calls, true).map(|queued| {
            let late = self.late.clone();
            // Boxed as a whole: the answer's body names the type.
            let recording: CallRecording = Box::pin(async move {
                if timeout(RECORDING_MAX, queued.wait_for_end()).await.is_err() {
                    late.calls().note_unrecorded();
                }
            });
            recording
        })
    }

    /// Queues the calls of an answer. Returns the end of their write if at least one is new.
    fn record_emitted(&self, calls: &EmittedCalls, is_whole: bool) -> Option<UpdateEnd> {
        let opened = calls.list.iter().filter_map(|call| {
            let (id, name) = (call.id.as_bytes(), call.name.as_bytes());
            let input = call.input.as_json().filter(|_| is_whole);
            let input = input.as_deref();
            // A reusable id needs the call's input beside it. A call without an id is recorded under its tool.
            let id = if id.is_empty() { name } else { id };
            let is_nameable = input.is_some() || is_strong(id, name);
            let is_recorded = is_nameable && self.late.calls().is_recorded(self.caller, name);
            is_recorded.then(|| self.describe_opened(id, name, input, true))
        });
        self.late.calls().record_calls(self.caller, opened)
    }

    /// Records the unanswered calls of a request's last turn, and marks the answered ones as settled.
    pub(super) fn record_shown(&self, body: &[u8], outline: &Outline) {
        if !self.late.is_used() {
            return;
        }
        let json = Json::new(body);
        let mut open = Vec::new();
        for call in &outline.last_calls {
            let details = self.format.call_details(body, call.at);
            // Tool services are configured by tool: a call without a name is of no use to them.
            let Some(tool) = details.name.map(|name| json.decode_string(name)) else {
                continue;
            };
            let input = details.input.map_or(&b""[..], |span| json.bytes(span));
            let answer = outline.last_results.iter().find(|answer| answer.id == call.id);
            // A text that only says that the result was lost leaves the call open, and so does one that is not final.
            let is_recorded = self.late.calls().is_recorded(self.caller, &tool);
            let is_task = is_recorded && answer.is_some_and(|answer| names_working_task(answer.at.of(body)));
            let is_final = !is_task && !self.is_provisional(&call.id, &tool);
            if answer.is_some_and(|answer| !answer.lost) && is_final {
                let wanted = CallQuery {
                    id: call.id.to_vec(),
                    tool: tool.to_vec(),
                    input_hash: input_hash(input),
                    session: self.session,
                };
                let lane = self.lane.map(|lane| lane.id);
                // Copied only for a result that waits: the ledger compares both.
                let block = answer.filter(|_| self.find_waiting(lane, &wanted).is_some());
                let block = block.and_then(|answer| std::str::from_utf8(answer.at.of(body)).ok());
                let content = block.and_then(block_content).map(str::to_owned);
                self.late.calls().note_client_result(self.caller, lane, wanted, content);
            } else if is_recorded {
                open.push(self.describe_opened(&call.id, &tool, Some(input), false));
            }
        }
        self.late.calls().record_calls(self.caller, open);
    }

    /// Returns those calls of a body for which parked results of the caller wait.
    pub(super) fn awaited_calls(&self, calls: impl FnOnce() -> Vec<BodyCall>) -> Vec<BodyCall> {
        let awaited = self.late.calls().awaited_calls(self.caller);
        if awaited.is_empty() {
            return Vec::new();
        }
        let mut calls = calls();
        calls.retain(|call| awaited.has_call(&call.id));
        calls
    }

    /// Records calls for which parked results of the caller wait. The process that emitted them died before it did.
    pub(super) fn record_awaited(&self, calls: &[BodyCall]) {
        let observed = calls.iter().map(|call| ObservedCall {
            input: Some(call.input_hash),
            ..self.describe_opened(&call.id, &call.tool, None, false)
        });
        self.late.calls().record_calls(self.caller, observed);
    }

    /// Notes the calls of a history that its client compacts, or lets the provider compact.
    ///
    /// A later history of the lane may lack them, and is still the same conversation. A guessed lane proves nothing.
    pub(super) async fn note_compaction(&self, calls: &[BodyCall], by_client: bool) {
        let Some(lane) = self.certain_lane() else { return };
        let names = calls
            .iter()
            .flat_map(|call| Calls::call_names(Some(lane), &self.query_of(call)));
        let noted: Vec<NotedCall> = names.map(|name| NotedCall { name, by_client }).collect();
        if let Some(queued) = self.late.compactions().note_calls(self.caller, lane, &noted) {
            // Stored before the provider summarises them. A slow ledger stores them later.
            drop(timeout(RECORDING_MAX, queued.wait_for_end()).await);
        }
    }

    /// Returns the lane's calls that a compaction may have removed from the body.
    pub(super) async fn noted_calls(&self, by: Instant) -> Result<Arc<[NotedCall]>, Unread> {
        match self.certain_lane() {
            Some(lane) => self.late.compactions().find_calls(self.caller, lane, by).await,
            None => Ok(Arc::default()),
        }
    }

    /// Returns the pinned results of calls to which the client sends no result.
    pub(super) async fn pinned_results(
        &self,
        calls: &[CallKey],
        deadline: Instant,
    ) -> Result<HashMap<CallKey, PinnedResult>, Unread> {
        let scope = self.pin_scope();
        let cached = |key: &CallKey| Some((*key, self.recall.cached_result(scope, *key)?));
        let mut pinned: HashMap<CallKey, PinnedResult> = calls.iter().filter_map(cached).collect();
        // Memory first: only the ledger costs a wait.
        let missing: Vec<CallKey> = calls.iter().copied().filter(|key| !pinned.contains_key(key)).collect();
        if !missing.is_empty() {
            pinned.extend(self.recall.fetch_results(scope, &missing, deadline).await?);
        }
        Ok(pinned)
    }

    /// Returns `true` if the client's answers of this call are not final: its header or the tool's settings say so.
    fn is_provisional(&self, id: &[u8], tool: &[u8]) -> bool {
        let listed = self.provisional.as_ref().is_some_and(|ids| {
            let mut ids = ids.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            ids.any(|listed| listed == b"*" || listed == id)
        });
        listed || self.late.is_provisional(tool)
    }

    /// Detaches the calls of the lane: no client waits for their results any more.
    pub(super) fn detach_lane(&self) {
        if let Some(lane) = self.lane {
            self.late.calls().note_lane_left(lane.id);
        }
    }

    /// Describes a call with its input, as JSON or as a JSON string, to the ledger.
    fn describe_opened(&self, id: &[u8], tool: &[u8], input: Option<&[u8]>, is_emitted: bool) -> ObservedCall {
        ObservedCall {
            lane: self.lane.map(|lane| lane.id),
            session: self.session,
            session_label: self.session_label.clone(),
            strength: self.lane.map_or(SessionStrength::Weak, |lane| lane.strength),
            id: id.to_vec(),
            tool: tool.to_vec(),
            input: input.map(input_hash),
            intent_input: input.map(|input| self.late.intents().input_digest(tool, input)),
            origin: self.origin,
            is_emitted,
        }
    }

    /// Returns the recorded calls among these, with the results that tool services posted, in the calls' order.
    pub(super) async fn recorded_calls(
        &self,
        calls: &[&BodyCall],
        deadline: Instant,
    ) -> Result<Vec<Option<FoundCall>>, Unread> {
        let wanted: Vec<CallQuery> = calls.iter().map(|call| self.query_of(call)).collect();
        let lane = self.lane.map(|lane| lane.id);
        self.late.calls().find_calls(self.caller, lane, &wanted, deadline).await
    }

    /// Returns the results of earlier runs that these calls may get, in their order.
    pub(super) async fn earlier_runs(
        &self,
        calls: &[&NamedCallRecord],
        deadline: Instant,
    ) -> Result<Vec<Option<EarlierRun>>, Unread> {
        if self.wants_new_runs {
            return Ok(vec![None; calls.len()]);
        }
        self.late
            .intents()
            .find_earlier_runs(self.caller, calls, deadline)
            .await
    }

    /// Returns the record name of a call whose posted result waits for the caller.
    pub(super) fn waiting_result(&self, call: &BodyCall) -> Option<RecordName> {
        self.find_waiting(self.lane.map(|lane| lane.id), &self.query_of(call))
    }

    fn find_waiting(&self, lane: Option<LaneId>, call: &CallQuery) -> Option<RecordName> {
        let names = Calls::call_names(lane, call).into_iter();
        names
            .into_iter()
            .find(|name| self.late.calls().is_waiting(self.caller, name))
    }

    /// Returns a posted content as a request contains it in the place of its call.
    pub(super) fn content_in_place(&self, posted: &str, call: &BodyCall) -> String {
        let id = String::from_utf8_lossy(&call.id);
        without_cache_control(&shorten_result(posted, &id, self.late.result_bytes_max()))
    }

    /// Describes a call of the body to the ledger.
    pub(super) fn query_of(&self, call: &BodyCall) -> CallQuery {
        CallQuery {
            id: call.id.clone(),
            tool: call.tool.clone(),
            input_hash: call.input_hash,
            session: self.session,
        }
    }
}

/// Returns `true` if a result block only names a task that goes on.
fn names_working_task(block: &[u8]) -> bool {
    let block = std::str::from_utf8(block).ok();
    block.and_then(block_content).is_some_and(is_working_task)
}

/// Returns the first of these results that fit into one message of `bytes_max`, each with at most `result_bytes_max`. The
/// others wait for the next message.
pub(super) fn choose_that_fit(
    results: Vec<NamedResult>,
    result_bytes_max: usize,
    bytes_max: usize,
) -> Vec<NamedResult> {
    let mut chosen = Vec::new();
    let mut room = bytes_max as u64;
    for result in results {
        let posted = result.1.posted.as_ref().map_or(0, |posted| posted.content.byte_len());
        let length = posted.min(result_bytes_max as u64);
        // A provider that has refused the result would refuse it again.
        if result.1.is_withheld {
            continue;
        }
        // A result above the limit is sent alone: it would otherwise wait for ever.
        if chosen.is_empty() || length <= room {
            room = room.saturating_sub(length);
            chosen.push(result);
        }
    }
    chosen
}
