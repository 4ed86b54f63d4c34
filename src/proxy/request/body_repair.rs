//! Repair of one request body: read once, looked up once, planned at most twice, spliced.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::{
    answer_plan::AnswerPlanner,
    call_lookup::{CallLookup, CallMemory},
    content_coding::ContentCoding,
    context::{ContextBuilder, RequestContext, named_model},
    dead_response::DeadIdRemoval,
    outgoing::{OutgoingBody, Payload, SentBody, boxed_client_body},
    pending_pins::PendingPins,
    repeat_watch::watch_calls,
    thinking_lookup,
    unedited::report_unedited,
};
use crate::{
    auth::Caller,
    clock,
    conversation::Outline,
    policy::retry::CredentialBinding,
    provider::Route,
    proxy::{
        catch_core_panic::catch_read,
        client_body::{ClientBody, CollectedBody},
        continuity::{ContinuityPlan, RequestContinuity},
        data_path::DataPath,
        error::ProxyError,
        exchange_log::ExchangeLog,
        headers::is_signed,
        late_results::{LateResults, LateTexts},
        provider_facts::{FactKey, FactScope},
    },
    recall::LedgerBudget,
    repair::{
        Action, KnownAnswers, LearnedRules, Mode, Paired, PairingContext, Parsed, RepairPolicy, RepairReport, parse,
        plan,
    },
    session::body_user,
    splice::Segments,
    wire::{Unreadable, Wire},
};

/// Repair of the body of one request.
pub(super) struct BodyRepair<'x> {
    pub(super) path: &'x DataPath,
    pub(super) route: &'x Route<'x>,
    pub(super) headers: &'x HeaderMap,
    pub(super) wire: Wire,
    /// Effective mode. The body of a signed request is observed only, whatever the mode.
    pub(super) mode: Mode,
    pub(super) policy: &'x RepairPolicy,
    pub(super) dead_ids: DeadIdRemoval<'x>,
}

/// Body that was read, with the bytes it was read from.
struct ReadBody<'b> {
    plain: &'b Bytes,
    paired: Paired<'b>,
    outline: Outline,
    /// Rules that refusals have taught. Read once, so that they cannot change between two plans of one request.
    learned: LearnedRules,
    /// The conversation, if its text is beside calls and stays there. `None` otherwise.
    loose_shape: Option<FactKey>,
    /// Values that the provider wants back. `None` if it wants none.
    continuity: Option<RequestContinuity>,
}

/// Repaired body, with the answers that were known for its calls.
struct RepairedBody {
    /// Body for which the plan was made: the client's, with late results at the end of messages.
    plain: Bytes,
    /// `plain` without the values that it got back. `None` if it got none.
    unfilled: Option<Bytes>,
    body: Segments,
    report: RepairReport,
    texts: LateTexts,
    lookup: CallLookup,
    pins: Option<PendingPins>,
    /// Values that `plain` got back. `None` if the provider wants none.
    continuity: Option<RequestContinuity>,
}

