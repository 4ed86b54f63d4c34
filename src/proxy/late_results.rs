//! Late results of one request: which calls are recorded, which posted results the body gets, and where.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::catch_core_panic::catch_core_panic;
use crate::{
    auth::Caller,
    conversation::Outline,
    late::{CallQuery, FoundResult, LateStore, ObservedCall, records::RecordedCall},
    ledger::RecordName,
    recall::{APPENDED_CALLS_MAX, AnswerScope, AnswerStore, AppendedText},
    repair::{
        Anchor, BodyAnswer, BodyCall, CallKey, Paired, PinnedAnswer, Placeholder, append_texts, id_letters, input_hash,
        is_strong, late_places, late_text,
    },
    session::{Lane, SessionStrength},
    wire::{Format, json::Json, watch::EmittedCalls},
};

/// Maximum bytes of late results in one message. More wait for the next message.
const APPENDED_BYTES_MAX: usize = 256 * 1024;

/// Late results and pinned answers of one caller in one conversation. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LateResults {
    pub(super) late: LateStore,
    pub(super) recall: AnswerStore,
    pub(super) caller: Caller,
    pub(super) format: Format,
    pub(super) lane: Option<Lane>,
    pub(super) session: Option<[u8; 32]>,
}

/// Body with late results at the end of messages.
pub(super) struct WithLateTexts {
    pub(super) body: Bytes,
    pub(super) texts: LateTexts,
}

/// Late results at the end of messages.
#[derive(Debug, Default)]
pub(super) struct LateTexts {
    /// Number of messages with late results.
    pub(super) count: usize,
    /// Calls whose results they are.
    pub(super) calls: HashSet<RecordName>,
    /// `true` if the last place of the body has some.
    pub(super) is_at_end: bool,
}

/// Body of a resend with results at the end of its last message.
pub(super) struct AppendedAtEnd {
    pub(super) body: Bytes,
    pub(super) anchor: Anchor,
    pub(super) appended: AppendedText,
}

/// Calls of a body by their names.
type CallsByName<'v> = HashMap<RecordName, &'v BodyCall>;

impl LateResults {
    /// Returns the owner of pinned answers, without a guessed lane: it identifies no call with a reusable id.
    pub(super) fn pin_scope(&self) -> AnswerScope {
        let certain = self.lane.filter(|lane| lane.strength == SessionStrength::Strong);
        AnswerScope {
            caller: self.caller,
            format: self.format,
            lane: certain.map(|lane| lane.id),
        }
    }

