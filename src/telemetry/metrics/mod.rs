//! Every metric: name, help, labels, buckets. Labels are closed lists; no value of a request becomes one, but for
//! names of tools.
//!
//! Those of one thing are in a file of its name: profiles, breakers and sessions in [`upstreams`]. How long the page may
//! be is kept by [`page`].

mod exchanges;
mod late_results;
mod ledger;
mod page;
mod process;
mod sessions;
mod spans;
mod upstreams;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
};

pub use late_results::{LATE_RESULT_EVENTS, POST_ANSWERS};
pub use ledger::{LEDGER_ERRORS, LEDGER_OPS, LedgerUsageSource};

use crate::{
    conversation::FindingKind,
    repair::Action,
    telemetry::events::AnswerSummary,
    wire::{Format, Unreadable, watch::stop_labels},
};
use exchanges::Running;
use late_results::Late;
use ledger::Remembered;
use page::{Capped, OTHER, Page, many, one, seconds};
use process::ProcessPage;
use sessions::Tools;
pub(super) use spans::SpanCounts;
use upstreams::Standing;

/// Our own time, in seconds: a read takes microseconds, a large history milliseconds.
const OVERHEAD_BUCKETS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5,
];
/// Providers' time, in seconds: from a refusal to a long answer.
const UPSTREAM_BUCKETS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0];

/// Label sets of `requests_total` with room, and what remains of the others: classes of codes times who ended them.
const REQUESTS_MAX: usize = 300;
const REQUESTS_FOLDED: usize = 6 * 7;
const WHYS: [&str; 2] = ["pairing", "binding"];
const DIRECTIONS: [&str; 2] = ["input", "output"];
const PHASES: [&str; 4] = ["connect", "headers", "first_byte", "body"];

