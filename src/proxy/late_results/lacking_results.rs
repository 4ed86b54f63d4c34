//! Posted results that a body lacks: of its own calls, and of calls that a compaction has removed from it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::{LateResults, after_answer::RECORDING_MAX, before_send::BeforeSend};
use crate::{
    digest::digest_of,
    late::{NamedCallRecord, NotedCall, matching::is_call_of_body, records::RecordedCall},
    ledger::{RecordName, Unread},
    recall::APPENDED_CALLS_MAX,
    repair::{
        BodyCall, BodyResult, CallKey, LateCall, PinnedResult, RealResult, block_content, contains_result, id_letters,
    },
};

/// The calls of one conversation, as one body shows them.
pub(super) struct BodyCalls<'v> {
    before: BeforeSend<'v>,
    plain: &'v Bytes,
    calls: &'v [BodyCall],
    by_name: HashMap<RecordName, &'v BodyCall>,
    /// The calls by the letters and digits of their ids. Made for the first result that the body may lack.
    by_letters: OnceLock<HashMap<Vec<u8>, Vec<&'v BodyCall>>>,
    /// Calls that a compaction has removed from the body, in the order of their history.
    compacted: Vec<RecordName>,
}

/// Calls with a posted result which the body may lack.
pub(super) struct LackingCalls<'v> {
    in_body: Vec<(RecordName, &'v BodyCall)>,
    /// The contents of results that stand in the places of calls to which the client sends none.
    in_place: HashMap<CallKey, String>,
    compacted: Vec<RecordName>,
}

impl<'v> BodyCalls<'v> {
    /// Indexes the calls of a body. `noted` are those of its lane that a compaction may have removed. A body that contains
    /// a compaction by the provider has `has_compaction` set.
    pub(super) fn new(
        before: BeforeSend<'v>,
        plain: &'v Bytes,
        calls: &'v [BodyCall],
        noted: &[NotedCall],
        has_compaction: bool,
    ) -> Self {
        let results = before.results;
        let mut by_name = HashMap::new();
        for call in calls {
            // Stored texts contain the ledger's names, or those of pins if a resend has appended the text.
            let names = results.names_of(&results.query_of(call));
            for name in names.into_iter().chain([*call.key.as_bytes()]) {
                by_name.entry(name).or_insert(call);
            }
        }
        // A compaction removes the oldest calls. A history that lacks later ones is another branch.
        let gone = noted.iter().take_while(|call| !by_name.contains_key(&call.name));
        let removed = gone.filter(|call| call.by_client || has_compaction);
        Self {
            before,
            plain,
            calls,
            compacted: removed.map(|call| call.name).collect(),
            by_name,
            by_letters: OnceLock::new(),
        }
    }

