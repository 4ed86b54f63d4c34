//! Protection against panics of the repair core: a bug in it must not end an exchange.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::wire::Unreadable;

/// Runs `work`. Returns `None` if it panics, so that the exchange can continue without its result.
pub(super) fn catch_core_panic<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    // The core works on values of its own, so a panic leaves nothing half changed.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_default()
}

/// Runs the core. A panic would be a bug of the proxy, and becomes an error: the provider judges the original.
pub(super) fn catch_read<T>(work: impl FnOnce() -> Result<T, Unreadable>) -> Result<T, Unreadable> {
    catch_core_panic(|| Some(work())).unwrap_or(Err(Unreadable::Overlap))
}
