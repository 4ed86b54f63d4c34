//! The counts of the last hour, in steps of five seconds: the source of the dashboard's charts.
//!
//! They are counted apart from the metrics, so that charts have data without a scraper.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::telemetry::events::ExchangeEnded;

/// The length of a step.
pub const HISTORY_STEP: Duration = Duration::from_secs(5);
/// Limit of steps in the history: one hour.
const STEPS_MAX: usize = 720;
/// The last bucket of the added latency. Four buckets double the latency, from one microsecond to four minutes.
const LATENCY_BUCKET_LAST: f64 = 111.0;

/// The name of a count and its label, both from closed lists.
pub type CountName = (&'static str, &'static str);

/// A latency that the history records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LatencyKind {
    /// The time that the proxy added to any exchange.
    Overhead,
    /// The time that the proxy added to a body that it did not change.
    HealthyOverhead,
    /// The time that the proxy added to a body that it changed.
    RepairedOverhead,
    /// The time from the send to the first byte of the answer's body.
    FirstByte,
    /// The time from the send to the end of the answer.
    WholeAnswer,
}

/// The counts of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryStep {
    /// The start of the step, in seconds since 1970; a multiple of [`HISTORY_STEP`].
    pub at: u64,
    /// The counts of the step.
    pub counts: BTreeMap<CountName, u64>,
    /// Exchanges by latency and its bucket.
    latencies: BTreeMap<(LatencyKind, u8), u32>,
}

impl HistoryStep {
    /// Adds `times` to a count.
    fn add_count(&mut self, name: CountName, times: u64) {
        if times > 0 {
            let count = self.counts.entry(name).or_default();
            *count = count.saturating_add(times);
        }
    }

    fn record_latency(&mut self, kind: LatencyKind, took: Duration) {
        let count = self.latencies.entry((kind, latency_bucket(took))).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts an exchange that ended.
    fn record_exchange(&mut self, event: &ExchangeEnded) {
        let format = event.format_label();
        self.add_count(("requests", format), 1);
        if let Some(side) = event.side {
            self.add_count(("failures", side), 1);
        }
        if event.is_stalled {
            self.add_count(("stalls", event.stall_side()), 1);
        }
        // Zero adds nothing, so these need no condition.
        self.add_count(("rejections", ""), u64::from(event.is_rejected));
        self.add_count(("unreadable", ""), u64::from(event.unreadable.is_some()));
        if let Some(report) = &event.report {
            for finding in &report.findings {
                self.add_count(("findings", finding.kind.code()), 1);
            }
            for (action, times) in &report.actions {
                self.add_count(("repairs", action.label()), *times as u64);
            }
            let is_repaired = u64::from(!report.actions.is_empty());
            self.add_count(("repaired_requests", format), is_repaired);
        }
        if let Some(answer) = &event.answer_summary {
            self.add_count(("tokens", "input"), answer.input_tokens);
            self.add_count(("tokens", "output"), answer.output_tokens);
        }
        // Other bodies are not read, and their latency near zero would lower the percentiles.
        if event.format.is_some() {
            self.record_latencies(event);
        }
    }

    /// Records the latencies of an exchange.
    fn record_latencies(&mut self, event: &ExchangeEnded) {
        let is_repaired = event.report.as_ref().is_some_and(|report| !report.actions.is_empty());
        let overhead = if is_repaired {
            LatencyKind::RepairedOverhead
        } else {
            LatencyKind::HealthyOverhead
        };
        let added = event.added_latency();
        self.record_latency(LatencyKind::Overhead, added);
        self.record_latency(overhead, added);
        let Some(head) = event.upstream_head else { return };
        if let Some(first) = event.first_byte {
            self.record_latency(LatencyKind::FirstByte, head.saturating_add(first));
        }
        // A failure is not how long the provider takes for an answer.
        if let (Some(body), None) = (event.upstream_body, event.side) {
            self.record_latency(LatencyKind::WholeAnswer, head.saturating_add(body));
        }
    }

    /// Returns a percentile of a latency in microseconds; `None` without exchanges.
    ///
    /// `share` is from 0 to 1. The result is up to a fifth too high, because it is the limit of a bucket.
    pub fn percentile_us(&self, kind: LatencyKind, share: f64) -> Option<u64> {
        let buckets = || self.latencies.range((kind, 0)..=(kind, u8::MAX));
        let total: u32 = buckets().map(|(_, count)| count).sum();
        // At least one exchange, also for a share of 0.
        let mut left = (f64::from(total) * share).ceil().max(1.0);
        for ((_, bucket), count) in buckets() {
            left -= f64::from(*count);
            if left <= 0.0 {
                return Some(bucket_limit(*bucket));
            }
        }
        None
    }
}

/// The last steps, the current one last. Steps without counts are missing.
#[derive(Debug, Default)]
pub(super) struct CountHistory {
    steps: VecDeque<HistoryStep>,
}

impl CountHistory {
    /// Counts an exchange that ended. `now` is the time since 1970, here and below.
    pub(super) fn record_exchange(&mut self, now: Duration, event: &ExchangeEnded) {
        self.step_mut(now).record_exchange(event);
    }

