//! The log of one exchange: filled on its way, sent to telemetry exactly once, whoever ends it.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use tokio::time::Instant;
use uuid::Builder;

use super::{attempt_outcome::AttemptOutcome, headers};
use crate::{
    auth::Caller,
    clock,
    late::Late,
    policy::{
        Class, Evidence, Hints, Reason, Side, Verdict, classify,
        course::{Open, State},
    },
    provider::Route,
    repair::RepairReport,
    server::Stalled,
    session_table::Detached,
    splice::Segments,
    telemetry::{
        Telemetry,
        dashboard::StructureJob,
        events::{ExchangeEnded, ModelRequest},
    },
    wire::{Wire, watch::Facts},
};

/// Request ids: UUIDs of version 7.
///
/// Their random bits are a keyed hash of a counter: the system's own randomness would cost one call into it an id.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    key: RandomState,
    count: AtomicU64,
}

impl RequestIds {
    fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low] = [0_u8, 1].map(|half| u128::from(self.key.hash_one((count, half))));
        let random = ((high << 64) | low).to_be_bytes();
        let random = random.first_chunk().copied().unwrap_or_default();
        let millis = u64::try_from(clock::since_1970().as_millis()).unwrap_or(u64::MAX);
        let id = Builder::from_unix_timestamp_millis(millis, &random);
        id.into_uuid().to_string()
    }
}

/// The log of one exchange. If it is dropped before it was ended, the client has gone away.
#[derive(Debug)]
pub(super) struct ExchangeLog {
    /// What is known so far.
    pub event: Box<ExchangeEnded>,
    /// The phase the exchange is in.
    pub phase: &'static str,
    /// The value of `x-antiphon-repair`; none where nothing was inspected.
    pub(super) repair: Option<HeaderValue>,
    /// Bytes of the request's body read so far.
    pub bytes_in: Arc<AtomicU64>,
    telemetry: Telemetry,
    began: Instant,
    head_came: Option<Instant>,
    /// The verdict that the answer's head has told already: a refusal.
    told: Option<Verdict>,
    /// While the provider is waited for: since when, and how long at most.
    waits: Option<(Instant, Duration)>,
    /// Whether the request asks for nothing but a compaction.
    pub(super) compacts: bool,
    /// Why the request went up once more after a refusal.
    again: Option<&'static str>,
    /// What tells that the client has stopped reading.
    stalled: Option<Stalled>,
    /// The profile that the lane had before, and the recorded reason why it left.
    pub(super) moved: Option<(String, Option<Reason>)>,
    /// Outcome of the attempt at hand, not yet reported.
    pub(super) outcome: Option<AttemptOutcome>,
    /// The caller for whom the answer's head mentions late results. `None` if no tool service is configured.
    pub(super) reader: Option<(Late, Caller)>,
    ended: bool,
}

impl ExchangeLog {
    /// Begins the log of a request.
    pub(super) fn begin<B>(telemetry: &Telemetry, ids: &RequestIds, request: &Request<B>) -> Self {
        let event = Box::new(ExchangeEnded {
            request_id: ids.next(),
            method: method(request.method()),
            upstream: None,
            path: request.uri().path().to_owned(),
            format: None,
            mode: None,
            status: 0,
            report: None,
            unreadable: None,
            rejected: false,
            attempts: 0,
            bytes_in: 0,
            bytes_out: 0,
            overhead: Duration::ZERO,
            upstream_head: None,
            upstream_body: None,
            duration: Duration::ZERO,
            watched: None,
            profile: None,
            tool: None,
            stalled: false,
            side: None,
            phase: "request",
            code: "client_gone",
            trace: telemetry.start_trace(request.headers()),
        });
        let telemetry = telemetry.clone();
        telemetry.record_exchange_start();
        Self {
            event,
            phase: "request",
            repair: None,
            bytes_in: Arc::default(),
            telemetry,
            began: clock::now(),
            head_came: None,
            told: None,
            waits: None,
            compacts: false,
            again: None,
            stalled: request.extensions().get::<Stalled>().cloned(),
            moved: None,
            outcome: None,
            reader: None,
            ended: false,
        }
    }

