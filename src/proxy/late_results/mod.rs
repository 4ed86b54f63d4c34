//! Late results of one exchange, at two hooks: before a send ([`BeforeSend`]) and after an answer (`after_answer.rs`).
//!
//! The rest of the room knows nothing of recorded calls and of tool services: it passes what the request shows and what
//! the answer brings.

mod after_answer;
mod before_send;
mod carried_results;
mod client_origin;
mod lacking_results;
mod open_calls;
mod read_ahead;
mod text_insertion;

use http::{HeaderMap, HeaderValue};

pub(super) use after_answer::CallRecording;
pub(super) use before_send::BeforeSend;
pub(super) use open_calls::{GivenResults, OpenCallRecords};
pub(super) use text_insertion::{APPENDED_BYTES_MAX, LastText, LateTexts, PlacedTexts};

use super::{data_path::DataPath, headers};
use crate::{
    api::ledger_api,
    auth::Caller,
    late::{CallQuery, Calls, LateStore, ObservedCall},
    ledger::RecordName,
    recall::LedgerBudget,
    repair::{BodyCall, input_hash, requested_result, without_cache_control},
    session::{self, Lane, LaneId, SessionRequest, SessionStrength},
    session_table::EnteredLane,
    table::VerifiedCallers,
};
use client_origin::client_origin;

/// Results that wait for one caller, as the head of an answer mentions them.
#[derive(Clone, Debug)]
pub(super) struct WaitingResults {
    late: LateStore,
    callers: VerifiedCallers,
    caller: Caller,
}

impl WaitingResults {
    /// Returns the results that wait for a caller. `None` without a tool service: then there are no late results.
    pub(super) fn of_caller(path: &DataPath, caller: Caller) -> Option<Self> {
        path.late.is_used().then(|| Self {
            late: path.late.clone(),
            callers: path.callers.clone(),
            caller,
        })
    }

    /// Loads the results, as far as there is time.
    pub(super) async fn load_in_time(&self, ledger_budget: &mut LedgerBudget) {
        // What is not loaded in time is missing in this answer's head, and is loaded with a later request.
        let load = |deadline| self.late.calls().load_posted(self.caller, false, deadline);
        ledger_budget.spend(load).await.ok();
    }

    /// Adds headers for a verified caller: its name for tool services, and the number of results that wait.
    pub(super) fn add_headers(&self, fields: &mut HeaderMap) {
        // Others have no records. Their invented credentials must not be given names.
        if !self.callers.is_verified_in_memory(self.caller) {
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

/// Late results of one exchange: of its caller, in the conversation that its request shows.
#[derive(Clone, Debug)]
pub(super) struct LateResults {
    late: LateStore,
    caller: Caller,
    lane: Option<Lane>,
    /// Hash of the session that the client names, under which its calls are recorded.
    session: Option<[u8; 32]>,
    /// Name of that session, as the client sends it.
    session_label: Option<Box<str>>,
    /// Value of `x-antiphon-provisional`: ids of calls whose answers are not final, separated by commas, or `*`.
    provisional: Option<Box<HeaderValue>>,
    /// `true` if no call may get the result of an earlier run: `x-antiphon-intent: new`.
    wants_new_runs: bool,
    /// `true` if the request begins a conversation of the main agent, by a history of its own.
    begins_conversation: bool,
    /// `true` if calls of the lane became detached since its last request.
    has_detached_calls: bool,
    /// Hash of the upstream and the client program. `None` if no tool's results are carried over.
    origin: Option<[u8; 32]>,
}

impl LateResults {
    /// Begins the late results of a request that has entered its lane, and notes what the request says about the lane's
    /// calls. `evidence` is `None` if its body was not read.
    pub(super) fn of_request(
        path: &DataPath,
        (upstream, head): (&str, &HeaderMap),
        (caller, lane): (Caller, Option<Lane>),
        evidence: Option<&SessionRequest<'_>>,
        entered: &EnteredLane,
    ) -> Self {
        let late = path.late.clone();
        if let (Some(lane), Some(asked)) = (lane, evidence) {
            let shown = &entered.evidence;
            let judge = |id: &[u8], is_shown: &dyn Fn() -> bool| shown.of_call(id, is_shown);
            let cancels = late.cancels();
            cancels.note_request((caller, lane.id), asked.body, shown.may_go_on, judge);
        }
        // Without a tool service no call is recorded under its name.
        let session = evidence
            .filter(|_| late.is_used())
            .and_then(SessionRequest::named_session);
        let is_main =
            |asked: &SessionRequest<'_>| asked.agent_label().is_none() && !session::continues_by_id(asked.outline);
        Self {
            caller,
            lane,
            session: session.as_ref().map(|session| session.hash(&caller)),
            session_label: session.map(|session| session.label().into()),
            provisional: head.get(headers::PROVISIONAL).cloned().map(Box::new),
            wants_new_runs: head
                .get(headers::INTENT)
                .is_some_and(|value| value == ledger_api::REPEAT),
            begins_conversation: entered.begins && evidence.is_some_and(is_main),
            has_detached_calls: !entered.closed.detached.is_empty(),
            origin: late.carry_over().is_used().then(|| client_origin(upstream, head)),
            late,
        }
    }

    /// Describes a call of the body to the ledger.
    fn query_of(&self, call: &BodyCall) -> CallQuery {
        self.query_for(&call.id, &call.tool, call.input_hash)
    }

    fn query_for(&self, id: &[u8], tool: &[u8], input_hash: [u8; 32]) -> CallQuery {
        CallQuery {
            id: id.to_vec(),
            tool: tool.to_vec(),
            input_hash,
            session: self.session,
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

    /// Returns the names under which a call may be recorded, the most exact one first.
    fn names_of(&self, call: &CallQuery) -> Vec<RecordName> {
        Calls::call_names(self.lane.map(|lane| lane.id), call)
    }

    /// Returns the record name of a call whose posted result waits for the caller.
    fn find_waiting(&self, call: &CallQuery) -> Option<RecordName> {
        let names = self.names_of(call).into_iter();
        names
            .into_iter()
            .find(|name| self.late.calls().is_waiting(self.caller, name))
    }

    /// Returns the lane. `None` if it is a guess.
    fn certain_lane(&self) -> Option<LaneId> {
        self.lane.and_then(Lane::certain_id)
    }

    /// Returns a posted content as a request contains it in the place of its call.
    fn content_in_place(&self, posted: &str, call: &BodyCall) -> String {
        let id = String::from_utf8_lossy(&call.id);
        without_cache_control(&requested_result(posted, &id, self.late.result_bytes_max()))
    }
}