    /// Adds `times` to a count.
    pub(super) fn add_count(&mut self, now: Duration, name: CountName, times: u64) {
        if times > 0 {
            self.step_mut(now).add_count(name, times);
        }
    }

    /// Returns the steps of the last hour, the oldest first.
    pub(super) fn steps_of_hour(&self, now: Duration) -> Vec<HistoryStep> {
        // Old steps are removed only to make room for new ones, so they are filtered here.
        let oldest = step_start(now).saturating_sub(HISTORY_STEP.as_secs() * (STEPS_MAX as u64 - 1));
        self.steps.iter().filter(|step| step.at >= oldest).cloned().collect()
    }

    /// Returns the step of the current time.
    pub(super) fn current_step(&self, now: Duration) -> HistoryStep {
        let at = step_start(now);
        // Newer steps may follow if the system clock was set back.
        let mut last = self.steps.iter().rev().take_while(|step| step.at >= at);
        let current = last.find(|step| step.at == at).cloned();
        current.unwrap_or_else(|| HistoryStep {
            at,
            ..HistoryStep::default()
        })
    }

    /// Returns the step before the current one.
    pub(super) fn previous_step(&self, now: Duration) -> HistoryStep {
        self.current_step(now.saturating_sub(HISTORY_STEP))
    }

    /// Returns the step to count into: the current one, or the last one if the system clock was set back.
    fn step_mut(&mut self, now: Duration) -> &mut HistoryStep {
        let at = step_start(now);
        if self.steps.back().is_none_or(|last| last.at < at) {
            // The oldest step makes room, which bounds the memory.
            if self.steps.len() >= STEPS_MAX {
                self.steps.pop_front();
            }
            self.steps.push_back(HistoryStep {
                at,
                ..HistoryStep::default()
            });
        }
        let last = self.steps.len().saturating_sub(1);
        &mut self.steps[last]
    }
}

/// Returns the start of the step that contains this time.
const fn step_start(now: Duration) -> u64 {
    let seconds = now.as_secs();
    seconds - seconds % HISTORY_STEP.as_secs()
}

/// Returns the bucket of a latency: four times its binary logarithm, so that each bucket is a fifth wide.
fn latency_bucket(took: Duration) -> u8 {
    let micros = took.as_secs_f64() * 1e6;
    let quarter = (micros.max(1.0).log2() * 4.0).floor();
    // From 0 to 111.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small whole number, not negative"
    )]
    let index = quarter.min(LATENCY_BUCKET_LAST) as u8;
    index
}

/// Returns the upper limit of a bucket, in microseconds.
fn bucket_limit(bucket: u8) -> u64 {
    let micros = ((f64::from(bucket) + 1.0) / 4.0).exp2();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most four minutes, not negative"
    )]
    let whole = micros.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: CountName = ("requests", "chat");

    #[test]
    fn a_step_counts_five_seconds_and_the_history_an_hour() {
        let mut history = CountHistory::default();
        for second in 0..4000 {
            history.add_count(Duration::from_secs(second), NAME, 2);
        }
        let steps = history.steps_of_hour(Duration::from_secs(3999));
        assert_eq!(steps.len(), STEPS_MAX);
        assert!(steps.iter().all(|step| step.counts[&NAME] == 10));
        assert_eq!(history.current_step(Duration::from_secs(3999)).counts[&NAME], 10);
        assert!(history.current_step(Duration::from_secs(4000)).counts.is_empty());
        assert_eq!(history.previous_step(Duration::from_secs(4000)).counts[&NAME], 10);
        assert!(history.steps_of_hour(Duration::from_secs(9000)).is_empty());
    }

    #[test]
    fn percentiles_are_close_and_of_one_latency_alone() {
        let mut history = CountHistory::default();
        for micros in 1..=1000 {
            let step = history.step_mut(Duration::ZERO);
            step.record_latency(LatencyKind::FirstByte, Duration::from_micros(micros));
            step.record_latency(LatencyKind::Overhead, Duration::from_secs(1));
        }
        let step = history.current_step(Duration::ZERO);
        for (share, wanted) in [(0.5, 500), (0.99, 990)] {
            let found = step.percentile_us(LatencyKind::FirstByte, share).unwrap_or_default();
            assert!((wanted * 95..wanted * 125).contains(&(found * 100)), "{share}: {found}");
        }
        assert_eq!(step.percentile_us(LatencyKind::WholeAnswer, 0.5), None);
    }
}
