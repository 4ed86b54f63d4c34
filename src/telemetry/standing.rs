//! Metrics of what stands between exchanges: profiles, breakers, sessions. As in [`super::metrics`], no value of a request
//! ever becomes a label: profiles and upstreams are those of the configuration.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::policy::Side;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    upstream: String,
    profile: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RotationLabels {
    upstream: String,
    profile: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    upstream: String,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BreakerLabels {
    upstream: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SideLabels {
    side: &'static str,
}

/// The metrics.
#[derive(Debug, Default)]
pub(super) struct Standing {
    profile_state: Family<StateLabels, Gauge>,
    rotations: Family<RotationLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    breakers: Family<BreakerLabels, Gauge>,
    stalls: Family<SideLabels, Counter>,
    lanes: Gauge,
    open_calls: Gauge,
}

impl Standing {
    /// Names and help, and the label sets that are known beforehand.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "profile_state",
            "1 for the state that a profile is in",
            self.profile_state.clone(),
        );
        registry.register(
            "profile_rotations",
            "Lanes that left a profile for another, by the reason why it rests",
            self.rotations.clone(),
        );
        registry.register(
            "attempts",
            "Sends to providers, by how they ended",
            self.attempts.clone(),
        );
        registry.register(
            "breakers",
            "Breakers of endpoints and models that have seen failures, by how they stand",
            self.breakers.clone(),
        );
        registry.register(
            "stream_stalls",
            "Answers that fell silent until one of our clocks ran out, by whose doing it was",
            self.stalls.clone(),
        );
        registry.register("lanes", "Lanes that are remembered", self.lanes.clone());
        registry.register(
            "tool_calls_inflight",
            "Tool calls that clients have not answered yet",
            self.open_calls.clone(),
        );
        for side in Side::ALL.map(Side::label) {
            drop(self.stalls.get_or_create(&SideLabels { side }));
        }
    }

    pub(super) fn profile_state(&self, upstream: &str, profile: &str, state: &'static str, is: bool) {
        let labels = StateLabels {
            upstream: upstream.to_owned(),
            profile: profile.to_owned(),
            state,
        };
        self.profile_state.get_or_create(&labels).set(i64::from(is));
    }

    /// Those that there are are put in anew with the next look.
    pub(super) fn forget_profiles(&self) {
        self.profile_state.clear();
        self.breakers.clear();
    }

    pub(super) fn rotated(&self, upstream: &str, profile: &str, reason: &'static str) {
        let labels = RotationLabels {
            upstream: upstream.to_owned(),
            profile: profile.to_owned(),
            reason,
        };
        self.rotations.get_or_create(&labels).inc();
    }

    pub(super) fn attempt(&self, upstream: &str, class: &'static str) {
        let upstream = upstream.to_owned();
        self.attempts.get_or_create(&AttemptLabels { upstream, class }).inc();
    }

    pub(super) fn breakers(&self, upstream: &str, state: &'static str, count: usize) {
        let upstream = upstream.to_owned();
        let gauge = self.breakers.get_or_create(&BreakerLabels { upstream, state });
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn stall(&self, side: &'static str) {
        self.stalls.get_or_create(&SideLabels { side }).inc();
    }

    pub(super) fn sessions(&self, lanes: usize, open_calls: usize) {
        self.lanes.set(i64::try_from(lanes).unwrap_or(i64::MAX));
        self.open_calls.set(i64::try_from(open_calls).unwrap_or(i64::MAX));
    }
}
