//! Late-result context of one request: which calls are recorded, which posted results its body gets, and where they stand.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::catch_core_panic::catch_core_panic;
use crate::{
    auth::Caller,
    conversation::Outline,
    late::{Found, Late, Opened, Wanted, entry::Call},
    ledger::Name,
    recall::{APPENDED_CALLS_MAX, Appended, Recall, Scope},
    repair::{
        Anchor, BodyAnswer, BodyCall, CallKey, Paired, PinnedAnswer, Placeholder, append_texts, id_letters, input_hash,
        is_strong, late_places, late_text,
    },
    session::{Lane, Strength},
    wire::{Format, json::Json, watch::Calls},
};

/// Bytes of late results that one message takes; more wait for the next.
const APPENDED_BYTES_MAX: usize = 256 * 1024;

/// Late results and pinned answers of one caller in one conversation. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LateResults {
    pub(super) late: Late,
    pub(super) recall: Recall,
    pub(super) caller: Caller,
    pub(super) format: Format,
    pub(super) lane: Option<Lane>,
    pub(super) session: Option<[u8; 32]>,
}

/// A body with late results at the end of messages.
#[derive(Debug)]
pub(super) struct WithLateTexts {
    pub(super) body: Bytes,
    pub(super) texts: LateTexts,
}

/// Late results that stand at the end of messages.
#[derive(Debug, Default)]
pub(super) struct LateTexts {
    /// Number of messages that have some.
    pub(super) count: usize,
    /// Calls whose results stand there.
    pub(super) told: HashSet<Name>,
    /// Whether the last place of the body has some.
    pub(super) at_the_end: bool,
}

/// A body with results at the end of its last message, as a resend puts them there.
#[derive(Debug)]
pub(super) struct AppendedAtEnd {
    pub(super) body: Bytes,
    pub(super) anchor: Anchor,
    pub(super) appended: Appended,
}

/// Calls of a body by their ledger names.
type CallsByName<'v> = HashMap<Name, &'v BodyCall>;

impl LateResults {
    /// Returns the owner of pinned answers. A lane that was only guessed identifies no call with a reusable id.
    pub(super) fn scope(&self) -> Scope {
        let certain = self.lane.filter(|lane| lane.strength == Strength::Strong);
        Scope {
            caller: self.caller,
            format: self.format,
            lane: certain.map(|lane| lane.id),
        }
    }

    /// Records the calls of an answer that has ended. Calls of a client that left no longer wait in its lane.
    pub(super) fn record_answer(&self, calls: &Calls, client_left: bool) {
        if !self.late.is_used() {
            return;
        }
        // Calls with reusable ids are recorded once a request shows them, with their input.
        let strong = calls
            .list
            .iter()
            .filter(|call| is_strong(call.id.as_bytes(), call.name.as_bytes()));
        let opened = strong.map(|call| self.opened(call.id.as_bytes(), call.name.as_bytes(), None));
        self.late.record(self.caller, opened);
        if let Some(lane) = self.lane.filter(|_| client_left && !calls.list.is_empty()) {
            self.late.detach(lane.id);
        }
    }

    /// Records the unanswered calls of the last turn that a request shows, and notes the results of the others.
    pub(super) fn record_shown(&self, body: &[u8], outline: &Outline) {
        if !self.late.is_used() {
            return;
        }
        let json = Json::new(body);
        let mut open = Vec::new();
        for call in &outline.last_calls {
            let details = self.format.details(body, call.at);
            let Some(tool) = details.name.map(|name| json.decode(name)) else {
                continue;
            };
            let input = input_hash(details.input.map_or(b"", |span| json.bytes(span)));
            let answer = outline.last_results.iter().find(|answer| answer.id == call.id);
            if answer.is_some_and(|answer| !answer.lost) {
                let wanted = Wanted {
                    id: call.id.to_vec(),
                    tool: tool.to_vec(),
                    input_hash: input,
                };
                let name = Late::name(self.lane.map(|lane| lane.id), &wanted);
                self.late.settled_by_traffic(self.caller, name, &tool);
            } else {
                open.push(self.opened(&call.id, &tool, Some(input)));
            }
        }
        self.late.record(self.caller, open);
    }

