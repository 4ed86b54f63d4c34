//! Turns of handshakes: a flood of them must leave processor time to running exchanges.
//!
//! A handshake has to compute for about a millisecond, and a thousand new clients would queue in front of every stream.
//! So each step of a handshake takes a turn, of which there are few. A handshake that waits for its client has none, so
//! that silent clients hold up nobody.

use std::{
    future::{Future, poll_fn},
    num::NonZero,
    pin::pin,
    sync::Arc,
    task::Poll,
};

use tokio::sync::Semaphore;

/// Turns of the handshakes of both listeners. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct HandshakeTurns(Arc<Semaphore>);

impl HandshakeTurns {
    /// Creates turns for half of the processor cores.
    pub(super) fn for_this_machine() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::new(cores / 2)
    }

    /// Creates one turn, for the admin listener.
    pub(super) fn for_operators() -> Self {
        Self::new(1)
    }

    fn new(turns: usize) -> Self {
        Self(Arc::new(Semaphore::new(turns.max(1))))
    }

    /// Runs a handshake, each step in a turn of its own.
    pub(super) async fn run_handshake<F: Future>(&self, handshake: F) -> F::Output {
        let mut handshake = pin!(handshake);
        loop {
            // The semaphore is never closed.
            let Ok(turn) = self.0.acquire().await else {
                return handshake.await;
            };
            // Everything else that is ready comes first, so a thread takes at most one step for each round of its queue.
            tokio::task::yield_now().await;
            let mut turn = Some(turn);
            // The second poll is the wake-up for which the first has registered.
            let step = poll_fn(|cx| match turn.take() {
                Some(_turn) => handshake.as_mut().poll(cx).map(Some),
                None => Poll::Ready(None),
            });
            if let Some(done) = step.await {
                return done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_stream_gets_a_turn_between_two_steps_of_handshakes() {
        let turns = HandshakeTurns::new(1);
        let steps = Arc::new(AtomicUsize::new(0));
        let handshakes = (0..100).map(|_| {
            turns.run_handshake(poll_fn(|_| {
                steps.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(())
            }))
        });
        let flood = futures_util::future::join_all(handshakes);
        let stream = async {
            let (mut seen, mut most) = (0, 0);
            while seen < 100 {
                let now = steps.load(Ordering::Relaxed);
                (seen, most) = (now, most.max(now - seen));
                tokio::task::yield_now().await;
            }
            most
        };
        let (_, most) = tokio::join!(flood, stream);
        assert!(most <= 2, "{most} steps without a pause");
    }

    #[tokio::test]
    async fn silent_clients_hold_no_turn() {
        let turns = HandshakeTurns::new(1);
        let silent = turns.run_handshake(std::future::pending::<()>());
        let mut silent = pin!(silent);
        for _ in 0..10 {
            let polled = poll_fn(|cx| Poll::Ready(silent.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.run_handshake(async { 1 }).await, 1);
    }

    #[tokio::test]
    async fn a_wake_up_during_a_step_is_not_lost() {
        let (turns, sent) = (HandshakeTurns::new(1), Arc::new(Notify::new()));
        let waiting = turns.run_handshake(async {
            for _ in 0..3 {
                sent.notified().await;
            }
        });
        let sending = async {
            for _ in 0..3 {
                sent.notify_one();
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(waiting, sending);
    }
}