    /// Returns the call of the body with this name.
    pub(super) fn find(&self, name: &RecordName) -> Option<&'v BodyCall> {
        self.by_name.get(name).copied()
    }

    /// Finds the calls that have a posted result which the body may lack. `inserted` are those that got it already.
    pub(super) async fn find_lacking(&self, inserted: &HashSet<RecordName>) -> Result<LackingCalls<'v>, Unread> {
        let results = self.before.results;
        let (late, caller) = (&results.late, results.caller);
        let mut in_body = Vec::new();
        for call in self.calls {
            let names = results.names_of(&results.query_of(call)).into_iter();
            let posted = late
                .calls()
                .known_posted(caller, names.filter(|name| !inserted.contains(name)));
            let lacks = posted
                .into_iter()
                .filter(|(_, known)| !is_contained_in(*known, call, self.plain));
            in_body.extend(lacks.map(|(name, _)| (name, call)));
        }
        let in_place = self.retain_lacking(&mut in_body).await?;
        // A result that the owner has received is part of the summary.
        let waits = |name: &&RecordName| !inserted.contains(*name) && late.calls().is_waiting(caller, name);
        Ok(LackingCalls {
            in_body,
            in_place,
            compacted: self.compacted.iter().filter(waits).copied().collect(),
        })
    }

    /// Removes the calls without a result in the body, unless a placeholder or another result stands for theirs.
    /// Returns the contents of these results.
    async fn retain_lacking(
        &self,
        calls: &mut Vec<(RecordName, &BodyCall)>,
    ) -> Result<HashMap<CallKey, String>, Unread> {
        let open = calls.iter().filter(|(_, call)| call.in_body == BodyResult::Nothing);
        let keys: Vec<CallKey> = open.map(|(_, call)| call.key).collect();
        let pinned = self.before.pinned_results(&keys).await?;
        let (late, caller) = (&self.before.results.late, self.before.results.caller);
        calls.retain(|(name, call)| match call.in_body {
            BodyResult::InPlace { .. } => true,
            BodyResult::Elsewhere => false,
            BodyResult::Nothing => match pinned.get(&call.key) {
                Some(PinnedResult::Placeholder(_) | PinnedResult::Result(RealResult::Block(_))) => true,
                // That of another run, or of a call of another session with the same id and input, is no receipt.
                Some(PinnedResult::Result(RealResult::Content { .. })) => late.calls().is_waiting(caller, name),
                // A call without any result yet gets it in its place.
                None => false,
            },
        });
        let in_place = pinned.into_iter().filter_map(|(key, result)| match result {
            PinnedResult::Result(RealResult::Block(block)) => Some((key, block_content(&block)?.to_owned())),
            PinnedResult::Result(RealResult::Content { content, .. }) => Some((key, content)),
            PinnedResult::Placeholder(_) => None,
        });
        Ok(in_place.collect())
    }

    /// Finds a recorded call in the body: by its exact id first, else by the id's letters and digits.
    fn find_call(&self, recorded: &RecordedCall) -> Option<&'v BodyCall> {
        let by_letters = self.by_letters.get_or_init(|| {
            let mut by_letters: HashMap<Vec<u8>, Vec<&BodyCall>> = HashMap::new();
            for call in self.calls {
                by_letters.entry(id_letters(&call.id)).or_default().push(call);
            }
            by_letters
        });
        // Clients may change the other characters of an id.
        let alike = by_letters.get(&id_letters(&recorded.id))?;
        let fits = |call: &&&BodyCall| {
            call.tool == recorded.tool && recorded.input.is_none_or(|input| input == call.input_hash)
        };
        // Of several matches none is chosen: a result under the wrong call is worse than a placeholder.
        let only = |is_it: &dyn Fn(&BodyCall) -> bool| {
            let mut found = alike.iter().filter(fits).filter(|call| is_it(call));
            found.next().copied().filter(|_| found.next().is_none())
        };
        only(&|call| call.id == recorded.id).or_else(|| only(&|_| true))
    }

    /// Returns the place of the call that a posted result is to be appended for. `None` if the body contains the result.
    pub(super) fn confirm_lacking(
        &self,
        lacking: &LackingCalls<'_>,
        (name, recorded): &NamedCallRecord,
        content: &str,
    ) -> Option<LateCall> {
        let results = self.before.results;
        if lacking.compacted.contains(name) {
            let lane = results.certain_lane().map(|lane| *lane.as_bytes());
            return (recorded.lane.is_some() && recorded.lane == lane).then_some(LateCall::Compacted);
        }
        // Of two calls whose ids have the same letters and digits, only one owns the result, and may have it.
        let call = self.find_call(recorded)?;
        let is_it = |(of, lacking): &(RecordName, &BodyCall)| of == name && lacking.key == call.key;
        if !lacking.in_body.iter().any(is_it) || !is_call_of_body(recorded, &results.query_of(call)) {
            return None;
        }
        if let Some((result, hash)) = real_result(call, self.plain)
            && contains_result(result, content)
        {
            results.late.calls().note_contained(results.caller, *name, hash);
            return None;
        }
        let is_in_place = lacking.in_place.get(&call.key).is_some_and(|in_place| {
            contains_result(in_place, content) || contains_result(in_place, &results.content_in_place(content, call))
        });
        (!is_in_place).then_some(LateCall::InHistory)
    }
}

impl LateResults {
    /// Notes the calls of a history that its client compacts, or lets the provider compact.
    ///
    /// A later history of the lane may lack them, and is still the same conversation. A guessed lane proves nothing.
    pub(in crate::proxy) async fn note_compaction(&self, calls: impl FnOnce() -> Vec<BodyCall>, by_client: bool) {
        let Some(lane) = self.certain_lane().filter(|_| self.late.is_used()) else {
            return;
        };
        let calls = calls();
        let names = calls.iter().flat_map(|call| self.names_of(&self.query_of(call)));
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
}

impl LackingCalls<'_> {
    /// Returns the names of the first of these calls, each once.
    pub(super) fn names(&self) -> Vec<RecordName> {
        let in_body = self.in_body.iter().map(|(name, _)| *name);
        let mut names: Vec<RecordName> = in_body.chain(self.compacted.iter().copied()).collect();
        names.truncate(APPENDED_CALLS_MAX);
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Returns the client's own result of a call and its hash. `None` if there is none, or only a text that it was lost.
fn real_result<'b>(call: &BodyCall, body: &'b Bytes) -> Option<(&'b str, u64)> {
    let result = call
        .result
        .filter(|_| call.in_body == BodyResult::InPlace { is_lost: false })?;
    let content = result.content.of(body);
    let digest = digest_of([content]);
    let (hash, _) = digest.split_first_chunk()?;
    Some((std::str::from_utf8(content).ok()?, u64::from_le_bytes(*hash)))
}

/// Returns `true` if the client's own result of a call is known to contain the posted one.
fn is_contained_in(known: Option<u64>, call: &BodyCall, body: &Bytes) -> bool {
    known.is_some() && real_result(call, body).map(|(_, hash)| hash) == known
}

/// Returns the first of these results that fit into one message of `bytes_max`, each with at most `result_bytes_max`. The
/// others wait for the next message.
pub(super) fn choose_that_fit(
    results: Vec<NamedCallRecord>,
    result_bytes_max: usize,
    bytes_max: usize,
) -> Vec<NamedCallRecord> {
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
