//! Repair of one request body: read once, looked up once, planned at most twice, spliced.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::{
    call_lookup::{CallLookup, Memory},
    content_coding::Coding,
    context::{ContextBuilder, RequestContext},
    outgoing::{OutgoingBody, Payload, SentBody, streamed},
    pending_pins::{GivenAnswers, PendingPins},
};
use crate::{
    auth::Caller,
    clock,
    conversation::Outline,
    policy::retry::Footing,
    provider::Route,
    proxy::{
        catch_core_panic::catch_core_panic,
        client_body::{ClientBody, Collected},
        data_path::DataPath,
        error::ProxyError,
        exchange_log::ExchangeLog,
        headers::is_signed,
        late_results::{LateResults, LateTexts},
        provider_facts::FactScope,
        rejection::Rejection,
    },
    recall::Patience,
    repair::{
        Action, Assignment, KnownAnswers, Mode, Paired, PairingContext, Parsed, PinnedAnswer, Plan, RepairPolicy,
        RepairReport, parse, plan,
    },
    session::body_user,
    splice::Segments,
    wire::{Unreadable, Wire},
};

/// The repair of the body of one request.
pub(super) struct BodyRepair<'x> {
    pub(super) path: &'x DataPath,
    pub(super) route: &'x Route<'x>,
    pub(super) headers: &'x HeaderMap,
    pub(super) wire: Wire,
    /// The mode of the route, or the client's stricter one.
    pub(super) mode: Mode,
    pub(super) policy: &'x RepairPolicy,
}

/// A body that was read, and the bytes it was read from.
struct Read<'b> {
    plain: &'b Bytes,
    paired: Paired<'b>,
    outline: Outline,
}

/// A repaired body with everything that was known of its calls.
struct Repaired {
    /// The body that the plan was made for: the client's, or with late results at the end of messages.
    plain: Bytes,
    body: Segments,
    report: RepairReport,
    texts: LateTexts,
    lookup: CallLookup,
    pins: Option<PendingPins>,
}

