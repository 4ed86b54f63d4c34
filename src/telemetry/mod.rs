//! Logging set-up and the sink of events: one event in, its log line, its metrics and its spans out.
//!
//! Never content, never a secret, never a query string.

pub mod dashboard;
pub mod events;
mod log;
mod metrics;
mod traces;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use http::HeaderMap;

pub use log::{LogControl, LogFormat, LogSettings, flush_log_lines};
pub use metrics::{LATE_RESULT_EVENTS, LEDGER_ERRORS, LEDGER_OPS, LedgerUsageSource, POST_ANSWERS};
pub use traces::{ExportHeaders, TRACE_NAMES, TRACEPARENT, TraceExporter, TraceSampling, TraceSettings};

use crate::session_table::{Detached, Entered};
use dashboard::{DashboardFeed, DashboardUpdate, StructureJob};
use events::{ExchangeEnded, ExchangeTrace, ResultPosted};
use metrics::{ExchangeLabels, Metrics};
use traces::Tracer;

/// Where events go. A cheap handle: every clone counts into the same metrics.
#[derive(Clone, Debug)]
pub struct Telemetry {
    metrics: Arc<Metrics>,
    dashboard: Arc<DashboardFeed>,
    tracer: Option<Tracer>,
}

impl Default for Telemetry {
    /// Telemetry that knows no upstream.
    fn default() -> Self {
        Self::new(Vec::<String>::new())
    }
}

impl Telemetry {
    /// Telemetry for upstreams of these names: no other value ever becomes an `upstream` label.
    pub fn new<N: Into<String>>(upstreams: impl IntoIterator<Item = N>) -> Self {
        Self {
            metrics: Arc::new(Metrics::new(upstreams.into_iter().map(Into::into).collect())),
            dashboard: Arc::default(),
            tracer: None,
        }
    }

    /// These are the upstreams from now on, as in [`Telemetry::new`].
    pub fn set_upstreams<N: Into<String>>(&self, upstreams: impl IntoIterator<Item = N>) {
        self.metrics.knows(upstreams.into_iter().map(Into::into).collect());
    }

    /// An exchange has begun: [`record_exchange`](Self::record_exchange) follows.
    pub fn record_exchange_start(&self) {
        self.metrics.running.inflight.inc();
    }

    /// An exchange has ended: one log line under the target `antiphon::exchange`, and its metrics.
    pub fn record_exchange(&self, event: &ExchangeEnded) {
        self.count(event);
        self.dashboard.record_exchange(event);
        log::log_exchange(event);
        if let Some(tracer) = &self.tracer {
            tracer.export_exchange(event);
        }
    }

    /// A new connection to a provider is there, TLS included, after so long.
    pub fn record_connect(&self, after: Duration) {
        self.metrics.upstream_duration("connect", after);
    }

    /// The first byte of an answer's body came, this long after its head.
    pub fn record_first_byte(&self, after: Duration) {
        self.metrics.upstream_duration("first_byte", after);
    }

    /// An answer's body has begun to flow.
    pub fn record_stream_start(&self) {
        self.metrics.streams_active.inc();
    }

    /// An answer's body has ended, however it did.
    pub fn record_stream_end(&self) {
        self.metrics.streams_active.dec();
    }

    /// A request goes up once more, since the provider said what was wrong with it: `pairing` or `binding`.
    pub fn record_second_repair(&self, why: &'static str) {
        self.metrics.second_repair(why);
    }

    /// The provider refused all the same what had gone up once more.
    pub fn record_second_refusal(&self, why: &'static str) {
        self.metrics.second_repair_refused(why);
    }

    /// An answer on an inspected route could not be watched.
    pub fn record_unwatched_answer(&self) {
        self.metrics.watcher_blind.inc();
    }

    /// A lane left a profile for another: its reason is recorded, or `other`.
    pub fn record_rotation(&self, upstream: &str, profile: &str, reason: &'static str) {
        self.metrics.standing.rotated(upstream, profile, reason);
    }

