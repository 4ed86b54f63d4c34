//! Telemetry for operators. Other rooms report events to one handle, [`Telemetry`].
//!
//! | folder | content |
//! |---|---|
//! | [`events`] | the events that other rooms report, and the trace of an exchange |
//! | `log` | log lines; one for each exchange |
//! | `metrics` | tables of metrics, and the metrics page |
//! | `traces` | spans, and their export to a collector |
//! | [`dashboard`] | the feed of the dashboard: last repairs, late results, stuck sessions, taught rules, counts of the last hour |
//!
//! Beside them are a ledger that reports its operations, and the watch over its health.
//! None of them contains content, secrets or query strings. `events` imports no other folder; all others import it.

pub mod dashboard;
pub mod events;
mod ledger_watch;
mod log;
mod measured_ledger;
mod metrics;
mod totals;
mod traces;

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use http::HeaderMap;

pub use ledger_watch::watch_health;
pub use log::{LogControl, LogFormat, LogHold, LogSettings, flush_log_lines};
pub use measured_ledger::MeasuredLedger;
pub use metrics::{
    BodyLoad, CLAIM_ANSWERS, LATE_RESULT_EVENTS, LEDGER_ERRORS, LEDGER_OPS, MetricsFormat, POST_ANSWERS,
};
pub use totals::ExchangeTotals;
pub use traces::{ExportHeaders, TRACE_NAMES, TRACEPARENT, TraceExporter, TraceSampling, TraceSettings};

use crate::{
    auth::Caller,
    ledger::RecordKind,
    session_table::{DetachReason, EnteredLane, RepeatedCall},
    upstream::NetworkCause,
    writer::LedgerCounter,
};
use dashboard::{DashboardFeed, DashboardUpdate, LateCallLabel, StructureJob};
use events::{AskedConversation, ExchangeEnded, ExchangeTrace, HandshakeFault, ResultPosted, UnknownRefusal};
use metrics::Metrics;
use totals::TotalsTable;
use traces::Tracer;

/// The handle that records events. Cheap to clone: all clones share the same metrics, feed and traces.
#[derive(Clone, Debug)]
pub struct Telemetry {
    metrics: Arc<Metrics>,
    dashboard: Arc<DashboardFeed>,
    totals: Arc<TotalsTable>,
    tracer: Option<Tracer>,
}

impl Default for Telemetry {
    /// Creates telemetry without upstreams.
    fn default() -> Self {
        Self::new(Vec::<String>::new())
    }
}

impl Telemetry {
    /// Creates telemetry for upstreams with these names. No other value becomes an `upstream` label of an exchange.
    pub fn new<N: Into<String>>(upstreams: impl IntoIterator<Item = N>) -> Self {
        Self {
            metrics: Arc::new(Metrics::new(upstreams.into_iter().map(Into::into).collect())),
            dashboard: Arc::default(),
            totals: Arc::default(),
            tracer: None,
        }
    }

    /// Turns traces on if there are settings. Returns the exporter, which must be run for spans to be sent.
    #[must_use]
    pub fn with_traces(mut self, settings: Option<TraceSettings>) -> (Self, Option<TraceExporter>) {
        // The tracer gets the metrics because it counts the spans that are lost.
        let tracing = settings.map(|settings| Tracer::new(settings, Arc::clone(&self.metrics)));
        let exporter;
        (self.tracer, exporter) = tracing.unzip();
        (self, exporter)
    }

    /// Replaces the names of upstreams, as after a reload.
    pub fn set_upstreams<N: Into<String>>(&self, upstreams: impl IntoIterator<Item = N>) {
        let names: BTreeSet<String> = upstreams.into_iter().map(Into::into).collect();
        self.dashboard.retain_upstreams(|upstream| names.contains(upstream));
        self.metrics.set_upstreams(names);
    }

    /// Records the start of an exchange; [`record_exchange`](Self::record_exchange) must follow.
    pub fn record_exchange_start(&self) {
        self.metrics.exchanges.in_flight.inc();
    }