impl BodyRepair<'_> {
    /// Collects the body, and returns what is sent in its place.
    pub(super) async fn run(
        &self,
        caller: Caller,
        ledger_budget: LedgerBudget,
        body: ClientBody,
        log: &mut ExchangeLog,
    ) -> Result<OutgoingBody, ProxyError> {
        let Some(coding) = ContentCoding::from_headers(self.headers) else {
            // What cannot be decoded need not be collected either.
            let payload = Payload::Streamed(Some(boxed_client_body(body)));
            return Ok(self.unread_body(caller, log, Unreadable::Coding, payload));
        };
        let limit = self.path.settings.inspect_bytes_max;
        let too_large = |log: &mut ExchangeLog| {
            log.event.unreadable = Some(Unreadable::TooLarge);
            ProxyError::TooLarge { limit }
        };
        let raw = match body.collect_up_to(limit).await.map_err(ProxyError::Body)? {
            CollectedBody::Whole(raw) => raw,
            // A client must not escape strict mode by sending a larger body.
            CollectedBody::TooLarge(_) if self.mode == Mode::Strict => return Err(too_large(log)),
            CollectedBody::TooLarge(body) => {
                let payload = Payload::Streamed(Some(boxed_client_body(body)));
                return Ok(self.unread_body(caller, log, Unreadable::TooLarge, payload));
            }
        };
        // From here on the proxy itself costs the time. Before, it waited for the client.
        let began = clock::now();
        let decoded = coding.decode_body(&raw, limit);
        let (dead, raw, decoded) = self.dead_ids.remove_from(caller, raw, decoded);
        let outgoing = match &decoded {
            Ok(plain) => match self.read_body(caller, plain) {
                Ok((body_caller, read)) => {
                    let mut ledger_budget = ledger_budget;
                    if body_caller != caller {
                        // The user that the body names has late results of its own.
                        super::load_late_results(self.path, body_caller, &mut ledger_budget, log).await;
                    }
                    self.apply_mode(body_caller, &raw, coding, read, ledger_budget, log)
                        .await
                }
                // The provider judges what the proxy cannot read.
                Err(reason) => Ok(self.unread_body(caller, log, reason, Payload::InMemory(Segments::whole(raw)))),
            },
            Err(Unreadable::TooLarge) if self.mode == Mode::Strict => Err(too_large(log)),
            Err(reason) => Ok(self.unread_body(caller, log, *reason, Payload::InMemory(Segments::whole(raw)))),
        };
        let outgoing = self.dead_ids.finish_body(dead.as_ref(), &decoded, outgoing, log);
        log.event.overhead = clock::now().duration_since(began);
        outgoing
    }

    /// Reads a body. Re-scopes the caller to the user that the body names if `trust_body_user` is set.
    fn read_body<'b>(&self, caller: Caller, plain: &'b Bytes) -> Result<(Caller, ReadBody<'b>), Unreadable> {
        // One parse serves both: the outline names the user, and the user decides what is known for the pairing.
        let (parsed, outline) = catch_read(|| {
            let parsed = parse(plain, self.wire)?;
            let outline = parsed.outline();
            Ok((parsed, outline))
        })?;
        let user = if self.path.settings.principals.trust_body_user {
            body_user(plain, &outline)
        } else {
            None
        };
        let caller = user.map_or(caller, |user| {
            caller.with_user(&self.path.principal_key, user.as_bytes())
        });
        let model = named_model(self.route, plain, &outline);
        let scope = self.call_memory(caller).scope;
        let conversation = parsed.first_call_id().map(|id| scope.shape_key(model.as_deref(), id));
        let learned = self.path.facts.learned_rules(scope, model.as_deref(), conversation);
        let paired = self.pair_body(caller, learned, parsed)?;
        let stays = learned.words.is_none() && paired.has_text_beside_calls();
        let loose_shape = conversation.filter(|_| stays);
        let read = ReadBody {
            plain,
            paired,
            outline,
            learned,
            loose_shape,
            // Its owner is known only once the lane is.
            continuity: None,
        };
        Ok((caller, read))
    }

    /// Pairs calls and results. Fails if there are findings but the body is not valid JSON.
    fn pair_body<'b>(
        &self,
        caller: Caller,
        learned: LearnedRules,
        parsed: Parsed<'b>,
    ) -> Result<Paired<'b>, Unreadable> {
        let memory = self.call_memory(caller);
        catch_read(|| {
            let remote = memory.remote_calls(|| parsed.remote_references());
            let refused = memory.refused_thinking(&parsed);
            let paired = parsed.pair(PairingContext {
                policy: self.policy,
                learned,
                remote: &remote,
                refused_thinking: &refused,
            });
            // The scan skips bytes that it need not understand. Findings in invalid JSON may be wrong.
            paired.check_json()?;
            Ok(paired)
        })
    }

    /// Returns what this process remembers for a caller at this upstream.
    fn call_memory(&self, caller: Caller) -> CallMemory<'_> {
        CallMemory {
            facts: &self.path.facts,
            recall: &self.path.recall,
            scope: FactScope {
                upstream: &self.route.upstream.name,
                caller,
            },
        }
    }

    fn context_builder(&self, caller: Caller) -> ContextBuilder<'_> {
        ContextBuilder {
            path: self.path,
            route: self.route,
            headers: self.headers,
            caller,
        }
    }

    /// Repairs, rejects or only observes a body, by the effective mode.
    async fn apply_mode(
        &self,
        caller: Caller,
        raw: &Bytes,
        coding: ContentCoding,
        mut read: ReadBody<'_>,
        mut ledger_budget: LedgerBudget,
        log: &mut ExchangeLog,
    ) -> Result<OutgoingBody, ProxyError> {
        let context = self.context_builder(caller).enter_lane(read.plain, &read.outline);
        // Any edit would break the client's signature. A profile's signature is made after all edits.
        let is_signed = context.credential_binding == CredentialBinding::Passthrough && is_signed(self.headers);
        let mode = if is_signed { Mode::Observe } else { self.mode };
        log.event.mode = Some(mode);
        // Strict and observe mode only report what is missing.
        let may_pin = mode == Mode::Repair && self.asks_for_turn(&context);
        read.continuity = RequestContinuity::new(
            self.path,
            self.route,
            self.wire,
            context.continuity(),
            may_pin,
            read.plain,
            &read.paired,
        );
        if mode == Mode::Repair {
            let repaired = self.repair_body(raw, coding, read, context, ledger_budget, log);
            // Boxed, because the future of an exchange would be very large otherwise.
            return Ok(Box::pin(repaired).await);
        }
        // Without known answers: only the findings count, and nothing is edited.
        let report = catch_read(|| plan(&read.paired, &KnownAnswers::default(), self.policy));
        let mut report = report.map(|plan| plan.report).unwrap_or_default();
        if let Some(continuity) = &mut read.continuity {
            let paired = &read.paired;
            let work = async |deadline| Box::pin(continuity.plan_values(self.path, paired, deadline)).await;
            drop(ledger_budget.spend(work).await);
            continuity.add_to_report(&mut report);
        }
        log.event.unreadable = report.unread;
        if !report.findings.is_empty() {
            log.queue_structure(&report, self.wire, read.plain.clone(), None);
        }
        report_unedited(report, mode, is_signed, self.wire, log)?;
        Ok(self.original_body(raw, read, context, ledger_budget))
    }

    /// Returns the client's own bytes. The calls in them are recorded for late results all the same.
    fn original_body(
        &self,
        raw: &Bytes,
        read: ReadBody<'_>,
        context: RequestContext,
        ledger_budget: LedgerBudget,
    ) -> OutgoingBody {
        let results = context.late_results(self.path, self.wire.format);
        let is_used = results.late.is_used();
        let pins = (is_used && self.asks_for_turn(&context)).then(|| {
            if context.has_detached_calls {
                results.detach_lane();
            }
            PendingPins::without_answers(results.clone(), ledger_budget, read.plain.clone(), read.outline)
        });
        OutgoingBody {
            pins,
            late_results: is_used.then_some(results),
            continuity: read.continuity,
            ..OutgoingBody::from_payload(Payload::InMemory(Segments::whole(raw.clone())), context)
        }
    }

    /// Repairs the body, and pins the answers that its calls get for the first time.
    async fn repair_body(
        &self,
        raw: &Bytes,
        coding: ContentCoding,
        read: ReadBody<'_>,
        mut context: RequestContext,
        mut ledger_budget: LedgerBudget,
        log: &mut ExchangeLog,
    ) -> OutgoingBody {
        let (before, results) = (read.plain.clone(), context.late_results(self.path, self.wire.format));
        let (learned, loose_shape) = (read.learned, read.loose_shape);
        let work = |deadline| self.answer_calls(read, &context, &results, deadline);
        let repaired = match ledger_budget.spend(work).await {
            Ok(repaired) => repaired,
            // A bug of the proxy must not fail the exchange: the provider judges the original.
            Err(reason) => {
                log.event.unreadable = Some(reason);
                log.repair_header = Some(HeaderValue::from_static("unreadable"));
                return OutgoingBody::from_payload(Payload::InMemory(Segments::whole(raw.clone())), context);
            }
        };
        let RepairedBody {
            plain,
            unfilled,
            body,
            mut report,
            texts,
            lookup,
            mut pins,
            continuity,
        } = repaired;
        if let Some(continuity) = &continuity {
            context.bind_account(continuity);
            continuity.add_to_report(&mut report);
        }
        // Resends get what is left of the budget for the ledger.
        if let Some(pins) = &mut pins {
            pins.ledger_budget = ledger_budget;
        }
        log.event.unreadable = report.unread;
        // Late texts were put in before the plan, which does not count them.
        if texts.count > 0 {
            report.actions.insert(Action::Append, texts.count);
        }
        log.repair_header = Some(super::actions_header(&report));
        if !report.actions.is_empty() {
            log.queue_structure(&report, self.wire, before, Some(body.clone()));
        }
        let renamed = report.renamed.clone();
        let asks_for_binding_controls = report.actions.contains_key(&Action::Unbind);
        log.event.report = Some(report);
        // Without any edit the client's own bytes are sent, compressed as they were.
        let is_filled = continuity.as_ref().is_some_and(RequestContinuity::is_filled);
        let is_untouched = body.is_original() && texts.count == 0 && !is_filled;
        let sent = SentBody {
            plain,
            unfilled,
            ends_with_late: texts.is_at_end,
            body: body.clone(),
            lookup,
            wire: self.wire,
            learned,
            model: context.model.clone(),
            loose_shape,
            late_results: results.clone(),
        };
        let bytes = if is_untouched {
            Segments::whole(raw.clone())
        } else {
            body
        };
        OutgoingBody {
            payload: Payload::InMemory(bytes),
            is_decoded: coding != ContentCoding::Identity && !is_untouched,
            renamed_ids: renamed,
            sent_body: Some(Box::new(sent)),
            pins,
            late_results: results.late.is_used().then_some(results),
            continuity,
            chain: None,
            needs_binding_beta: asks_for_binding_controls,
            context,
        }
    }

    /// Appends late results, looks up the open calls, plans, and pins what the plan assigns before it is sent.
    ///
    /// Counts, batches and compactions use what is known, but pin nothing.
    async fn answer_calls(
        &self,
        read: ReadBody<'_>,
        context: &RequestContext,
        results: &LateResults,
        deadline: Instant,
    ) -> Result<RepairedBody, Unreadable> {
        let ReadBody {
            plain,
            mut paired,
            mut outline,
            learned,
            loose_shape: _,
            mut continuity,
        } = read;
        let (asks, caller) = (self.asks_for_turn(context), context.caller);
        // The lane continued without results of its calls: tool services may learn that no client waits for them.
        if asks && context.has_detached_calls {
            results.detach_lane();
        }
        // Only after a restart, for a caller whose thinking was refused before: the bytes must stay the accepted ones.
        if thinking_lookup::load_thinking_facts(self.call_memory(caller), self.policy, &paired, deadline).await {
            paired = self.pair_body(caller, learned, catch_read(|| parse(plain, self.wire))?)?;
        }
        // A guessed lane is left out: under a wrong one, calls with reusable ids would share their answers.
        let conversation = results.pin_scope().lane.map(|lane| *lane.as_bytes());
        paired.set_conversation(conversation);
        // Keys of values are made from the client's own bytes, so the search comes before any edit.
        let values = match &mut continuity {
            Some(continuity) => continuity.plan_values(self.path, &paired, deadline).await,
            None => ContinuityPlan::default(),
        };
        let (mut plain, mut texts) = (plain.clone(), LateTexts::default());
        let late = results.insert_late_texts(&plain, &paired, &outline, asks, deadline);
        let late_body;
        if let Some(late) = late.await {
            late_body = late.body;
            // The bytes have changed. If they cannot be read again, late texts are left out.
            if let Some(again) = self.pair_again(caller, learned, &late_body, conversation) {
                (paired, plain, texts) = (again, late_body.clone(), late.texts);
            }
        }
        let body = values.apply(&paired, &plain);
        let read = |body| self.pair_again(caller, learned, body, conversation);
        let mut unfilled = None;
        match body.as_ref().and_then(read) {
            Some(again) => {
                paired = again;
                unfilled = Some(std::mem::replace(&mut plain, body.clone().unwrap_or_default()));
            }
            None => continuity.iter_mut().for_each(RequestContinuity::cancel),
        }
        let planner = self.answer_planner(caller);
        let mut lookup = planner.look_up_calls(&paired, results, &texts, deadline).await?;
        let planned = planner.plan_and_pin(&paired, &mut lookup, results, asks, deadline);
        let (plan, answers) = planned.await?;
        let repaired = catch_read(|| plan.splice(&paired, &plain))?;
        if asks {
            lookup.count_answers(&answers.assigned, &self.path.telemetry);
            if texts.count > 0 || body.is_some() {
                // These edits have moved the spans of the first outline.
                outline = paired.outline();
            }
        }
        let watch = || watch_calls(self.path, context, &paired, &plan, &outline, &lookup, &texts);
        let repeat_watch = asks.then(watch).flatten();
        let pins = asks.then(|| PendingPins {
            late_results: results.clone(),
            // `repair_body` sets what is left of it.
            ledger_budget: LedgerBudget::FULL,
            answers,
            posted_calls: lookup.posted_calls.clone(),
            stored_anchor: None,
            plain: plain.clone(),
            outline,
            repeat_watch,
        });
        Ok(RepairedBody {
            plain: plain.clone(),
            unfilled,
            body: repaired,
            report: plan.report,
            texts,
            lookup,
            pins,
            continuity,
        })
    }

    fn answer_planner(&self, caller: Caller) -> AnswerPlanner<'_> {
        AnswerPlanner {
            memory: self.call_memory(caller),
            headers: self.headers,
            policy: self.policy,
        }
    }

    /// Parses and pairs a body that the proxy has changed. `None` if that fails.
    fn pair_again<'b>(
        &self,
        caller: Caller,
        learned: LearnedRules,
        body: &'b Bytes,
        conversation: Option<[u8; 32]>,
    ) -> Option<Paired<'b>> {
        let parsed = catch_read(|| parse(body, self.wire)).ok()?;
        let mut paired = self.pair_body(caller, learned, parsed).ok()?;
        paired.set_conversation(conversation);
        Some(paired)
    }

    /// Returns `true` if the request asks for the conversation's next turn: not for a count, a batch or a compaction.
    fn asks_for_turn(&self, context: &RequestContext) -> bool {
        self.route.asks_for_turn() && !context.is_compaction
    }

    /// Returns a body that is sent unread, and logs the reason.
    fn unread_body(&self, caller: Caller, log: &mut ExchangeLog, reason: Unreadable, payload: Payload) -> OutgoingBody {
        log.event.unreadable = Some(reason);
        log.repair_header = Some(HeaderValue::from_static("unreadable"));
        let context = self.context_builder(caller).enter_lane(&[], &Outline::default());
        OutgoingBody::from_payload(payload, context)
    }
}