    /// A send has ended, as this class.
    pub fn record_attempt(&self, upstream: &str, class: &'static str) {
        self.metrics.standing.attempt(upstream, class);
    }

    /// Whether a profile is in a state.
    pub fn set_profile_state(&self, upstream: &str, profile: &str, state: &'static str, is: bool) {
        self.metrics.standing.profile_state(upstream, profile, state, is);
    }

    /// How many of an upstream's breakers stand like this.
    pub fn set_breaker_count(&self, upstream: &str, standing: &'static str, count: usize) {
        self.metrics.standing.breakers(upstream, standing, count);
    }

    /// A request of a lane came: what became of its calls, and whether it has forked.
    pub fn record_lane_request(&self, entered: &Entered) {
        let (tools, closed) = (&self.metrics.tools, &entered.closed);
        for (how, count) in [
            ("settled", closed.settled.len()),
            ("placeholder", closed.placeholder),
            ("abandoned", closed.abandoned),
        ] {
            tools.closed(how, as_u64(count));
        }
        for call in &closed.settled {
            tools.settled(&call.tool, call.attached, call.open);
        }
        for why in &closed.detached {
            self.record_detached_calls(*why, 1);
        }
        tools.forked(as_u64(entered.forks));
    }

    /// Nobody is known to wait for so many calls any more.
    pub fn record_detached_calls(&self, why: Detached, calls: usize) {
        let (label, calls) = (why.label(), as_u64(calls));
        self.metrics.tools.detached(label, calls);
        self.dashboard.record_detached_calls(why, calls);
    }

    /// A call was given an answer that it keeps: `moved`, `restored` or `placeholder`.
    pub fn record_frozen_answer(&self, row: &'static str) {
        self.metrics.remembered.frozen(row);
    }

    /// An exchange went on because the ledger did not answer in time: `read` or `write`.
    pub fn record_ledger_timeout(&self, op: &'static str) {
        self.metrics.remembered.missed(op);
    }

    /// The ledger has done what it was asked, one of [`LEDGER_OPS`], or failed as one of [`LEDGER_ERRORS`].
    pub fn record_ledger_op(&self, op: &'static str, took: Duration, error: Option<&'static str>) {
        self.metrics.remembered.op(op, took, error);
    }

    /// Who is asked, whenever the metrics are read, how much the ledger holds; only the first counts.
    pub fn set_ledger_usage_source(&self, holds: LedgerUsageSource) {
        self.metrics.remembered.holds(holds);
    }

    /// Where writes into the ledger are counted that nobody waited for and that were lost.
    pub fn lost_ledger_writes(&self) -> Arc<AtomicU64> {
        self.metrics.remembered.lost()
    }

    /// How many lanes are remembered, and how many calls of clients are open in them.
    pub fn set_session_totals(&self, lanes: usize, open_calls: usize) {
        self.metrics.standing.sessions(lanes, open_calls);
    }

    /// A tool service has posted a result: one log line, and its count.
    pub fn record_post(&self, event: &ResultPosted<'_>) {
        let ResultPosted { service, answer, bytes } = event;
        self.metrics.late.post(answer);
        tracing::info!(target: "antiphon::ledger", service, answer, bytes, "result posted");
    }

    /// Something has become of a posted result: one of [`LATE_RESULT_EVENTS`].
    pub fn record_late_event(&self, event: &'static str) {
        self.metrics.late.event(event);
        self.dashboard.record_late_result(event, None);
    }

    /// A posted result went to its owner, this long after it came.
    pub fn record_late_delivery(&self, age: Duration) {
        self.metrics.late.delivered(age);
        self.dashboard.record_late_result("delivered", Some(age));
    }

    /// The configuration was read again; with `ok` it is in force. What profiles and breakers were before is forgotten then.
    pub fn record_reload(&self, ok: bool) {
        if ok {
            self.metrics.standing.forget();
        }
        self.metrics.running.reloaded(ok);
    }

