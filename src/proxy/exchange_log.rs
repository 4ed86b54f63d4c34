//! The log of one exchange: filled as the exchange proceeds, sent to telemetry exactly once, however it ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header::USER_AGENT};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    attempt_reporter::AttemptReporter,
    headers,
    late_results::{CallRecording, LateResults, WaitingResults},
    request_ids::RequestIds,
};
use crate::{
    clock,
    keys::profiles::ProfilePlace,
    keys::rotation::ChangeCause,
    policy::{Class, LimitHints, Observation, Side, Verdict, classify, stream_timeouts::StreamState},
    printable::printable_word,
    provider::Route,
    repair::{ContinuityKind, RepairReport},
    server::{ClientConnection, ClientStall},
    session::Lane,
    session_table::{DetachReason, LaneNames},
    splice::Segments,
    telemetry::{
        Telemetry,
        dashboard::StructureJob,
        events::{ExchangeEnded, ModelRequest, RowOutcome},
    },
    wire::{
        Format, Wire,
        watch::{EmittedCalls, Facts},
    },
};

/// Log of one exchange. If it is dropped before its end, it records that the client has gone away.
#[derive(Debug)]
pub(super) struct ExchangeLog {
    /// Event for telemetry, as far as it is known.
    pub event: Box<ExchangeEnded>,
    /// Name of the present phase of the exchange.
    pub phase: &'static str,
    /// Value of `x-antiphon-repair`. `None` if nothing was inspected.
    pub(super) repair_header: Option<HeaderValue>,
    /// Bytes read so far of the request's body.
    pub bytes_in: Arc<AtomicU64>,
    telemetry: Telemetry,
    began_at: Instant,
    head_at: Option<Instant>,
    /// The part of the wait for the ledger during which a part of the provider's body waited too.
    body_hold: Duration,
    /// Verdict of an answer whose head already was an error.
    pub(super) head_verdict: Option<Verdict>,
    /// Start and timeout of the present wait for the provider. `None` if there is none.
    provider_wait: Option<(Instant, Duration)>,
    /// `true` if the request asks only for a compaction of the history.
    pub(super) is_compaction: bool,
    /// Row of refusals by which the client's error was explained. `None` if it is the provider's own.
    explained: Option<HeaderValue>,
    /// Reason of a resend after a refusal, as a metric label.
    resend_reason: Option<&'static str>,
    /// Flag of the connection: the client has stopped reading.
    client_stalled: Option<ClientStall>,
    /// Profile that the lane had before, and the cause of the change.
    pub(super) left_profile: Option<(String, ChangeCause)>,
    /// Place of the exchange in its profile.
    pub(super) profile_place: Option<ProfilePlace>,
    /// Part of the upstream's retry budget that the client token may use, in percent. `None` for the default.
    pub(super) retry_percent: Option<u8>,
    /// Place among the exchanges of the client token. `None` if their number is not limited.
    pub(super) client_place: Option<OwnedSemaphorePermit>,
    /// Reporter of the present attempt. `None` once its outcome is reported.
    pub(super) reporter: Option<Box<AttemptReporter>>,
    /// Late results that the answer's head mentions. `None` if no tool service is configured.
    pub(super) waiting_results: Option<WaitingResults>,
    is_ended: bool,
}

impl ExchangeLog {
    /// Creates the log of a request.
    pub(super) fn for_request<B>(telemetry: &Telemetry, ids: &RequestIds, request: &Request<B>) -> Self {
        let event = Box::new(ExchangeEnded {
            request_id: ids.next_id(),
            method: method_name(request.method()),
            path: request.uri().path().to_owned(),
            // Until the route is known: a client with a wrong base URL asks for an answer too.
            asks_model: request.method() == Method::POST,
            client: client_program(request.headers()),
            // Started before routing, so that a refused request has its span too.
            trace: telemetry.start_trace(request.headers()),
            ..ExchangeEnded::default()
        });
        let telemetry = telemetry.clone();
        telemetry.record_exchange_start();
        Self {
            event,
            phase: "request",
            repair_header: None,
            bytes_in: Arc::default(),
            telemetry,
            began_at: clock::now(),
            head_at: None,
            body_hold: Duration::ZERO,
            head_verdict: None,
            provider_wait: None,
            is_compaction: false,
            explained: None,
            resend_reason: None,
            client_stalled: request
                .extensions()
                .get::<ClientConnection>()
                .map(|connection| connection.stall.clone()),
            left_profile: None,
            profile_place: None,
            retry_percent: None,
            client_place: None,
            reporter: None,
            waiting_results: None,
            is_ended: false,
        }
    }

