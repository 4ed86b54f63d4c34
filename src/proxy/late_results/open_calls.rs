//! Results of tool services for the open calls of one body: the calls' own, and those of earlier runs.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::{LateResults, before_send::BeforeSend};
use crate::{
    clock::rfc3339_date,
    late::{FoundCall, NamedCallRecord, ReadResult},
    ledger::{RecordName, Unread},
    recall::ClientResultQuery,
    repair::{BodyCall, CallKey, IdSpelling, Paired, PinnedResult, RealResult, contains_result, mark_earlier_run},
};

/// Results of tool services that a look-up of open calls has found.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct GivenResults {
    /// Ledger names of calls whose results a tool service posted.
    pub(in crate::proxy) posted_calls: HashMap<CallKey, RecordName>,
    /// Those of them that were not marked as contained in a request yet.
    unmarked: Vec<(CallKey, ReadResult)>,
    /// Calls that got the result of an earlier run.
    pub(in crate::proxy) earlier_runs: HashSet<CallKey>,
}

/// Records of open calls, as far as they were read.
#[derive(Debug, Default)]
pub(in crate::proxy) struct OpenCallRecords(HashMap<CallKey, OpenCallRecord>);

/// The records of one open call: each `None` if it was not read in time, and `Some(None)` if the ledger has none.
#[derive(Debug, Default)]
#[expect(clippy::option_option, reason = "not read is not the same as none")]
pub(in crate::proxy) struct OpenCallRecord {
    /// The result that an earlier request has pinned to it.
    pinned: Option<Option<PinnedResult>>,
    /// The recorded call.
    recorded: Option<Option<FoundCall>>,
    /// The result that its client brought in an earlier request.
    seen: Option<Option<RealResult>>,
}

impl OpenCallRecord {
    /// Returns `true` if one of the records was not read in time.
    pub(in crate::proxy) const fn is_unread(&self) -> bool {
        self.pinned.is_none() || self.recorded.is_none() || self.seen.is_none()
    }

    /// Takes the result that is pinned to the call, the recorded call, and the result that its client brought.
    pub(in crate::proxy) fn into_found(self) -> (Option<PinnedResult>, Option<FoundCall>, Option<RealResult>) {
        (self.pinned.flatten(), self.recorded.flatten(), self.seen.flatten())
    }
}

impl OpenCallRecords {
    /// Reads those records of these calls that were not read yet.
    pub(in crate::proxy) async fn read(&mut self, calls: &[&BodyCall], before: BeforeSend<'_>) {
        let (recall, scope, deadline) = (&before.path.recall, before.scope, before.deadline);
        let (mut unpinned, mut unrecorded, mut unseen, mut wanted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for call in calls.iter().copied() {
            let record = self.0.entry(call.key).or_default();
            if record.pinned.is_none() {
                unpinned.push(call.key);
            }
            let is_recorded = match &record.recorded {
                Some(Some(FoundCall::Posted(_))) => true,
                // Its result may have been posted since.
                Some(_) => before.results.find_waiting(&before.results.query_of(call)).is_none(),
                None => false,
            };
            if !is_recorded {
                // If the second read fails, it is not known what was posted.
                record.recorded = None;
                unrecorded.push(call);
            }
            if record.seen.is_none() {
                unseen.push(call.key);
                wanted.push(wanted_result(call));
            }
        }
        // Side by side: three reads cost one wait.
        let (pinned, recorded, seen) = tokio::join!(
            recall.fetch_results(scope, &unpinned, deadline),
            before.recorded_calls(&unrecorded),
            recall.find_client_results(scope, &wanted, deadline),
        );
        if let Ok(pinned) = pinned {
            for call in unpinned {
                self.0.entry(call).or_default().pinned = Some(pinned.get(&call).cloned());
            }
        }
        for (call, recorded) in unrecorded.into_iter().zip(recorded.unwrap_or_default()) {
            self.0.entry(call.key).or_default().recorded = Some(recorded);
        }
        for (call, seen) in unseen.into_iter().zip(seen.unwrap_or_default()) {
            self.0.entry(call).or_default().seen = Some(seen);
        }
    }

    /// Takes the records of a call.
    pub(in crate::proxy) fn take(&mut self, call: CallKey) -> OpenCallRecord {
        self.0.remove(&call).unwrap_or_default()
    }
}

/// Describes a call to the store of earlier client results.
fn wanted_result(call: &BodyCall) -> ClientResultQuery {
    // A call without an id is stored under its tool.
    let id = if call.id.is_empty() { &call.tool } else { &call.id };
    ClientResultQuery {
        id: id.clone(),
        tool: call.tool.clone(),
        context_hash: call.context_hash,
        occurrence: call.occurrence,
        has_twin: call.spelling != IdSpelling::Alone,
    }
}

impl BeforeSend<'_> {
    /// Returns the recorded calls among these, with the results that tool services posted, in the calls' order.
    async fn recorded_calls(&self, calls: &[&BodyCall]) -> Result<Vec<Option<FoundCall>>, Unread> {
        let LateResults { late, caller, lane, .. } = self.results;
        let wanted: Vec<_> = calls.iter().map(|call| self.results.query_of(call)).collect();
        let lane = lane.map(|lane| lane.id);
        late.calls().find_calls(*caller, lane, &wanted, self.deadline).await
    }
}

