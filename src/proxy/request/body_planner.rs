//! The plan of one body: what is known for its open calls is looked up, put in, and pinned before it is sent.

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;

use super::{
    body_reader::{BodyReader, ReadBody},
    context::RequestContext,
    outgoing::SentBody,
    pending_pins::PendingPins,
    repeat_watch::watch_calls,
    result_plan::ResultPlanner,
    thinking_lookup,
};
use crate::{
    conversation::Outline,
    proxy::{
        catch_core_panic::catch_read,
        continuity::{ContinuityPlan, RequestContinuity},
        late_results::LateResults,
        late_text_insertion::{LastText, LateTextInsertion, LateTexts, LedgerWait},
    },
    repair::{Action, Paired, RepairReport, parse},
    server::budget::{BodyShare, yield_if_heavy},
    splice::Segments,
    wire::Unreadable,
};

/// Memory of each piece of a repaired body: its handle, and what is noted about the call that it answers.
const PIECE_BYTES: usize = 128;
/// Bytes that a repair may add without being counted: 256 KiB.
const UNCOUNTED_BYTES_MAX: usize = 256 * 1024;

/// Body after its plan, with the results that were known for its calls.
pub(super) struct PreparedBody {
    pub(super) sent: Box<SentBody>,
    /// Memory that the repair takes beside the client's bytes. `None` if it is little.
    pub(super) memory: Option<BodyShare>,
    pub(super) report: RepairReport,
    /// Number of late results at the end of its messages.
    pub(super) appended: usize,
    pub(super) pins: Option<Box<PendingPins>>,
    /// The late text of the last message. `None` if it has none.
    pub(super) last_text: Option<LastText>,
    /// `true` if the ledger did not answer in time, so that the body may contradict what was sent before.
    pub(super) is_unread: bool,
    /// Continuity of the request. `None` if no values are stored for it.
    pub(super) continuity: Option<RequestContinuity>,
}

impl PreparedBody {
    /// Returns `true` if every finding is mended by a result that a tool service has posted, in the place of its call.
    pub(super) fn is_completed_by_posted_results(&self) -> bool {
        let restored = self.report.actions.get(&Action::Restore).copied().unwrap_or_default();
        let is_restored = restored == self.report.findings.len() && self.report.actions.len() == 1;
        is_restored && self.appended == 0 && self.sent.lookup.knows_posted_only()
    }
}

/// Body as its plan reads it: with late results at the end of messages, and with the values that it got back.
struct FilledBody<'b> {
    /// The body as it was read, but with the pairing of the filled body. Its outline is that of the client's own.
    read: Box<ReadBody<'b>>,
    plain: Bytes,
    /// `plain` without the values. `None` if it got none.
    unfilled: Option<Bytes>,
    texts: LateTexts,
    /// `true` if the ledger did not tell in time whether late results belong into the body.
    is_unread: bool,
}

/// Planner of one body.
pub(super) struct BodyPlanner<'x> {
    pub(super) reader: BodyReader<'x>,
    pub(super) headers: &'x HeaderMap,
    /// `true` if the request asks for the conversation's next turn. Counts, batches and compactions use what is known,
    /// but pin nothing.
    pub(super) asks_for_turn: bool,
    /// `true` in strict mode: no late result is put at the end of a message.
    pub(super) is_strict: bool,
}

