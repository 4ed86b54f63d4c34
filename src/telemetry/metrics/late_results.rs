//! Metrics of late results. As in [`super`], no value of a request ever becomes a label.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, histogram::Histogram},
};

use super::page::{Capped, Page, one};

/// How long a result waited for its owner, in seconds: from the next request to a week.
const AGE_BUCKETS: [f64; 10] = [
    1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 259_200.0, 604_800.0,
];

/// What may be answered to a post, beside what is wrong with the request itself.
pub const POST_ANSWERS: [&str; 9] = [
    "settled",
    "repeated",
    "parked",
    "conflict",
    "ambiguous_call",
    "expired",
    "unknown",
    "malformed",
    "unavailable",
];

/// What may become of results.
pub const LATE_RESULT_EVENTS: [&str; 11] = [
    "attached",
    "detached",
    "parked",
    "delivered",
    "acked",
    "conflict",
    "ambiguous",
    "expired",
    "cancelled",
    "unread",
    "lost",
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    answer: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    event: &'static str,
}

/// The metrics.
#[derive(Debug)]
pub(in crate::telemetry) struct Late {
    posts: Capped<AnswerLabels, Counter>,
    results: Capped<EventLabels, Counter>,
    age: Histogram,
}

impl Default for Late {
    fn default() -> Self {
        Self {
            posts: Capped::closed(POST_ANSWERS.len()),
            results: Capped::closed(LATE_RESULT_EVENTS.len()),
            age: Histogram::new(AGE_BUCKETS),
        }
    }
}

impl Late {
    pub(in crate::telemetry) fn register(&self, page: &mut Page) {
        page.family(
            "ledger_posts",
            "Results that tool services posted, by what they were answered",
            &self.posts,
        );
        page.family("late_results", "What became of posted results", &self.results);
        page.histogram(
            "late_result_age",
            "Time from the post of a result to its delivery",
            AGE_BUCKETS.len(),
            &self.age,
        );
        for answer in POST_ANSWERS {
            self.posts.begin(&AnswerLabels { answer });
        }
        for event in LATE_RESULT_EVENTS {
            self.results.begin(&EventLabels { event });
        }
    }

    pub(in crate::telemetry) fn post(&self, answer: &'static str) {
        self.posts.with(&AnswerLabels { answer }, one);
    }

    pub(in crate::telemetry) fn event(&self, event: &'static str) {
        self.results.with(&EventLabels { event }, one);
    }

    pub(in crate::telemetry) fn so_far(&self, event: &'static str) -> u64 {
        let mut count = 0;
        self.results
            .with(&EventLabels { event }, |counter| count = counter.get());
        count
    }

    pub(in crate::telemetry) fn delivered(&self, age: Duration) {
        self.event("delivered");
        self.age.observe(age.as_secs_f64());
    }
}
