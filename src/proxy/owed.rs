//! What a caller is owed: results that services posted for his calls. Which calls are recorded, which result goes into
//! which request, and where it is put.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::{caught::caught, recalled::Unknown};
use crate::{
    auth::Who,
    conversation::Outline,
    late::{Found, Late, Opened, Wanted, entry::Call},
    ledger::Name,
    recall::{APPENDED_CALLS_MAX, Appended, Recall, Scope},
    repair::{
        CallView, Frozen, InBody, RepairPolicy, Views, append, input_hash, is_strong, late_text, letters, places, views,
    },
    session::{Lane, Strength},
    wire::{Format, Wire, json::Json, watch::Calls},
};

/// Bytes of late results that one message takes; more wait for the next.
pub(super) const APPENDED_BYTES_MAX: usize = 256 * 1024;

/// Whose results, and where they are known. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) late: Late,
    pub(super) recall: Recall,
    pub(super) who: Who,
    pub(super) format: Format,
    pub(super) lane: Option<Lane>,
    pub(super) session: Option<[u8; 32]>,
}

/// A body with late results at the end of messages.
#[derive(Debug)]
pub(super) struct WithLate {
    pub(super) body: Bytes,
    pub(super) put: Put,
}

/// The calls that stand in a body, by their names.
type Held<'v> = HashMap<Name, &'v CallView>;

/// What of ours stands at the end of messages.
#[derive(Debug, Default)]
pub(super) struct Put {
    /// How many messages have some.
    pub(super) count: usize,
    /// The calls whose results stand there.
    pub(super) told: HashSet<Name>,
    /// Whether the last place of the body has some.
    pub(super) at_the_end: bool,
}

impl Owed {
    /// Whose calls they are. What was only guessed to be one lane tells no call whose id comes again.
    pub(super) fn scope(&self) -> Scope {
        let told = self.lane.filter(|lane| lane.strength == Strength::Strong);
        Scope {
            who: self.who.principal,
            format: self.format,
            lane: told.map(|lane| lane.id),
        }
    }

    /// The answer has ended: its calls are recorded. Where the client has left, nobody waits in its lane.
    pub(super) fn answered(&self, calls: &Calls, client_left: bool) {
        if !self.late.is_used() {
            return;
        }
        self.emitted(calls);
        if let Some(lane) = self.lane.filter(|_| client_left && !calls.list.is_empty()) {
            self.late.detach(lane.id);
        }
    }

    /// Records calls that the model has made. Those whose ids come again are recorded once a request shows them, with what
    /// they ask for.
    fn emitted(&self, calls: &Calls) {
        let strong = calls
            .list
            .iter()
            .filter(|call| is_strong(call.id.as_bytes(), call.name.as_bytes()));
        let opened = strong.map(|call| self.opened(call.id.as_bytes(), call.name.as_bytes(), None));
        self.late.record(self.who, opened);
    }

    /// Records the calls of the last turn that a request has shown without a result, and notes the results of the others.
    pub(super) fn shown(&self, body: &[u8], outline: &Outline) {
        if !self.late.is_used() {
            return;
        }
        let json = Json::new(body);
        let mut open = Vec::new();
        for call in &outline.asked {
            let details = self.format.details(body, call.at);
            let Some(tool) = details.name.map(|name| json.decode(name)) else {
                continue;
            };
            let input = input_hash(details.input.map_or(b"", |span| json.bytes(span)));
            let answer = outline.answers.iter().find(|answer| answer.id == call.id);
            if answer.is_some_and(|answer| !answer.lost) {
                let wanted = Wanted {
                    id: call.id.to_vec(),
                    tool: tool.to_vec(),
                    input_hash: input,
                };
                let name = Late::name(self.lane.map(|lane| lane.id), &wanted);
                self.late.settled_by_traffic(self.who, name, &tool);
            } else {
                open.push(self.opened(&call.id, &tool, Some(input)));
            }
        }
        self.late.record(self.who, open);
    }

