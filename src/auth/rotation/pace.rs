//! The pace of one quota and model: the requests per second that the provider has shown it takes.
//!
//! Providers refill their limits steadily. Between two refusals a quota takes as many requests as it was refilled with,
//! so their number and the time between measure the limit. Requests that wait for the end of a cooldown get slots at
//! that pace. Without them, all would be sent at once, and most be refused again.
//!
//! A pace is a guess. It grows until the next refusal, and ends a minute after the last one.

use std::time::{Duration, Instant};

use crate::policy::EmptyQuota;

/// Growth of the pace in one second. It finds a raised limit within seconds, at the price of a refusal now and then.
const GROWTH: f64 = 1.05;
/// Time after the last refusal at which the pace ends.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Requests per second above which a measure counts even if no request has waited.
const RELIABLE: f64 = 1.0;
/// Slowest pace: one request a minute.
const SLOWEST: f64 = 1.0 / 60.0;
/// Slots of the past that may still be used: the quota was refilled meanwhile.
const SAVED_MIN: Duration = Duration::from_secs(1);
const SAVED_MAX: Duration = Duration::from_secs(10);
/// Longest time for which a success reports the quota as empty.
const EMPTY_MAX: Duration = Duration::from_secs(10);
/// Time over which answers are counted while there is no refusal to count from.
const COUNTED_FOR: Duration = Duration::from_secs(10);

/// A reserved time for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The start of the slot.
    pub at: Instant,
    /// The refusals before the reservation. A later refusal voids it.
    round: u32,
}

/// The pace of one quota and model.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Requests per second; `None` until the provider has refused one.
    rate: Option<f64>,
    /// The next free slot.
    next: Instant,
    /// The end of a time in which the quota is empty, as a success has reported.
    empty_until: Instant,
    /// Slots of the past that may still be used.
    saved: Duration,
    /// The start of the count, and the answers since.
    counted_from: Instant,
    answers: u32,
    /// `true` if a request has waited since the last refusal: there were more requests than the quota takes.
    is_saturated: bool,
    refused_at: Option<Instant>,
    round: u32,
}