    /// Records an exchange that ended: its log line, its metrics, its dashboard entry and its spans.
    pub fn record_exchange(&self, event: &ExchangeEnded) {
        // The spans come last: they may be dropped on a full queue, the others are never lost.
        self.metrics.record_exchange(event);
        self.dashboard.record_exchange(event);
        self.totals.record_exchange(event);
        log::log_exchange(event);
        if let Some(tracer) = &self.tracer {
            tracer.export_exchange(event);
        }
    }

    /// Records a refusal that the proxy does not know. With the third, logs and counts the stuck session. `event` is that of
    /// its exchange, as far as it is known.
    pub fn record_unknown_refusal(&self, refusal: UnknownRefusal, event: &ExchangeEnded) {
        let (upstream, text) = (refusal.conversation.upstream.clone(), refusal.text.clone());
        let status = refusal.status;
        if !self.dashboard.record_refusal(refusal, event) {
            return;
        }
        self.metrics
            .upstreams
            .stuck_sessions
            .count([configured_label(&upstream)]);
        let (request_id, lane) = (&event.request_id, event.lane.as_deref());
        tracing::warn!(
            upstream = &*upstream,
            status,
            lane,
            request_id,
            refusal = &*text,
            "a session is stuck: the provider refused it three times in words that the proxy does not know"
        );
    }

    /// Records that a provider accepted a request, whose conversation is not stuck any more. `None` if it was no turn of
    /// one.
    pub fn record_success(&self, conversation: impl FnOnce() -> Option<AskedConversation>) {
        self.dashboard.record_success(conversation);
    }

    /// Records that a provider accepted a body with mends. `event` is that of its exchange, as far as it is known.
    pub fn record_mends(&self, caller: Caller, event: &ExchangeEnded) {
        self.dashboard.record_mends(caller, event);
    }

    /// Records that a provider accepted a body without the mends that it had taught the caller.
    pub fn record_retracted_mends(&self, caller: Caller, event: &ExchangeEnded) {
        self.dashboard.record_retracted_mends(caller, event);
    }

    /// Records that an operator had everything forgotten that servers have taught.
    pub fn forget_taught(&self) {
        self.dashboard.forget_taught();
    }

    /// Returns the totals of all exchanges that have ended.
    pub fn exchange_totals(&self) -> ExchangeTotals {
        self.totals.current_totals()
    }

    /// Records a client connection that was closed at once, because its address had too many.
    pub fn record_refused_connection(&self) {
        self.metrics.instance.record_refused_connection();
    }

    /// Records a TLS handshake with a client that failed.
    pub fn record_failed_handshake(&self, fault: HandshakeFault) {
        self.metrics.instance.record_failed_handshake(fault);
    }

    /// Records a new connection to a provider, TLS included, and the time it took.
    pub fn record_connect(&self, took: Duration) {
        self.metrics.upstreams.duration.observe(["connect"], took);
    }

    /// Records the first byte of an answer's body, and the time since its head.
    pub fn record_first_byte(&self, took: Duration) {
        self.metrics.upstreams.duration.observe(["first_byte"], took);
    }

    /// Records the start of a streamed answer; [`record_stream_end`](Self::record_stream_end) must follow.
    pub fn record_stream_start(&self) {
        self.metrics.answers.streams_active.inc();
    }

    /// Records the end of a streamed answer, for whatever reason.
    pub fn record_stream_end(&self) {
        self.metrics.answers.streams_active.dec();
    }

    /// Returns the number of streamed answers that are being relayed.
    pub fn active_streams(&self) -> i64 {
        self.metrics.answers.streams_active.get()
    }

    /// Records an answer on an inspected route that the watcher cannot read: it is compressed, or a frame is damaged.
    pub fn record_unwatched_answer(&self) {
        self.metrics.answers.watcher_blind.inc();
    }

