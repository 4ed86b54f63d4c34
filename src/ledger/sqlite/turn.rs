//! Who waits until others have ended: a thread ends a turn by dropping its part of it, however it ends.

use std::{
    convert::Infallible,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

/// A part in a turn. Whoever has one keeps those waiting who come after.
#[derive(Clone, Debug)]
pub(super) struct Part {
    _held: Sender<Infallible>,
}

/// What comes when every part is dropped.
#[derive(Debug)]
pub(super) struct Turn(Mutex<Receiver<Infallible>>);

/// A turn, and the first part before it.
pub(super) fn turn() -> (Part, Turn) {
    let (sender, receiver) = channel();
    (Part { _held: sender }, Turn(Mutex::new(receiver)))
}

impl Turn {
    /// Waits for it.
    pub(super) fn comes(&self) {
        // Nothing is ever sent: this ends when nobody can send.
        let Err(_) = self.0.lock().unwrap_or_else(PoisonError::into_inner).recv();
    }

    /// Waits for it so long, and says whether it came.
    pub(super) fn comes_within(&self, wait: Duration) -> bool {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(parts.recv_timeout(wait), Err(RecvTimeoutError::Disconnected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_when_the_last_part_is_dropped() {
        let (first, turn) = turn();
        let second = first.clone();
        drop(first);
        assert!(!turn.comes_within(Duration::ZERO));
        drop(second);
        assert!(turn.comes_within(Duration::ZERO));
        turn.comes();
    }
}
