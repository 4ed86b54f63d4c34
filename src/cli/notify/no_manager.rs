//! Notifications on systems without `NOTIFY_SOCKET`: none.

/// Does nothing.
pub(in crate::cli) const fn send_ready() {}

/// Does nothing.
pub(in crate::cli) const fn send_reloading() {}

/// Does nothing.
pub(in crate::cli) const fn send_stopping() {}
