//! Captured log lines of one thread.

use std::sync::LazyLock;

use tracing::{Dispatch, Subscriber, subscriber::DefaultGuard};

static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Sends log lines of this thread to `subscriber` while the guard lives.
pub fn listen(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    // With a single dispatcher, the first thread at a call site decides for all threads whether it is logged.
    LazyLock::force(&ANOTHER);
    tracing::subscriber::set_default(subscriber)
}
