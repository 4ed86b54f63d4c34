//! The only caller of `now()`: monotonic time that tests can pause, dates, and timers for silences.

use std::{
    pin::Pin,
    sync::{LazyLock, PoisonError, RwLock},
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, Sleep};

/// Returns the present on tokio's clock.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the present for rooms that do not use tokio.
pub fn std_now() -> std::time::Instant {
    now().into_std()
}

/// The greatest correction of the system clock, in nanoseconds.
const CORRECTION_MAX: i64 = 2_000_000_000;
/// The greatest step of the system clock that is none, but the adjustment of a clock that runs.
const STEP_MAX: Duration = Duration::from_secs(2);

/// The clock that this process follows. `None` while it follows the system's.
static FOLLOWED: RwLock<Option<FollowedClock>> = RwLock::new(None);
/// The origin of [`FollowedClock`]'s times.
static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(monotonic_now);

/// A clock of another machine, as this one's monotonic clock continues it. A step of the system clock does not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FollowedClock {
    /// The last time that was read from it, since 1970.
    read: Duration,
    /// The time of the monotonic clock then.
    at: Duration,
    /// The time by which the system clock was behind then, in nanoseconds.
    correction: i64,
}

impl FollowedClock {
    fn read(ahead: i64, system: Duration, at: Duration) -> Self {
        let correction = ahead.clamp(-CORRECTION_MAX, CORRECTION_MAX);
        Self {
            read: corrected(system, correction),
            at,
            correction,
        }
    }

    /// Returns its present time.
    const fn time(&self, monotonic: Duration) -> Duration {
        self.read.saturating_add(monotonic.saturating_sub(self.at))
    }

    /// Returns `true` if the system clock has made no step since the last read, and the machine has not slept.
    fn is_steady(&self, system: Duration, monotonic: Duration) -> bool {
        corrected(system, self.correction).abs_diff(self.time(monotonic)) <= STEP_MAX
    }
}

const fn corrected(time: Duration, correction: i64) -> Duration {
    let by = Duration::from_nanos(correction.unsigned_abs());
    if correction < 0 {
        time.saturating_sub(by)
    } else {
        time.saturating_add(by)
    }
}

/// Returns the time since 1970 for records that several processes share; zero if the clock is before 1970. It is the
/// system clock, or the one that [`follow_clock`] follows. A followed clock stands still while the machine sleeps, until
/// the next [`follow_clock`].
///
/// The rule: what is compared with a moment in the ledger needs this time. What leaves the proxy, or comes from outside,
/// needs [`system_time`]: signatures, dates of providers, ends of credentials, metrics, traces and log lines.
pub fn unix_time() -> Duration {
    followed_clock().map_or_else(system_time, |followed| followed.time(ORIGIN.elapsed()))
}

/// Returns the time of the system clock since 1970; zero if it is before 1970. It goes on while the machine sleeps, and no
/// moment of the ledger may be compared with it: see [`unix_time`] for the rule.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn system_time() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Lets [`unix_time`] follow another clock that is `ahead` nanoseconds ahead of this machine's, so that processes on
/// several machines mean the same by a moment. A greater difference than 2 s is followed by 2 s.
pub fn follow_clock(ahead: i64) {
    let followed = FollowedClock::read(ahead, system_time(), ORIGIN.elapsed());
    *FOLLOWED.write().unwrap_or_else(PoisonError::into_inner) = Some(followed);
}

/// Returns `false` if the clock that this process follows may show another time by now: the system clock has made a step,
/// or the machine has slept. The next [`follow_clock`] ends that.
pub fn is_steady() -> bool {
    followed_clock().is_none_or(|followed| followed.is_steady(system_time(), ORIGIN.elapsed()))
}

fn followed_clock() -> Option<FollowedClock> {
    *FOLLOWED.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the present on the monotonic clock, which tests do not pause.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
fn monotonic_now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Returns a time since 1970 as RFC 3339 in UTC.
pub fn rfc3339_date(since_1970: Duration) -> String {
    // RFC 3339 has four digits for the year: 9999-12-31T23:59:59 is the last time that can be written.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since_1970.min(LAST)).to_string()
}

/// A timer for a deadline that moves.
///
/// The underlying timer is expensive to reset. It is reset only for an earlier deadline, or after it fired too early.
#[derive(Debug, Default)]
pub struct DeadlineTimer {
    timer: Option<Pin<Box<Sleep>>>,
}

impl DeadlineTimer {
    /// Returns `Ready` once `deadline` has passed.
    pub fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        // A later deadline needs no reset here: the loop below sees it when the timer fires.
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

/// A timeout that runs while nothing arrives.
#[derive(Debug)]
pub struct SilenceTimeout {
    limit: Duration,
    // Set while the timeout runs.
    deadline: Option<Instant>,
    alarm: DeadlineTimer,
}

impl SilenceTimeout {
    /// Creates a stopped timeout for silences of up to `limit`.
    pub const fn new(limit: Duration) -> Self {
        Self {
            limit,
            deadline: None,
            alarm: DeadlineTimer { timer: None },
        }
    }

    /// Stops the timeout until the next poll, because something arrived.
    pub const fn reset(&mut self) {
        self.deadline = None;
    }

    /// Returns `Ready` once the silence has lasted for the limit. Starts the timeout if it is stopped.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let deadline = *self.deadline.get_or_insert_with(|| now() + limit);
        self.alarm.poll(deadline, cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn a_step_of_the_system_clock_changes_no_followed_time_and_is_noticed() {
        const SECOND: Duration = Duration::from_secs(1);
        let (system, at) = (SECOND * 1_000_000, SECOND * 50);
        for (ahead, read) in [
            (0, system),
            (1_500_000_000, system + SECOND * 3 / 2),
            (-9_000_000_000, SECOND * 999_998),
        ] {
            let followed = FollowedClock::read(ahead, system, at);
            let later = at + SECOND * 9;
            assert_eq!(followed.time(later), read + SECOND * 9);
            for (now, is_steady) in [
                (system + SECOND * 9, true),
                (system + SECOND * 11, true),
                (system + SECOND * 12, false),
                (system + SECOND * 6, false),
                // It jumps ahead by 20 minutes, or the machine has slept.
                (system + SECOND * 1_209, false),
                (Duration::ZERO, false),
            ] {
                assert_eq!(followed.is_steady(now, later), is_steady, "{ahead} {now:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_silence_without_a_break_counts() {
        let mut silence = SilenceTimeout::new(Duration::from_secs(10));
        let began = now();
        for _ in 0..5 {
            let wait = tokio::time::timeout(Duration::from_secs(7), poll_fn(|cx| silence.poll(cx)));
            assert!(wait.await.is_err());
            silence.reset();
        }
        poll_fn(|cx| silence.poll(cx)).await;
        assert_eq!((now() - began).as_secs(), 45);
    }
}