    /// Records the calls of an answer that has ended. Detaches them if the client has left.
    pub(super) fn record_answer(&self, calls: &EmittedCalls, client_left: bool) {
        if !self.late.is_used() {
            return;
        }
        // A reusable id needs the call's input beside it: such calls are recorded once a request shows it.
        let strong = calls
            .list
            .iter()
            .filter(|call| is_strong(call.id.as_bytes(), call.name.as_bytes()));
        let opened = strong.map(|call| self.describe_opened(call.id.as_bytes(), call.name.as_bytes(), None));
        self.late.record_calls(self.caller, opened);
        if let Some(lane) = self.lane.filter(|_| client_left && !calls.list.is_empty()) {
            self.late.note_lane_left(lane.id);
        }
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
            let input = input_hash(details.input.map_or(b"", |span| json.bytes(span)));
            let answer = outline.last_results.iter().find(|answer| answer.id == call.id);
            // A text that only says that the result was lost leaves the call open.
            if answer.is_some_and(|answer| !answer.lost) {
                let wanted = CallQuery {
                    id: call.id.to_vec(),
                    tool: tool.to_vec(),
                    input_hash: input,
                };
                let name = LateStore::call_name(self.lane.map(|lane| lane.id), &wanted);
                self.late.note_client_result(self.caller, name, &tool);
            } else {
                open.push(self.describe_opened(&call.id, &tool, Some(input)));
            }
        }
        self.late.record_calls(self.caller, open);
    }

    /// Detaches the calls of the lane: no client waits for their results any more.
    pub(super) fn detach_lane(&self) {
        if let Some(lane) = self.lane {
            self.late.note_lane_left(lane.id);
        }
    }

    /// Describes a call to the ledger.
    fn describe_opened(&self, id: &[u8], tool: &[u8], input: Option<[u8; 32]>) -> ObservedCall {
        ObservedCall {
            lane: self.lane.map(|lane| lane.id),
            session: self.session,
            strength: self.lane.map_or(SessionStrength::Weak, |lane| lane.strength),
            id: id.to_vec(),
            tool: tool.to_vec(),
            input,
        }
    }

    /// Returns the results that tool services posted for these calls, in the calls' order.
    ///
    /// Returns no result if the ledger fails or does not answer in time.
    pub(super) async fn posted_results(&self, calls: &[&BodyCall], deadline: Instant) -> Vec<Option<FoundResult>> {
        let wanted: Vec<CallQuery> = calls.iter().map(|call| wanted_result(call)).collect();
        let lane = self.lane.map(|lane| lane.id);
        self.late.find_results(self.caller, lane, &wanted, deadline).await
    }

    /// Puts late results into a body: earlier ones in their places again, new ones at its end if `adds` is set.
    ///
    /// Returns `None` if there are none. Acknowledges results that a later assistant turn has seen.
    pub(super) async fn insert_late_texts(
        &self,
        plain: &Bytes,
        paired: &Paired<'_>,
        outline: &Outline,
        adds: bool,
        deadline: Instant,
    ) -> Option<WithLateTexts> {
        let caller = self.caller;
        // An unverified caller has no records.
        let is_verified = timeout_at(deadline, self.late.callers().is_verified(caller)).await;
        if !is_verified.unwrap_or(false) {
            return None;
        }
        let known = self.recall.texts_of_caller(caller, deadline).await?;
        // What a restart would forget is not put in: later requests would not contain the same prefix.
        let waiting = adds && self.recall.survives_restart() && self.late.pending_count(caller) > 0;
        if known.is_empty() && !waiting {
            return None;
        }
        let (places, calls) = catch_core_panic(|| Some((late_places(paired), paired.all_calls())))?;
        let by_name = self.index_by_name(&calls);
        let (mut texts, mut inserted): (Vec<(usize, String)>, HashSet<RecordName>) = (Vec::new(), HashSet::new());
        for place in &places {
            // Another conversation may have the same text. The anchor belongs to this one only if its calls do.
            let Some(appended) = known
                .get(&place.anchor)
                .filter(|appended| appended.calls.iter().all(|call| by_name.contains_key(call)))
            else {
                continue;
            };
            // Two branches of a conversation may have been merged: each result is inserted once.
            if !appended.calls.is_empty() && appended.calls.iter().all(|call| inserted.contains(call)) {
                continue;
            }
            // A branch that got these results in their places does not get them twice.
            if self.are_pinned_in_place(&by_name, &appended.calls, deadline).await {
                continue;
            }
            texts.push((place.message, appended.text.clone()));
            inserted.extend(&appended.calls);
            // A turn of the assistant follows: the model has seen these results.
            if place.is_answered && waiting {
                self.late.note_acknowledged(caller, appended.calls.iter().copied());
            }
        }
        // New results go only to the user's present message. Any earlier one is part of a prefix that providers cached.
        let last = places.last().filter(|place| {
            waiting && outline.ends_with_user_text && !place.is_answered && !known.contains_key(&place.anchor)
        });
        // While a tool runs at the provider, no text may follow the turn. A text stored first by another request wins.
        if let Some(place) = last.filter(|_| !paired.takes_only_results())
            && let Some(appended) = self.waiting_texts(&calls, &by_name, &inserted, deadline).await
            && let Some((stored, _)) = self.recall.append_text(caller, place.anchor, appended, deadline).await
        {
            texts.push((place.message, stored.text.clone()));
            inserted.extend(&stored.calls);
        }
        if texts.is_empty() {
            return None;
        }
        let last = places.last().map(|place| place.message);
        let body = catch_core_panic(|| append_texts(paired, plain, &texts).ok())?;
        let texts = LateTexts {
            count: texts.len(),
            calls: inserted,
            is_at_end: last.is_some() && texts.last().map(|(message, _)| *message) == last,
        };
        Some(WithLateTexts { body, texts })
    }

    /// Collects the results to append now: of calls in this body that only a placeholder answers.
    ///
    /// The placeholder may be the proxy's, or a client's text that the result was lost.
    async fn waiting_texts(
        &self,
        calls: &[BodyCall],
        by_name: &CallsByName<'_>,
        inserted: &HashSet<RecordName>,
        deadline: Instant,
    ) -> Option<AppendedText> {
        let waiting = self
            .late
            .waiting_results(self.caller, |name| by_name.contains_key(name), deadline);
        let waiting = waiting.await;
        let (mut texts, mut named, mut room) = (Vec::new(), Vec::new(), APPENDED_BYTES_MAX);
        for (name, call) in waiting.iter().filter(|(name, _)| !inserted.contains(name)) {
            let Some(in_body) = find_in_body(calls, call) else {
                continue;
            };
            // A real result in the body comes first: the model must not read two results of one call.
            if !self.has_placeholder(in_body, deadline).await {
                continue;
            }
            let Some(posted) = &call.posted else { continue };
            let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
            let text = late_text(&id, &tool, &posted.content, posted.failed);
            // A text above the limit is sent alone: it would otherwise wait for ever.
            if named.is_empty() || text.len() <= room {
                room = room.saturating_sub(text.len());
                texts.push(text);
                named.push(*name);
            }
            if named.len() >= APPENDED_CALLS_MAX {
                break;
            }
        }
        let text = texts.join("\n\n");
        (!text.is_empty()).then_some(AppendedText { text, calls: named })
    }

    /// Indexes the calls of a body by both of their names: the ledger's, and that of pins.
    fn index_by_name<'v>(&self, calls: &'v [BodyCall]) -> CallsByName<'v> {
        let lane = self.lane.map(|lane| lane.id);
        let mut by_name = CallsByName::new();
        for call in calls {
            // Stored texts contain the ledger's names, or those of pins if a resend has appended the text.
            for name in [LateStore::call_name(lane, &wanted_result(call)), *call.key.as_bytes()] {
                by_name.entry(name).or_insert(call);
            }
        }
        by_name
    }

    /// Returns `true` if the provider gets a placeholder for the call.
    async fn has_placeholder(&self, call: &BodyCall, deadline: Instant) -> bool {
        match call.answer {
            BodyAnswer::InPlace { is_lost } => is_lost,
            BodyAnswer::Elsewhere => false,
            BodyAnswer::Nothing => matches!(
                self.pinned_answer(call, deadline).await,
                Some(PinnedAnswer::Placeholder(_))
            ),
        }
    }

    /// Returns `true` if each of these calls has a pinned result in its place, and none from the client.
    async fn are_pinned_in_place(&self, by_name: &CallsByName<'_>, calls: &[RecordName], deadline: Instant) -> bool {
        for name in calls {
            let Some(call) = by_name.get(name).filter(|call| call.answer == BodyAnswer::Nothing) else {
                return false;
            };
            if !matches!(self.pinned_answer(call, deadline).await, Some(PinnedAnswer::Result(_))) {
                return false;
            }
        }
        !calls.is_empty()
    }

    /// Returns the pinned answer of a call to which the client sends no result.
    async fn pinned_answer(&self, call: &BodyCall, deadline: Instant) -> Option<PinnedAnswer> {
        // Memory first: only the ledger costs a wait.
        if let Some(known) = self.recall.cached_answer(self.pin_scope(), call.key) {
            return Some(known);
        }
        let mut fetched = self.recall.fetch_answers(self.pin_scope(), &[call.key], deadline).await;
        fetched.remove(&call.key)
    }
}

