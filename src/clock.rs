//! The only caller of `now()`: monotonic time that tests can pause, dates, and timers for silences.

use std::{
    pin::Pin,
    sync::atomic::{AtomicI64, Ordering},
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

/// The correction of the system clock, in nanoseconds.
static CORRECTION: AtomicI64 = AtomicI64::new(0);

/// Returns the time since 1970, for people and other machines; zero if the clock is before 1970. It is the system clock
/// with the correction of [`follow_clock`].
pub fn unix_time() -> Duration {
    let (system, correction) = (system_time(), CORRECTION.load(Ordering::Relaxed));
    let by = Duration::from_nanos(correction.unsigned_abs());
    if correction < 0 {
        system.saturating_sub(by)
    } else {
        system.saturating_add(by)
    }
}

/// Returns the time of the system clock since 1970; zero if it is before 1970.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn system_time() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Lets [`unix_time`] follow another clock that is `ahead` nanoseconds ahead of this machine's, so that processes on
/// several machines mean the same by a moment. A greater difference than 2 s is followed by 2 s.
pub fn follow_clock(ahead: i64) {
    CORRECTION.store(ahead.clamp(-CORRECTION_MAX, CORRECTION_MAX), Ordering::Relaxed);
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
