//! A latch that opens when every guard is dropped. A thread drops its guard however it ends, even by a panic.

use std::{
    convert::Infallible,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    },
    time::Duration,
};

/// A guard: the latch stays closed until all of them are dropped.
#[derive(Clone, Debug)]
pub(super) struct ShutdownGuard {
    _held: Sender<Infallible>,
}

/// The side that waits for all guards to be dropped.
#[derive(Debug)]
pub(super) struct ShutdownLatch(Mutex<Receiver<Infallible>>);

/// Returns a closed latch with its first guard. Further guards are clones.
pub(super) fn shutdown_latch() -> (ShutdownGuard, ShutdownLatch) {
    let (sender, receiver) = channel();
    (ShutdownGuard { _held: sender }, ShutdownLatch(Mutex::new(receiver)))
}

impl ShutdownLatch {
    /// Waits until all guards are dropped.
    pub(super) fn wait(&self) {
        // Nothing is ever sent: `recv` fails when the last sender is dropped.
        let Err(_) = self.0.lock().unwrap_or_else(PoisonError::into_inner).recv();
    }

    /// Returns `true` if all guards are dropped.
    pub(super) fn is_open(&self) -> bool {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(parts.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Waits for at most `wait`. Returns `true` if all guards are dropped.
    pub(super) fn wait_timeout(&self, wait: Duration) -> bool {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(parts.recv_timeout(wait), Err(RecvTimeoutError::Disconnected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_when_the_last_part_is_dropped() {
        let (first, turn) = shutdown_latch();
        let second = first.clone();
        drop(first);
        assert!(!turn.wait_timeout(Duration::ZERO) && !turn.is_open());
        drop(second);
        assert!(turn.wait_timeout(Duration::ZERO) && turn.is_open());
        turn.wait();
    }
}
