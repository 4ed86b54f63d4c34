//! The only caller of `now()`: monotonic time that tests can pause, and clocks of silence on it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, Sleep};

/// The present, on tokio's clock.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The present, for rooms that know no tokio.
pub fn instant() -> std::time::Instant {
    now().into_std()
}

/// Time since 1970, for what is shown to people and machines elsewhere; zero where the system's clock is before that.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// A timer for a deadline that moves.
///
/// The timer beneath, dear to set, is set again only for an earlier deadline, or once it has run out too early.
#[derive(Debug, Default)]
pub struct Alarm {
    timer: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    /// Ready once `deadline` has passed.
    pub fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
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

/// A clock that runs while nothing is heard.
#[derive(Debug)]
pub struct Silence {
    limit: Duration,
    // While it runs.
    deadline: Option<Instant>,
    alarm: Alarm,
}

impl Silence {
    /// A clock that stands, for silences of up to `limit`.
    pub const fn new(limit: Duration) -> Self {
        Self {
            limit,
            deadline: None,
            alarm: Alarm { timer: None },
        }
    }

    /// Something was heard: the clock stands until it is polled again.
    pub const fn heard(&mut self) {
        self.deadline = None;
    }

    /// Ready once the silence has lasted for the limit; starts the clock if it stands.
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
        let mut silence = Silence::new(Duration::from_secs(10));
        let began = now();
        for _ in 0..5 {
            let wait = tokio::time::timeout(Duration::from_secs(7), poll_fn(|cx| silence.poll(cx)));
            assert!(wait.await.is_err());
            silence.heard();
        }
        poll_fn(|cx| silence.poll(cx)).await;
        assert_eq!((now() - began).as_secs(), 45);
    }
}
