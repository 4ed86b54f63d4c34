//! Insertion of posted results into a body: those that belong at the end of its messages, and where.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    before_send::BeforeSend,
    carried_results::carried_texts,
    lacking_results::{BodyCalls, choose_that_fit},
};
use crate::{
    conversation::Outline,
    ledger::{CommitStep, RecordName, Unread},
    proxy::catch_core_panic::catch_core_panic,
    recall::AppendedText,
    repair::{
        Anchor, BodyCall, BodyResult, CallKey, Insertions, LatePlace, LateText, Paired, PinnedResult, PlaceOptions,
        late_media, late_places, late_text, requested_result, text_contains,
    },
};

/// Maximum bytes of late results in one message. More wait for the next message.
pub(in crate::proxy) const APPENDED_BYTES_MAX: usize = 256 * 1024;

/// Late results at the end of messages.
#[derive(Debug, Default)]
pub(in crate::proxy) struct LateTexts {
    /// The texts, each with the index that its message has without them.
    pub(in crate::proxy) placed: Vec<(usize, LateText)>,
    /// Calls whose results they are.
    pub(in crate::proxy) calls: HashSet<RecordName>,
    /// The late text of the message that the request asks about. `None` if it has none.
    pub(in crate::proxy) last: Option<LastText>,
}

/// The late text of the last message, which a provider may still refuse.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct LastText {
    pub(in crate::proxy) anchor: Anchor,
    pub(in crate::proxy) appended: Arc<AppendedText>,
    /// The body without it.
    pub(in crate::proxy) body_without: Bytes,
}

impl LastText {
    /// Returns the text as it is stored, with its anchor.
    pub(in crate::proxy) fn stored_text(&self) -> (Anchor, Arc<AppendedText>) {
        (self.anchor, Arc::clone(&self.appended))
    }
}

/// Late texts with the messages that they belong to.
#[derive(Debug, Default)]
pub(in crate::proxy) struct PlacedTexts {
    texts: Vec<(usize, LateText)>,
    /// Calls whose results they are.
    calls: HashSet<RecordName>,
    /// The last text with its anchor. `None` if a turn of the assistant follows it.
    last: Option<(Anchor, Arc<AppendedText>)>,
}

impl PlacedTexts {
    fn add(&mut self, place: &LatePlace, anchor: Anchor, appended: &Arc<AppendedText>) {
        self.texts.push((place.message, appended.late.clone()));
        self.calls.extend(&appended.calls);
        self.last = (!place.is_answered).then(|| (anchor, Arc::clone(appended)));
    }

    /// Returns the body with the texts. `None` if there are none, or the body is not JSON.
    pub(in crate::proxy) fn append_to(self, plain: &Bytes, paired: &Paired<'_>) -> Option<(Bytes, LateTexts)> {
        let append = |texts: &[(usize, LateText)]| {
            let insertions = Insertions { texts, values: &[] };
            catch_core_panic(|| insertions.put_into(paired, plain).ok())
        };
        let (_, others) = self.texts.split_last()?;
        let body = append(&self.texts)?;
        let last = self.last.and_then(|(anchor, appended)| {
            let body_without = if others.is_empty() {
                Some(plain.clone())
            } else {
                append(others)
            };
            Some(LastText {
                anchor,
                appended,
                body_without: body_without?,
            })
        });
        let texts = LateTexts {
            placed: self.texts,
            calls: self.calls,
            last,
        };
        Some((body, texts))
    }
}