impl GivenResults {
    /// Gives the posted result of a call to it, and takes it out of `recorded`. `None` if there is none for the call.
    ///
    /// A posted result in `in_texts` is not given: it is already in the body, at the end of a message.
    pub(in crate::proxy) fn give_posted(
        &mut self,
        call: &BodyCall,
        recorded: &mut Option<FoundCall>,
        results: &LateResults,
        in_texts: &HashSet<RecordName>,
    ) -> Option<RealResult> {
        let is_its = |found: &mut FoundCall| match found {
            FoundCall::Posted(posted) => is_id_of(call, &posted.id) && !in_texts.contains(posted.read.call()),
            FoundCall::Open(_) => false,
        };
        let Some(FoundCall::Posted(posted)) = recorded.take_if(is_its) else {
            return None;
        };
        let content = results.content_in_place(&posted.content, call);
        self.posted_calls.insert(call.key, *posted.read.call());
        self.unmarked.push((call.key, posted.read));
        Some(RealResult::Content {
            content,
            failed: posted.failed,
        })
    }

    /// Gives the results of earlier runs, of at most `room` bytes, to those calls that are recorded and still run. A call
    /// comes with [`Unread`] if the ledger did not answer.
    pub(in crate::proxy) async fn give_earlier_runs(
        &mut self,
        calls: Vec<(&BodyCall, Option<FoundCall>)>,
        mut room: usize,
        before: BeforeSend<'_>,
    ) -> Vec<(CallKey, Result<RealResult, Unread>)> {
        let open = |(call, recorded)| match recorded {
            Some(FoundCall::Open(recorded)) if is_id_of(call, &recorded.1.id) => Some((call, recorded)),
            _ => None,
        };
        let open: Vec<(&BodyCall, Box<NamedCallRecord>)> = calls.into_iter().filter_map(open).collect();
        let records: Vec<&NamedCallRecord> = open.iter().map(|(_, record)| &**record).collect();
        let LateResults { late, caller, .. } = before.results;
        let runs = if before.results.wants_new_runs {
            Ok(Vec::new())
        } else {
            late.intents()
                .find_earlier_runs(*caller, &records, before.deadline)
                .await
        };
        let Ok(runs) = runs else {
            return open.iter().map(|(call, _)| (call.key, Err(Unread))).collect();
        };
        let mut given = Vec::new();
        for ((call, _), run) in open.iter().zip(runs) {
            let Some(run) = run else { continue };
            let content = before.results.content_in_place(&run.content, call);
            let content = mark_earlier_run(&content, &rfc3339_date(run.settled_at));
            let Some(left) = room.checked_sub(content.len()) else {
                continue;
            };
            room = left;
            self.earlier_runs.insert(call.key);
            // Not a posted result: the caller does not wait for it.
            given.push((call.key, Ok(RealResult::Content { content, failed: false })));
        }
        given
    }

    /// Marks the posted results as contained in the request of this look-up. Takes those back that are not marked, and
    /// returns their calls: they have changed since they were read, or, with [`Unread`], the ledger did not answer.
    pub(in crate::proxy) async fn mark_in_request(
        &mut self,
        results: &LateResults,
        deadline: Instant,
    ) -> (Vec<CallKey>, Result<(), Unread>) {
        let (calls, read): (Vec<CallKey>, Vec<ReadResult>) = self.unmarked.drain(..).unzip();
        let answered = results.late.calls().mark_in_request(&read, deadline).await;
        let end = answered.as_ref().map(|_| ()).map_err(|unread| *unread);
        let marked = answered.unwrap_or_default();
        let gone = calls
            .into_iter()
            .zip(read)
            .filter(|(_, read)| !marked.contains(read.call()));
        let gone: Vec<CallKey> = gone.map(|(call, _)| call).collect();
        for call in &gone {
            self.posted_calls.remove(call);
        }
        (gone, end)
    }

    /// Notes the pinned results whose caller has not received them yet: an earlier answer to it was cut off.
    ///
    /// A pin may also be the result of another run, or of a call of another session with the same id and input. Only a
    /// result that the body contains is received.
    pub(in crate::proxy) async fn note_waiting(
        &mut self,
        paired: &Paired<'_>,
        pinned: &HashMap<CallKey, PinnedResult>,
        before: BeforeSend<'_>,
    ) {
        let results = before.results;
        if results.late.calls().waiting_count(results.caller) == 0 {
            return;
        }
        // A block is a result that the client brought. It may be another one than the posted.
        let is_content =
            |key: &CallKey| matches!(pinned.get(key), Some(PinnedResult::Result(RealResult::Content { .. })));
        let is_waiting = |call: &BodyCall| results.find_waiting(&results.query_of(call)).is_some();
        let open = paired.open_calls();
        let waiting: Vec<&BodyCall> = open.filter(|call| is_content(&call.key) && is_waiting(call)).collect();
        if waiting.is_empty() {
            return;
        }
        // What is not read in time goes on waiting.
        let recorded = before.recorded_calls(&waiting).await.unwrap_or_default();
        for (call, recorded) in waiting.into_iter().zip(recorded) {
            if let Some(FoundCall::Posted(posted)) = recorded
                && let Some(PinnedResult::Result(RealResult::Content { content, .. })) = pinned.get(&call.key)
                && contains_result(content, &results.content_in_place(&posted.content, call))
            {
                self.posted_calls.insert(call.key, *posted.read.call());
            }
        }
    }
}

/// Returns `true` if this is the id of the call.
///
/// The ledger's name covers letters and digits only: among twins the exact id tells whose result it is.
fn is_id_of(call: &BodyCall, id: &[u8]) -> bool {
    call.spelling == IdSpelling::Alone || id == call.id
}
