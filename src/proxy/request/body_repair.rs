//! Repair of one request body, by its mode: collected, decoded, read, and repaired, rejected or only observed.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::{
    body_planner::BodyPlanner,
    body_reader::{BodyReader, ReadBody},
    content_coding::ContentCoding,
    context::{ContextBuilder, RequestContext},
    dead_response::DeadIdRemoval,
    fact_lookup::load_facts,
    outgoing::boxed_client_body,
    owner_lookup::OwnerLookup,
    pending_pins::PendingPins,
    planned_body::{Payload, PlannedBody, SentBody},
    received_body::ReceivedBody,
    unedited::{lacks_results_only, reject_findings, report_unedited},
};
use crate::{
    auth::Caller,
    clock,
    conversation::Outline,
    ledger::Unread,
    policy::retry::CredentialBinding,
    proxy::{
        catch_core_panic::catch_read,
        client_body::{ClientBody, CollectOutcome},
        continuity::RequestContinuity,
        data_path::{DataPath, OnOutage},
        error::ProxyError,
        exchange_log::ExchangeLog,
        exchange_route::ExchangeRoute,
        headers::forbids_edits,
        heavy_body::{HEAVY_CALLS_MIN, is_heavy_pass},
        late_results::{BeforeSend, LateResults},
        owned_ids::NamedObjects,
    },
    recall::LedgerBudget,
    repair::{Action, BodyCall, KnownResults, Mode, RepairPolicy, RepairReport, plan},
    server::budget::{BodyPass, BudgetClient, yield_if_heavy},
    wire::{Unreadable, Wire},
};

/// Repair of the body of one request.
pub(super) struct BodyRepair<'x> {
    pub(super) path: &'x DataPath,
    /// Client whose share of the budgets the body uses.
    pub(super) client: BudgetClient,
    pub(super) route: &'x ExchangeRoute<'x>,
    pub(super) headers: &'x HeaderMap,
    pub(super) wire: Wire,
    /// Effective mode. The body of a signed request is observed only, whatever the mode.
    pub(super) mode: Mode,
    pub(super) policy: &'x RepairPolicy,
    pub(super) owners: OwnerLookup<'x>,
    pub(super) dead_ids: DeadIdRemoval<'x>,
}

