//! Notifications for systemd and managers that understand its protocol.

use std::io;

use sd_notify::NotifyState;

/// Reports that both listeners accept connections, or that a reload is over.
pub(in crate::cli) fn send_ready() {
    send_state(&[NotifyState::Ready]);
}

/// Reports that a reload begins. "ready" must follow, even if the reload fails.
pub(in crate::cli) fn send_reloading() {
    // systemd requires the time beside RELOADING, to match it with the READY that follows.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send_state(&[NotifyState::Reloading, now]),
        Err(error) => warn_of_failure(&error),
    }
}

/// Reports that the drain has begun.
pub(in crate::cli) fn send_stopping() {
    send_state(&[NotifyState::Stopping]);
}

/// Sends a state, or logs a warning.
fn send_state(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn_of_failure(&error);
    }
}

/// Logs a failed notification. It is no reason to stop: the manager has timeouts of its own.
fn warn_of_failure(error: &io::Error) {
    tracing::warn!(%error, "failed to notify the service manager (NOTIFY_SOCKET)");
}
