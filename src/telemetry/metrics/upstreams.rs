//! Metrics of what stands between exchanges: profiles, breakers, sessions. As in [`super`], no value of a request
//! ever becomes a label: profiles and upstreams are those of the configuration.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, gauge::Gauge},
};

use super::page::{Capped, Gauges, OTHER, Page, one};
use crate::{
    auth::rotation::ProfileState,
    policy::{Reason, Side, breaker::Standing as BreakerStanding},
};

/// Label sets with room: of 12 upstreams with 8 profiles each everything, of more the first. States come in threes.
const STATES_MAX: usize = 288;
const ROTATIONS_MAX: usize = 150;
const ATTEMPTS_MAX: usize = 220;
const BREAKERS_MAX: usize = 60;
/// Classes of attempts: what remains where an upstream has no room.
const CLASSES: usize = 40;

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
#[derive(Debug)]
pub(in crate::telemetry) struct Standing {
    profile_state: Gauges<StateLabels>,
    rotations: Capped<RotationLabels, Counter>,
    attempts: Capped<AttemptLabels, Counter>,
    breakers: Gauges<BreakerLabels>,
    stalls: Capped<SideLabels, Counter>,
    lanes: Gauge,
    open_calls: Gauge,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            profile_state: Gauges::open(STATES_MAX, ProfileState::ALL.len(), |labels| StateLabels {
                upstream: OTHER.to_owned(),
                profile: OTHER.to_owned(),
                state: labels.state,
            }),
            rotations: Capped::open(ROTATIONS_MAX, Reason::ALL.len() + 1, |labels| RotationLabels {
                upstream: OTHER.to_owned(),
                profile: OTHER.to_owned(),
                reason: labels.reason,
            }),
            attempts: Capped::open(ATTEMPTS_MAX, CLASSES, |labels| AttemptLabels {
                upstream: OTHER.to_owned(),
                class: labels.class,
            }),
            breakers: Gauges::open(BREAKERS_MAX, BreakerStanding::ALL.len(), |labels| BreakerLabels {
                upstream: OTHER.to_owned(),
                state: labels.state,
            }),
            stalls: Capped::closed(Side::ALL.len()),
            lanes: Gauge::default(),
            open_calls: Gauge::default(),
        }
    }
}

impl Standing {
    /// Names and help, and the label sets that are known beforehand.
    pub(in crate::telemetry) fn register(&self, page: &mut Page) {
        page.gauges(
            "profile_state",
            "1 for the state that a profile is in",
            &self.profile_state,
        );
        page.family(
            "profile_rotations",
            "Lanes that left a profile for another, by the reason why it rests",
            &self.rotations,
        );
        page.family("attempts", "Sends to providers, by how they ended", &self.attempts);
        page.gauges(
            "breakers",
            "Breakers of endpoints and models that have seen failures, by how they stand",
            &self.breakers,
        );
        page.family(
            "stream_stalls",
            "Answers that fell silent until one of our clocks ran out, by whose doing it was",
            &self.stalls,
        );
        page.single("lanes", "Lanes that are remembered", self.lanes.clone());
        page.single(
            "tool_calls_inflight",
            "Tool calls that clients have not answered yet",
            self.open_calls.clone(),
        );
        for side in Side::ALL.map(Side::label) {
            self.stalls.begin(&SideLabels { side });
        }
    }

    pub(in crate::telemetry) fn profile_state(&self, upstream: &str, profile: &str, state: &'static str, is: bool) {
        let labels = StateLabels {
            upstream: upstream.to_owned(),
            profile: profile.to_owned(),
            state,
        };
        self.profile_state.set(&labels, i64::from(is));
    }

    pub(in crate::telemetry) fn rotated(&self, upstream: &str, profile: &str, reason: &'static str) {
        let labels = RotationLabels {
            upstream: upstream.to_owned(),
            profile: profile.to_owned(),
            reason,
        };
        self.rotations.with(&labels, one);
    }

    pub(in crate::telemetry) fn attempt(&self, upstream: &str, class: &'static str) {
        let upstream = upstream.to_owned();
        self.attempts.with(&AttemptLabels { upstream, class }, one);
    }

    pub(in crate::telemetry) fn breakers(&self, upstream: &str, state: &'static str, count: usize) {
        let upstream = upstream.to_owned();
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.breakers.set(&BreakerLabels { upstream, state }, count);
    }

    pub(in crate::telemetry) fn stall(&self, side: &'static str) {
        self.stalls.with(&SideLabels { side }, one);
    }

    pub(in crate::telemetry) fn sessions(&self, lanes: usize, open_calls: usize) {
        self.lanes.set(i64::try_from(lanes).unwrap_or(i64::MAX));
        self.open_calls.set(i64::try_from(open_calls).unwrap_or(i64::MAX));
    }

    /// Forgets what was configured before: those that are still there are set again before the page is read.
    pub(in crate::telemetry) fn forget(&self) {
        self.profile_state.clear();
        self.breakers.clear();
    }
}
