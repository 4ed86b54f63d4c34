//! The pace of one quota and model: the requests per second that the provider has shown it takes.
//!
//! Providers refill their limits steadily. Between two refusals a quota takes as many requests as it was refilled with,
//! so their number and the time between measure the limit. Requests that wait for the end of a cooldown get slots at
//! that pace. Without them, all would be sent at once, and most be refused again. Sends are counted and not answers,
//! because a refusal arrives sooner than an answer.
//!
//! A pace is a guess. It grows until the next refusal, and ends a minute after the last cooldown.

use std::time::{Duration, Instant};

use crate::policy::EmptyQuota;

/// The pace at the end of a cooldown, in terms of the measured one. A quota that was full for a moment has taken less
/// than it was refilled with.
const START: f64 = 1.03;
/// Growth of the pace in one second. It uses the whole limit, at the price of a refusal now and then.
const GROWTH: f64 = 1.03;
/// Growth after a rough measure, and after a calm time. It finds a raised limit within seconds.
const FAST_GROWTH: f64 = 2.0;
/// Sends below which a measure is rough.
const ROUGH: u32 = 10;
/// Time without a refusal after which the limit is probably higher than measured.
const CALM: Duration = Duration::from_secs(15);
/// Time after the last cooldown at which the pace ends.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Requests per second above which a measure counts even if no request has waited.
const RELIABLE: f64 = 1.0;
/// Slowest pace: one request a minute.
const SLOWEST: f64 = 1.0 / 60.0;
/// Slots of the past that may still be used: the quota was refilled meanwhile.
const SAVED_MAX: Duration = Duration::from_secs(1);
/// Slots that were given back and are stored.
const RETURNED_MAX: usize = 1024;
/// Longest time for which a success reports the quota as empty.
const EMPTY_MAX: Duration = Duration::from_secs(10);
/// Time over which sends are counted while there is no refusal to count from.
const COUNTED_FOR: Duration = Duration::from_secs(10);

/// A reserved time for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The start of the slot.
    pub at: Instant,
    /// The refusals before the reservation. A later refusal voids it.
    round: u32,
}

/// The sends of a time.
#[derive(Clone, Copy, Debug)]
struct SendCount {
    from: Instant,
    until: Instant,
    sent: u32,
    refused: u32,
}

impl SendCount {
    const fn new(now: Instant) -> Self {
        Self {
            from: now,
            until: now,
            sent: 0,
            refused: 0,
        }
    }

    /// Returns the accepted sends per second.
    fn rate(&self) -> f64 {
        // Of a shorter time a single request would make a rate without meaning.
        let span = self.until.saturating_duration_since(self.from).as_secs_f64().max(0.1);
        f64::from(self.sent.saturating_sub(self.refused)) / span
    }
}

/// The pace of one quota and model.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Requests per second; `None` until the provider has refused one.
    rate: Option<f64>,
    /// The next free slot.
    next: Instant,
    /// Slots before it that requests have given back.
    returned: Vec<Instant>,
    /// The end of a time in which the quota is empty, as a success has reported.
    empty_until: Instant,
    /// Sends since the last refusal.
    present: SendCount,
    /// Sends of the time before. Some of them may be refused only now.
    former: SendCount,
    /// `true` if a request has waited since the last refusal: there were more requests than the quota takes.
    is_saturated: bool,
    /// The end of the cooldown, from which the pace grows.
    grows_from: Instant,
    round: u32,
}

