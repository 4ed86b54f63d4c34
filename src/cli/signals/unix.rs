//! Signals of Unix.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ReceivedSignal;

/// Signals that the process handles. While this value exists, they do not end the process.
pub(in crate::cli) struct UnixSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl UnixSignals {
    /// Takes over the signals.
    pub(in crate::cli) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(in crate::cli) async fn next(&mut self) -> ReceivedSignal {
        tokio::select! {
            _ = self.terminate.recv() => ReceivedSignal::Terminate,
            _ = self.interrupt.recv() => ReceivedSignal::Interrupt,
            _ = self.hang_up.recv() => ReceivedSignal::HangUp,
        }
    }
}