    /// Records a resend after the provider refused the request, by its reason (`ResendStep::reason`).
    pub fn record_resend(&self, why: &'static str) {
        self.metrics.repairs.second_repairs.count([why]);
    }

    /// Records that the provider refused the resend too.
    pub fn record_refused_resend(&self, why: &'static str) {
        self.metrics.repairs.second_repairs_refused.count([why]);
    }

    /// Records a new pinned result by its kind: `moved`, `restored` or `placeholder`.
    pub fn record_pinned_result(&self, kind: &'static str) {
        self.metrics.repairs.frozen_answers.count([kind]);
    }

    /// Records a value that was put back, by its kind and its source: `noted` or `neutral`.
    pub fn record_continued(&self, what: &'static str, source: &'static str) {
        self.metrics.repairs.continued.count([what, source]);
    }

    /// Counts an attempt that ended, with the class of its verdict.
    pub fn count_attempt(&self, upstream: &str, class: &'static str) {
        let labels = [configured_label(upstream), class.into()];
        self.metrics.upstreams.attempts.count(labels);
    }

    /// Records a send that failed in the network.
    pub fn record_network_failure(&self, cause: NetworkCause) {
        self.metrics.upstreams.network_failures.count([cause.label()]);
    }

    /// Records that a conversation left a profile, and the reason for the profile's cooldown.
    pub fn record_rotation(&self, upstream: &str, profile: &str, reason: &'static str) {
        let labels = [configured_label(upstream), configured_label(profile), reason.into()];
        self.metrics.upstreams.profile_rotations.count(labels);
    }

    /// Sets the gauge of a profile and a state: 1 if the profile is in it.
    pub fn set_profile_state(&self, upstream: &str, profile: &str, state: &'static str, is: bool) {
        let labels = [configured_label(upstream), configured_label(profile), state.into()];
        self.metrics.upstreams.profile_state.set(labels, i64::from(is));
    }

    /// Sets how many breakers of an upstream are in a state.
    pub fn set_breaker_count(&self, upstream: &str, state: &'static str, count: usize) {
        let labels = [configured_label(upstream), state.into()];
        self.metrics.upstreams.breakers.set(labels, gauge_value(count));
    }

    /// Announces to the dashboard that the cooldown of a profile started or ended.
    pub fn announce_profiles(&self) {
        self.dashboard.publish(DashboardUpdate::Profiles);
    }

    /// Records a request of a lane: new forks of its history, and the tool calls that it closed.
    pub fn record_lane_request(&self, entered: &EnteredLane) {
        self.metrics.sessions.record_request(entered);
        // One by one, because each call has its own reason.
        for why in &entered.closed.detached {
            self.record_detached_calls(*why, 1);
        }
    }

    /// Records a posted result that came when no conversation waited any more, or after the time limit of its tool.
    pub fn record_late_call(&self, tool: &str, is_detached: bool, is_overrun: bool) {
        self.metrics.sessions.record_late_call(tool, is_detached, is_overrun);
    }

    /// Records a tool call that repeats one whose result was lost.
    pub fn record_repeated_call(&self, call: RepeatedCall) {
        let RepeatedCall { first, tier } = call;
        self.metrics
            .sessions
            .calls_repeated
            .count([first.label(), tier.label()]);
    }

    /// Records tool calls that no client is known to wait for any more.
    pub fn record_detached_calls(&self, why: DetachReason, calls: usize) {
        if calls == 0 {
            return;
        }
        self.metrics.sessions.calls_detached.add([why.label()], calls as u64);
        self.dashboard.record_detached_calls(why, calls as u64);
    }

