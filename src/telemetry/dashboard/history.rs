//! What happened in the last hour, step by step: what the dashboard draws.
//!
//! Counts beside the metrics, not read from them: a step is what came in five seconds, and nobody has to be there to ask.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Length of a step.
pub const STEP: Duration = Duration::from_secs(5);
/// Steps that are kept: an hour.
pub const STEPS_MAX: usize = 720;
/// The last bucket of the added latency: there are four to a doubling, from a microsecond up to four minutes.
const BUCKET_LAST: f64 = 111.0;

/// A count: its name and its label, both from closed lists.
pub type Name = (&'static str, &'static str);

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// When it began, in seconds since 1970; a multiple of [`STEP`].
    pub at: u64,
    /// What was counted in it.
    pub counts: BTreeMap<Name, u64>,
    /// Exchanges by the latency that was added to them.
    overhead: BTreeMap<u8, u32>,
}

impl Step {
    /// The latency, in microseconds, that this share of its exchanges stayed below; none without exchanges. Off by a fifth
    /// at most.
    pub fn overhead_us(&self, share: f64) -> Option<u64> {
        let total: u32 = self.overhead.values().sum();
        let mut left = (f64::from(total) * share).ceil().max(1.0);
        for (bucket, count) in &self.overhead {
            left -= f64::from(*count);
            if left <= 0.0 {
                return Some(ceiling(*bucket));
            }
        }
        None
    }
}

/// The last steps, the running one last. Steps in which nothing happened are left out.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct History {
    steps: VecDeque<Step>,
}

impl History {
    /// Counts at this time, since 1970.
    pub(in crate::telemetry) fn count(&mut self, now: Duration, name: Name, times: u64) {
        if times > 0 {
            let count = self.running(now).counts.entry(name).or_default();
            *count = count.saturating_add(times);
        }
    }

    /// Notes the latency that was added to an exchange.
    pub(in crate::telemetry) fn overhead(&mut self, now: Duration, added: Duration) {
        let count = self.running(now).overhead.entry(bucket(added)).or_default();
        *count = count.saturating_add(1);
    }

    /// Every step of the last hour in which anything happened, the oldest first.
    pub(in crate::telemetry) fn steps(&self, now: Duration) -> Vec<Step> {
        let oldest = begin(now).saturating_sub(STEP.as_secs() * (STEPS_MAX as u64 - 1));
        self.steps.iter().filter(|step| step.at >= oldest).cloned().collect()
    }

    /// The step of this time.
    pub(in crate::telemetry) fn now(&self, now: Duration) -> Step {
        let at = begin(now);
        let mut last = self.steps.iter().rev().take_while(|step| step.at >= at);
        let running = last.find(|step| step.at == at).cloned();
        running.unwrap_or_else(|| Step { at, ..Step::default() })
    }

    /// The step before the running one.
    pub(in crate::telemetry) fn before(&self, now: Duration) -> Step {
        self.now(now.saturating_sub(STEP))
    }

    /// A clock that was put back counts into the last step.
    fn running(&mut self, now: Duration) -> &mut Step {
        let at = begin(now);
        if self.steps.back().is_none_or(|last| last.at < at) {
            if self.steps.len() >= STEPS_MAX {
                self.steps.pop_front();
            }
            self.steps.push_back(Step { at, ..Step::default() });
        }
        let last = self.steps.len().saturating_sub(1);
        &mut self.steps[last]
    }
}

/// When the step of this time began.
pub fn begin(now: Duration) -> u64 {
    let seconds = now.as_secs();
    seconds - seconds % STEP.as_secs()
}

fn bucket(added: Duration) -> u8 {
    let micros = added.as_secs_f64() * 1e6;
    let quarter = (micros.max(1.0).log2() * 4.0).floor();
    // From 0 to 111.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small whole number, not negative"
    )]
    let index = quarter.min(BUCKET_LAST) as u8;
    index
}

fn ceiling(bucket: u8) -> u64 {
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

    const NAME: Name = ("requests", "chat");

    #[test]
    fn a_step_holds_what_came_in_it_and_an_hour_is_kept() {
        let mut history = History::default();
        for second in 0..4000 {
            history.count(Duration::from_secs(second), NAME, 2);
        }
        let steps = history.steps(Duration::from_secs(3999));
        assert_eq!(steps.len(), STEPS_MAX);
        assert!(steps.iter().all(|step| step.counts[&NAME] == 10));
        assert_eq!(history.now(Duration::from_secs(3999)).counts[&NAME], 10);
        assert!(history.now(Duration::from_secs(4000)).counts.is_empty());
        assert_eq!(history.before(Duration::from_secs(4000)).counts[&NAME], 10);
        assert!(history.steps(Duration::from_secs(9000)).is_empty());
    }

    #[test]
    fn shares_of_the_added_latency_are_near() {
        let mut history = History::default();
        for micros in 1..=1000 {
            history.overhead(Duration::ZERO, Duration::from_micros(micros));
        }
        let step = history.now(Duration::ZERO);
        for (share, wanted) in [(0.5, 500), (0.99, 990)] {
            let found = step.overhead_us(share).unwrap_or_default();
            assert!((wanted * 95..wanted * 125).contains(&(found * 100)), "{share}: {found}");
        }
        assert_eq!(Step::default().overhead_us(0.5), None);
    }
}