    /// Returns the telemetry sink, for events during the exchange.
    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Records that a request is sent now, and the configured timeout for the head of its answer. Returns the present.
    pub(super) fn record_send(&mut self, limit: Duration) -> Instant {
        let now = clock::now();
        self.phase = "headers";
        self.provider_wait = Some((now, limit));
        self.event.sends += 1;
        if let Some(trace) = &mut self.event.trace {
            trace.record_first_send(now.duration_since(self.began_at));
        }
        now
    }

    /// Records a resend after a refusal that named what was wrong with the request.
    pub(super) fn record_resend(&mut self, why: &'static str) {
        self.telemetry.record_resend(why);
        self.resend_reason = Some(why);
    }

    /// Records what became of a refusal that a row has read.
    pub(super) fn record_row(&mut self, row: &str, outcome: RowOutcome) {
        self.event.record_row(row, outcome);
    }

    /// Records the upstream of the request.
    pub(super) fn record_upstream(&mut self, route: &Route<'_>) {
        self.event.upstream = Some(route.upstream.name.clone());
        self.event.asks_model = route.asks_model;
        if let Some(trace) = &mut self.event.trace {
            trace.set_route(route);
        }
    }

    /// Records the name of the client token.
    pub(super) fn record_client_token(&mut self, name: &str) {
        self.event.client_token = Some(printable_word(name.as_bytes()));
    }

    /// Records the model of the request.
    pub(super) fn record_model(&mut self, model: Option<&str>) {
        self.event.model = model.map(|model| printable_word(model.as_bytes()));
    }

    /// Records the lane of the request.
    pub(super) fn record_lane(&mut self, lane: Option<Lane>) {
        self.event.lane = lane.map(|lane| lane.id.short_hash());
    }

