//! Delivery of posted results into a body: those that belong at the end of its messages, and where.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{catch_core_panic::catch_core_panic, late_results::LateResults};
use crate::{
    conversation::Outline,
    digest::digest_of,
    late::{LateStore, NamedResult, matching::is_call_of_body, records::RecordedCall},
    ledger::{RecordName, Unread},
    recall::{APPENDED_CALLS_MAX, AppendedText},
    repair::{
        Anchor, BodyAnswer, BodyCall, CallKey, LatePlace, LateText, Paired, PinnedAnswer, RealResult, append_texts,
        block_content, contains_result, id_letters, late_media, late_places, late_text, shorten_result, text_contains,
    },
};

/// Maximum bytes of late results in one message. More wait for the next message.
pub(super) const APPENDED_BYTES_MAX: usize = 256 * 1024;

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
    /// The late text of the message that the request asks about. `None` if it has none.
    pub(super) last: Option<LastText>,
}

/// The late text of the last message, which a provider may still refuse.
#[derive(Clone, Debug)]
pub(super) struct LastText {
    pub(super) anchor: Anchor,
    /// Calls whose results it contains.
    pub(super) calls: Vec<RecordName>,
    /// The body without it.
    pub(super) body_without: Bytes,
}

/// Wait of one request for the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct LedgerWait {
    pub(super) deadline: Instant,
    /// `true` if the ledger is asked even in its cooldown.
    pub(super) is_patient: bool,
}

/// Calls of a body by their names.
type CallsByName<'v> = HashMap<RecordName, &'v BodyCall>;

/// Late texts with the messages that they belong to.
#[derive(Debug, Default)]
struct PlacedTexts {
    texts: Vec<(usize, LateText)>,
    /// Calls whose results they are.
    calls: HashSet<RecordName>,
    /// The anchor and the calls of the last text. `None` if a turn of the assistant follows it.
    last: Option<(Anchor, Vec<RecordName>)>,
}

impl PlacedTexts {
    fn add(&mut self, place: &LatePlace, appended: &AppendedText) {
        self.texts.push((place.message, appended.late.clone()));
        self.calls.extend(&appended.calls);
        self.last = (!place.is_answered).then(|| (place.anchor, appended.calls.clone()));
    }

    /// Returns the body with the texts. `None` if there are none.
    fn append_to(self, plain: &Bytes, paired: &Paired<'_>) -> Option<WithLateTexts> {
        let append = |texts: &[(usize, LateText)]| catch_core_panic(|| append_texts(paired, plain, texts).ok());
        let (_, others) = self.texts.split_last()?;
        let body = append(&self.texts)?;
        let last = self.last.and_then(|(anchor, calls)| {
            let body_without = if others.is_empty() {
                Some(plain.clone())
            } else {
                append(others)
            };
            Some(LastText {
                anchor,
                calls,
                body_without: body_without?,
            })
        });
        let texts = LateTexts {
            count: self.texts.len(),
            calls: self.calls,
            last,
        };
        Some(WithLateTexts { body, texts })
    }
}

/// Delivery of the results of one caller into one body.
pub(super) struct LateDelivery<'r> {
    pub(super) results: &'r LateResults,
    pub(super) wait: LedgerWait,
}