    /// The sink, for what is counted on the way.
    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Notes that a request goes up now, and how long its answer may take to begin.
    pub(super) fn sends(&mut self, limit: Duration) -> Instant {
        let now = clock::now();
        self.phase = "headers";
        self.waits = Some((now, limit));
        self.event.attempts += 1;
        if let Some(trace) = &mut self.event.trace {
            trace.record_first_send(now.duration_since(self.began));
        }
        now
    }

    /// Notes that the request goes up once more, since the provider said what was wrong with it.
    pub(super) fn sends_again(&mut self, why: &'static str) {
        self.telemetry.record_second_repair(why);
        self.again = Some(why);
    }

    /// Notes where the request goes.
    pub(super) fn goes_to(&mut self, route: &Route<'_>) {
        self.event.upstream = Some(route.upstream.name.clone());
        if let Some(trace) = &mut self.event.trace {
            trace.set_route(route);
        }
    }

    /// Notes what the request asks for. Returns the `traceparent` that is sent in place of the client's.
    pub(super) fn asks(&mut self, asking: ModelRequest<'_>) -> Option<HeaderValue> {
        let trace = self.event.trace.as_mut()?;
        trace.set_request(asking);
        self.telemetry
            .has_trace_propagation()
            .then(|| trace.traceparent())
            .flatten()
    }

    /// Notes that bytes of a streamed answer come.
    pub(super) fn chunk_came(&mut self) {
        if let Some(trace) = self.event.trace.as_mut().filter(|trace| trace.needs_first_chunk()) {
            trace.record_first_chunk(clock::now().duration_since(self.began));
        }
    }

    /// Notes that nobody is asked for the moment.
    pub(super) fn queues(&mut self) {
        self.phase = "queue";
        self.waits = None;
    }

    /// The verdict on the attempt at hand: reported once, whatever follows.
    pub(super) fn judge(&mut self, verdict: Verdict, hints: &Hints) {
        self.waits = None;
        if let Some(outcome) = self.outcome.take() {
            outcome.report(verdict, hints);
        }
    }

    /// Notes what the head of the answer for the client says.
    pub(super) fn tell(&mut self, verdict: Verdict) {
        self.told = Some(verdict);
    }

    /// Notes that the provider's answer has begun; `sent` is when its request was ready.
    pub(super) fn head_came(&mut self, sent: Instant) {
        let now = clock::now();
        self.phase = "body";
        self.waits = None;
        self.event.upstream_head = Some(now.duration_since(sent));
        self.head_came = Some(now);
    }

    /// Notes so many bytes of the answer's body that go to the client.
    pub(super) fn passes(&mut self, bytes: usize) {
        if let Some(came) = self.head_came.filter(|_| self.event.bytes_out == 0 && bytes > 0) {
            self.telemetry.record_first_byte(clock::now().duration_since(came));
        }
        self.event.bytes_out = self.event.bytes_out.saturating_add(bytes as u64);
    }

    /// Puts our notes on a head that goes to the client, and notes its status.
    pub(super) fn answered(&mut self, status: StatusCode, fields: &mut HeaderMap) {
        self.event.status = status.as_u16();
        if let Ok(id) = HeaderValue::from_str(&self.event.request_id) {
            fields.insert(headers::REQUEST_ID, id);
        }
        if self.event.attempts > 0 {
            fields.insert(headers::ATTEMPTS, self.event.attempts.into());
        }
        if let Some(profile) = self.profile_words().and_then(|words| HeaderValue::try_from(words).ok()) {
            fields.insert(headers::PROFILE, profile);
        }
        if let Some(repair) = self.repair.take() {
            fields.insert(headers::REPAIR, repair);
        }
        self.late_results(fields);
    }

    /// Tells a caller that is known by which name services find his calls, and how many results wait for him.
    fn late_results(&self, fields: &mut HeaderMap) {
        let Some((late, caller)) = &self.reader else { return };
        if !late.callers().is_known(*caller) {
            return;
        }
        if let Ok(owner) = HeaderValue::try_from(late.owner(*caller).to_string()) {
            fields.insert(headers::OWNER, owner);
        }
        let pending = late.pending(*caller);
        if pending > 0 {
            fields.insert(headers::PENDING_RESULTS, pending.into());
        }
    }

