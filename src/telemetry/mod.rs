//! Logging set-up and the sink of events: one event in, its log line and its metrics out.
//!
//! Never content, never a secret, never a query string.

pub mod events;
mod late;
mod lines;
mod log;
mod metrics;
mod remembered;
mod standing;
mod tools;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

pub use late::{ANSWERS, EVENTS};
pub use lines::flush as flush_lines;
pub use log::{LogFormat, LogSettings};
use metrics::{ExchangeLabels, Metrics};

use crate::{
    repair::Report,
    session_table::{Detached, Entered},
    telemetry::events::{ExchangeEnded, ResultPosted},
};

/// Characters of a path that are logged.
const PATH_MAX: usize = 256;

/// Where events go. A cheap handle: every clone counts into the same metrics.
#[derive(Clone, Debug)]
pub struct Telemetry {
    metrics: Arc<Metrics>,
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
        }
    }

    /// An exchange has ended: one log line under the target `antiphon::exchange`, and its metrics.
    pub fn exchange_ended(&self, event: &ExchangeEnded) {
        self.count(event);
        log_exchange(event);
    }

    /// An answer's body has begun to flow.
    pub fn stream_opened(&self) {
        self.metrics.streams_active.inc();
    }

    /// An answer's body has ended, however it did.
    pub fn stream_closed(&self) {
        self.metrics.streams_active.dec();
    }

    /// A request goes up once more, since the provider said what was wrong with it: `pairing` or `binding`.
    pub fn second_repair(&self, why: &'static str) {
        self.metrics.second_repair(why);
    }

    /// An answer on an inspected route could not be watched.
    pub fn watcher_blind(&self) {
        self.metrics.watcher_blind.inc();
    }

    /// A lane left a profile for another: its reason is recorded, or `other`.
    pub fn rotated(&self, upstream: &str, profile: &str, reason: &'static str) {
        self.metrics.standing.rotated(upstream, profile, reason);
    }

    /// A send has ended, as this class.
    pub fn attempt(&self, upstream: &str, class: &'static str) {
        self.metrics.standing.attempt(upstream, class);
    }

    /// Whether a profile is in a state.
    pub fn profile_state(&self, upstream: &str, profile: &str, state: &'static str, is: bool) {
        self.metrics.standing.profile_state(upstream, profile, state, is);
    }

    /// How many of an upstream's breakers stand like this.
    pub fn breakers(&self, upstream: &str, standing: &'static str, count: usize) {
        self.metrics.standing.breakers(upstream, standing, count);
    }

    /// A request of a lane came: what became of its calls, and whether it has forked.
    pub fn lane_entered(&self, entered: &Entered) {
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
            self.calls_detached(*why, 1);
        }
        tools.forked(as_u64(entered.forks));
    }

    /// Nobody is known to wait for so many calls any more.
    pub fn calls_detached(&self, why: Detached, calls: usize) {
        self.metrics.tools.detached(why.label(), as_u64(calls));
    }

    /// A call was given an answer that it keeps: `moved`, `restored` or `placeholder`.
    pub fn frozen(&self, row: &'static str) {
        self.metrics.remembered.frozen(row);
    }

    /// An exchange went on because the ledger did not answer in time: `read` or `write`.
    pub fn ledger_missed(&self, op: &'static str) {
        self.metrics.remembered.missed(op);
    }

    /// Where writes into the ledger are counted that nobody waited for and that were lost.
    pub fn ledger_lost(&self) -> Arc<AtomicU64> {
        self.metrics.remembered.lost()
    }

    /// How many lanes are remembered, and how many calls of clients are open in them.
    pub fn sessions(&self, lanes: usize, open_calls: usize) {
        self.metrics.standing.sessions(lanes, open_calls);
    }

    /// A tool service has posted a result: one log line, and its count.
    pub fn result_posted(&self, event: &ResultPosted<'_>) {
        let ResultPosted { service, answer, bytes } = event;
        self.metrics.late.post(answer);
        tracing::info!(target: "antiphon::ledger", service, answer, bytes, "result posted");
    }

    /// Something has become of a posted result: one of [`EVENTS`].
    pub fn late_event(&self, event: &'static str) {
        self.metrics.late.event(event);
    }

    /// A posted result went to its owner, this long after it came.
    pub fn late_delivered(&self, age: Duration) {
        self.metrics.late.delivered(age);
    }

    /// Every metric as OpenMetrics text.
    pub fn encode(&self) -> String {
        self.metrics.encode()
    }

    fn count(&self, event: &ExchangeEnded) {
        let metrics = &self.metrics;
        let format = event.format.map_or("none", crate::wire::Format::label);
        metrics.request(&ExchangeLabels {
            upstream: metrics.known_upstream(event.upstream.as_deref()),
            format,
            code_class: code_class(event.status),
            outcome: event.side.unwrap_or("ok"),
        });
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

fn log_exchange(event: &ExchangeEnded) {
    let ExchangeEnded {
        request_id,
        method,
        status,
        attempts,
        bytes_in,
        bytes_out,
        phase,
        code,
        ..
    } = event;
    let path = event.path.split('?').next().unwrap_or_default();
    let end = path.char_indices().nth(PATH_MAX).map_or(path.len(), |(at, _)| at);
    let path = path.get(..end).unwrap_or_default();
    tracing::info!(
        target: lines::EXCHANGE,
        request_id, method, path,
        upstream = event.upstream.as_deref(),
        format = event.format.map(crate::wire::Format::label),
        mode = event.mode.map(crate::repair::Mode::label),
        status,
        repair = repair_words(event),
        stop = event.watched.map(|watched| watched.stop),
        calls = event.watched.map(|watched| watched.calls),
        server_tools = event.watched.map(|watched| watched.server_tools),
        profile = event.profile.as_deref(),
        tool = event.tool.as_ref().map(|tool| tool.name.as_str()),
        tool_id = event.tool.as_ref().map(|tool| tool.id.as_str()),
        tool_ms = event.tool.as_ref().map(|tool| millis(tool.age)),
        attempts, bytes_in, bytes_out,
        overhead_us = micros(event.overhead),
        head_ms = event.upstream_head.map(millis),
        dur_ms = millis(event.duration),
        side = event.side.unwrap_or("-"),
        phase, code,
        "exchange ended"
    );
}

/// What was done about the body, in the words of `x-antiphon-repair`; none where no body was looked at.
fn repair_words(event: &ExchangeEnded) -> Option<String> {
    if event.rejected {
        return Some("rejected".to_owned());
    }
    // Of a batch some entries may be unreadable and others mended.
    let mended = event.report.as_ref().is_some_and(|report| !report.actions.is_empty());
    if let Some(reason) = event.unreadable.filter(|_| !mended) {
        return Some(format!("unreadable; reason={}", reason.code()));
    }
    let Report { findings, actions, .. } = event.report.as_ref()?;
    if !actions.is_empty() {
        let counted: Vec<String> = actions
            .iter()
            .map(|(action, times)| format!("{}={times}", action.label()))
            .collect();
        return Some(counted.join(", "));
    }
    Some(if findings.is_empty() { "none" } else { "observed" }.to_owned())
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

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