impl LateDelivery<'_> {
    /// Puts late results into a body: earlier ones in their places again, new ones at its end if `adds` is set.
    ///
    /// Returns `None` if there are none. Acknowledges results that a later assistant turn has seen.
    pub(super) async fn insert_late_texts(
        &self,
        plain: &Bytes,
        paired: &Paired<'_>,
        outline: &Outline,
        adds: bool,
    ) -> Result<Option<WithLateTexts>, Unread> {
        let caller = self.results.caller;
        // What a restart would forget is not put in: later requests would not contain the same prefix.
        let in_loops = self.results.late.delivers_in_loops();
        let ends_with_user = outline.ends_with_user_text || (in_loops && !outline.last_results.is_empty());
        let may_add =
            adds && ends_with_user && self.results.recall.survives_restart() && self.results.late.has_posted(caller);
        // Most requests end here, without a wait.
        if !may_add && !self.results.recall.may_have_texts(caller) {
            return Ok(None);
        }
        // Boxed, because it is rare and the future of every exchange would be larger otherwise.
        Box::pin(self.find_and_insert(plain, paired, may_add)).await
    }

    /// Does the work of [`LateDelivery::insert_late_texts`]. New results are put in if `may_add` is set.
    async fn find_and_insert(
        &self,
        plain: &Bytes,
        paired: &Paired<'_>,
        may_add: bool,
    ) -> Result<Option<WithLateTexts>, Unread> {
        let caller = self.results.caller;
        let LedgerWait { deadline, is_patient } = self.wait;
        let in_loops = self.results.late.delivers_in_loops();
        // An unverified caller has no records.
        if !self.results.late.callers().verify(caller, deadline).await? {
            return Ok(None);
        }
        let Some((places, calls)) = catch_core_panic(|| Some((late_places(paired, in_loops), paired.all_calls())))
        else {
            return Ok(None);
        };
        let anchors: Vec<Anchor> = places.iter().flat_map(LatePlace::anchors).collect();
        let recall = &self.results.recall;
        let known = recall.texts_at(caller, &anchors, is_patient, deadline).await?;
        let mut texts = self.find_stored(&places, &calls, &known).await?;
        // New results go only to the user's present message. Any earlier one is part of a prefix that providers cached.
        let last = places
            .last()
            .filter(|place| may_add && !place.is_answered && !known.contains_key(&place.anchor));
        // While a tool runs at the provider, no text may follow the turn. A text stored first by another request wins.
        if let Some(place) = last.filter(|_| !paired.takes_only_results())
            && let Some(appended) = self.waiting_texts(plain, &calls, &texts.calls, deadline).await
            && let Some((stored, _)) = recall.append_text(caller, place.anchor, appended, deadline).await
        {
            texts.add(place, &stored);
        }
        Ok(texts.append_to(plain, paired))
    }

    /// Finds the texts that earlier requests have put at these places. Acknowledges those that the model has seen.
    async fn find_stored(
        &self,
        places: &[LatePlace],
        calls: &[BodyCall],
        known: &HashMap<Anchor, Arc<AppendedText>>,
    ) -> Result<PlacedTexts, Unread> {
        let (mut texts, by_name) = (PlacedTexts::default(), self.index_by_name(calls));
        for place in places {
            // Another conversation may have the same text. The anchor belongs to this one only if its calls do.
            let is_its = |appended: &&Arc<AppendedText>| appended.calls.iter().all(|call| by_name.contains_key(call));
            let mut stored = place.anchors().into_iter().filter_map(|anchor| known.get(&anchor));
            let Some(appended) = stored.find(is_its) else {
                continue;
            };
            // Two branches of a conversation may have been merged: each result is inserted once.
            if !appended.calls.is_empty() && appended.calls.iter().all(|call| texts.calls.contains(call)) {
                continue;
            }
            // A branch that got these results in their places does not get them twice.
            if self.are_pinned_in_place(&by_name, appended, self.wait.deadline).await? {
                continue;
            }
            texts.add(place, appended);
            // A turn of the assistant follows: the model has seen these results.
            if place.is_answered {
                let late = &self.results.late;
                late.note_acknowledged(self.results.caller, appended.calls.iter().copied());
            }
        }
        Ok(texts)
    }

    /// Collects the results to append now: of calls in this body whose answer there does not contain the result.
    ///
    /// That answer is a placeholder of the proxy, a client's text that the result was lost, or one that the client gave
    /// before the result came, such as "job started".
    async fn waiting_texts(
        &self,
        plain: &Bytes,
        calls: &[BodyCall],
        inserted: &HashSet<RecordName>,
        deadline: Instant,
    ) -> Option<AppendedText> {
        let mut lacking = self.find_lacking(plain, calls, inserted);
        let brought = self.retain_lacking(&mut lacking, deadline).await.ok()?;
        lacking.truncate(APPENDED_CALLS_MAX);
        let mut names: Vec<RecordName> = lacking.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return None;
        }
        let found = self
            .results
            .late
            .read_posted(self.results.caller, &names, deadline)
            .await
            .ok()?;
        let chosen = choose_that_fit(found, self.results.late.result_bytes_max());
        let contents = self
            .results
            .late
            .read_contents(self.results.caller, &chosen, deadline)
            .await
            .ok()?;
        let (mut texts, mut media, mut appended) = (Vec::new(), Vec::new(), Vec::new());
        for ((name, call), content) in chosen.iter().zip(contents) {
            let in_body = find_in_body(calls, call);
            // Of two calls whose ids have the same letters and digits, only one owns the result, and may have it.
            let lacks = |in_body: &&BodyCall| {
                let is_it = |(of, lacking): &(RecordName, &BodyCall)| of == name && lacking.key == in_body.key;
                lacking.iter().any(is_it) && is_call_of_body(call, &self.results.query_of(in_body))
            };
            let in_body = in_body.filter(lacks);
            let (Some(in_body), Some(content), Some(posted)) = (in_body, content, &call.posted) else {
                continue;
            };
            if let Some((answer, hash)) = real_answer(in_body, plain)
                && contains_result(answer, &content)
            {
                self.results.late.note_contained(self.results.caller, *name, hash);
                continue;
            }
            let block = brought.get(&in_body.key).and_then(|block| block_content(block));
            if block.is_some_and(|block| contains_result(block, &content)) {
                continue;
            }
            let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
            let content = shorten_result(&content, &id, self.results.late.result_bytes_max());
            texts.push(late_text(&id, &tool, &content, posted.failed));
            media.extend(late_media(self.results.format, &content));
            appended.push(*name);
        }
        self.results
            .late
            .note_given(self.results.caller, appended.iter().copied());
        let text = texts.join("\n\n");
        let late = LateText { text, media };
        (!late.text.is_empty()).then_some(AppendedText { late, calls: appended })
    }

    /// Finds the calls that have a posted result which their answer in this body may lack.
    fn find_lacking<'c>(
        &self,
        plain: &Bytes,
        calls: &'c [BodyCall],
        inserted: &HashSet<RecordName>,
    ) -> Vec<(RecordName, &'c BodyCall)> {
        let lane = self.results.lane.map(|lane| lane.id);
        let names = |call: &BodyCall| LateStore::call_names(lane, &self.results.query_of(call));
        let mut lacking = Vec::new();
        for call in calls {
            let names = names(call).into_iter().filter(|name| !inserted.contains(name));
            let posted = self.results.late.find_posted(self.results.caller, names);
            let lacks = posted
                .into_iter()
                .filter(|(_, known)| !is_contained_in(*known, call, plain));
            lacking.extend(lacks.map(|(name, _)| (name, call)));
        }
        lacking
    }

    /// Removes the calls without an answer in the body, unless a placeholder or an earlier result of the client stands for
    /// their answer. Returns these results.
    async fn retain_lacking(
        &self,
        calls: &mut Vec<(RecordName, &BodyCall)>,
        deadline: Instant,
    ) -> Result<HashMap<CallKey, String>, Unread> {
        let open = calls.iter().filter(|(_, call)| call.answer == BodyAnswer::Nothing);
        let keys: Vec<CallKey> = open.map(|(_, call)| call.key).collect();
        let pinned = self.pinned_answers(&keys, deadline).await?;
        calls.retain(|(_, call)| match call.answer {
            BodyAnswer::InPlace { .. } => true,
            BodyAnswer::Elsewhere => false,
            // A call without any answer yet gets its result in its place.
            BodyAnswer::Nothing => matches!(
                pinned.get(&call.key),
                Some(PinnedAnswer::Placeholder(_) | PinnedAnswer::Result(RealResult::Block(_)))
            ),
        });
        let brought = pinned.into_iter().filter_map(|(key, answer)| match answer {
            PinnedAnswer::Result(RealResult::Block(block)) => Some((key, block)),
            _ => None,
        });
        Ok(brought.collect())
    }

    /// Indexes the calls of a body by both of their names: the ledger's, and that of pins.
    fn index_by_name<'v>(&self, calls: &'v [BodyCall]) -> CallsByName<'v> {
        let lane = self.results.lane.map(|lane| lane.id);
        let mut by_name = CallsByName::new();
        for call in calls {
            // Stored texts contain the ledger's names, or those of pins if a resend has appended the text.
            let names = LateStore::call_names(lane, &self.results.query_of(call));
            for name in names.into_iter().chain([*call.key.as_bytes()]) {
                by_name.entry(name).or_insert(call);
            }
        }
        by_name
    }

    /// Returns `true` if each result of a text is pinned in the place of its call, and none is from the client.
    async fn are_pinned_in_place(
        &self,
        by_name: &CallsByName<'_>,
        appended: &AppendedText,
        deadline: Instant,
    ) -> Result<bool, Unread> {
        let mut calls = Vec::new();
        for name in &appended.calls {
            let Some(call) = by_name.get(name).filter(|call| call.answer == BodyAnswer::Nothing) else {
                return Ok(false);
            };
            calls.push(*call);
        }
        let keys: Vec<CallKey> = calls.iter().map(|call| call.key).collect();
        let pinned = self.pinned_answers(&keys, deadline).await?;
        // A result that the client once brought may stand there, and differ from the posted one.
        let is_same = |call: &&BodyCall| match pinned.get(&call.key) {
            Some(PinnedAnswer::Result(real)) => text_contains(&appended.late.text, call, real),
            _ => false,
        };
        Ok(!calls.is_empty() && calls.iter().all(is_same))
    }

    /// Returns the pinned answers of calls to which the client sends no result.
    async fn pinned_answers(
        &self,
        calls: &[CallKey],
        deadline: Instant,
    ) -> Result<HashMap<CallKey, PinnedAnswer>, Unread> {
        let scope = self.results.pin_scope();
        let cached = |key: &CallKey| Some((*key, self.results.recall.cached_answer(scope, *key)?));
        let mut pinned: HashMap<CallKey, PinnedAnswer> = calls.iter().filter_map(cached).collect();
        // Memory first: only the ledger costs a wait.
        let missing: Vec<CallKey> = calls.iter().copied().filter(|key| !pinned.contains_key(key)).collect();
        if !missing.is_empty() {
            pinned.extend(self.results.recall.fetch_answers(scope, &missing, deadline).await?);
        }
        Ok(pinned)
    }
}

/// Returns the first of these results that fit into one message. The others wait for the next message.
fn choose_that_fit(results: Vec<NamedResult>, result_bytes_max: usize) -> Vec<NamedResult> {
    let mut chosen = Vec::new();
    let mut room = APPENDED_BYTES_MAX as u64;
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

/// Returns the client's own answer of a call and its hash. `None` if there is none, or only a text that it was lost.
fn real_answer<'b>(call: &BodyCall, body: &'b Bytes) -> Option<(&'b str, u64)> {
    let result = call
        .result
        .filter(|_| call.answer == BodyAnswer::InPlace { is_lost: false })?;
    let content = result.content.of(body);
    let digest = digest_of([content]);
    let (hash, _) = digest.split_first_chunk()?;
    Some((std::str::from_utf8(content).ok()?, u64::from_le_bytes(*hash)))
}

/// Returns `true` if the client's answer of a call is known to contain the result.
fn is_contained_in(known: Option<u64>, call: &BodyCall, body: &Bytes) -> bool {
    known.is_some() && real_answer(call, body).map(|(_, hash)| hash) == known
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
