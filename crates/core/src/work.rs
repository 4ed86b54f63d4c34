//! Steps of work on input, and parses of bodies, counted in builds with debug assertions.
//!
//! Tests and fuzz targets require that the steps grow no faster than the input. A time would depend on the machine;
//! steps do not. Every loop over input counts its steps, also the ones inside of iterator calls such as `retain`,
//! `position` and `contains`. A release build counts nothing.

#[cfg(debug_assertions)]
use std::cell::Cell;

/// Number of bytes that one step compares, copies, hashes or skips at once.
const BYTES_A_STEP: usize = 64;

#[cfg(debug_assertions)]
thread_local! {
    /// Steps of this thread so far.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    /// Bodies that this thread has parsed so far.
    static PARSED: Cell<u64> = const { Cell::new(0) };
}

/// Counts `steps` visited elements.
#[inline]
pub fn count(steps: usize) {
    #[cfg(debug_assertions)]
    TAKEN.with(|taken| taken.set(taken.get().saturating_add(steps as u64)));
    #[cfg(not(debug_assertions))]
    let _ = steps;
}

/// Counts the steps of work that takes many bytes at once.
#[inline]
pub fn count_bytes(bytes: usize) {
    count(bytes.div_ceil(BYTES_A_STEP));
}

/// Counts the parse of a body.
#[inline]
pub(crate) fn count_parse() {
    #[cfg(debug_assertions)]
    PARSED.with(|parsed| parsed.set(parsed.get().saturating_add(1)));
}

/// Returns the number of bodies that this thread has parsed so far. Without debug assertions it is 0.
pub fn parses() -> u64 {
    #[cfg(debug_assertions)]
    return PARSED.get();
    #[cfg(not(debug_assertions))]
    0
}

/// Returns the steps that `work` takes in this thread, and its result. Without debug assertions there are none.
pub fn measure<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = taken();
    let done = work();
    (taken().saturating_sub(before), done)
}

/// Returns the steps of this thread so far.
fn taken() -> u64 {
    #[cfg(debug_assertions)]
    return TAKEN.get();
    #[cfg(not(debug_assertions))]
    0
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn steps_of_inner_work_belong_to_the_outer_work_too() {
        let (outer, inner) = measure(|| {
            count(2);
            measure(|| count_bytes(65)).0
        });
        assert_eq!((outer, inner), (4, 2));
    }
}