impl Pace {
    /// Creates the pace of a quota that has refused nothing yet.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            rate: None,
            next: now,
            empty_until: now,
            saved: SAVED_MIN,
            counted_from: now,
            answers: 0,
            is_saturated: false,
            refused_at: None,
            round: 0,
        }
    }

    /// Returns `true` if the pace may be removed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.current_rate(now).is_none()
            && now >= self.empty_until
            && now.saturating_duration_since(self.counted_from) > FORGOTTEN_AFTER
    }

    /// Counts an answer that the quota was charged for.
    pub(super) fn note_answer(&mut self, empty: Option<EmptyQuota>, now: Instant) {
        let counts_from_refusal = self.current_rate(now).is_some();
        if !counts_from_refusal && now.saturating_duration_since(self.counted_from) > COUNTED_FOR {
            (self.counted_from, self.answers) = (now, 0);
        }
        self.answers = self.answers.saturating_add(1);
        if let Some(empty) = empty {
            // One request is available long before the whole limit is.
            let stated = empty.requests.map(|requests| empty.full_after / requests.max(1));
            let learned = self.current_rate(now).map(|rate| Duration::from_secs_f64(1.0 / rate));
            let wait = stated.or(learned).unwrap_or(empty.full_after);
            self.empty_until = self.empty_until.max(now + wait.min(empty.full_after).min(EMPTY_MAX));
        }
    }

    /// Measures the pace at a refusal. `rest` is the cooldown that follows.
    pub(super) fn note_refusal(&mut self, rest: Duration, now: Instant) {
        let span = now.saturating_duration_since(self.counted_from).as_secs_f64().max(0.1);
        let measured = f64::from(self.answers) / span;
        // Refused at once: the last measure was too high.
        let halved = self.current_rate(now).map_or(measured, |rate| rate / 2.0);
        let rate = if self.answers == 0 { halved } else { measured };
        // With few requests, their number says more about the clients than about the limit.
        self.rate = (self.is_saturated || rate >= RELIABLE).then_some(rate.max(SLOWEST));
        self.is_saturated = false;
        self.refused_at = Some(now);
        self.round = self.round.wrapping_add(1);
        (self.counted_from, self.answers) = (now, 0);
        // The quota is empty now, and is refilled during the cooldown.
        self.next = now;
        self.saved = rest.clamp(SAVED_MIN, SAVED_MAX);
    }

    /// Returns the end of a time in which the quota is known to be empty.
    pub(super) const fn empty_until(&self) -> Instant {
        self.empty_until
    }

    /// Returns the next free slot, which may be over. `held` is the slot of this request, if it has one.
    pub(super) fn free_slot(&self, held: Option<Slot>, now: Instant) -> Slot {
        let round = self.round;
        if let Some(held) = held.filter(|held| held.round == round) {
            return held;
        }
        if self.current_rate(now).is_none() {
            return Slot { at: now, round };
        }
        let oldest = now.checked_sub(self.saved).unwrap_or(now);
        Slot {
            at: self.next.max(oldest),
            round,
        }
    }

    /// Takes a slot that [`Self::free_slot`] has returned to a request without one. `waits` is `true` if the request
    /// waits for it.
    pub(super) fn take_slot(&mut self, slot: Slot, waits: bool, now: Instant) {
        self.is_saturated |= waits;
        if let Some(rate) = self.current_rate(now) {
            self.next = slot.at + Duration::from_secs_f64(1.0 / rate);
        }
    }

    /// Returns the requests per second; `None` without a recent refusal.
    fn current_rate(&self, now: Instant) -> Option<f64> {
        let since = now.saturating_duration_since(self.refused_at?);
        let rate = self.rate.filter(|_| since < FORGOTTEN_AFTER)?;
        Some(rate * GROWTH.powf(since.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn start() -> Instant {
        Instant::now()
    }

    /// Returns the slots of the next requests, in milliseconds behind `from`.
    fn slots(pace: &mut Pace, count: usize, now: Instant, from: Instant) -> Vec<u128> {
        let mut take = || {
            let slot = pace.free_slot(None, now);
            pace.take_slot(slot, true, now);
            slot.at.saturating_duration_since(from).as_millis()
        };
        (0..count).map(|_| take()).collect()
    }

    #[test]
    fn without_a_refusal_every_request_has_a_slot_at_once() {
        let start = start();
        let mut pace = Pace::new(start);
        assert_eq!(slots(&mut pace, 100, start, start), [0; 100]);
    }

    #[test]
    fn waiting_requests_get_slots_at_the_measured_pace() {
        let start = start();
        let mut pace = Pace::new(start);
        for _ in 0..50 {
            pace.note_answer(None, start);
        }
        // 50 answers in 10 s.
        let refused = start + 10 * SECOND;
        pace.note_refusal(SECOND, refused);
        assert_eq!(slots(&mut pace, 5, refused, refused), [0, 200, 400, 600, 800]);
        // Later the pace is a little higher.
        let later = refused + 2 * SECOND;
        let slots = slots(&mut pace, 7, later, later);
        assert_eq!(slots[..5], [0, 0, 0, 0, 0], "saved for a second");
        assert!((1..190).contains(&slots[6]), "{slots:?}");
    }

    #[test]
    fn a_refusal_voids_the_slots_and_halves_a_pace_without_answers() {
        let start = start();
        let mut pace = Pace::new(start);
        (0..10).for_each(|_| pace.note_answer(None, start));
        pace.note_refusal(SECOND, start + SECOND);
        let held = pace.free_slot(None, start + SECOND);
        assert_eq!(pace.free_slot(Some(held), start + 2 * SECOND), held);
        pace.note_refusal(SECOND, start + 2 * SECOND);
        assert_ne!(pace.free_slot(Some(held), start + 2 * SECOND), held);
        let now = start + 2 * SECOND;
        let [first, second] = *slots(&mut pace, 2, now, now) else {
            panic!()
        };
        assert!(
            (180..200).contains(&(second - first)),
            "10/s, grown for a second, halved: {first} {second}"
        );
    }

    #[test]
    fn an_empty_quota_is_known_before_the_refusal() {
        let start = start();
        for (requests, seconds) in [(None, 10.0), (Some(50), 1.2), (Some(0), 10.0)] {
            let mut pace = Pace::new(start);
            let full_after = Duration::from_secs(60);
            pace.note_answer(Some(EmptyQuota { full_after, requests }), start);
            assert_eq!(
                pace.empty_until(),
                start + Duration::from_secs_f64(seconds),
                "{requests:?}"
            );
        }
    }

    #[test]
    fn a_pace_ends_a_minute_after_the_last_refusal() {
        let start = start();
        let mut pace = Pace::new(start);
        // A few requests say nothing about the limit, unless some of them had to wait.
        pace.note_refusal(SECOND, start);
        assert_eq!(slots(&mut pace, 2, start, start), [0, 0]);
        pace.note_refusal(SECOND, start);
        let two = slots(&mut pace, 2, start, start);
        assert!(two[1] > 1000, "{two:?}");
        let later = start + 61 * SECOND;
        assert_eq!(slots(&mut pace, 50, later, later), [0; 50]);
        assert!(pace.is_over(later));
    }
}