    /// Returns the names that operators see beside the lane of the request.
    pub(super) fn lane_names(&self) -> LaneNames<'_> {
        LaneNames {
            upstream: self.event.upstream.as_deref(),
            model: self.event.model.as_deref(),
            client: self.event.client.as_deref(),
            token: self.event.client_token.as_deref(),
        }
    }

    /// Records the model request for traces. Returns the `traceparent` that is sent in place of the client's, if any.
    pub(super) fn record_model_request(&mut self, asking: ModelRequest<'_>) -> Option<HeaderValue> {
        let trace = self.event.trace.as_mut()?;
        trace.set_request(asking);
        // Exporting traces is no reason to change requests: propagation is a setting of its own.
        self.telemetry
            .has_trace_propagation()
            .then(|| trace.traceparent_header())
            .flatten()
    }

    /// Records the arrival of bytes of a streamed answer.
    pub(super) fn record_chunk(&mut self) {
        // The clock is read for the first bytes only, and only for sampled traces.
        if let Some(trace) = self.event.trace.as_mut().filter(|trace| trace.needs_first_chunk()) {
            trace.record_first_chunk(clock::now().duration_since(self.began_at));
        }
    }

    /// Records that the exchange waits for its next attempt, and for no provider.
    pub(super) fn enter_queue(&mut self) {
        self.phase = "queue";
        self.provider_wait = None;
    }

    /// Reports the verdict on the present attempt. Later calls for the same attempt do nothing.
    pub(super) fn report_attempt(&mut self, verdict: Verdict, hints: &LimitHints) {
        self.provider_wait = None;
        // Taken, because each attempt may cost a profile or an endpoint something only once.
        if let Some(reporter) = self.reporter.take() {
            reporter.report_verdict(verdict, hints);
        }
    }

    /// Records the head of the provider's answer. `sent` is the time at which its request was ready.
    pub(super) fn record_head(&mut self, sent: Instant) {
        let now = clock::now();
        self.phase = "body";
        self.provider_wait = None;
        self.event.upstream_head = Some(now.duration_since(sent));
        self.head_at = Some(now);
    }

    /// Records that the body of the provider's answer has begun. Only the first call counts.
    ///
    /// The metric shows how long a stream stays empty after its head.
    pub(super) fn record_first_byte(&mut self) {
        if let Some(came) = self.head_at.filter(|_| self.event.first_byte.is_none()) {
            let took = clock::now().duration_since(came);
            self.event.first_byte = Some(took);
            self.telemetry.record_first_byte(took);
        }
    }

    /// Records that the answer has waited for the ledger since `began`, and a part of its body since `body_came`.
    pub(super) fn record_hold(&mut self, began: Instant, body_came: Option<Instant>) {
        let now = clock::now();
        self.event.ledger_hold += now.duration_since(began);
        self.body_hold += body_came.map_or(Duration::ZERO, |came| now.duration_since(came));
    }

    /// Records bytes of the answer's body that are passed to the client.
    pub(super) fn record_bytes_out(&mut self, bytes: usize) {
        if bytes > 0 {
            self.record_first_byte();
        }
        self.event.bytes_out = self.event.bytes_out.saturating_add(bytes as u64);
    }

    /// Adds the proxy's headers to an answer's head for the client, and records its status.
    pub(super) fn complete_head(&mut self, status: StatusCode, fields: &mut HeaderMap) {
        self.event.status = status.as_u16();
        if let Ok(id) = HeaderValue::from_str(&self.event.request_id) {
            fields.insert(headers::REQUEST_ID, id);
        }
        // Without an attempt no provider was asked: the proxy itself answers.
        if self.event.sends > 0 {
            fields.insert(headers::ATTEMPTS, self.event.sends.into());
        }
        if let Some(profile) = self
            .profile_header()
            .and_then(|words| HeaderValue::try_from(words).ok())
        {
            fields.insert(headers::PROFILE, profile);
        }
        if let Some(repair) = self.repair_header.take() {
            fields.insert(headers::REPAIR, repair);
        }
        // Names of rows are words, so that none of them is left out.
        if let Some(rules) = self.event.rules().and_then(|rules| HeaderValue::try_from(rules).ok()) {
            fields.insert(headers::RULE, rules);
        }
        if let Some(row) = self.explained.take() {
            fields.insert(headers::EXPLAINED, row);
        }
        if let Some(waiting) = &self.waiting_results {
            waiting.add_headers(fields);
        }
    }

    /// Records that the error for the client was explained, by this row of refusals.
    pub(super) fn record_explanation(&mut self, row: &str) {
        self.event.record_row(row, RowOutcome::Explained);
        self.explained = HeaderValue::try_from(row).ok();
    }

    /// Returns the value of `x-antiphon-profile`: `b`, or `b; from=a; reason=auth` if the lane has left profile `a`.
    fn profile_header(&self) -> Option<String> {
        let label = self.event.profile.as_deref()?;
        Some(match &self.left_profile {
            None => label.to_owned(),
            Some((from, ChangeCause::Other)) => format!("{label}; from={from}"),
            Some((from, cause)) => format!("{label}; from={from}; reason={}", cause.label()),
        })
    }

    /// Returns `true` if the values that the answer carries are noted.
    pub(super) fn notes_carried(&self) -> bool {
        self.reporter.as_ref().is_some_and(|reporter| reporter.note.is_some())
    }

    /// Returns `true` if the reasoning that the answer carries is noted.
    pub(super) fn notes_reasoning(&self) -> bool {
        let note = self.reporter.as_ref().and_then(|reporter| reporter.note.as_ref());
        note.is_some_and(|note| note.kinds.contains(&ContinuityKind::Reasoning))
    }

    /// Returns `true` if the items of the answer are noted.
    pub(super) fn notes_items(&self) -> bool {
        self.reporter.as_ref().is_some_and(|reporter| reporter.chain.is_some())
    }

    /// Returns `true` if a tool service may answer the calls of this exchange, so that their arguments are recorded.
    pub(super) fn notes_inputs(&self) -> bool {
        self.late_results().is_some_and(LateResults::notes_inputs)
    }

    /// Returns the late results of the exchange, for what its answer says of them. `None` once its outcome is reported.
    fn late_results(&self) -> Option<&LateResults> {
        self.reporter.as_ref()?.late_results.as_ref()
    }

    /// Records the calls of a whole answer. Returns the recording, unless no tool service may answer one of them or all
    /// are recorded already.
    pub(super) fn record_calls(&self, calls: &EmittedCalls) -> Option<CallRecording> {
        self.late_results()?.begin_recording(calls)
    }

    /// Stores the values that an answer carries, once it is complete. Only the first call counts.
    pub(super) fn store_carried(&mut self, facts: &Facts, format: Format) {
        // Half an answer is not what the client sends back.
        let is_whole = facts.error.is_none() && facts.is_complete(format);
        let Some(reporter) = self.reporter.as_mut().filter(|_| is_whole) else {
            return;
        };
        if let Some(note) = reporter.note.take() {
            note.store_values(facts);
        }
        if let Some(chain) = reporter.chain.take() {
            chain.store_chain(facts);
        }
    }

    /// Reads the head of an answer that may name objects of the provider.
    pub(super) fn read_object_head(&mut self, headers: &HeaderMap) {
        if let Some(reporter) = &mut self.reporter {
            reporter.objects.take_if(|note| !note.read_head(headers));
        }
    }

    /// Stores the provider's objects that bytes of the answer name. The client's next request may come at once.
    pub(super) fn read_objects(&mut self, data: &Bytes, facts: Option<&Facts>) {
        if let Some(note) = self.reporter.as_mut().and_then(|reporter| reporter.objects.as_mut()) {
            note.read_body(data, facts.and_then(|facts| facts.answer_id.as_deref()));
        }
    }

    /// Ends the log after an answer's body. Only the first end counts.
    pub(super) fn end_with_body(&mut self, verdict: Verdict, hints: &LimitHints, facts: Option<&Facts>) {
        if self.is_ended {
            return;
        }
        // An error in the head stays the cause, however its body ended.
        if let Some(told) = self.head_verdict {
            return self.end_exchange(told, "headers");
        }
        // Before the verdict is reported, which consumes the reporter.
        if let (Some(reporter), Some(facts)) = (&self.reporter, facts) {
            let dropped = reporter.record_answer(facts, verdict, self.event.running_tool.as_ref());
            self.telemetry
                .record_detached_calls(DetachReason::StreamDropped, dropped);
        }
        // Half an answer proves that the provider had the results, and not that the client will go on.
        if let Some(reporter) = self.reporter.as_ref().filter(|_| verdict.class == Class::Success) {
            reporter.note_delivered();
        }
        self.report_attempt(verdict, hints);
        let phase = if verdict.class == Class::Success {
            "done"
        } else {
            "body"
        };
        self.end_exchange(verdict, phase);
    }

    /// Queues the structure of a body with findings for the dashboard, before and after its repair.
    pub(super) fn queue_structure(&self, report: &RepairReport, wire: Wire, before: Bytes, after: Option<Segments>) {
        self.telemetry.queue_structure(StructureJob {
            id: self.event.request_id.clone(),
            before,
            after,
            wire,
            finding_messages: report.findings.iter().map(|finding| finding.message).collect(),
        });
    }

    /// Ends the log. Only the first end counts.
    pub(super) fn end_exchange(&mut self, verdict: Verdict, phase: &'static str) {
        if self.is_ended {
            return;
        }
        self.is_ended = true;
        // At once: the client's next request may come before this log is dropped.
        self.client_place = None;
        self.profile_place = None;
        // An attempt that was not judged before ends with its exchange.
        self.report_attempt(verdict, &LimitHints::default());
        self.event.bytes_in = self.bytes_in.load(Ordering::Relaxed);
        let now = clock::now();
        self.event.duration = now.duration_since(self.began_at);
        let body = self.head_at.map(|came| now.duration_since(came));
        // Until the first part of the body, the provider needed the time that the head was held.
        self.event.upstream_body = body.map(|took| took.saturating_sub(self.body_hold));
        self.event.side = verdict.class.fault_side().map(Side::label);
        self.event.is_stalled = phase == "body" && verdict.class.is_silence();
        (self.event.phase, self.event.code) = (phase, verdict.code);
        // A 400 after a resend means that the resend was refused too.
        if let Some(why) = self.resend_reason.filter(|_| self.event.status == 400) {
            self.telemetry.record_refused_resend(why);
        }
        self.telemetry.record_exchange(&self.event);
    }

    /// Returns the time since the exchange began.
    pub(super) fn elapsed_time(&self) -> Duration {
        clock::now().duration_since(self.began_at)
    }

    /// Returns the verdict on a client that is gone. `late` is `true` if it waited for more than half of the timeout.
    pub(super) fn client_gone_verdict(&self, state: StreamState, late: bool) -> Verdict {
        let stalled = self.client_stalled.as_ref().is_some_and(ClientStall::has_stalled);
        // The server cuts a connection that is not read: the client did not leave by itself.
        if stalled {
            Verdict::from_class(Class::ClientStalled)
        } else {
            classify(Observation::ClientGone { state, is_late: late })
        }
    }

    /// Returns `true` if bytes of the answer wait for the client to read.
    pub(super) fn is_client_behind(&self) -> bool {
        self.client_stalled.as_ref().is_some_and(ClientStall::is_write_waiting)
    }

    /// Returns the time at which the exchange began.
    pub(super) const fn start_time(&self) -> Instant {
        self.began_at
    }
}

impl Drop for ExchangeLog {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        // hyper drops an exchange whose client has closed the connection.
        let waited = self
            .provider_wait
            .map(|(since, limit)| (clock::now().duration_since(since), limit));
        // A long wait suggests a timeout of the client, which says something about the provider.
        let late = waited.is_some_and(|(waited, limit)| waited * 2 > limit);
        let state = StreamState::before_head(self.is_compaction);
        self.end_exchange(self.client_gone_verdict(state, late), self.phase);
    }
}

/// Returns the program that the client names first, such as `claude-cli/1.0.83`.
fn client_program(headers: &HeaderMap) -> Option<String> {
    // Later products and comments describe its libraries and the machine.
    let product = headers.get(USER_AGENT)?.as_bytes().split(|byte| *byte == b' ').next()?;
    (!product.is_empty()).then(|| printable_word(product))
}

/// Returns the name of a method for telemetry. Unknown methods share one, since clients may invent any number.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}