    /// Detaches the calls that the lane went on without.
    pub(super) fn detach_lane(&self) {
        if let Some(lane) = self.lane {
            self.late.detach(lane.id);
        }
    }

    fn opened(&self, id: &[u8], tool: &[u8], input: Option<[u8; 32]>) -> Opened {
        Opened {
            lane: self.lane.map(|lane| lane.id),
            session: self.session,
            strength: self.lane.map_or(Strength::Weak, |lane| lane.strength),
            id: id.to_vec(),
            tool: tool.to_vec(),
            input,
        }
    }

    /// Returns the results that services posted for these calls, in their order. None if the ledger does not answer in time.
    pub(super) async fn posted(&self, calls: &[&BodyCall], deadline: Instant) -> Vec<Option<Found>> {
        let wanted: Vec<Wanted> = calls.iter().map(|call| wanted(call)).collect();
        let lane = self.lane.map(|lane| lane.id);
        self.late.results(self.caller, lane, &wanted, deadline).await
    }

    /// Puts late results into a body: earlier ones where they were put before, new ones at its end if `adds` is set.
    ///
    /// Returns `None` if there are none. Results that a later assistant turn has seen are acknowledged.
    pub(super) async fn put_late_texts(
        &self,
        plain: &Bytes,
        paired: &Paired<'_>,
        outline: &Outline,
        adds: bool,
        deadline: Instant,
    ) -> Option<WithLateTexts> {
        let caller = self.caller;
        let is_verified = timeout_at(deadline, self.late.callers().is_proven(caller)).await;
        if !is_verified.unwrap_or(false) {
            return None;
        }
        let known = self.recall.appended(caller, deadline).await?;
        let waiting = adds && self.recall.survives_restart() && self.late.pending(caller) > 0;
        if known.is_empty() && !waiting {
            return None;
        }
        let (places, calls) = catch_core_panic(|| Some((late_places(&paired), paired.all_calls())))?;
        let by_name = self.by_name(&calls);
        let (mut texts, mut told): (Vec<(usize, String)>, HashSet<Name>) = (Vec::new(), HashSet::new());
        for place in &places {
            // The same words may be said elsewhere: an anchor with other calls belongs to another conversation.
            let Some(appended) = known
                .get(&place.anchor)
                .filter(|appended| appended.calls.iter().all(|call| by_name.contains_key(call)))
            else {
                continue;
            };
            // Two branches of one conversation may have come together: a result is told once.
            if !appended.calls.is_empty() && appended.calls.iter().all(|call| told.contains(call)) {
                continue;
            }
            // A branch that was given the result in its place is not told it again.
            if self.stand_in_place(&by_name, &appended.calls, deadline).await {
                continue;
            }
            texts.push((place.message, appended.text.clone()));
            told.extend(&appended.calls);
            if place.is_answered && waiting {
                self.late.acknowledged(caller, appended.calls.iter().copied());
            }
        }
        let last = places.last().filter(|place| {
            waiting && outline.ends_with_user_text && !place.is_answered && !known.contains_key(&place.anchor)
        });
        if let Some(place) = last.filter(|_| !paired.takes_only_results())
            && let Some(appended) = self.waiting_texts(&calls, &by_name, &told, deadline).await
            && let Some((standing, _)) = self.recall.append(caller, place.anchor, appended, deadline).await
        {
            texts.push((place.message, standing.text.clone()));
            told.extend(&standing.calls);
        }
        if texts.is_empty() {
            return None;
        }
        let last = places.last().map(|place| place.message);
        let body = catch_core_panic(|| append_texts(&paired, plain, &texts).ok())?;
        let texts = LateTexts {
            count: texts.len(),
            told,
            at_the_end: last.is_some() && texts.last().map(|(message, _)| *message) == last,
        };
        Some(WithLateTexts { body, texts })
    }

