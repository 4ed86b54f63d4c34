//! The timeout of an upload: for a client that is silent, and for one that sends too slowly.
//!
//! Only time in which the proxy waits for the client counts.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use crate::clock::{self, DeadlineTimer};

/// Time over which the rate of an upload is measured.
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// Fewest bytes in a window: 1 KiB in each second. A client that sends one byte at a time must not hold a connection.
const WINDOW_BYTES_MIN: usize = 60 * 1024;

/// The timeout of one upload.
#[derive(Debug)]
pub(super) struct UploadTimeout {
    silence_limit: Duration,
    // End of the present silence, while the proxy waits.
    silence_end: Option<Instant>,
    // Start of the present wait, or of the present window if that is later.
    wait_began: Option<Instant>,
    // Waits of the present window that have ended.
    waited: Duration,
    // Bytes of the present window.
    bytes: usize,
    timer: DeadlineTimer,
}

impl UploadTimeout {
    /// Creates a stopped timeout for silences of up to `silence_limit`.
    pub(super) fn new(silence_limit: Duration) -> Self {
        Self {
            silence_limit,
            silence_end: None,
            wait_began: None,
            waited: Duration::ZERO,
            bytes: 0,
            timer: DeadlineTimer::default(),
        }
    }

    /// Stops the timeout until the next wait, because `bytes` have arrived.
    pub(super) fn end_wait(&mut self, bytes: usize) {
        self.silence_end = None;
        if let Some(began) = self.wait_began.take() {
            self.waited = self.waited.saturating_add(clock::now().duration_since(began));
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Waits for the client. Returns `Ready` once it has been silent for too long, or has sent too little in a window.
    pub(super) fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.silence_limit;
        let silence_end = *self.silence_end.get_or_insert_with(|| clock::now() + limit);
        loop {
            let began = *self.wait_began.get_or_insert_with(clock::now);
            let window_end = began + RATE_WINDOW.saturating_sub(self.waited);
            ready!(self.timer.poll(silence_end.min(window_end), cx));
            if silence_end <= window_end || self.bytes < WINDOW_BYTES_MIN {
                return Poll::Ready(());
            }
            // Fast enough so far. The present wait goes on in the next window.
            self.wait_began = Some(window_end);
            self.waited = Duration::ZERO;
            self.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Waits for up to `limit`. Returns `true` if the timeout has expired.
    async fn expires_within(timeout: &mut UploadTimeout, limit: Duration) -> bool {
        let wait = poll_fn(|cx| timeout.poll_wait(cx));
        tokio::time::timeout(limit, wait).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_silence_without_a_break_counts() {
        let mut timeout = UploadTimeout::new(10 * SECOND);
        let began = clock::now();
        for _ in 0..5 {
            assert!(!expires_within(&mut timeout, 7 * SECOND).await);
            timeout.end_wait(WINDOW_BYTES_MIN);
        }
        assert!(expires_within(&mut timeout, 60 * SECOND).await);
        assert_eq!((clock::now() - began).as_secs(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_provider_is_waited_for_is_free() {
        let mut timeout = UploadTimeout::new(30 * SECOND);
        let mut waited = Duration::ZERO;
        // The provider takes a minute for each byte, the client a second.
        while !expires_within(&mut timeout, SECOND).await {
            timeout.end_wait(1);
            waited += SECOND;
            tokio::time::advance(60 * SECOND).await;
        }
        assert_eq!(waited.as_secs(), 59);
    }

    #[tokio::test(start_paused = true)]
    async fn each_window_is_judged_by_its_own_bytes() {
        let mut timeout = UploadTimeout::new(30 * SECOND);
        let began = clock::now();
        let mut left = 2 * WINDOW_BYTES_MIN;
        while !expires_within(&mut timeout, 10 * SECOND).await {
            // All of it at the start, and then one byte at a time.
            timeout.end_wait(std::mem::replace(&mut left, 1));
        }
        assert_eq!((clock::now() - began).as_secs(), 120);
    }
}
