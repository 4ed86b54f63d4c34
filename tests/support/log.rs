//! Log lines of one thread, for as long as a test wants them.

use std::sync::LazyLock;

use tracing::{Dispatch, Subscriber, subscriber::DefaultGuard};

static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Lines of this thread go to `subscriber` while the guard lives.
pub fn listen(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    // With one dispatcher alone, the thread that comes first to a line decides for all whether it is written.
    LazyLock::force(&ANOTHER);
    tracing::subscriber::set_default(subscriber)
}
