//! Notifies the service manager: ready, reloading, stopping. Does nothing if `NOTIFY_SOCKET` is not set.

#[cfg(not(unix))]
mod no_manager;
#[cfg(unix)]
mod systemd;

#[cfg(not(unix))]
pub(super) use no_manager::{send_ready, send_reloading, send_stopping};
#[cfg(unix)]
pub(super) use systemd::{send_ready, send_reloading, send_stopping};
