//! The plan of one body: what is known for its open calls is looked up, put in, and pinned before it is sent.

use bytes::Bytes;
use http::HeaderMap;

use super::{
    body_reader::{BodyReader, ReadBody},
    content_coding::ContentCoding,
    context::RequestContext,
    pending_pins::PendingPins,
    planned_body::{Payload, PlannedBody, SentBody},
    received_body::ReceivedBody,
    repeat_watch::watch_calls,
    thinking_lookup,
};
use crate::{
    conversation::Outline,
    proxy::{
        catch_core_panic::{catch_core_panic, catch_read},
        continuity::{RequestContinuity, ReturnedValues},
        fact_scope::FactScope,
        late_results::{BeforeSend, LastText, LateTexts, PlacedTexts},
        mends::{self, BodyMends},
    },
    repair::{Paired, RepairReport},
    server::budget::{BodyShare, yield_if_heavy},
    splice::Segments,
    telemetry::events::MadeMend,
    wire::Unreadable,
};

/// Memory of each piece of a repaired body: its handle, and what is noted about the call that it answers.
const PIECE_BYTES: usize = 128;
/// Bytes that a repair may add without being counted: 256 KiB.
const UNCOUNTED_BYTES_MAX: usize = 256 * 1024;

/// Planner of one body.
pub(super) struct BodyPlanner<'x> {
    pub(super) reader: BodyReader<'x>,
    pub(super) headers: &'x HeaderMap,
    pub(super) received: &'x ReceivedBody,
    /// `true` if the request asks for the conversation's next turn. Counts, batches and compactions use what is known,
    /// but pin nothing.
    pub(super) asks_for_turn: bool,
    /// `true` in strict mode: no late result is put at the end of a message, and none is marked as contained in the
    /// request.
    pub(super) is_strict: bool,
}