impl BodyRepair<'_> {
    /// Reads the body and decides what is sent in its place.
    pub(super) async fn run(
        &self,
        caller: Caller,
        patience: Patience,
        body: ClientBody,
        log: &mut ExchangeLog,
    ) -> Result<OutgoingBody, ProxyError> {
        let Some(coding) = Coding::of(self.headers) else {
            let payload = Payload::Passing(Some(streamed(body)));
            return Ok(self.unread(caller, log, Unreadable::Coding, payload));
        };
        let limit = self.path.settings.inspect_bytes_max;
        let too_large = |log: &mut ExchangeLog| {
            log.event.unreadable = Some(Unreadable::TooLarge);
            ProxyError::TooLarge { limit }
        };
        let came = match body.collect(limit).await.map_err(ProxyError::Body)? {
            Collected::Whole(came) => came,
            Collected::TooLarge(_) if self.mode == Mode::Strict => return Err(too_large(log)),
            Collected::TooLarge(body) => {
                let payload = Payload::Passing(Some(streamed(body)));
                return Ok(self.unread(caller, log, Unreadable::TooLarge, payload));
            }
        };
        let began = clock::now();
        let decoded = coding.decode(&came, limit);
        let outgoing = match &decoded {
            Ok(plain) => match self.read(caller, plain) {
                Ok((of_body, read)) => {
                    let mut patience = patience;
                    if of_body != caller {
                        super::introduce(self.path, of_body, &mut patience, log).await;
                    }
                    self.decide(of_body, &came, coding, read, patience, log).await
                }
                Err(reason) => Ok(self.unread(caller, log, reason, Payload::Held(Segments::whole(came)))),
            },
            Err(Unreadable::TooLarge) if self.mode == Mode::Strict => Err(too_large(log)),
            Err(reason) => Ok(self.unread(caller, log, *reason, Payload::Held(Segments::whole(came)))),
        };
        log.event.overhead = clock::now().duration_since(began);
        outgoing
    }

    /// Reads a body. Re-scopes the caller to the user that the body names if `trust_body_user` is set.
    fn read<'b>(&self, caller: Caller, plain: &'b Bytes) -> Result<(Caller, Read<'b>), Unreadable> {
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
        let caller = user.map_or(caller, |user| caller.with_user(&self.path.principals, user.as_bytes()));
        let paired = self.pair(caller, parsed)?;
        let read = Read { plain, paired, outline };
        Ok((caller, read))
    }

    /// Pairs a body. Fails if it has findings and is no JSON: the walk stumbled over bytes that are not judged.
    fn pair<'b>(&self, caller: Caller, parsed: Parsed<'b>) -> Result<Paired<'b>, Unreadable> {
        let memory = self.memory(caller);
        catch_read(|| {
            let remote = memory.remote_calls(|| parsed.remote_references());
            let paired = parsed.pair(PairingContext {
                remote: &remote,
                ..PairingContext::new(self.policy)
            });
            paired.check_json()?;
            Ok(paired)
        })
    }

    fn memory(&self, caller: Caller) -> Memory<'_> {
        Memory {
            facts: &self.path.facts,
            recall: &self.path.recall,
            scope: FactScope {
                upstream: &self.route.upstream.name,
                caller,
            },
        }
    }

    fn builder(&self, caller: Caller) -> ContextBuilder<'_> {
        ContextBuilder {
            path: self.path,
            route: self.route,
            headers: self.headers,
            caller,
        }
    }

    /// Decides what is sent for a body that was read.
    async fn decide(
        &self,
        caller: Caller,
        came: &Bytes,
        coding: Coding,
        read: Read<'_>,
        patience: Patience,
        log: &mut ExchangeLog,
    ) -> Result<OutgoingBody, ProxyError> {
        let context = self.builder(caller).enter(read.plain, &read.outline);
        // With a profile the signature is ours, and comes last.
        let is_signed = context.footing == Footing::Passthrough && is_signed(self.headers);
        let mode = if is_signed { Mode::Observe } else { self.mode };
        log.event.mode = Some(mode);
        if mode == Mode::Repair {
            return Ok(self.repair(came, coding, read, context, patience, log).await);
        }
        let report = catch_read(|| plan(&read.paired, &KnownAnswers::default(), self.policy));
        let report = report.map(|plan| plan.report).unwrap_or_default();
        log.event.unreadable = report.unread;
        if !report.findings.is_empty() {
            log.draft(&report, self.wire, read.plain.clone(), None);
        }
        if mode == Mode::Strict && !report.findings.is_empty() {
            log.event.rejected = true;
            log.repair = Some(HeaderValue::from_static("rejected"));
            let findings = report.findings.clone();
            log.event.report = Some(report.without_actions());
            return Err(ProxyError::Rejected(Rejection {
                findings,
                format: self.wire.format,
            }));
        }
        log.event.report = Some(report.without_actions());
        let words = match (mode, is_signed) {
            (Mode::Observe, true) => "observed; reason=signed",
            (Mode::Observe, false) => "observed",
            _ => "none",
        };
        log.repair = Some(HeaderValue::from_static(words));
        Ok(self.as_it_came(came, read, context, patience))
    }

    /// Sends the bytes that came. Its calls are recorded all the same.
    fn as_it_came(&self, came: &Bytes, read: Read<'_>, context: RequestContext, patience: Patience) -> OutgoingBody {
        let results = self.results(&context);
        let is_used = results.late.is_used();
        let pins = (is_used && self.asks_for_turn(&context)).then(|| {
            if context.went_on {
                results.detach_lane();
            }
            // Nothing was put in: no call was given an answer.
            PendingPins {
                results: results.clone(),
                patience,
                answers: GivenAnswers::default(),
                posted: std::collections::HashMap::new(),
                placed: None,
                plain: read.plain.clone(),
                outline: read.outline,
            }
        });
        OutgoingBody {
            pins,
            results: is_used.then_some(results),
            ..OutgoingBody::untouched(Payload::Held(Segments::whole(came.clone())), context)
        }
    }

    /// Repairs the body and pins the answers that its calls are given now.
    async fn repair(
        &self,
        came: &Bytes,
        coding: Coding,
        read: Read<'_>,
        context: RequestContext,
        mut patience: Patience,
        log: &mut ExchangeLog,
    ) -> OutgoingBody {
        let (before, results) = (read.plain.clone(), self.results(&context));
        let work = |deadline| self.answer_calls(read, &context, &results, deadline);
        let repaired = match patience.spend(work).await {
            Ok(repaired) => repaired,
            // A bug of ours: the provider judges the original.
            Err(reason) => {
                log.event.unreadable = Some(reason);
                log.repair = Some(HeaderValue::from_static("unreadable"));
                return OutgoingBody::untouched(Payload::Held(Segments::whole(came.clone())), context);
            }
        };
        let Repaired {
            plain,
            body,
            mut report,
            texts,
            lookup,
            mut pins,
        } = repaired;
        if let Some(pins) = &mut pins {
            pins.patience = patience;
        }
        log.event.unreadable = report.unread;
        if texts.count > 0 {
            report.actions.insert(Action::Append, texts.count);
        }
        log.repair = Some(super::actions_header(&report));
        if !report.actions.is_empty() {
            log.draft(&report, self.wire, before, Some(body.clone()));
        }
        let renamed = report.renamed.clone();
        let asks_for_binding_controls = report.actions.contains_key(&Action::Unbind);
        log.event.report = Some(report);
        // Untouched, the very bytes that came are sent, coded as they were.
        let is_untouched = body.is_original() && texts.count == 0;
        let sent = SentBody {
            plain,
            ends_with_late: texts.at_the_end,
            body: body.clone(),
            lookup,
            wire: self.wire,
            results: results.clone(),
        };
        OutgoingBody {
            payload: Payload::Held(if is_untouched {
                Segments::whole(came.clone())
            } else {
                body
            }),
            is_decoded: coding != Coding::Identity && !is_untouched,
            renamed,
            sent: Some(sent),
            pins,
            results: results.late.is_used().then_some(results),
            asks_for_binding_controls,
            context,
        }
    }

    fn results(&self, context: &RequestContext) -> LateResults {
        LateResults {
            late: self.path.late.clone(),
            recall: self.path.recall.clone(),
            caller: context.caller,
            format: self.wire.format,
            lane: context.lane,
            session: context.session,
        }
    }

    /// Puts late results in, looks the open calls up, plans, and pins what the plan assigns before it is sent.
    ///
    /// Counts, batches and compactions read, and pin nothing.
    async fn answer_calls(
        &self,
        read: Read<'_>,
        context: &RequestContext,
        results: &LateResults,
        deadline: Instant,
    ) -> Result<Repaired, Unreadable> {
        let Read {
            plain,
            mut paired,
            mut outline,
        } = read;
        let (asks, caller) = (self.asks_for_turn(context), context.caller);
        if asks && context.went_on {
            results.detach_lane();
        }
        let conversation = results.scope().lane.map(|lane| *lane.as_bytes());
        paired.set_conversation(conversation);
        let (mut plain, mut texts) = (plain.clone(), LateTexts::default());
        let late = results.put_late_texts(&plain, &paired, &outline, asks, deadline);
        let late_body;
        if let Some(late) = late.await {
            late_body = late.body;
            // The only second parse of a request: the bytes have changed.
            if let Ok(again) = catch_read(|| parse(&late_body, self.wire))
                && let Ok(mut again) = self.pair(caller, again)
            {
                again.set_conversation(conversation);
                (paired, plain, texts) = (again, late_body.clone(), late.texts);
            }
        }
        let memory = self.memory(caller);
        let mut lookup = CallLookup::default();
        let unknown = lookup.recall(&paired, memory, results);
        if !unknown.is_empty() {
            lookup.fetch(&unknown, results, &texts.told, deadline).await;
        }
        let mut plan = self.plan(&paired, &lookup, caller)?;
        let mut answers = given_answers(&paired, &plan, &lookup, caller);
        // The first writer wins: the plan is made once more with its answers.
        if asks && self.pin(&answers, results, &mut lookup, deadline).await {
            plan = self.plan(&paired, &lookup, caller)?;
            answers = given_answers(&paired, &plan, &lookup, caller);
        }
        let body = catch_read(|| plan.splice(&paired, &plain))?;
        if asks {
            for (call, answer) in &answers.assigned {
                self.path.telemetry.record_frozen_answer(lookup.label_of(*call, answer));
            }
            if texts.count > 0 {
                outline = paired.outline();
            }
        }
        let pins = asks.then(|| PendingPins {
            results: results.clone(),
            patience: Patience::WHOLE,
            answers,
            posted: lookup.posted.clone(),
            placed: None,
            plain: plain.clone(),
            outline,
        });
        Ok(Repaired {
            plain: plain.clone(),
            body,
            report: plan.report,
            texts,
            lookup,
            pins,
        })
    }

    /// Pins the answers that a plan assigns. Adopts those that another request has pinned first, and returns whether it did.
    async fn pin(
        &self,
        answers: &GivenAnswers,
        results: &LateResults,
        lookup: &mut CallLookup,
        deadline: Instant,
    ) -> bool {
        if answers.assigned.is_empty() {
            return false;
        }
        self.path.facts.warn_of_short_lived_credential(self.headers);
        let pin = self.path.recall.freeze(results.scope(), &answers.assigned, deadline);
        let conflicts = pin.await;
        let has_conflicts = !conflicts.is_empty();
        lookup.known.pinned.extend(conflicts);
        has_conflicts
    }

    fn plan(&self, paired: &Paired<'_>, lookup: &CallLookup, caller: Caller) -> Result<Plan, Unreadable> {
        catch_read(|| {
            let mut plan = plan(paired, &lookup.known, self.policy)?;
            let scope = self.memory(caller).scope;
            let key = || paired.first_thinking().map(|thinking| scope.conversation(thinking));
            if self.path.facts.may_drop_thinking(key) {
                plan.drop_bound_thinking(paired)?;
            }
            Ok(plan)
        })
    }

    /// Whether the request asks the model for a turn of the conversation itself.
    fn asks_for_turn(&self, context: &RequestContext) -> bool {
        self.route.asks_for_a_turn() && !context.compacts
    }

    /// Sends a body as it came, unread.
    fn unread(&self, caller: Caller, log: &mut ExchangeLog, reason: Unreadable, payload: Payload) -> OutgoingBody {
        log.event.unreadable = Some(reason);
        log.repair = Some(HeaderValue::from_static("unreadable"));
        let context = self.builder(caller).enter(&[], &Outline::default());
        OutgoingBody::untouched(payload, context)
    }
}

/// Returns the answers of the calls of a plan: those it assigns and pins, and those that earlier requests gave.
pub(in crate::proxy) fn given_answers(
    paired: &Paired<'_>,
    plan: &Plan,
    lookup: &CallLookup,
    caller: Caller,
) -> GivenAnswers {
    // A result of a call that may be another one's too is derived anew from each body.
    let is_pinned = |assigned: &&Assignment| {
        let is_own = caller.is_authenticated() && assigned.is_unique;
        is_own || matches!(assigned.answer, PinnedAnswer::Placeholder(_))
    };
    let assigned = plan.assigned.iter().filter(is_pinned);
    let pinned = |key| lookup.known.pinned.get(key);
    let used = paired
        .open_calls()
        .filter_map(|call| Some((call.key, pinned(&call.key)?.clone())));
    GivenAnswers {
        used: used.collect(),
        assigned: assigned
            .map(|assigned| (assigned.call, assigned.answer.clone()))
            .collect(),
    }
}

/// Runs the core. A panic would be our own bug: the provider then judges the original.
fn catch_read<T>(work: impl FnOnce() -> Result<T, Unreadable>) -> Result<T, Unreadable> {
    catch_core_panic(|| Some(work())).unwrap_or(Err(Unreadable::Overlap))
}
