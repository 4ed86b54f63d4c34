//! Growth of the work of one thread with the size of its input.
//!
//! A test must not fail on a slow or busy machine, so this does not measure absolute time:
//!
//! - It measures the CPU time of its own thread, which excludes other threads and processes.
//! - It compares two inputs on one machine, so the machine's speed does not matter.
//! - The second input is 32 times the first. Linear work takes 32 times as long, quadratic work up to 1024 times.
//!   The bound is four times the linear ratio, far below quadratic work at these sizes.
//! - A busy machine slows single runs by cold caches or a low clock. A ratio above the bound is measured again, and the
//!   fastest run of each input counts.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Size of the second input, in multiples of the first.
pub const TIMES: usize = 32;

/// Largest allowed time of the second input, in multiples of the first.
const RATIO_MAX: u32 = 128;
/// Shortest time of the first input. Shorter times are too imprecise to compare.
const SHORTEST: Duration = Duration::from_micros(50);
/// Number of measurements of a ratio above the bound.
const ROUNDS: usize = 8;

/// Runs `work` on inputs of `size` and of 32 times `size`. Fails if the time grows faster than the size.
pub fn is_linear<I>(name: &str, size: usize, input: impl Fn(usize) -> I, work: impl Fn(&I)) {
    let (small, large) = (input(size), input(size * TIMES));
    let (mut quick, mut slow) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        quick = quick.min(spent(|| work(&small)));
        slow = slow.min(spent(|| work(&large)));
        if slow <= quick.max(SHORTEST) * RATIO_MAX {
            return;
        }
    }
    let ratio = slow.as_secs_f64() / quick.max(SHORTEST).as_secs_f64();
    panic!("{name}: {TIMES} times the input takes {ratio:.0} times the CPU time ({quick:.1?} and {slow:.1?})");
}

/// Returns the CPU time of this thread for `work`.
fn spent(work: impl FnOnce()) -> Duration {
    let begin = now();
    work();
    now().saturating_sub(begin)
}

/// Returns the CPU time of this thread so far.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}
