//! Every metric: name, help, labels, buckets. Labels are closed lists; no value of a request becomes one, but for
//! names of tools.
//!
//! Those of profiles, breakers and sessions are in [`super::standing`], those of clients' tools in [`super::tools`], those
//! of what is remembered in [`super::remembered`], those of late results in [`super::late`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use super::{late::Late, remembered::Remembered, standing::Standing, tools::Tools};
use crate::{
    conversation::FindingKind,
    repair::Action,
    session_table::Detached,
    telemetry::events::Watched,
    wire::{Format, Unreadable, watch::stop_labels},
};

/// Our own time, in seconds: a read takes microseconds, a large history milliseconds.
const OVERHEAD_BUCKETS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5,
];
/// Providers' time, in seconds: from a refusal to a long answer.
const UPSTREAM_BUCKETS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0];

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

type Histograms = Family<PhaseLabels, Histogram, fn() -> Histogram>;

/// All metrics, registered.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    upstreams: ArcSwap<BTreeSet<String>>,
    requests: Family<ExchangeLabels, Counter>,
    findings: Family<FindingLabels, Counter>,
    repairs: Family<RepairLabels, Counter>,
    unreadable: Family<ReasonLabels, Counter>,
    rejections: Family<FormatLabels, Counter>,
    second_repairs: Family<WhyLabels, Counter>,
    calls_emitted: Family<FormatLabels, Counter>,
    server_tools: Family<FormatLabels, Counter>,
    stream_ends: Family<StreamEndLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    watcher_truncated: Counter,
    upstream_duration: Histograms,
    pub(super) standing: Standing,
    pub(super) remembered: Remembered,
    pub(super) tools: Tools,
    pub(super) late: Late,
    pub(super) overhead: Histogram,
    pub(super) streams_active: Gauge,
    pub(super) deferred: Counter,
    pub(super) unrepairable: Counter,
    pub(super) watcher_blind: Counter,
}

