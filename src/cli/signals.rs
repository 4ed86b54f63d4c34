//! Signals that end the process, reload its configuration, or are forwarded to a command.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that the process handles. While this value exists, they do not end the process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Takes over the signals.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Number {
        tokio::select! {
            _ = self.terminate.recv() => Number::TERM,
            _ = self.interrupt.recv() => Number::INT,
            _ = self.hang_up.recv() => Number::HUP,
        }
    }

    /// Waits for the next SIGINT.
    pub(super) async fn wait_for_interrupt(&mut self) {
        self.interrupt.recv().await;
    }
}