impl BodyPlanner<'_> {
    /// Puts late results and values into the body, and plans it. What the plan assigns is pinned before it is sent.
    pub(super) async fn plan_body(
        &self,
        read: Box<ReadBody<'_>>,
        context: &RequestContext,
        results: &LateResults,
        wait: LedgerWait,
    ) -> Result<Box<PreparedBody>, Unreadable> {
        let deadline = wait.deadline;
        // Declared first, because the pairing of `read` may borrow them.
        let (late_body, body);
        // Kept in its box, so that the future of the exchange does not store it at every wait.
        let mut read = read;
        let (reader, caller, learned) = (self.reader, context.caller, read.learned);
        self.note_history(&read.paired, &read.outline, context, results).await;
        // Only after a restart, for a caller whose thinking was refused before: the bytes must stay the accepted ones.
        if thinking_lookup::load_thinking_facts(reader.call_memory(caller), reader.policy, &read.paired, deadline).await
        {
            let parsed = catch_read(|| parse(read.plain, reader.wire))?;
            read.paired = reader.pair_body(caller, learned, parsed)?;
        }
        // A guessed lane is left out: under a wrong one, calls with reusable ids would share their results.
        let conversation = results.pin_scope().lane.map(|lane| *lane.as_bytes());
        read.paired.set_conversation(conversation);
        let mut is_ahead_unread = false;
        if wait.is_patient {
            // Boxed, because it is rare.
            let delivery = LateTextInsertion { results, wait };
            is_ahead_unread = Box::pin(delivery.read_ahead(&read.paired)).await.is_err();
        }
        // Keys of values are made from the client's own bytes, so the search comes before any edit.
        let ReadBody { continuity, paired, .. } = &mut *read;
        let values = match continuity {
            Some(continuity) => continuity.plan_values(reader.path, paired, deadline).await,
            None => ContinuityPlan::default(),
        };
        let (mut plain, mut texts) = (read.plain.clone(), LateTexts::default());
        let delivery = LateTextInsertion { results, wait };
        let late = if self.is_strict {
            Ok(None)
        } else {
            let inserted = delivery.insert_late_texts(&plain, &read.paired, &read.outline, self.asks_for_turn);
            inserted.await
        };
        let (late, is_unread) = late.map_or((None, true), |late| (late, is_ahead_unread));
        yield_if_heavy().await;
        if let Some(late) = late {
            late_body = self.count_copy(late.body);
            // The bytes have changed. If they cannot be read again, late texts are left out.
            if let Some(again) = reader.pair_again(caller, learned, &late_body, conversation) {
                (read.paired, plain, texts) = (again, late_body.clone(), late.texts);
            }
        }
        yield_if_heavy().await;
        body = values.apply(&read.paired, &plain).map(|body| self.count_copy(body));
        let pair = |body| reader.pair_again(caller, learned, body, conversation);
        let mut unfilled = None;
        if let Some((body, again)) = body.as_ref().and_then(|body| Some((body, pair(body)?))) {
            read.paired = again;
            unfilled = Some(std::mem::replace(&mut plain, body.clone()));
        } else {
            read.continuity.iter_mut().for_each(RequestContinuity::cancel);
        }
        let filled = FilledBody {
            read,
            plain,
            unfilled,
            texts,
            is_unread,
        };
        self.look_up_and_plan(filled, context, results, deadline).await
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
        results: &LateResults,
    ) {
        // The lane continued without results of its calls: tool services may learn that no client waits for them.
        if self.asks_for_turn && context.has_detached_calls && !self.is_strict {
            results.detach_lane();
        }
        if (context.is_compaction || outline.may_compact) && results.late.is_used() {
            results
                .note_compaction(&paired.all_calls(), context.is_compaction)
                .await;
        }
    }

    /// Looks up the open calls, plans, and pins what the plan assigns.
    async fn look_up_and_plan(
        &self,
        FilledBody {
            mut read,
            plain,
            unfilled,
            texts,
            is_unread,
        }: FilledBody<'_>,
        context: &RequestContext,
        results: &LateResults,
        deadline: Instant,
    ) -> Result<Box<PreparedBody>, Unreadable> {
        let path = self.reader.path;
        yield_if_heavy().await;
        let planner = ResultPlanner {
            memory: self.reader.call_memory(context.caller),
            headers: self.headers,
            policy: self.reader.policy,
            is_strict: self.is_strict,
        };
        let mut lookup = planner.look_up_calls(&read.paired, results, &texts, deadline).await?;
        let mut pins = self.asks_for_turn.then(|| {
            let outline = if texts.count > 0 || unfilled.is_some() {
                // These edits have moved the spans of the first outline.
                read.paired.outline()
            } else {
                std::mem::take(&mut read.outline)
            };
            Box::new(PendingPins::new(results.clone(), plain.clone(), outline))
        });
        let planned = planner.plan_and_pin(&read.paired, &mut lookup, pins.as_deref_mut(), deadline);
        let plan = planned.await?;
        yield_if_heavy().await;
        let ReadBody {
            paired,
            learned,
            shapes,
            continuity,
            ..
        } = *read;
        let repaired = catch_read(|| plan.splice(&paired, &plain))?;
        if let Some(pins) = &mut pins {
            lookup.count_results(&pins.results.assigned, &path.telemetry);
            lookup.count_unread(&plan.assigned, &path.telemetry);
            pins.repeat_watch = watch_calls(path, context, &paired, &plan, &pins.outline, &lookup, &texts);
            pins.posted_calls.clone_from(&lookup.posted_calls);
            pins.last_text = texts.last.as_ref().map(LastText::stored_text);
            pins.awaited_calls = results.awaited_calls(|| paired.all_calls());
        }
        let memory = self.count_repair(&plain, &repaired);
        let sent = Box::new(SentBody {
            plain,
            unfilled,
            reading_bytes: 0,
            ends_with_late: texts.last.is_some(),
            body: repaired,
            lookup,
            wire: self.reader.wire,
            learned,
            model: context.model.clone(),
            shapes,
            late_results: results.clone(),
        });
        Ok(Box::new(PreparedBody {
            is_unread: is_unread || !sent.lookup.unread.is_empty(),
            memory,
            sent,
            report: plan.report,
            appended: texts.count,
            last_text: texts.last,
            pins,
            continuity,
        }))
    }
}