impl BeforeSend<'_> {
    /// Finds the late results that a body gets: earlier ones in their places again, new ones at its end if `adds` is set.
    ///
    /// Empty if there are none. Acknowledges results that a later assistant turn has seen.
    pub(in crate::proxy) async fn place_late_texts(
        &self,
        plain: &Bytes,
        paired: &Paired<'_>,
        outline: &Outline,
        adds: bool,
    ) -> Result<PlacedTexts, Unread> {
        let caller = self.results.caller;
        // What a restart would forget is not put in: later requests would not contain the same prefix.
        let in_loops = self.results.late.delivers_in_loops();
        let ends_with_user = outline.ends_with_user_text || (in_loops && !outline.last_results.is_empty());
        let recall = &self.path.recall;
        let may_add =
            adds && ends_with_user && recall.survives_restart() && self.results.late.calls().has_posted(caller);
        // Most requests end here, without a wait.
        if !may_add && !recall.may_have_texts(caller) {
            return Ok(PlacedTexts::default());
        }
        // Boxed, because it is rare and the future of every exchange would be larger otherwise.
        Box::pin(self.find_and_place(plain, paired, may_add, outline.declares_tools)).await
    }

    /// Does the work of [`BeforeSend::place_late_texts`]. New results are added if `may_add` is set.
    async fn find_and_place(
        &self,
        plain: &Bytes,
        paired: &Paired<'_>,
        may_add: bool,
        declares_tools: bool,
    ) -> Result<PlacedTexts, Unread> {
        let caller = self.results.caller;
        let (deadline, is_patient) = (self.deadline, self.is_patient);
        // An unverified caller has no records.
        if !self.path.callers.verify(caller, deadline).await? {
            return Ok(PlacedTexts::default());
        }
        let noted = self.results.noted_calls(deadline).await?;
        let lane = self.results.certain_lane();
        let options = PlaceOptions {
            in_loops: self.results.late.delivers_in_loops(),
            before_turns: lane.is_some(),
        };
        let Some((places, calls)) = catch_core_panic(|| Some((late_places(paired, options), paired.all_calls())))
        else {
            return Ok(PlacedTexts::default());
        };
        // A request without tools is none of the conversation: clients ask for titles and topics under the same session.
        let noted = if declares_tools { &noted[..] } else { &[] };
        let calls = BodyCalls::new(*self, plain, &calls, noted, paired.has_compaction());
        let in_lane = |place: &LatePlace| Some(place.anchor_in_lane(lane?.as_bytes()));
        let anchors: Vec<Anchor> = places
            .iter()
            .flat_map(|place| place.anchors().into_iter().chain(in_lane(place)))
            .collect();
        let recall = &self.path.recall;
        let known = recall.texts_at(caller, &anchors, is_patient, deadline).await?;
        let mut texts = self.find_stored(&places, &calls, &known).await?;
        // New results go only to the user's present message. Any earlier one is part of a prefix that providers cached.
        let has_none = |place: &&LatePlace| {
            let in_lane = in_lane(place).is_some_and(|anchor| known.contains_key(&anchor));
            !in_lane && !known.contains_key(&place.anchor)
        };
        let last = places
            .last()
            .filter(|place| may_add && !place.is_answered)
            .filter(has_none);
        // While a tool runs at the provider, no text may follow the turn. A text stored first by another request wins.
        if let Some(place) = last.filter(|_| !paired.takes_only_results())
            && let Some((appended, marks)) = self.texts_to_add(paired, &calls, &texts.calls).await
        {
            let is_in_body = appended.calls.iter().all(|call| calls.find(call).is_some());
            let anchor = in_lane(place).filter(|_| !is_in_body).unwrap_or(place.anchor);
            if let Some((stored, _)) = recall.append_text(caller, anchor, appended, marks, deadline).await {
                texts.add(place, anchor, &stored);
            }
        }
        Ok(texts)
    }

    /// Finds the texts that earlier requests have put at these places. Acknowledges those that the model has seen.
    async fn find_stored(
        &self,
        places: &[LatePlace],
        calls: &BodyCalls<'_>,
        known: &HashMap<Anchor, Arc<AppendedText>>,
    ) -> Result<PlacedTexts, Unread> {
        let (mut found, mut inserted) = (Vec::new(), HashSet::<RecordName>::new());
        // The text of a later message was made without those before it: another branch has them, or their request failed.
        for place in places.iter().rev() {
            // Another conversation may have the same text. The anchor belongs to this one only if its calls do.
            let is_its = |(_, appended): &(Anchor, &Arc<AppendedText>)| {
                appended.calls.iter().all(|call| calls.find(call).is_some())
            };
            let stored = |anchor| Some((anchor, known.get(&anchor)?));
            let by_calls = place.anchors().into_iter().filter_map(stored).find(is_its);
            let in_lane = || stored(place.anchor_in_lane(self.results.certain_lane()?.as_bytes()));
            let Some((anchor, appended)) = by_calls.or_else(in_lane) else {
                continue;
            };
            if appended.calls.iter().any(|call| inserted.contains(call)) {
                continue;
            }
            // A branch that got these results in their places does not get them twice.
            if self.are_pinned_in_place(calls, appended).await? {
                continue;
            }
            inserted.extend(&appended.calls);
            found.push((place, anchor, appended));
        }
        let mut texts = PlacedTexts::default();
        for (place, anchor, appended) in found.into_iter().rev() {
            texts.add(place, anchor, appended);
            // A turn of the assistant follows: the model has seen these results.
            if place.is_answered {
                let late = &self.results.late;
                late.calls()
                    .note_acknowledged(self.results.caller, appended.calls.iter().copied());
            }
        }
        Ok(texts)
    }

    /// Collects the results to append now, and the steps that mark them as sent. Only the beginning of a conversation gets those of an earlier one.
    async fn texts_to_add(
        &self,
        paired: &Paired<'_>,
        calls: &BodyCalls<'_>,
        inserted: &HashSet<RecordName>,
    ) -> Option<(AppendedText, Vec<CommitStep>)> {
        let own = self.waiting_texts(calls, inserted).await;
        if own.is_some() || !self.results.begins_conversation || paired.has_assistant_turn() {
            return own;
        }
        // Boxed, because it is rare.
        Box::pin(carried_texts(self.results, self.deadline)).await
    }

    /// Collects the results to append now: of calls whose answer in this body does not contain the result, and of calls
    /// that a compaction has removed.
    ///
    /// That answer is a placeholder of the proxy, a client's text that the result was lost, or one that the client gave
    /// before the result came, such as "job started".
    async fn waiting_texts(
        &self,
        calls: &BodyCalls<'_>,
        inserted: &HashSet<RecordName>,
    ) -> Option<(AppendedText, Vec<CommitStep>)> {
        let lacking = calls.find_lacking(inserted).await.ok()?;
        let names = lacking.names();
        if names.is_empty() {
            return None;
        }
        let (late, caller, deadline) = (&self.results.late, self.results.caller, self.deadline);
        let found = late.calls().read_posted(caller, &names, deadline).await.ok()?;
        let chosen = choose_that_fit(found, late.result_bytes_max(), APPENDED_BYTES_MAX);
        let read = late.calls().read_for_request(caller, &chosen, deadline).await.ok()?;
        let (mut texts, mut media, mut given, mut marks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (result, read) in chosen.iter().zip(read) {
            let Some((content, read, call)) = read.and_then(|(content, read)| {
                let call = calls.confirm_lacking(&lacking, result, &content)?;
                Some((content, read, call))
            }) else {
                continue;
            };
            let (_, recorded) = result;
            let (id, tool) = (
                String::from_utf8_lossy(&recorded.id),
                String::from_utf8_lossy(&recorded.tool),
            );
            let content = requested_result(&content, &id, late.result_bytes_max());
            let failed = recorded.posted.as_ref().is_some_and(|posted| posted.failed);
            let text = late_text(&id, &tool, &content, failed, call);
            texts.push(text);
            media.extend(late_media(self.scope.format, &content));
            given.push(*read.call());
            marks.extend(read.into_mark());
        }
        let text = texts.join("\n\n");
        let late = LateText { text, media };
        (!late.text.is_empty()).then_some((AppendedText { late, calls: given }, marks))
    }

    /// Returns `true` if each result of a text is pinned in the place of its call, and none is from the client.
    async fn are_pinned_in_place(&self, body: &BodyCalls<'_>, appended: &AppendedText) -> Result<bool, Unread> {
        let mut calls = Vec::new();
        for name in &appended.calls {
            let Some(call) = body.find(name).filter(|call| call.in_body == BodyResult::Nothing) else {
                return Ok(false);
            };
            calls.push(call);
        }
        let keys: Vec<CallKey> = calls.iter().map(|call| call.key).collect();
        let pinned = self.pinned_results(&keys).await?;
        // A result that the client once brought may stand there, and differ from the posted one.
        let is_same = |call: &&BodyCall| match pinned.get(&call.key) {
            Some(PinnedResult::Result(real)) => text_contains(&appended.late.text, call, real),
            _ => false,
        };
        Ok(!calls.is_empty() && calls.iter().all(is_same))
    }
}