impl Metrics {
    pub(super) fn new(upstreams: BTreeSet<String>) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("antiphon"),
            upstreams: ArcSwap::from_pointee(upstreams),
            requests: Family::default(),
            findings: Family::default(),
            repairs: Family::default(),
            unreadable: Family::default(),
            rejections: Family::default(),
            second_repairs: Family::default(),
            calls_emitted: Family::default(),
            server_tools: Family::default(),
            stream_ends: Family::default(),
            tokens: Family::default(),
            watcher_truncated: Counter::default(),
            upstream_duration: Family::new_with_constructor(|| Histogram::new(UPSTREAM_BUCKETS)),
            standing: Standing::default(),
            remembered: Remembered::default(),
            tools: Tools::default(),
            late: Late::default(),
            overhead: Histogram::new(OVERHEAD_BUCKETS),
            streams_active: Gauge::default(),
            deferred: Counter::default(),
            unrepairable: Counter::default(),
            watcher_blind: Counter::default(),
        };
        metrics.register();
        metrics.register_watched();
        metrics.standing.register(&mut metrics.registry);
        metrics.remembered.register(&mut metrics.registry);
        let whys = Detached::ALL.map(Detached::label);
        metrics.tools.register(&mut metrics.registry, whys);
        metrics.late.register(&mut metrics.registry);
        metrics.begin_at_zero();
        metrics
    }

    /// The names and the help. The library adds `_total` to counters, the unit, and the full stop.
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "requests",
            "Exchanges that ended, by who ended them",
            self.requests.clone(),
        );
        registry.register(
            "findings",
            "Breaches of the pairing rules that were found",
            self.findings.clone(),
        );
        registry.register("repairs", "Actions taken about findings", self.repairs.clone());
        registry.register(
            "unreadable",
            "Bodies that were forwarded unread",
            self.unreadable.clone(),
        );
        registry.register(
            "rejections",
            "Requests that were rejected in strict mode",
            self.rejections.clone(),
        );
        registry.register(
            "second_repairs",
            "Requests that were sent once more after the provider had said what was wrong",
            self.second_repairs.clone(),
        );
        registry.register(
            "deferred",
            "Results left out because no message may hold them yet",
            self.deferred.clone(),
        );
        registry.register(
            "unrepairable",
            "Findings that nothing may be done about",
            self.unrepairable.clone(),
        );
        registry.register(
            "watcher_blind",
            "Answers that could not be watched",
            self.watcher_blind.clone(),
        );
        registry.register(
            "streams_active",
            "Answers whose bodies are flowing",
            self.streams_active.clone(),
        );
        registry.register_with_unit(
            "overhead",
            "Time of our own before the send: read, check, plan, splice",
            Unit::Seconds,
            self.overhead.clone(),
        );
        registry.register_with_unit(
            "upstream_duration",
            "Time of the provider: until the head of the answer, and from there to its end",
            Unit::Seconds,
            self.upstream_duration.clone(),
        );
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The running version", version);
    }

    /// As [`Metrics::register`], of what the watchers see.
    fn register_watched(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "calls_emitted",
            "Tool calls in answers, for clients to answer",
            self.calls_emitted.clone(),
        );
        registry.register(
            "server_tools",
            "Tools that providers ran themselves",
            self.server_tools.clone(),
        );
        registry.register(
            "stream_ends",
            "Streamed answers, by how they said they ended; none where they broke off",
            self.stream_ends.clone(),
        );
        registry.register("tokens", "Tokens, as answers reported them", self.tokens.clone());
        registry.register(
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
                drop(self.stream_ends.get_or_create(&StreamEndLabels { format, stop }));
            }
            for direction in ["input", "output"] {
                drop(self.tokens.get_or_create(&TokenLabels { format, direction }));
            }
            for family in [&self.calls_emitted, &self.server_tools] {
                drop(family.get_or_create(&FormatLabels { format }));
            }
            for kind in FindingKind::ALL {
                drop(self.findings.get_or_create(&FindingLabels {
                    kind: kind.code(),
                    format,
                }));
            }
            for action in Action::ALL {
                drop(self.repairs.get_or_create(&RepairLabels {
                    action: action.label(),
                    format,
                }));
            }
            drop(self.rejections.get_or_create(&FormatLabels { format }));
        }
        for reason in Unreadable::ALL.map(Unreadable::code) {
            drop(self.unreadable.get_or_create(&ReasonLabels { reason }));
        }
        for why in ["pairing", "binding"] {
            drop(self.second_repairs.get_or_create(&WhyLabels { why }));
        }
        for phase in ["headers", "body"] {
            drop(self.upstream_duration.get_or_create(&PhaseLabels { phase }));
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
        self.requests.get_or_create(labels).inc();
    }

    pub(super) fn finding(&self, kind: FindingKind, format: &'static str) {
        self.findings
            .get_or_create(&FindingLabels {
                kind: kind.code(),
                format,
            })
            .inc();
    }

    pub(super) fn repair(&self, action: Action, format: &'static str, times: u64) {
        self.repairs
            .get_or_create(&RepairLabels {
                action: action.label(),
                format,
            })
            .inc_by(times);
    }

    pub(super) fn unreadable(&self, reason: Unreadable) {
        self.unreadable
            .get_or_create(&ReasonLabels { reason: reason.code() })
            .inc();
    }

    pub(super) fn rejection(&self, format: &'static str) {
        self.rejections.get_or_create(&FormatLabels { format }).inc();
    }

    pub(super) fn second_repair(&self, why: &'static str) {
        self.second_repairs.get_or_create(&WhyLabels { why }).inc();
    }

    pub(super) fn watched(&self, watched: &Watched) {
        let format = watched.format.label();
        let of = FormatLabels { format };
        // Most answers ask for few of these: what is zero need not be looked up.
        for (counter, count) in [
            (&self.calls_emitted, watched.calls),
            (&self.server_tools, watched.server_tools),
        ] {
            if count > 0 {
                counter.get_or_create(&of).inc_by(count);
            }
        }
        if watched.streamed {
            let stop = watched.stop;
            self.stream_ends.get_or_create(&StreamEndLabels { format, stop }).inc();
        }
        for (direction, tokens) in [("input", watched.input_tokens), ("output", watched.output_tokens)] {
            self.tokens
                .get_or_create(&TokenLabels { format, direction })
                .inc_by(tokens);
        }
        self.watcher_truncated.inc_by(watched.truncated);
    }

    pub(super) fn upstream_duration(&self, phase: &'static str, duration: Duration) {
        self.upstream_duration
            .get_or_create(&PhaseLabels { phase })
            .observe(duration.as_secs_f64());
    }

    pub(super) fn encode(&self) -> String {
        let mut page = String::new();
        match text::encode(&mut page, &self.registry) {
            Ok(()) => page,
            Err(error) => {
                tracing::error!(%error, "metrics cannot be written as text");
                String::new()
            }
        }
    }
}