    /// The value of `x-antiphon-profile`: `b`, or `b; from=a; reason=auth` where the lane has left another for it.
    fn profile_words(&self) -> Option<String> {
        let label = self.event.profile.as_deref()?;
        Some(match &self.moved {
            None => label.to_owned(),
            Some((from, None)) => format!("{label}; from={from}"),
            Some((from, Some(reason))) => format!("{label}; from={from}; reason={}", reason.label()),
        })
    }

    /// Ends the record behind an answer's body; only the first end counts.
    pub(super) fn end_of_body(&mut self, verdict: Verdict, hints: &Hints, facts: Option<&Facts>) {
        if self.ended {
            return;
        }
        if let (Some(outcome), Some(facts)) = (&self.outcome, facts) {
            let dropped = outcome.note_answer(facts, verdict, self.event.tool.as_ref());
            self.telemetry.record_detached_calls(Detached::StreamDropped, dropped);
        }
        self.judge(verdict, hints);
        match self.told {
            Some(told) => self.end(told, "headers"),
            None if verdict.class == Class::Success => self.end(verdict, "done"),
            None => self.end(verdict, "body"),
        }
    }

    /// Shows those who watch how a body in which something was found stands, and how it goes up.
    pub(super) fn draft(&self, report: &RepairReport, wire: Wire, before: Bytes, after: Option<Segments>) {
        self.telemetry.queue_structure(StructureJob {
            id: self.event.request_id.clone(),
            before,
            after,
            wire,
            found: report.findings.iter().map(|finding| finding.message).collect(),
        });
    }

    /// Ends the record; only the first end counts.
    pub(super) fn end(&mut self, verdict: Verdict, phase: &'static str) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.judge(verdict, &Hints::default());
        self.event.bytes_in = self.bytes_in.load(Ordering::Relaxed);
        let now = clock::now();
        self.event.duration = now.duration_since(self.began);
        self.event.upstream_body = self.head_came.map(|came| now.duration_since(came));
        self.event.side = verdict.side().map(Side::label);
        self.event.stalled = phase == "body" && verdict.class.is_silence();
        (self.event.phase, self.event.code) = (phase, verdict.code);
        if let Some(why) = self.again.filter(|_| self.event.status == 400) {
            self.telemetry.record_second_refusal(why);
        }
        self.telemetry.record_exchange(&self.event);
    }

    /// How long the exchange has taken so far.
    pub(super) fn spent(&self) -> Duration {
        clock::now().duration_since(self.began)
    }

    /// What it means that the client is gone.
    pub(super) fn client_gone(&self, state: State, late: bool) -> Verdict {
        let stalled = self.stalled.as_ref().is_some_and(Stalled::is_so);
        classify(if stalled {
            Evidence::ClientStalled
        } else {
            Evidence::ClientGone { state, late }
        })
    }

    /// When the exchange began.
    pub(super) const fn began(&self) -> Instant {
        self.began
    }
}

impl Drop for ExchangeLog {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let waited = self
            .waits
            .map(|(since, limit)| (clock::now().duration_since(since), limit));
        let open = if self.compacts { Open::Compaction } else { Open::Nothing };
        let late = waited.is_some_and(|(waited, limit)| waited * 2 > limit);
        let state = State {
            open,
            ..State::default()
        };
        self.end(self.client_gone(state, late), self.phase);
    }
}

fn method(method: &Method) -> &'static str {
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::{Uuid, Variant};

    use super::*;

    #[test]
    fn ids_are_uuids_of_version_7_and_all_differ() {
        let ids = RequestIds::default();
        let made: HashSet<String> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(made.len(), 10_000);
        for id in made {
            let id: Uuid = id.parse().unwrap();
            assert_eq!((id.get_version_num(), id.get_variant()), (7, Variant::RFC4122));
            let (seconds, _) = id.get_timestamp().unwrap().to_unix();
            assert!(clock::since_1970().as_secs() - seconds < 60);
        }
    }
}