impl Pace {
    /// Creates the pace of a quota that has refused nothing yet.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            rate: None,
            next: now,
            returned: Vec::new(),
            empty_until: now,
            present: SendCount::new(now),
            former: SendCount::new(now),
            is_saturated: false,
            grows_from: now,
            round: 0,
        }
    }

    /// Returns `true` if the pace may be removed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.current_rate(now).is_none()
            && now >= self.empty_until
            && now.saturating_duration_since(self.present.from) > FORGOTTEN_AFTER
    }

    /// Counts a send.
    pub(super) fn note_send(&mut self, now: Instant) {
        let counts_from_refusal = self.current_rate(now).is_some();
        if !counts_from_refusal && now.saturating_duration_since(self.present.from) > COUNTED_FOR {
            self.present = SendCount::new(now);
        }
        self.present.sent = self.present.sent.saturating_add(1);
    }

    /// Notes a limit that a success reports as used up.
    pub(super) fn note_empty(&mut self, empty: EmptyQuota, now: Instant) {
        // One request is available long before the whole limit is.
        let stated = empty
            .requests
            .filter(|most| *most > 0)
            .map(|most| empty.full_after / most);
        let learned = self.current_rate(now).map(|rate| Duration::from_secs_f64(1.0 / rate));
        let wait = stated.or(learned).unwrap_or(empty.full_after);
        self.empty_until = self.empty_until.max(now + wait.min(empty.full_after).min(EMPTY_MAX));
    }

    /// Measures the pace at the first refusal of a cooldown. `length` is that of the cooldown.
    pub(super) fn note_limit(&mut self, length: Duration, now: Instant) {
        let former = SendCount {
            until: now,
            refused: 1,
            ..self.present
        };
        // Refused at once: the last measure was too high.
        let halved = self.current_rate(now).map_or(0.0, |rate| rate / 2.0);
        let rate = if former.sent <= 1 { halved } else { former.rate() };
        // With few requests, their number says more about the clients than about the limit.
        self.rate = (self.is_saturated || rate >= RELIABLE).then_some(rate.max(SLOWEST));
        self.is_saturated = false;
        (self.former, self.present) = (former, SendCount::new(now));
        self.note_extension(now + length);
    }

    /// Moves every slot after the end of a cooldown: the quota is refilled meanwhile.
    pub(super) fn note_extension(&mut self, until: Instant) {
        self.round = self.round.wrapping_add(1);
        self.returned.clear();
        self.next = until;
        self.grows_from = until;
    }

    /// Corrects the measure by a further refusal of the same cooldown: its request was sent before.
    pub(super) fn note_late_limit(&mut self) {
        self.former.refused = self.former.refused.saturating_add(1);
        if self.rate.is_some() {
            self.rate = Some(self.former.rate().max(SLOWEST));
        }
    }

    /// Frees the slots within a cooldown that a success has ended early.
    pub(super) fn note_early_end(&mut self, now: Instant) {
        self.next = self.next.min(now);
        self.grows_from = self.grows_from.min(now);
        self.empty_until = self.empty_until.min(now);
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
        let oldest = now.checked_sub(SAVED_MAX).unwrap_or(now);
        // A slot that another request has given back comes before those that nobody had yet.
        if let Some(at) = self.returned.iter().copied().filter(|at| *at >= oldest).min() {
            return Slot { at, round };
        }
        Slot {
            at: self.next.max(oldest),
            round,
        }
    }

    /// Returns `true` if a reserved slot still counts: nothing was refused since.
    pub(super) const fn is_valid(&self, slot: Slot) -> bool {
        slot.round == self.round
    }

    /// Takes a slot that [`Self::free_slot`] has returned to a request without one. `waits` is `true` if the request
    /// waits for it.
    pub(super) fn take_slot(&mut self, slot: Slot, waits: bool, now: Instant) {
        self.is_saturated |= waits;
        let before = self.returned.len();
        self.returned.retain(|at| *at != slot.at);
        if self.returned.len() < before {
            return;
        }
        // The pace at the time of the slot: it has grown until then.
        if let Some(rate) = self.rate_at(slot.at.max(now), now) {
            self.next = slot.at + Duration::from_secs_f64(1.0 / rate);
        }
    }

    /// Gives a reserved slot back, so that another request can use it.
    pub(super) fn return_slot(&mut self, slot: Slot, now: Instant) {
        self.returned.retain(|at| *at >= now);
        let is_known = self.current_rate(now).is_some() && self.is_valid(slot);
        if is_known && slot.at >= now && self.returned.len() < RETURNED_MAX {
            self.returned.push(slot.at);
        }
    }

    /// Returns the requests per second; `None` without a recent refusal.
    fn current_rate(&self, now: Instant) -> Option<f64> {
        self.rate_at(now, now)
    }

    /// Returns the requests per second at a later time; `None` without a recent refusal.
    fn rate_at(&self, time: Instant, now: Instant) -> Option<f64> {
        let is_recent = now.saturating_duration_since(self.grows_from) < FORGOTTEN_AFTER;
        let rate = self.rate.filter(|_| is_recent)?;
        let grown = time.saturating_duration_since(self.grows_from);
        let calm = if self.former.sent < ROUGH { Duration::ZERO } else { CALM };
        let slow = GROWTH.powf(grown.min(calm).as_secs_f64());
        let fast = FAST_GROWTH.powf(grown.saturating_sub(calm).as_secs_f64());
        Some(rate * START * slow * fast)
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

    /// Returns the slots of the next requests, in milliseconds after `from`.
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

    /// Returns a pace whose quota was refused after these sends, at `at`.
    fn refused_after(sends: usize, start: Instant, at: Instant) -> Pace {
        let mut pace = Pace::new(start);
        (0..sends).for_each(|_| pace.note_send(start));
        pace.note_limit(SECOND, at);
        pace
    }

    #[test]
    fn waiting_requests_get_slots_at_the_measured_pace() {
        let start = start();
        // 50 accepted sends in 10 s, and the refused one.
        let refused = start + 10 * SECOND;
        let mut pace = refused_after(51, start, refused);
        let of_five = slots(&mut pace, 5, refused, refused + SECOND);
        assert_eq!(of_five[0], 0, "at the end of the cooldown");
        assert!(
            of_five.windows(2).all(|two| (185..=195).contains(&(two[1] - two[0]))),
            "{of_five:?}"
        );
        // After a pause the slots of one second may be used at once.
        let later = refused + 10 * SECOND;
        let of_nine = slots(&mut pace, 9, later, later);
        assert_eq!(of_nine[..6], [0; 6]);
        assert!(of_nine[8] > 0, "{of_nine:?}");
    }

    #[test]
    fn requests_that_were_under_way_correct_the_measure() {
        let start = start();
        let mut pace = refused_after(41, start, start + SECOND);
        (0..35).for_each(|_| pace.note_late_limit());
        let now = start + SECOND;
        let two = slots(&mut pace, 2, now, now);
        assert!((185..=195).contains(&(two[1] - two[0])), "5/s: {two:?}");
    }

    #[test]
    fn a_refusal_voids_the_slots_and_halves_a_pace_without_answers() {
        let start = start();
        let mut pace = refused_after(11, start, start + SECOND);
        let now = start + 2 * SECOND;
        let held = pace.free_slot(None, now);
        assert!(pace.is_valid(held));
        assert_eq!(pace.free_slot(Some(held), now), held);
        pace.take_slot(held, true, now);
        pace.note_limit(SECOND, now);
        assert!(!pace.is_valid(held));
        assert_ne!(pace.free_slot(Some(held), now), held);
        let two = slots(&mut pace, 2, now, now);
        // 10/s, a little more at the end of the cooldown, halved.
        assert!((185..195).contains(&(two[1] - two[0])), "{two:?}");
        pace.note_early_end(now);
        assert!(pace.free_slot(None, now).at <= now);
    }

    #[test]
    fn an_empty_quota_is_known_before_the_refusal() {
        let start = start();
        for (requests, seconds) in [(None, 10.0), (Some(50), 1.2), (Some(0), 10.0)] {
            let mut pace = Pace::new(start);
            let full_after = Duration::from_secs(60);
            pace.note_empty(EmptyQuota { full_after, requests }, start);
            assert_eq!(
                pace.empty_until(),
                start + Duration::from_secs_f64(seconds),
                "{requests:?}"
            );
        }
    }

    #[test]
    fn a_slot_that_is_given_back_is_used_first() {
        let start = start();
        let mut pace = refused_after(51, start, start + 10 * SECOND);
        let now = start + 11 * SECOND;
        let held: Vec<Slot> = (0..5)
            .map(|_| {
                let slot = pace.free_slot(None, now);
                pace.take_slot(slot, true, now);
                slot
            })
            .collect();
        pace.return_slot(held[2], now);
        assert_eq!(pace.free_slot(None, now), held[2]);
        pace.take_slot(held[2], true, now);
        assert!(pace.free_slot(None, now).at > held[4].at);
        // A slot of an earlier time, or of an earlier cooldown, is over.
        pace.return_slot(held[1], held[3].at);
        assert!(pace.free_slot(None, held[3].at).at > held[4].at);
        pace.note_limit(SECOND, now);
        pace.return_slot(held[4], now);
        assert!(pace.free_slot(None, now).at >= now + SECOND);
    }

    #[test]
    fn a_pace_ends_a_minute_after_the_last_refusal() {
        let start = start();
        let mut pace = Pace::new(start);
        // A few requests say nothing about the limit, unless some of them had to wait.
        pace.note_limit(SECOND, start);
        assert_eq!(slots(&mut pace, 2, start, start), [0, 0]);
        pace.note_limit(SECOND, start);
        let two = slots(&mut pace, 2, start, start);
        assert!(two[1] > 1000, "{two:?}");
        let later = start + 61 * SECOND;
        assert_eq!(slots(&mut pace, 50, later, later), [0; 50]);
        assert!(pace.is_over(later));
    }
}
