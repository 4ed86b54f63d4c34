//! Console events of Windows.

use std::io;

use tokio::signal::windows::{self, CtrlBreak, CtrlC, CtrlClose, CtrlShutdown};

use super::ReceivedSignal;

/// Console events that the process handles. While this value exists, they do not end the process.
pub(in crate::cli) struct WindowsSignals {
    interrupt: CtrlC,
    break_key: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl WindowsSignals {
    /// Takes over the events.
    pub(in crate::cli) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: windows::ctrl_c()?,
            break_key: windows::ctrl_break()?,
            close: windows::ctrl_close()?,
            shutdown: windows::ctrl_shutdown()?,
        })
    }

    /// Waits for the next event.
    pub(in crate::cli) async fn next(&mut self) -> ReceivedSignal {
        tokio::select! {
            _ = self.interrupt.recv() => ReceivedSignal::Interrupt,
            _ = self.break_key.recv() => ReceivedSignal::Terminate,
            _ = self.close.recv() => ReceivedSignal::Terminate,
            _ = self.shutdown.recv() => ReceivedSignal::Terminate,
        }
    }
}
