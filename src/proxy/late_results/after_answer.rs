//! The hook after an answer: the calls that it and its request show are recorded, and its results are received.

use std::{future::Future, pin::Pin, time::Duration};

use tokio::time::timeout;

use super::LateResults;
use crate::{
    conversation::Outline,
    ledger::RecordName,
    repair::{BodyCall, block_content, input_hash, is_strong, is_working_task},
    wire::{Format, json::Json, watch::EmittedCalls},
    writer::UpdateEnd,
};

/// Longest time that the end of an answer, or a compaction, waits for its calls to be recorded.
pub(super) const RECORDING_MAX: Duration = Duration::from_millis(50);

/// The recording of the calls of one answer. It ends with the write, or after 50 ms.
pub(in crate::proxy) type CallRecording = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl LateResults {
    /// Returns `true` if a tool service may answer the calls of the answer, so that their arguments are recorded.
    pub(in crate::proxy) fn notes_inputs(&self) -> bool {
        self.late.is_used()
    }

    /// Records the calls of an answer that has ended. Detaches them if the client has left.
    ///
    /// The calls of half an answer may lack a part of their input.
    pub(in crate::proxy) fn record_answer(&self, calls: &EmittedCalls, is_whole: bool, client_left: bool) {
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

    /// Records the calls of a whole answer. Returns `None` if no configured tool service may answer one of them, or all are
    /// recorded already: then the answer ends at once.
    pub(in crate::proxy) fn begin_recording(&self, calls: &EmittedCalls) -> Option<CallRecording> {
        let queued = self.notes_inputs().then(|| self.record_emitted(calls, true))??;
        let is_awaited = |name: &[u8]| self.late.calls().is_recording_awaited(self.caller, name);
        if !calls.list.iter().any(|call| is_awaited(call.name.as_bytes())) {
            return None;
        }
        let late = self.late.clone();
        // Boxed as a whole: the answer's body names the type.
        Some(Box::pin(async move {
            if timeout(RECORDING_MAX, queued.wait_for_end()).await.is_err() {
                late.calls().note_unrecorded();
            }
        }))
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

    /// Records the unanswered calls of the last turn of an accepted body, and marks the answered ones as settled.
    ///
    /// Then records its `awaited` calls: of those the last turn may show more.
    pub(in crate::proxy) fn record_shown(
        &self,
        (body, format): (&[u8], Format),
        outline: &Outline,
        awaited: &[BodyCall],
    ) {
        if !self.late.is_used() {
            return;
        }
        let json = Json::new(body);
        let mut open = Vec::new();
        for call in &outline.last_calls {
            let details = format.call_details(body, call.at);
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
                let wanted = self.query_for(&call.id, &tool, input_hash(input));
                // Copied only for a result that waits: the ledger compares both.
                let block = answer.filter(|_| self.find_waiting(&wanted).is_some());
                let block = block.and_then(|answer| std::str::from_utf8(answer.at.of(body)).ok());
                let content = block.and_then(block_content).map(str::to_owned);
                let lane = self.lane.map(|lane| lane.id);
                self.late.calls().note_client_result(self.caller, lane, wanted, content);
            } else if is_recorded {
                open.push(self.describe_opened(&call.id, &tool, Some(input), false));
            }
        }
        self.late.calls().record_calls(self.caller, open);
        // Parked results wait for these calls. The process that emitted them died before it recorded them.
        let observed = awaited.iter().map(|call| {
            let mut observed = self.describe_opened(&call.id, &call.tool, None, false);
            observed.input = Some(call.input_hash);
            observed
        });
        self.late.calls().record_calls(self.caller, observed);
    }

    /// Returns `true` if the client's answers of this call are not final: its header or the tool's settings say so.
    fn is_provisional(&self, id: &[u8], tool: &[u8]) -> bool {
        let listed = self.provisional.as_ref().is_some_and(|ids| {
            let mut ids = ids.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            ids.any(|listed| listed == b"*" || listed == id)
        });
        listed || self.late.is_provisional(tool)
    }

    /// Notes that the caller has received these posted results: the whole answer to them was relayed.
    pub(in crate::proxy) fn note_delivered(&self, calls: &[RecordName]) {
        self.late.calls().note_delivered(self.caller, calls.iter().copied());
    }

    /// Withholds these posted results, since the provider has accepted a body without them.
    pub(in crate::proxy) fn withhold_results(&self, calls: Vec<RecordName>) {
        self.late.calls().note_withheld(self.caller, calls);
    }
}

/// Returns `true` if a result block only names a task that goes on.
fn names_working_task(block: &[u8]) -> bool {
    let block = std::str::from_utf8(block).ok();
    block.and_then(block_content).is_some_and(is_working_task)
}