    /// Collects the results to put at the end now: of calls in this body that a placeholder answers, ours or the client's.
    async fn waiting_texts(
        &self,
        calls: &[BodyCall],
        by_name: &CallsByName<'_>,
        told: &HashSet<Name>,
        deadline: Instant,
    ) -> Option<Appended> {
        let waiting = self
            .late
            .waiting(self.caller, |name| by_name.contains_key(name), deadline);
        let waiting = waiting.await;
        let (mut texts, mut named, mut room) = (Vec::new(), Vec::new(), APPENDED_BYTES_MAX);
        for (name, call) in waiting.iter().filter(|(name, _)| !told.contains(name)) {
            let Some(in_body) = find_in_body(calls, call) else {
                continue;
            };
            if !self.has_placeholder(in_body, deadline).await {
                continue;
            }
            let Some(posted) = &call.posted else { continue };
            let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
            let text = late_text(&id, &tool, &posted.content, posted.failed);
            // A text that exceeds the limit by itself goes alone.
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
        (!text.is_empty()).then_some(Appended { text, calls: named })
    }

    /// Indexes the calls of a body by their names: as the ledger records them, and as pins name them.
    fn by_name<'v>(&self, calls: &'v [BodyCall]) -> CallsByName<'v> {
        let lane = self.lane.map(|lane| lane.id);
        let mut by_name = CallsByName::new();
        for call in calls {
            for name in [Late::name(lane, &wanted(call)), *call.key.as_bytes()] {
                by_name.entry(name).or_insert(call);
            }
        }
        by_name
    }

    /// Whether the provider was given a placeholder for the call.
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

    /// Whether the client brings nothing for these calls, and the provider was given the result of each in its place.
    async fn stand_in_place(&self, by_name: &CallsByName<'_>, calls: &[Name], deadline: Instant) -> bool {
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

    /// Returns the answer that the provider was given for a call to which the client brings nothing.
    async fn pinned_answer(&self, call: &BodyCall, deadline: Instant) -> Option<PinnedAnswer> {
        if let Some(known) = self.recall.recalled(self.scope(), call.key) {
            return Some(known);
        }
        let mut fetched = self.recall.fetch(self.scope(), &[call.key], deadline).await;
        fetched.remove(&call.key)
    }
}

/// Puts the results of these calls, which stand in their places, at the end of the last message.
///
/// Returns `None` if that message contains no text of the user, or a result has no content that can be put there.
pub(super) fn append_at_end(
    plain: &Bytes,
    paired: &Paired<'_>,
    calls: &[(CallKey, Placeholder)],
) -> Option<AppendedAtEnd> {
    // Each of them is searched in the whole body.
    if calls.len() > APPENDED_CALLS_MAX {
        return None;
    }
    let place = late_places(&paired).pop().filter(|place| !place.is_answered)?;
    let is_last = place.message.saturating_add(1) == paired.message_count();
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
    let appended = Appended {
        text: texts?.join("\n\n"),
        calls: calls.iter().map(|(call, _)| *call.as_bytes()).collect(),
    };
    if appended.text.len() > APPENDED_BYTES_MAX {
        return None;
    }
    let body = append_texts(&paired, plain, &[(place.message, appended.text.clone())]).ok()?;
    Some(AppendedAtEnd {
        body,
        anchor: place.anchor,
        appended,
    })
}

fn wanted(call: &BodyCall) -> Wanted {
    Wanted {
        id: call.id.clone(),
        tool: call.tool.clone(),
        input_hash: call.input_hash,
    }
}

/// Finds a recorded call in a body: by its exact id first, else by letters and digits if they name one call alone.
fn find_in_body<'v>(calls: &'v [BodyCall], recorded: &Call) -> Option<&'v BodyCall> {
    let fits =
        |call: &&BodyCall| call.tool == recorded.tool && recorded.input.is_none_or(|input| input == call.input_hash);
    let only = |is_it: &dyn Fn(&BodyCall) -> bool| {
        let mut found = calls.iter().filter(fits).filter(|call| is_it(call));
        found.next().filter(|_| found.next().is_none())
    };
    let own = id_letters(&recorded.id);
    only(&|call| call.id == recorded.id).or_else(|| only(&|call| id_letters(&call.id) == own))
}