    /// The lane may have gone on without calls of its: then nobody waits for those.
    pub(super) fn went_on(&self, so: bool) {
        if let Some(lane) = self.lane.filter(|_| so) {
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

    /// The results that services posted for these calls, in their order. A ledger that does not answer in time has none.
    pub(super) async fn posted(&self, calls: &[&Unknown], by: Instant) -> Vec<Option<Found>> {
        let wanted = |unknown: &&Unknown| Wanted {
            id: unknown.call.id.clone(),
            tool: unknown.call.tool.clone(),
            input_hash: unknown.call.input,
        };
        let wanted: Vec<Wanted> = calls.iter().map(wanted).collect();
        let lane = self.lane.map(|lane| lane.id);
        self.late.results(self.who.principal, lane, &wanted, by).await
    }

    /// The body with the late results that were put into it before, where they were put, and with new ones at its end. None
    /// where there are none. What a later turn of the assistant has seen is acknowledged. Without `adds` nothing new is put.
    pub(super) async fn with_late(
        &self,
        plain: &Bytes,
        wire: Wire,
        policy: &RepairPolicy,
        outline: &Outline,
        adds: bool,
        by: Instant,
    ) -> Option<WithLate> {
        let who = self.who.principal;
        if !timeout_at(by, self.late.callers().is_proven(who))
            .await
            .unwrap_or(false)
        {
            return None;
        }
        let known = self.recall.appended(who, by).await?;
        let waiting = adds && self.recall.survives_restart() && self.late.pending(who) > 0;
        if known.is_empty() && !waiting {
            return None;
        }
        let (places, body) = caught(|| Some((places(plain, wire), views(plain, wire, policy))))?;
        let held = self.names(&body.calls);
        let (mut texts, mut told): (Vec<(usize, String)>, HashSet<Name>) = (Vec::new(), HashSet::new());
        for place in &places {
            // The same words may be said elsewhere: what is known of other calls is of another conversation.
            let Some(appended) = known
                .get(&place.anchor)
                .filter(|appended| appended.calls.iter().all(|call| held.contains_key(call)))
            else {
                continue;
            };
            // Two branches of one conversation may have come together: a result is told once.
            if !appended.calls.is_empty() && appended.calls.iter().all(|call| told.contains(call)) {
                continue;
            }
            // Nor is one told here that a branch was given where its call stands.
            if self.stand_in_place(&held, &appended.calls, by).await {
                continue;
            }
            texts.push((place.message, appended.text.clone()));
            told.extend(&appended.calls);
            if place.is_answered && waiting {
                self.late.acknowledged(who, appended.calls.iter().copied());
            }
        }
        let last = places
            .last()
            .filter(|place| waiting && outline.speaks && !place.is_answered && !known.contains_key(&place.anchor));
        if let Some(place) = last
            && let Some(appended) = self.next(&body, &held, &told, by).await
            && let Some((standing, _)) = self.recall.append(who, place.anchor, appended, by).await
        {
            texts.push((place.message, standing.text.clone()));
            told.extend(&standing.calls);
        }
        if texts.is_empty() {
            return None;
        }
        let count = texts.len();
        let last = places.last().map(|place| place.message);
        let at_the_end = last.is_some() && texts.last().map(|(message, _)| *message) == last;
        let body = caught(|| append(plain, wire, &texts).ok())?;
        let put = Put {
            count,
            told,
            at_the_end,
        };
        Some(WithLate { body, put })
    }

    /// The results that are put at the end now: of calls that stand in this body and were answered by a placeholder, ours
    /// or the client's own.
    async fn next(&self, body: &Views, held: &Held<'_>, told: &HashSet<Name>, by: Instant) -> Option<Appended> {
        if body.only_results {
            return None;
        }
        let waiting = self
            .late
            .waiting(self.who.principal, |name| held.contains_key(name), by)
            .await;
        let (mut texts, mut calls, mut room) = (Vec::new(), Vec::new(), APPENDED_BYTES_MAX);
        for (name, call) in waiting.iter().filter(|(name, _)| !told.contains(name)) {
            let Some(view) = Self::in_body(&body.calls, call) else {
                continue;
            };
            if !self.was_invented(view, by).await {
                continue;
            }
            let Some(posted) = &call.posted else { continue };
            let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
            let text = late_text(&id, &tool, &posted.content, posted.failed);
            // One that is larger than all room goes alone.
            if calls.is_empty() || text.len() <= room {
                room = room.saturating_sub(text.len());
                texts.push(text);
                calls.push(*name);
            }
            if calls.len() >= APPENDED_CALLS_MAX {
                break;
            }
        }
        let text = texts.join("\n\n");
        (!text.is_empty()).then_some(Appended { text, calls })
    }

    /// The calls that stand in a body, by their names: as they are recorded, and as something is recalled of them.
    fn names<'v>(&self, calls: &'v [CallView]) -> Held<'v> {
        let lane = self.lane.map(|lane| lane.id);
        let mut held = Held::new();
        for view in calls {
            let wanted = Wanted {
                id: view.id.clone(),
                tool: view.tool.clone(),
                input_hash: view.input,
            };
            for name in [Late::name(lane, &wanted), *view.key.as_bytes()] {
                held.entry(name).or_insert(view);
            }
        }
        held
    }

    /// The call in a body: exactly by its id first, else by letters and digits, where those are one call's alone.
    fn in_body<'v>(views: &'v [CallView], call: &Call) -> Option<&'v CallView> {
        let fits = |view: &&CallView| view.tool == call.tool && call.input.is_none_or(|input| input == view.input);
        let only = |is_it: &dyn Fn(&CallView) -> bool| {
            let mut found = views.iter().filter(fits).filter(|view| is_it(view));
            found.next().filter(|_| found.next().is_none())
        };
        let own = letters(&call.id);
        only(&|view| view.id == call.id).or_else(|| only(&|view| letters(&view.id) == own))
    }

    /// Whether the provider was given a placeholder for the call.
    async fn was_invented(&self, view: &CallView, by: Instant) -> bool {
        match view.answer {
            InBody::AtHome { lost } => lost,
            InBody::Elsewhere => false,
            InBody::Nothing => matches!(self.given(view, by).await, Some(Frozen::Placeholder(_))),
        }
    }

    /// Whether the client brings nothing for these calls, and the provider was given the result of each in its place.
    async fn stand_in_place(&self, held: &Held<'_>, calls: &[Name], by: Instant) -> bool {
        for name in calls {
            let Some(view) = held.get(name).filter(|view| view.answer == InBody::Nothing) else {
                return false;
            };
            if !matches!(self.given(view, by).await, Some(Frozen::Result(_))) {
                return false;
            }
        }
        !calls.is_empty()
    }

    /// What the provider was given for a call to which the client brings nothing.
    async fn given(&self, view: &CallView, by: Instant) -> Option<Frozen> {
        match self.recall.recalled(self.scope(), view.key) {
            Some(known) => Some(known),
            None => self.recall.fetch(self.scope(), &[view.key], by).await.remove(&view.key),
        }
    }
}
