//! What the service manager is told: ready, reloading, stopping. Nothing, where nobody has set `NOTIFY_SOCKET`.

use std::io;

use sd_notify::NotifyState;

/// Both listeners take connections, or a reload is over.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is read again; [`ready`] follows, whatever comes of it.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => warn(&error),
    }
}

/// The drain has begun.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn(&error);
    }
}

/// A manager that does not listen is no reason to stop: it will find out by itself.
fn warn(error: &io::Error) {
    tracing::warn!(%error, "the service manager cannot be told (NOTIFY_SOCKET)");
}