impl BodyRepair<'_> {
    /// Collects the body, and returns the body that is sent instead.
    pub(super) async fn run(
        &self,
        caller: Caller,
        ledger_budget: LedgerBudget,
        body: ClientBody,
        log: &mut ExchangeLog,
    ) -> Result<Box<PlannedBody>, ProxyError> {
        let Some(coding) = ContentCoding::from_headers(self.headers) else {
            // What cannot be decoded need not be collected either.
            let payload = Payload::Streamed(Some(boxed_client_body(body)));
            return Ok(self
                .uninspected_body(caller, ledger_budget, log, Unreadable::Coding, payload)
                .await);
        };
        let share = self.path.budgets.memory.open(self.client, body.claimed_len());
        let raw = match body.collect_up_to(self.inspect_bytes_max(), share).await? {
            CollectOutcome::Whole(raw) => raw,
            // A client must not escape strict mode by sending a larger body.
            CollectOutcome::TooLarge(_) if self.mode == Mode::Strict => return Err(self.too_large(log)),
            CollectOutcome::TooLarge(body) => {
                let payload = Payload::Streamed(Some(boxed_client_body(body)));
                return Ok(self
                    .uninspected_body(caller, ledger_budget, log, Unreadable::TooLarge, payload)
                    .await);
            }
        };
        // From here on the proxy itself costs the time. Before, it waited for the client.
        let began = clock::now();
        let deadline = log.start_time() + self.path.settings.timeouts.total;
        let (budgets, limit) = (&self.path.budgets, self.inspect_bytes_max());
        let received = ReceivedBody::decode(raw, coding, budgets, self.client, limit).await;
        let received = received.map_err(ProxyError::Overloaded)?;
        let is_heavy = received.is_heavy();
        let repaired = self.repair_decoded(caller, ledger_budget, received, log);
        let planned = if is_heavy {
            // A later pass: the decoding was the first.
            let pass = BodyPass::Later { deadline };
            let done = budgets.work.run(self.client, pass, Box::pin(repaired)).await;
            done.map_err(|_| ProxyError::Deadline)?
        } else {
            repaired.await
        };
        log.event.overhead = clock::now().duration_since(began);
        planned
    }

    /// Reads and repairs a decoded body.
    async fn repair_decoded(
        &self,
        caller: Caller,
        mut ledger_budget: LedgerBudget,
        received: ReceivedBody,
        log: &mut ExchangeLog,
    ) -> Result<Box<PlannedBody>, ProxyError> {
        let (reader, plain) = (self.reader(), received.plain.as_ref().ok());
        let mut early = None;
        // Without any fact of anybody the body need not be scanned for its user yet.
        if let Some(plain) = plain.filter(|_| self.path.recall.may_have_facts()) {
            let user = reader.user_of(caller, plain, &mut early);
            load_facts(self.path, user, &mut ledger_budget).await;
        }
        let user = || plain.map_or(caller, |plain| reader.user_of(caller, plain, &mut early));
        let dead = self.dead_ids.find_dead(user, plain, &mut ledger_budget).await;
        let edited = dead.as_ref().and_then(|dead| dead.edit_body(&received)).map(Box::new);
        let (received, early) = match edited.as_deref() {
            Some(edited) => (edited, None),
            None => (&received, early),
        };
        let mut is_heavy = received.plain.as_ref().map_or(true, |plain| is_heavy_pass(plain.len()));
        let planned = match &received.plain {
            Ok(plain) => match reader.read_body(caller, plain, early, &mut ledger_budget).await {
                Ok((body_caller, read)) => {
                    yield_if_heavy().await;
                    if body_caller != caller {
                        // The user that the body names has late results of its own.
                        super::load_late_results(self.path, body_caller, &mut ledger_budget, log).await;
                    }
                    let found = self.owners.find_objects(body_caller, plain, &mut ledger_budget);
                    let asker = (body_caller, Box::pin(found).await);
                    let has_many_calls = read.paired.open_calls().nth(HEAVY_CALLS_MIN).is_some();
                    is_heavy |= has_many_calls;
                    // Boxed, because the future of an exchange would be very large otherwise.
                    let applied = Box::pin(self.apply_mode(asker, received, read, ledger_budget, log));
                    if has_many_calls && !received.is_heavy() {
                        // Around the entry into the lane: a request that finds no place must leave nothing there.
                        let done = self.path.budgets.work.run(self.client, BodyPass::First, applied).await;
                        done.unwrap_or_else(|overloaded| Err(ProxyError::Overloaded(overloaded)))
                    } else {
                        applied.await
                    }
                }
                // The provider judges what the proxy cannot read.
                Err(reason) => {
                    let payload = received.as_it_came();
                    Ok(self.uninspected_body(caller, ledger_budget, log, reason, payload).await)
                }
            },
            Err(Unreadable::TooLarge) if self.mode == Mode::Strict => Err(self.too_large(log)),
            Err(reason) => {
                let payload = received.as_it_came();
                Ok(self
                    .uninspected_body(caller, ledger_budget, log, *reason, payload)
                    .await)
            }
        };
        let mut planned = self.dead_ids.finish_body(dead.as_ref(), received, planned, log)?;
        planned.is_heavy |= is_heavy;
        Ok(planned)
    }

    fn inspect_bytes_max(&self) -> usize {
        self.path.settings.inspect_bytes_max
    }

    fn too_large(&self, log: &mut ExchangeLog) -> ProxyError {
        log.event.unreadable = Some(Unreadable::TooLarge);
        let limit = self.inspect_bytes_max();
        ProxyError::TooLarge { limit }
    }

    fn reader(&self) -> BodyReader<'_> {
        BodyReader {
            path: self.path,
            route: self.route,
            wire: self.wire,
            policy: self.policy,
            client: self.client,
        }
    }

    fn planner<'x>(&'x self, context: &RequestContext, received: &'x ReceivedBody) -> BodyPlanner<'x> {
        BodyPlanner {
            reader: self.reader(),
            headers: self.headers,
            received,
            asks_for_turn: self.asks_for_turn(context),
            is_strict: self.mode == Mode::Strict,
        }
    }

    fn context_builder(&self, caller: Caller) -> ContextBuilder<'_> {
        ContextBuilder {
            path: self.path,
            route: self.route,
            headers: self.headers,
            caller,
            budget_client: self.client,
        }
    }

    /// Repairs, rejects or only observes a body, by the effective mode.
    async fn apply_mode(
        &self,
        (caller, objects): (Caller, NamedObjects),
        received: &ReceivedBody,
        mut read: Box<ReadBody<'_>>,
        mut ledger_budget: LedgerBudget,
        log: &mut ExchangeLog,
    ) -> Result<Box<PlannedBody>, ProxyError> {
        let builder = self.context_builder(caller);
        let (mut context, results) = builder.enter_lane(read.plain, &read.outline, log);
        context.follow_owner(objects, self.owners.method);
        let has_profile = context.credential_binding != CredentialBinding::Passthrough;
        let is_signed = forbids_edits(self.headers, self.route.target.query(), has_profile);
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
            return self
                .repair_body(received, read, (context, results), ledger_budget, log)
                .await;
        }
        // Without known results: only the findings count, and nothing is edited.
        let report = catch_read(|| plan(&read.paired, &KnownResults::default(), self.policy));
        let mut report = report.map(|plan| plan.report).unwrap_or_default();
        if let Some(continuity) = &mut read.continuity {
            let paired = &read.paired;
            let work = async |deadline| Box::pin(continuity.plan_values(self.path, paired, deadline)).await;
            drop(ledger_budget.spend(work).await);
            continuity.add_to_report(&mut report);
        }
        if mode == Mode::Strict && lacks_results_only(&report) && results.may_complete_body() {
            let before = read.plain.clone();
            let filled = self.fill_strict_body(received, read, (context, results), ledger_budget, log);
            if let Some(planned) = Box::pin(filled).await? {
                return Ok(planned);
            }
            log.queue_structure(&report, self.wire, before, None);
            return Err(reject_findings(report, self.wire, log));
        }
        log.event.unreadable = report.unread;
        if !report.findings.is_empty() {
            log.queue_structure(&report, self.wire, read.plain.clone(), None);
        }
        report_unedited(report, mode, is_signed, self.wire, log)?;
        Ok(self.original_body(received, read, (context, results), ledger_budget))
    }

    /// Returns the client's own bytes. The calls in them are recorded for late results all the same.
    fn original_body(
        &self,
        received: &ReceivedBody,
        read: Box<ReadBody<'_>>,
        (context, results): (Box<RequestContext>, LateResults),
        ledger_budget: LedgerBudget,
    ) -> Box<PlannedBody> {
        let scope = context.pin_scope(self.wire.format);
        let ReadBody {
            plain,
            paired,
            outline,
            continuity,
            ..
        } = *read;
        let asks = self.asks_for_turn(&context);
        let awaited = asks.then(|| results.note_unedited(|| paired.all_calls())).flatten();
        let pins = awaited.map(|awaited_calls| {
            let mut pins = PendingPins::new(self.path.recall.clone(), scope, plain.clone(), outline);
            pins.ledger_budget = ledger_budget;
            pins.awaited_calls = awaited_calls;
            Box::new(pins)
        });
        Box::new(PlannedBody {
            pins,
            late_results: Some(results),
            continuity,
            ..PlannedBody::from_payload(received.as_it_came(), context)
        })
    }

    /// Restores the results that tool services have posted for the unanswered calls of a body in strict mode.
    ///
    /// Returns `None` if a call would get any other answer: strict mode invents none, and moves nothing.
    async fn fill_strict_body(
        &self,
        received: &ReceivedBody,
        mut read: Box<ReadBody<'_>>,
        (context, results): (Box<RequestContext>, LateResults),
        mut ledger_budget: LedgerBudget,
        log: &mut ExchangeLog,
    ) -> Result<Option<Box<PlannedBody>>, ProxyError> {
        // What the client has dropped is a finding of strict mode, and is never put back.
        read.continuity = None;
        let before = read.plain.clone();
        let mut planned = Box::new(PlannedBody::from_payload(received.as_it_came(), context));
        let report = self
            .plan_in_time(read, received, &mut planned, &results, &mut ledger_budget)
            .await;
        let Ok(report) = report else { return Ok(None) };
        // Without the ledger it is not known whether the body is complete.
        if planned.is_unread() && self.path.settings.on_outage != OnOutage::Degrade {
            return Err(ProxyError::LedgerAway);
        }
        if !planned.is_completed_by_posted_results(&report) {
            return Ok(None);
        }
        let Some(sent) = &mut planned.sent_body else {
            return Ok(None);
        };
        let mark = ledger_budget.spend(|deadline| sent.lookup.mark_restored(&results, deadline));
        match mark.await {
            Ok(true) => {}
            Err(Unread) if self.path.settings.on_outage != OnOutage::Degrade => return Err(ProxyError::LedgerAway),
            Ok(false) | Err(Unread) => return Ok(None),
        }
        if self.asks_for_turn(&planned.context) {
            results.note_detached();
        }
        planned.late_results = Some(results);
        self.finish_repair(before, &mut planned, report, ledger_budget, log);
        // No resend: it would answer the call with a placeholder.
        planned.sent_body = None;
        Ok(Some(planned))
    }

    /// Repairs the body, and pins the results that its calls get for the first time.
    async fn repair_body(
        &self,
        received: &ReceivedBody,
        read: Box<ReadBody<'_>>,
        (context, results): (Box<RequestContext>, LateResults),
        mut ledger_budget: LedgerBudget,
        log: &mut ExchangeLog,
    ) -> Result<Box<PlannedBody>, ProxyError> {
        let before = read.plain.clone();
        let is_shape_unread = read.is_shape_unread;
        let mut planned = Box::new(PlannedBody::from_payload(received.as_it_came(), context));
        match self
            .plan_in_time(read, received, &mut planned, &results, &mut ledger_budget)
            .await
        {
            Ok(report) => {
                let refuses = self.path.settings.on_outage == OnOutage::Refuse;
                let is_unread = planned.is_unread() || is_shape_unread;
                if refuses && is_unread && ledger_budget.is_patient() {
                    return Err(ProxyError::LedgerAway);
                }
                planned.late_results = Some(results);
                self.finish_repair(before, &mut planned, report, ledger_budget, log);
            }
            // A bug of the proxy must not fail the exchange: the provider judges the original.
            Err(reason) => {
                log.event.unreadable = Some(reason);
                log.repair_header = Some(HeaderValue::from_static("unreadable"));
            }
        }
        Ok(planned)
    }

    /// Plans the body, with what the ledger says in time.
    async fn plan_in_time(
        &self,
        read: Box<ReadBody<'_>>,
        received: &ReceivedBody,
        planned: &mut PlannedBody,
        results: &LateResults,
        ledger_budget: &mut LedgerBudget,
    ) -> Result<RepairReport, Unreadable> {
        let planner = self.planner(&planned.context, received);
        if self.must_wait(&read, &planned.context, results) {
            ledger_budget.make_patient();
        }
        let is_patient = ledger_budget.is_patient();
        let scope = planned.context.pin_scope(self.wire.format);
        let before = |deadline| BeforeSend {
            path: self.path,
            results,
            scope,
            deadline,
            is_patient,
        };
        let work = |deadline| planner.plan_body(read, planned, before(deadline));
        ledger_budget.spend(work).await
    }

    /// Notes in a planned body what its repair has changed, and logs the repair.
    fn finish_repair(
        &self,
        before: Bytes,
        planned: &mut PlannedBody,
        mut report: RepairReport,
        ledger_budget: LedgerBudget,
        log: &mut ExchangeLog,
    ) {
        if let Some(continuity) = &planned.continuity {
            planned.context.bind_account(continuity);
        }
        planned.add_to_report(&mut report);
        // Resends get what is left of the budget for the ledger.
        if let Some(pins) = &mut planned.pins {
            pins.ledger_budget = ledger_budget;
        }
        planned.renamed_ids.clone_from(&report.renamed);
        planned.needs_binding_beta = report.actions.contains_key(&Action::Unbind);
        self.log_repair(report, before, planned.sent_body.as_deref(), log);
    }

    /// Returns `true` if the body must wait for a slow ledger: without it, it could contradict what was sent before.
    fn must_wait(&self, read: &ReadBody<'_>, context: &RequestContext, results: &LateResults) -> bool {
        if self.path.settings.on_outage == OnOutage::Degrade || !self.asks_for_turn(context) {
            return false;
        }
        let recall = &self.path.recall;
        let is_stored = recall.survives_restart() && recall.may_have_results(context.caller);
        // A turn of the assistant after an unanswered call was generated with an answer, perhaps one of ours.
        let is_answered_before = |call: &BodyCall| call.turns_after > 0;
        let has_old_call = || read.paired.open_calls().any(is_answered_before);
        (results.may_complete_body() || is_stored) && has_old_call()
            || results.may_have_texts(recall, read.outline.messages)
    }

    /// Writes a repair to the log, and into the header of the answer.
    fn log_repair(&self, report: RepairReport, before: Bytes, sent: Option<&SentBody>, log: &mut ExchangeLog) {
        log.event.unreadable = report.unread;
        log.repair_header = Some(super::actions_header(&report));
        let made = sent.map(|sent| &*sent.made).unwrap_or_default();
        made.clone_into(&mut log.event.mends);
        if !report.actions.is_empty() {
            log.queue_structure(&report, self.wire, before, sent.map(|sent| sent.body.clone()));
        }
        log.event.report = Some(report);
    }

    /// Returns `true` if the request asks for the conversation's next turn: not for a count, a batch or a compaction.
    fn asks_for_turn(&self, context: &RequestContext) -> bool {
        self.route.asks_for_turn() && !context.is_compaction
    }

    /// Returns a body that is sent unread, and logs the reason. Only its path may name objects.
    async fn uninspected_body(
        &self,
        caller: Caller,
        mut ledger_budget: LedgerBudget,
        log: &mut ExchangeLog,
        reason: Unreadable,
        payload: Payload,
    ) -> Box<PlannedBody> {
        log.event.unreadable = Some(reason);
        log.repair_header = Some(HeaderValue::from_static("unreadable"));
        let objects = Box::pin(self.owners.find_objects(caller, &[], &mut ledger_budget)).await;
        let (mut context, _) = self.context_builder(caller).enter_lane(&[], &Outline::default(), log);
        context.follow_owner(objects, self.owners.method);
        Box::new(PlannedBody::from_payload(payload, context))
    }
}
