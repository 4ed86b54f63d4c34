//! The breaker of one endpoint and model: after failures in a row it stops the proxy's own retries. It never refuses a
//! request and never concerns a credential.

use std::time::{Duration, Instant};

use crate::labels::labelled_enum;

/// Half failures in a row that open the breaker: five whole failures.
const HALF_FAILURES_MAX: u32 = 10;
/// Length of the first open period. The n-th period in a row is n times as long.
const OPEN_PERIOD: Duration = Duration::from_secs(30);
/// Longest open period.
const OPEN_PERIOD_MAX: Duration = Duration::from_secs(300);

labelled_enum! {
    /// The state of a breaker.
    pub enum BreakerState {
        /// The endpoint works.
        Closed = "closed",
        /// The open period is over. The next failure opens the breaker again, the next success closes it.
        HalfOpen = "half_open",
        /// The endpoint failed too often.
        Open = "open",
    }
}

/// Half failures that one caller adds at most to a breaker that blocks all callers. Two callers are needed to open it.
const CREDIT_MAX: u32 = HALF_FAILURES_MAX / 2;

/// The bytes that name a caller.
type CallerBytes = [u8; 32];

/// The failures in a row of one endpoint and model.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    half_failures: u32,
    /// Open periods since the endpoint last worked.
    open_periods: u32,
    open_until: Option<Instant>,
    /// The logical request that failed last. A client's retry of it does not count again.
    last_request: Option<u64>,
}

impl Breaker {
    /// Returns the state at `now`.
    pub fn state_at(&self, now: Instant) -> BreakerState {
        match self.open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Returns the end of the open period; `None` if the breaker is closed.
    pub const fn open_until(&self) -> Option<Instant> {
        self.open_until
    }

    /// Returns the failures in a row. A half failure is rounded down.
    pub const fn failures_in_row(&self) -> u32 {
        self.half_failures / 2
    }

    /// Records the outcome of an attempt: zero `halves` if the endpoint worked. `request` identifies the logical
    /// request and is the same for each send of it.
    pub fn record_outcome(&mut self, halves: u32, request: u64, now: Instant) {
        // Any sign that the endpoint works ends the row, however many failures came before.
        if halves == 0 {
            *self = Self::default();
            return;
        }
        // One request that every attempt breaks on must not open the breaker for all others.
        if self.last_request.replace(request) == Some(request) {
            return;
        }
        // Read before the count changes: a failure after the open period reopens at once.
        let probe = self.state_at(now) == BreakerState::HalfOpen;
        self.half_failures = self.half_failures.saturating_add(halves).min(HALF_FAILURES_MAX);
        // A failure while the breaker is open must not lengthen the period: it may have been sent before.
        if probe || (self.open_until.is_none() && self.half_failures >= HALF_FAILURES_MAX) {
            self.open_periods = self.open_periods.saturating_add(1);
            let open = OPEN_PERIOD.saturating_mul(self.open_periods).min(OPEN_PERIOD_MAX);
            self.open_until = Some(now + open);
        }
    }
}

/// The failures in a row that several callers have seen. It opens only if at least two of them saw enough.
#[derive(Clone, Debug, Default)]
pub struct SharedBreaker {
    breaker: Breaker,
    /// Half failures that each caller has added. As many entries as half failures at most.
    credits: Vec<(CallerBytes, u32)>,
}

impl SharedBreaker {
    /// Returns the breaker itself.
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Records a failure that `caller` has seen. `request` identifies the logical request.
    pub fn record_failure(&mut self, halves: u32, caller: CallerBytes, request: u64, now: Instant) {
        // Once it is open, the callers have proven their failures: the next one counts as usual.
        if self.breaker.open_until.is_some() {
            self.breaker.record_outcome(halves, request, now);
            return;
        }
        if self.breaker.last_request == Some(request) {
            return;
        }
        let known = self.credits.iter_mut().find(|(known, _)| *known == caller);
        // One caller alone could produce any number of failures, so its share is limited.
        let added = halves.min(CREDIT_MAX - known.as_ref().map_or(0, |(_, used)| *used));
        if added == 0 {
            return;
        }
        match known {
            Some((_, used)) => *used += added,
            None => self.credits.push((caller, added)),
        }
        self.breaker.record_outcome(added, request, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_a_success_closes_it() {
        let (start, mut breaker) = (start(), Breaker::default());
        for number in 0..5 {
            assert_eq!(breaker.state_at(start), BreakerState::Closed);
            breaker.record_outcome(2, number, start);
        }
        assert_eq!(breaker.state_at(at(start, 29)), BreakerState::Open);
        assert_eq!(breaker.state_at(at(start, 30)), BreakerState::HalfOpen);
        breaker.record_outcome(0, 9, at(start, 31));
        assert_eq!(breaker.state_at(at(start, 31)), BreakerState::Closed);
        assert_eq!(breaker.failures_in_row(), 0);
    }

    #[test]
    fn each_failed_probe_opens_it_for_longer_up_to_five_minutes() {
        let (start, mut breaker) = (start(), Breaker::default());
        for number in 0..5 {
            breaker.record_outcome(2, number, start);
        }
        let (mut now, mut open) = (30, vec![30]);
        for number in 5..20 {
            breaker.record_outcome(2, number, at(start, now));
            let until = breaker.open_until().unwrap().duration_since(at(start, now)).as_secs();
            open.push(until);
            now += until;
        }
        assert_eq!(open[..4], [30, 60, 90, 120]);
        assert_eq!(open.last(), Some(&300));
    }

    #[test]
    fn one_request_counts_once_however_often_it_is_sent_and_a_success_between_starts_anew() {
        let (start, mut breaker) = (start(), Breaker::default());
        for _ in 0..50 {
            breaker.record_outcome(2, 1, start);
        }
        assert_eq!(
            (breaker.failures_in_row(), breaker.state_at(start)),
            (1, BreakerState::Closed)
        );
        for number in 0..9 {
            breaker.record_outcome(1, number + 2, start);
        }
        assert_eq!(breaker.state_at(start), BreakerState::Open);
        let mut breaker = Breaker::default();
        for number in 0..100 {
            breaker.record_outcome(if number % 5 == 4 { 0 } else { 2 }, number, start);
            assert_eq!(breaker.state_at(start), BreakerState::Closed);
        }
    }

    #[test]
    fn failures_while_open_change_nothing() {
        let (start, mut breaker) = (start(), Breaker::default());
        for number in 0..100 {
            breaker.record_outcome(2, number, start);
        }
        assert_eq!(breaker.open_until(), Some(at(start, 30)));
    }

    #[test]
    fn one_caller_cannot_open_a_shared_breaker() {
        let rows: &[(&str, Option<usize>)] = &[
            ("aaaaaaaaaaaaaaaa", None),
            ("aaaaaaaab", None),
            ("aaaaaaaabb", None),
            ("aaabbb", Some(6)),
            ("ababab", Some(6)),
            ("aaaaaaaabbb", Some(11)),
            ("abcde", Some(5)),
            ("aabbc", Some(5)),
        ];
        for (callers, opens) in rows {
            let (start, mut shared) = (start(), SharedBreaker::default());
            let mut opened = None;
            for (number, caller) in callers.bytes().enumerate() {
                let request = u64::try_from(number).unwrap();
                shared.record_failure(2, [caller; 32], request, start);
                if shared.breaker().state_at(start) == BreakerState::Open {
                    opened.get_or_insert(number + 1);
                }
            }
            assert_eq!(opened, *opens, "{callers}");
            assert!(shared.credits.len() <= HALF_FAILURES_MAX as usize);
        }
    }
}