    /// Returns the detached calls so far, by reason.
    pub fn detached_calls(&self) -> [(&'static str, u64); DetachReason::ALL.len()] {
        let detached = &self.metrics.sessions.calls_detached;
        DetachReason::ALL.map(|why| (why.label(), detached.total([why.label()])))
    }

    /// Returns the tools with late results, by name: the results that no conversation waited for any more, and those after
    /// `max_duration`.
    pub fn late_tools(&self) -> Vec<(String, u64, u64)> {
        self.metrics.sessions.late_tools()
    }

    /// Sets the number of lanes in the session table, and of their open tool calls.
    pub fn set_session_totals(&self, lanes: usize, open_calls: usize) {
        self.metrics.sessions.lanes.set(gauge_value(lanes));
        self.metrics.sessions.tool_calls_in_flight.set(gauge_value(open_calls));
    }

    /// Records an exchange that continued without the ledger, because a `read` or `write` timed out or failed.
    pub fn record_ledger_timeout(&self, op: &'static str) {
        self.metrics.ledger.missed.count([op]);
    }

    /// Returns the number of answers so far that were sent before the ledger had stored what belongs to them.
    pub fn missed_holds(&self) -> u64 {
        let ledger = &self.metrics.ledger;
        ledger.missed.total(["write"]) + ledger.late_results.total(["unrecorded"])
    }

    /// Records an operation of the ledger, one of [`LEDGER_OPS`], and its error if it failed, one of [`LEDGER_ERRORS`].
    pub fn record_ledger_op(&self, op: &'static str, took: Duration, error: Option<&'static str>) {
        self.metrics.ledger.op_duration.observe([op], took);
        if let Some(kind) = error {
            self.metrics.ledger.errors.count([op, kind]);
        }
    }

    /// Sets the function that reports the use of the budgets whenever the metrics are read. Only the first one counts.
    pub fn set_body_load_source(&self, source: impl Fn() -> BodyLoad + Send + Sync + 'static) {
        self.metrics.bodies.set_load_source(source);
    }

    /// Sets the function that reports the ledger's size whenever the metrics are read: the number of records and their
    /// bytes, or `None` while they are unknown. Only the first one counts.
    pub fn set_ledger_usage_source(&self, source: impl Fn() -> Option<[u64; 2]> + Send + Sync + 'static) {
        self.metrics.ledger.usage.set_source(Box::new(source));
    }

    /// Sets the function that counts the messages that should have been tried by now, whenever the metrics are read. Only
    /// the first one counts.
    pub fn set_overdue_source(&self, source: impl Fn() -> u64 + Send + Sync + 'static) {
        let overdue = &self.metrics.ledger.messages_overdue;
        overdue.set_source(Box::new(move || Some([source()])));
    }

    /// Sets the gauge of the ledger's health.
    pub fn set_ledger_health(&self, is_healthy: bool) {
        self.metrics.ledger.is_healthy.set(i64::from(is_healthy));
    }

    /// Sets the gauge of the time, in nanoseconds, by which the clock of the ledger's database is ahead.
    pub fn set_ledger_clock_skew(&self, skew: i64) {
        let seconds = Duration::from_nanos(skew.unsigned_abs()).as_secs_f64();
        self.metrics
            .ledger
            .clock_skew
            .set(seconds.copysign(if skew < 0 { -1.0 } else { 1.0 }));
    }

    /// Records a result that a tool service posted: one log line, and its count.
    pub fn record_post(&self, event: &ResultPosted<'_>) {
        let ResultPosted {
            service,
            answer,
            bytes,
            source,
        } = event;
        self.metrics.ledger.posts.count([*answer]);
        // The size only: the content of results is never logged.
        tracing::info!(target: "antiphon::ledger", service, answer, bytes, source, "result posted");
    }

    /// Records the answer to a claim of an intent: one of [`CLAIM_ANSWERS`].
    pub fn record_claim(&self, answer: &'static str) {
        self.metrics.ledger.claims.count([answer]);
    }

    /// Records an event in the life of a posted result: one of [`LATE_RESULT_EVENTS`].
    pub fn record_late_event(&self, event: &'static str) {
        self.metrics.ledger.late_results.count([event]);
        self.dashboard.record_late_result(event, None, None);
    }

    /// Records an event in the life of the posted result of a call.
    pub fn record_late_event_of(&self, event: &'static str, call: LateCallLabel) {
        self.metrics.ledger.late_results.count([event]);
        self.dashboard.record_late_result(event, None, Some(call));
    }

    /// Records the delivery of a posted result to its owner, and the time since its post.
    pub fn record_late_delivery(&self, age: Duration, call: Option<LateCallLabel>) {
        self.metrics.ledger.late_results.count(["delivered"]);
        self.metrics.ledger.late_result_age.observe(age.as_secs_f64());
        self.dashboard.record_late_result("delivered", Some(age), call);
    }

    /// Returns the events of late results so far.
    pub fn late_result_counts(&self) -> [(&'static str, u64); LATE_RESULT_EVENTS.len()] {
        let counts = &self.metrics.ledger.late_results;
        LATE_RESULT_EVENTS.map(|event| (event, counts.total([event])))
    }

    /// Records a reload of the configuration, which is in force if `is_successful`.
    pub fn record_reload(&self, is_successful: bool) {
        if is_successful {
            // Those of the old configuration would stay on the page for ever. The handler of the page sets those in
            // force before it encodes the page.
            self.metrics.upstreams.profile_state.clear();
            self.metrics.upstreams.breakers.clear();
        }
        self.metrics.instance.record_reload(is_successful);
    }

    /// Records the end of the validity of the listeners' certificate, since 1970.
    pub fn record_certificate_expiry(&self, expires_at: Duration) {
        self.metrics.instance.record_certificate_expiry(expires_at);
    }

    /// Returns the number of series that the metrics may ever have, whatever is configured and whatever clients send.
    pub fn series_max(&self) -> usize {
        self.metrics.series_max()
    }

    /// Returns every metric as OpenMetrics text.
    pub fn encode_metrics(&self) -> String {
        self.encode_metrics_as(MetricsFormat::OpenMetrics)
    }

    /// Returns every metric in a format. The page is empty if it cannot be written.
    pub fn encode_metrics_as(&self, format: MetricsFormat) -> String {
        self.metrics.encode_as(format)
    }

    /// Returns the feed of the dashboard.
    pub fn dashboard_feed(&self) -> &DashboardFeed {
        &self.dashboard
    }

    /// Queues a body with findings, so that the dashboard can show its structure. A full queue drops it.
    pub fn queue_structure(&self, job: StructureJob) {
        self.dashboard.queue_structure(job);
    }

    /// Builds the structures of queued bodies for as long as the process lives. Returns at once if another task does.
    pub async fn build_structures(self) {
        self.dashboard.build_structures().await;
    }

    /// Returns `true` if traces are on.
    pub const fn has_traces(&self) -> bool {
        self.tracer.is_some()
    }

    /// Returns `true` if requests are sent upstream with the proxy's span as their parent.
    pub fn has_trace_propagation(&self) -> bool {
        self.tracer.as_ref().is_some_and(Tracer::has_propagation)
    }

    /// Starts the trace of an exchange; `None` if traces are off. `headers` are those of its request.
    pub fn start_trace(&self, headers: &HeaderMap) -> Option<Box<ExchangeTrace>> {
        let tracer = self.tracer.as_ref()?;
        Some(Box::new(tracer.start_trace(headers)))
    }

    /// Waits until all spans so far were sent or dropped.
    pub async fn flush_traces(&self) {
        if let Some(tracer) = &self.tracer {
            tracer.flush().await;
        }
    }
}

/// Returns a label value from the configuration.
fn configured_label(value: &str) -> Cow<'static, str> {
    Cow::Owned(value.to_owned())
}

/// Returns the value of a gauge that shows a number of things.
fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl LedgerCounter for Telemetry {
    fn count_lost_write(&self, kind: RecordKind) {
        self.metrics.ledger.lost_writes.count([kind.label()]);
    }

    fn count_missed_read(&self) {
        self.record_ledger_timeout("read");
    }

    fn count_late_write(&self) {
        self.record_ledger_timeout("write");
    }
}