/// Appends the results of these calls, which the client sends in their places, to the last message.
///
/// Returns `None` if that message contains no user text, or a result cannot be written there.
pub(super) fn append_at_end(
    plain: &Bytes,
    paired: &Paired<'_>,
    calls: &[(CallKey, Placeholder)],
) -> Option<AppendedAtEnd> {
    // Each call is searched in the whole body: the limit bounds the work.
    if calls.len() > APPENDED_CALLS_MAX {
        return None;
    }
    // A message that a later turn answers is part of the prefix, and must stay as it is.
    let place = late_places(paired).pop().filter(|place| !place.is_answered)?;
    let is_last = place.message.saturating_add(1) == paired.message_count();
    // No text may follow while a tool runs at the provider. Only the very last message may still change.
    if paired.takes_only_results() || !is_last {
        return None;
    }
    let answered = paired.answered_calls();
    let text_of = |(key, _): &(CallKey, Placeholder)| {
        let call = answered.iter().find(|call| call.key == *key)?;
        let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
        let result = call.result?;
        let content = std::str::from_utf8(result.content.of(plain)).ok()?;
        Some(late_text(&id, &tool, content, result.failed))
    };
    let texts: Option<Vec<String>> = calls.iter().map(text_of).collect();
    let appended = AppendedText {
        text: texts?.join("\n\n"),
        calls: calls.iter().map(|(call, _)| *call.as_bytes()).collect(),
    };
    // Larger results stay in their places. The text would be resent with every later request.
    if appended.text.len() > APPENDED_BYTES_MAX {
        return None;
    }
    let body = append_texts(paired, plain, &[(place.message, appended.text.clone())]).ok()?;
    Some(AppendedAtEnd {
        body,
        anchor: place.anchor,
        appended,
    })
}

/// Describes a call whose posted result is wanted.
fn wanted_result(call: &BodyCall) -> CallQuery {
    CallQuery {
        id: call.id.clone(),
        tool: call.tool.clone(),
        input_hash: call.input_hash,
    }
}

/// Finds a recorded call in a body: by its exact id first, else by the id's letters and digits.
fn find_in_body<'v>(calls: &'v [BodyCall], recorded: &RecordedCall) -> Option<&'v BodyCall> {
    let fits =
        |call: &&BodyCall| call.tool == recorded.tool && recorded.input.is_none_or(|input| input == call.input_hash);
    // Of several matches none is chosen: a result under the wrong call is worse than a placeholder.
    let only = |is_it: &dyn Fn(&BodyCall) -> bool| {
        let mut found = calls.iter().filter(fits).filter(|call| is_it(call));
        found.next().filter(|_| found.next().is_none())
    };
    // Clients may change the other characters of an id.
    let own = id_letters(&recorded.id);
    only(&|call| call.id == recorded.id).or_else(|| only(&|call| id_letters(&call.id) == own))
}
