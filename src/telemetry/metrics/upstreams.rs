//! Metrics of upstreams: their response times, attempts, profiles and breakers.
//!
//! Names of upstreams and profiles come from the configuration, never from a request.

use super::{
    family::{CounterFamily, GaugeFamily, HistogramFamily},
    label_sets::{LabelSpace, LabelValue},
    page::metric_table,
};
use crate::{
    policy::{CooldownReason, ProfileState, breaker::BreakerState},
    telemetry::events::ExchangeEnded,
    upstream::NetworkCause,
};

/// Seconds of the provider: from a quick error to a long answer.
const UPSTREAM_BUCKETS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0];
const PHASES: [&str; 4] = ["connect", "headers", "first_byte", "body"];

// Twelve upstreams with eight profiles each have room; larger configurations fold the label sets that come last.
/// Label sets of `profile_state`: twelve times eight profiles, three states each.
const PROFILE_STATE_SETS_MAX: usize = 288;
const ROTATION_SETS_MAX: usize = 60;
const ATTEMPT_SETS_MAX: usize = 192;
const BREAKER_SETS_MAX: usize = 60;
/// Label sets of `stuck_sessions`: twelve upstreams.
const STUCK_SETS_MAX: usize = 12;
/// Classes of attempts: the label sets of `attempts` that folding may add.
const ATTEMPT_CLASSES_MAX: usize = 40;

metric_table! {
    /// Metrics of upstreams.
    UpstreamMetrics(page) {
        duration: HistogramFamily<1> = page.histograms(
            "upstream_duration",
            "Time of the provider, by phase: connect, headers (from the send), first_byte and body (from the headers)",
            &UPSTREAM_BUCKETS,
            LabelSpace::closed([("phase", &PHASES)]),
        );
        attempts: CounterFamily<2> = page.counters(
            "attempts",
            "Attempts at providers, retries included, by the class of the outcome",
            LabelSpace::open(["upstream", "class"], ATTEMPT_SETS_MAX).folding(["upstream"], ATTEMPT_CLASSES_MAX),
        );
        network_failures: CounterFamily<1> = page.counters(
            "network_failures",
            "Sends that failed in the network, retries included, by the cause",
            LabelSpace::closed([("cause", &NetworkCause::ALL.map(NetworkCause::label))]),
        );
        profile_state: GaugeFamily<3> = page.gauges(
            "profile_state",
            "1 for the current state of a profile, 0 for its other states; cooling means that a cooldown is in force",
            LabelSpace::open(["upstream", "profile", "state"], PROFILE_STATE_SETS_MAX)
                .folding(["upstream", "profile"], ProfileState::ALL.len()),
        );
        profile_rotations: CounterFamily<3> = page.counters(
            "profile_rotations",
            "Conversations that moved to another profile, by the profile they left and the reason for its cooldown",
            // One more than the reasons: `other`.
            LabelSpace::open(["upstream", "profile", "reason"], ROTATION_SETS_MAX)
                .folding(["upstream", "profile"], CooldownReason::ALL.len() + 1),
        );
        breakers: GaugeFamily<2> = page.gauges(
            "breakers",
            "Breakers of endpoints and models with recent failures, by state; an open breaker blocks retries",
            LabelSpace::open(["upstream", "state"], BREAKER_SETS_MAX).folding(["upstream"], BreakerState::ALL.len()),
        );
        stuck_sessions: CounterFamily<1> = page.counters(
            "stuck_sessions",
            "Sessions that a provider refused three times with one error that the proxy does not know: they are stuck",
            LabelSpace::open(["upstream"], STUCK_SETS_MAX).folding(["upstream"], 1),
        );
    }
}

impl UpstreamMetrics {
    /// Puts upstreams on the page before any of their sessions is stuck: the first one must be an increase.
    pub(super) fn show_upstreams<'n>(&self, names: impl Iterator<Item = &'n String>) {
        // Further ones share a series that says nothing at zero.
        for name in names.take(STUCK_SETS_MAX) {
            self.stuck_sessions.add([LabelValue::Owned(name.clone())], 0);
        }
    }

    /// Measures the phases of the provider's answer that an exchange reached.
    pub(super) fn record_exchange(&self, event: &ExchangeEnded) {
        let phases = [("headers", event.upstream_head), ("body", event.upstream_body)];
        for (phase, took) in phases {
            // A phase that the exchange did not reach has no duration.
            if let Some(took) = took {
                self.duration.observe([phase], took);
            }
        }
    }
}
