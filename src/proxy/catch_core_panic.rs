//! Protection against panics of the repair core: they would be our own bug, and must not end an exchange.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`. Returns `None` if it panics: the exchange then goes on without its result.
pub(super) fn catch_core_panic<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_default()
}