/// Labels of `requests_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ExchangeLabels {
    pub(super) upstream: String,
    pub(super) format: &'static str,
    pub(super) code_class: &'static str,
    pub(super) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabels {
    kind: &'static str,
    format: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairLabels {
    action: &'static str,
    format: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FormatLabels {
    format: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamEndLabels {
    format: &'static str,
    stop: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    format: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

/// All metrics, registered.
#[derive(Debug)]
pub(super) struct Metrics {
    page: Page,
    process: ProcessPage,
    upstreams: ArcSwap<BTreeSet<String>>,
    requests: Capped<ExchangeLabels, Counter>,
    findings: Capped<FindingLabels, Counter>,
    repairs: Capped<RepairLabels, Counter>,
    unreadable: Capped<ReasonLabels, Counter>,
    rejections: Capped<FormatLabels, Counter>,
    second_repairs: Capped<WhyLabels, Counter>,
    second_refusals: Capped<WhyLabels, Counter>,
    calls_emitted: Capped<FormatLabels, Counter>,
    server_tools: Capped<FormatLabels, Counter>,
    stream_ends: Capped<StreamEndLabels, Counter>,
    tokens: Capped<TokenLabels, Counter>,
    watcher_truncated: Counter,
    upstream_duration: Capped<PhaseLabels, Histogram>,
    pub(super) running: Running,
    pub(super) standing: Standing,
    pub(super) remembered: Remembered,
    pub(super) tools: Tools,
    pub(super) late: Late,
    pub(super) spans: SpanCounts,
    pub(super) overhead: Histogram,
    pub(super) streams_active: Gauge,
    pub(super) deferred: Counter,
    pub(super) unrepairable: Counter,
    pub(super) watcher_blind: Counter,
}

impl Metrics {
    pub(super) fn new(upstreams: BTreeSet<String>) -> Self {
        let formats = Format::ALL.len();
        let stops = Format::ALL.into_iter().map(|format| stop_labels(format).count()).sum();
        let make = || Histogram::new(UPSTREAM_BUCKETS);
        let mut metrics = Self {
            page: Page::new(),
            process: ProcessPage::new(),
            upstreams: ArcSwap::from_pointee(upstreams),
            requests: Capped::open(REQUESTS_MAX, REQUESTS_FOLDED, |labels| ExchangeLabels {
                upstream: OTHER.to_owned(),
                format: OTHER,
                ..labels.clone()
            }),
            findings: Capped::closed(FindingKind::ALL.len() * formats),
            repairs: Capped::closed(Action::ALL.len() * formats),
            unreadable: Capped::closed(Unreadable::ALL.len()),
            rejections: Capped::closed(formats),
            second_repairs: Capped::closed(WHYS.len()),
            second_refusals: Capped::closed(WHYS.len()),
            calls_emitted: Capped::closed(formats),
            server_tools: Capped::closed(formats),
            stream_ends: Capped::closed(stops),
            tokens: Capped::closed(DIRECTIONS.len() * formats),
            watcher_truncated: Counter::default(),
            upstream_duration: Capped::histograms(PHASES.len(), UPSTREAM_BUCKETS.len(), make),
            running: Running::default(),
            standing: Standing::default(),
            remembered: Remembered::default(),
            tools: Tools::default(),
            late: Late::default(),
            spans: SpanCounts::default(),
            overhead: Histogram::new(OVERHEAD_BUCKETS),
            streams_active: Gauge::default(),
            deferred: Counter::default(),
            unrepairable: Counter::default(),
            watcher_blind: Counter::default(),
        };
        metrics.register();
        metrics.register_watched();
        metrics.running.register(&mut metrics.page);
        metrics.standing.register(&mut metrics.page);
        metrics.remembered.register(&mut metrics.page);
        metrics.tools.register(&mut metrics.page);
        metrics.late.register(&mut metrics.page);
        metrics.spans.register(&mut metrics.page);
        metrics.page.finish();
        metrics.begin_at_zero();
        metrics
    }

    /// The names and the help. The library adds `_total` to counters, the unit, and the full stop.
    fn register(&mut self) {
        let page = &mut self.page;
        page.family("requests", "Exchanges that ended, by who ended them", &self.requests);
        page.family(
            "findings",
            "Breaches of the pairing rules that were found",
            &self.findings,
        );
        page.family("repairs", "Actions taken about findings", &self.repairs);
        page.family("unreadable", "Bodies that were forwarded unread", &self.unreadable);
        page.family(
            "rejections",
            "Requests that were rejected in strict mode",
            &self.rejections,
        );
        page.family(
            "second_repairs",
            "Requests that were sent once more after the provider had said what was wrong",
            &self.second_repairs,
        );
        page.family(
            "second_repairs_refused",
            "Requests that the provider refused all the same when they had been sent once more",
            &self.second_refusals,
        );
        page.single(
            "deferred",
            "Results left out because no message may hold them yet",
            self.deferred.clone(),
        );
        page.single(
            "unrepairable",
            "Findings that nothing may be done about",
            self.unrepairable.clone(),
        );
        page.single(
            "watcher_blind",
            "Answers that could not be watched",
            self.watcher_blind.clone(),
        );
        page.single(
            "streams_active",
            "Answers whose bodies are flowing",
            self.streams_active.clone(),
        );
        page.histogram(
            "overhead",
            "Time of our own before the send: read, check, plan, splice",
            OVERHEAD_BUCKETS.len(),
            &self.overhead,
        );
        page.seconds(
            "upstream_duration",
            "Time of the provider: a new connection, until the head of the answer, from there to the first byte of its body, to its end",
            &self.upstream_duration,
        );
        page.info("build", "The running version", [("version", env!("CARGO_PKG_VERSION"))]);
    }

    /// As [`Metrics::register`], of what the watchers see.
    fn register_watched(&mut self) {
        let page = &mut self.page;
        page.family(
            "calls_emitted",
            "Tool calls in answers, for clients to answer",
            &self.calls_emitted,
        );
        page.family(
            "server_tools",
            "Tools that providers ran themselves",
            &self.server_tools,
        );
        page.family(
            "stream_ends",
            "Streamed answers, by how they said they ended; none where they broke off",
            &self.stream_ends,
        );
        page.family("tokens", "Tokens, as answers reported them", &self.tokens);
        page.single(
            "watcher_truncated",
            "Events of answers that were too long to be looked at to their end",
            self.watcher_truncated.clone(),
        );
    }

    /// Creates every label set that is known beforehand: a zero can be seen, an absence cannot.
    fn begin_at_zero(&self) {
        for known in Format::ALL {
            let format = known.label();
            for stop in stop_labels(known) {
                self.stream_ends.begin(&StreamEndLabels { format, stop });
            }
            for direction in DIRECTIONS {
                self.tokens.begin(&TokenLabels { format, direction });
            }
            for family in [&self.calls_emitted, &self.server_tools] {
                family.begin(&FormatLabels { format });
            }
            for kind in FindingKind::ALL {
                self.findings.begin(&FindingLabels {
                    kind: kind.code(),
                    format,
                });
            }
            for action in Action::ALL {
                self.repairs.begin(&RepairLabels {
                    action: action.label(),
                    format,
                });
            }
            self.rejections.begin(&FormatLabels { format });
        }
        for reason in Unreadable::ALL.map(Unreadable::code) {
            self.unreadable.begin(&ReasonLabels { reason });
        }
        for why in WHYS {
            self.second_repairs.begin(&WhyLabels { why });
            self.second_refusals.begin(&WhyLabels { why });
        }
        for phase in PHASES {
            self.upstream_duration.begin(&PhaseLabels { phase });
        }
    }

    /// The label of an upstream: its name if it is configured, else `none`.
    pub(super) fn known_upstream(&self, name: Option<&str>) -> String {
        let known = self.upstreams.load();
        name.and_then(|name| known.get(name))
            .map_or_else(|| "none".to_owned(), Clone::clone)
    }

    /// These are the upstreams from now on.
    pub(super) fn knows(&self, upstreams: BTreeSet<String>) {
        self.upstreams.store(Arc::new(upstreams));
    }

    pub(super) fn request(&self, labels: &ExchangeLabels) {
        self.requests.with(labels, one);
    }

    pub(super) fn finding(&self, kind: FindingKind, format: &'static str) {
        let kind = kind.code();
        self.findings.with(&FindingLabels { kind, format }, one);
    }

    pub(super) fn repair(&self, action: Action, format: &'static str, times: u64) {
        let action = action.label();
        self.repairs.with(&RepairLabels { action, format }, many(times));
    }

    pub(super) fn unreadable(&self, reason: Unreadable) {
        let reason = reason.code();
        self.unreadable.with(&ReasonLabels { reason }, one);
    }

    pub(super) fn rejection(&self, format: &'static str) {
        self.rejections.with(&FormatLabels { format }, one);
    }

    pub(super) fn second_repair(&self, why: &'static str) {
        self.second_repairs.with(&WhyLabels { why }, one);
    }

    pub(super) fn second_repair_refused(&self, why: &'static str) {
        self.second_refusals.with(&WhyLabels { why }, one);
    }

    pub(super) fn watched(&self, watched: &AnswerSummary) {
        let format = watched.format.label();
        let of = FormatLabels { format };
        // Most answers ask for few of these: what is zero need not be looked up.
        for (counter, count) in [
            (&self.calls_emitted, watched.calls),
            (&self.server_tools, watched.server_tools),
        ] {
            if count > 0 {
                counter.with(&of, many(count));
            }
        }
        if watched.streamed {
            let stop = watched.stop;
            self.stream_ends.with(&StreamEndLabels { format, stop }, one);
        }
        for (direction, tokens) in DIRECTIONS
            .into_iter()
            .zip([watched.input_tokens, watched.output_tokens])
        {
            self.tokens.with(&TokenLabels { format, direction }, many(tokens));
        }
        self.watcher_truncated.inc_by(watched.truncated);
    }

    pub(super) fn upstream_duration(&self, phase: &'static str, duration: Duration) {
        self.upstream_duration.with(&PhaseLabels { phase }, seconds(duration));
    }

    /// Series that the page may ever have.
    pub(super) const fn series_max(&self) -> usize {
        self.page.series_max() + process::SERIES
    }

    pub(super) fn encode(&self) -> String {
        let mut page = String::new();
        let written = self
            .page
            .write(&mut page)
            .and_then(|()| self.process.write(&mut page))
            .and_then(|()| text::encode_eof(&mut page));
        match written {
            Ok(()) => page,
            Err(error) => {
                tracing::error!(%error, "metrics cannot be written as text");
                String::new()
            }
        }
    }
}