    /// Returns the feed of the dashboard.
    pub fn dashboard(&self) -> &DashboardFeed {
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

    /// Announces to the dashboard that the cooldown of a profile started or ended.
    pub fn announce_profiles(&self) {
        self.dashboard.publish(DashboardUpdate::Profiles);
    }

    /// Returns the number of answers whose bodies are being relayed.
    pub fn active_streams(&self) -> i64 {
        self.metrics.streams_active.get()
    }

    /// Returns the detached calls so far, by reason.
    pub fn detached_calls(&self) -> [(&'static str, u64); Detached::ALL.len()] {
        Detached::ALL.map(|why| (why.label(), self.metrics.tools.detached_so_far(why.label())))
    }

    /// Returns the events of late results so far.
    pub fn late_result_counts(&self) -> [(&'static str, u64); LATE_RESULT_EVENTS.len()] {
        LATE_RESULT_EVENTS.map(|event| (event, self.metrics.late.so_far(event)))
    }

    /// How many series the metrics may ever have, whatever is configured and whatever clients send.
    pub fn series_max(&self) -> usize {
        self.metrics.series_max()
    }

    /// Every metric as OpenMetrics text.
    pub fn encode_metrics(&self) -> String {
        self.metrics.encode()
    }

    /// Turns traces on. Returns the exporter, which must be run for spans to be sent.
    #[must_use]
    pub fn with_traces(mut self, settings: TraceSettings) -> (Self, TraceExporter) {
        let (tracer, exporter) = Tracer::new(settings, self.metrics.spans.clone());
        self.tracer = Some(tracer);
        (self, exporter)
    }

    /// Whether traces are on.
    pub const fn has_traces(&self) -> bool {
        self.tracer.is_some()
    }

    /// Whether requests are sent with the proxy's span as their parent.
    pub fn has_trace_propagation(&self) -> bool {
        self.tracer.as_ref().is_some_and(Tracer::propagates)
    }

    /// Starts the trace of an exchange; `None` if traces are off. `headers` are those of its request.
    pub fn start_trace(&self, headers: &HeaderMap) -> Option<Box<ExchangeTrace>> {
        let tracer = self.tracer.as_ref()?;
        Some(Box::new(tracer.start(headers)))
    }

    /// Waits until all spans so far were sent or dropped.
    pub async fn flush_traces(&self) {
        if let Some(tracer) = &self.tracer {
            tracer.flush().await;
        }
    }

    fn count(&self, event: &ExchangeEnded) {
        let metrics = &self.metrics;
        metrics.running.inflight.dec();
        let format = event.format.map_or("none", crate::wire::Format::label);
        metrics.request(&ExchangeLabels {
            upstream: metrics.known_upstream(event.upstream.as_deref()),
            format,
            code_class: code_class(event.status),
            outcome: event.side.unwrap_or("ok"),
        });
        metrics.running.ended(format, event.duration);
        if let Some(report) = &event.report {
            for finding in &report.findings {
                metrics.finding(finding.kind, format);
            }
            for (action, times) in &report.actions {
                metrics.repair(*action, format, as_u64(*times));
            }
            metrics.deferred.inc_by(as_u64(report.deferred));
            metrics.unrepairable.inc_by(as_u64(report.unrepairable));
        }
        if let Some(reason) = event.unreadable {
            metrics.unreadable(reason);
        }
        if event.rejected {
            metrics.rejection(format);
        }
        if let Some(watched) = &event.watched {
            metrics.watched(watched);
        }
        if event.stalled {
            metrics.standing.stall(event.side.unwrap_or("provider"));
        }
        if event.format.is_some() {
            metrics.overhead.observe(event.overhead.as_secs_f64());
        }
        if let Some(head) = event.upstream_head {
            metrics.upstream_duration("headers", head);
        }
        if let Some(body) = event.upstream_body {
            metrics.upstream_duration("body", body);
        }
    }
}

const fn code_class(status: u16) -> &'static str {
    match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "none",
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
