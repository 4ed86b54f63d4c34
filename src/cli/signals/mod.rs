//! Signals that end the process, reload its configuration, or are forwarded to a command.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use unix::UnixSignals as Signals;
#[cfg(windows)]
pub(super) use windows::WindowsSignals as Signals;

/// A signal that the process has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceivedSignal {
    /// A request to end: SIGTERM, or on Windows a closed console or a shutdown.
    Terminate,
    /// Ctrl-C.
    Interrupt,
    /// A request to reload: SIGHUP. Windows has none.
    #[cfg_attr(windows, expect(dead_code, reason = "no signal of Windows means it"))]
    HangUp,
}
