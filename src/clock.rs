//! The only caller of `now()`: monotonic time that tests can pause.

use tokio::time::Instant;

/// The present, on tokio's clock.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}
