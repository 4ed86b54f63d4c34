//! A panic of the core would be a bug of ours: the exchange goes on without what it was to say.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `work` says; none where it panics.
pub(super) fn caught<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_default()
}