impl BodyPlanner<'_> {
    /// Puts late results and values into the body, and plans it. What the plan assigns is pinned before it is sent.
    ///
    /// `planned` is the body as it came, and stays that if the plan fails.
    pub(super) async fn plan_body(
        &self,
        read: Box<ReadBody<'_>>,
        planned: &mut PlannedBody,
        before: BeforeSend<'_>,
    ) -> Result<RepairReport, Unreadable> {
        let deadline = before.deadline;
        // Declared first, because the pairing of `read` may borrow it.
        let inserted;
        // Kept in its box, so that the future of the exchange does not store it at every wait.
        let mut read = read;
        let context = &*planned.context;
        let (reader, caller, learned) = (self.reader, context.caller, read.learned);
        self.note_history(&read.paired, &read.outline, context, before).await;
        // Only after a restart, for a caller whose thinking was refused before: the bytes must stay the accepted ones.
        if thinking_lookup::load_thinking_facts(reader.call_memory(caller), reader.policy, &read.paired, deadline).await
        {
            let parsed = read.paired.into_parsed();
            read.paired = reader.pair_body(caller, learned, parsed)?;
        }
        // A guessed lane is left out: under a wrong one, calls with reusable ids would share their results.
        let conversation = before.scope.lane.map(|lane| *lane.as_bytes());
        read.paired.set_conversation(conversation);
        if before.is_patient {
            // Boxed, because it is rare.
            let (records, posted) = Box::pin(before.read_ahead(&read.paired)).await;
            (read.call_records, read.are_texts_unread) = (records, posted.is_err());
        }
        // Keys of values are made from the client's own bytes, so the search comes before any edit.
        let ReadBody { continuity, paired, .. } = &mut *read;
        let values = match continuity {
            Some(continuity) => continuity.plan_values(reader.path, paired, deadline).await,
            None => ReturnedValues::default(),
        };
        let texts = if self.is_strict {
            Ok(PlacedTexts::default())
        } else {
            let placed = before.place_late_texts(read.plain, &read.paired, &read.outline, self.asks_for_turn);
            placed.await
        };
        let texts = texts.unwrap_or_else(|_| {
            read.are_texts_unread = true;
            PlacedTexts::default()
        });
        yield_if_heavy().await;
        if let Some(body) = self.insert(&mut read, texts, &values) {
            inserted = body;
            yield_if_heavy().await;
            // The bytes have changed: this is the only further scan. If it fails, nothing is inserted.
            if let Some(again) = reader.read_inserted(caller, learned, &inserted, conversation) {
                (read.paired, read.plain) = (again, &inserted);
            } else {
                (read.texts, read.unfilled) = (LateTexts::default(), None);
            }
        }
        if read.unfilled.is_none() {
            read.continuity.iter_mut().for_each(RequestContinuity::cancel);
        }
        self.look_up_and_plan(read, planned, before).await
    }

    /// Puts late texts and values into a body, and notes them in `read`. Returns its bytes, or `None` if there is nothing to
    /// insert.
    fn insert(&self, read: &mut ReadBody<'_>, texts: PlacedTexts, values: &ReturnedValues) -> Option<Bytes> {
        let (plain, mut late_body) = (read.plain, None);
        if let Some((body, texts)) = texts.append_to(plain, &read.paired) {
            (late_body, read.texts) = (Some(self.count_copy(body)), texts);
        }
        let Some(filled) = values.put_into(&read.paired, plain, &read.texts.placed) else {
            return late_body;
        };
        read.unfilled = Some(late_body.unwrap_or_else(|| plain.clone()));
        Some(self.count_copy(filled))
    }

    /// Counts what a repair has added to a body in the memory of request bodies. `None` if it is little.
    fn count_repair(&self, plain: &Bytes, repaired: &Segments) -> Option<BodyShare> {
        let pieces = repaired.parts().len().saturating_mul(PIECE_BYTES);
        let added = repaired.len().saturating_sub(plain.len()).saturating_add(pieces);
        (added > UNCOUNTED_BYTES_MAX).then(|| {
            let mut share = self.reader.path.budgets.memory.open_copy(self.reader.client);
            share.add(added);
            share
        })
    }

    /// Counts a copy of the body in the memory of request bodies.
    fn count_copy(&self, body: Bytes) -> Bytes {
        let reader = self.reader;
        reader.path.budgets.memory.count_bytes(reader.client, body)
    }

    /// Notes what the history shows about its lane: calls that it goes on without, and calls that it may lose.
    async fn note_history(
        &self,
        paired: &Paired<'_>,
        outline: &Outline,
        context: &RequestContext,
        before: BeforeSend<'_>,
    ) {
        // The lane continued without results of its calls: tool services may learn that no client waits for them.
        if self.asks_for_turn && !self.is_strict {
            before.results.note_detached();
        }
        if context.is_compaction || outline.may_compact {
            let calls = || paired.all_calls();
            before.results.note_compaction(calls, context.is_compaction).await;
        }
    }

    /// Looks up the open calls, plans, and pins what the plan assigns.
    async fn look_up_and_plan(
        &self,
        mut read: Box<ReadBody<'_>>,
        planned: &mut PlannedBody,
        before: BeforeSend<'_>,
    ) -> Result<RepairReport, Unreadable> {
        let path = self.reader.path;
        yield_if_heavy().await;
        let records = std::mem::take(&mut read.call_records);
        let mut lookup = self.look_up_calls(&read.paired, &read.texts, records, before).await?;
        let mut pins = self.asks_for_turn.then(|| {
            let (recall, outline) = (path.recall.clone(), read.take_outline());
            Box::new(PendingPins::new(recall, before.scope, read.plain.clone(), outline))
        });
        let (caller, new_pins) = (planned.context.caller, pins.as_deref_mut());
        let plan = self.plan_and_pin(&read.paired, &mut lookup, caller, new_pins, before.deadline);
        let mut plan = plan.await?;
        yield_if_heavy().await;
        let ReadBody {
            plain,
            paired,
            learned,
            shapes,
            continuity,
            texts,
            are_texts_unread,
            unfilled,
            ..
        } = *read;
        let repaired = catch_read(|| plan.splice(&paired, plain))?;
        let (mends, mended, made) = self.mend(&repaired, &planned.context);
        mends::add_to_report(&made, &mut plan.report);
        if let Some(pins) = &mut pins {
            lookup.count_results(&pins.results.assigned, &path.telemetry);
            lookup.count_unread(&plan.assigned, &path.telemetry);
            pins.repeat_watch = watch_calls(path, &planned.context, &paired, &plan, &pins.outline, &lookup, &texts);
            pins.posted_calls.clone_from(&lookup.given.posted_calls);
            pins.last_text = texts.last.as_ref().map(LastText::stored_text);
            pins.awaited_calls = before.results.awaited_calls(|| paired.all_calls());
        }
        // Without any edit the client's own bytes are sent, compressed as they were.
        let is_edited = !repaired.is_original() || !texts.placed.is_empty() || unfilled.is_some();
        if is_edited || mended.is_some() {
            let body = mended.unwrap_or_else(|| repaired.clone());
            planned.replace_payload(Payload::InMemory(body));
            planned.is_decoded = self.received.coding != ContentCoding::Identity;
        }
        planned.repair_memory = self.count_repair(plain, &repaired);
        planned.pins = pins;
        planned.continuity = continuity;
        planned.appended = texts.placed.len();
        planned.sent_body = Some(Box::new(SentBody {
            plain: plain.clone(),
            unfilled,
            reading_bytes: self.received.reading_bytes,
            ends_with_late: texts.last.is_some(),
            is_unread: are_texts_unread || !lookup.unread.is_empty(),
            body: repaired,
            lookup,
            wire: self.reader.wire,
            learned,
            mends,
            made,
            model: planned.context.model.clone(),
            shapes,
            scope: before.scope,
        }));
        planned.last_text = texts.last.map(Box::new);
        Ok(plan.report)
    }

    /// Makes the mends that refusals have taught in a repaired body. Returns them with the mended bytes, or `None` if none fits,
    /// and those that were made.
    fn mend(&self, repaired: &Segments, context: &RequestContext) -> (BodyMends, Option<Segments>, Vec<MadeMend>) {
        if self.is_strict {
            return (BodyMends::default(), None, Vec::new());
        }
        let reader = self.reader;
        let scope = FactScope {
            server: reader.route.server,
            caller: context.caller,
        };
        let lane = context.lane.map(|lane| lane.id);
        let mends = BodyMends::known(reader.path, scope, context.model.as_deref(), lane);
        if mends.is_empty() {
            return (mends, None, Vec::new());
        }
        let mended = catch_core_panic(|| mends.make(repaired, reader.wire, reader.path, scope));
        let mut made = mended.as_ref().map(|mended| mends.made_in(mended)).unwrap_or_default();
        made.extend(mends.made_in_header(self.headers, &[]));
        let body = mended.map(|mended| Segments::whole(self.count_copy(mended.body)));
        (mends, body, made)
    }
}
