//! How the work of one thread grows with what it is given.
//!
//! A time must not fail a test on a slow or busy machine. What is compared here is no such time:
//!
//! - It is CPU time of the own thread: what other threads and processes do in the meantime does not count.
//! - Two inputs are compared with each other on one machine, so that its speed does not matter.
//! - The second is 32 times the first. Linear work takes 32 times as long for it, quadratic work up to 1024 times. The
//!   bound lies at four times the linear ratio, and far below what quadratic work reaches at these sizes.
//! - What a busy machine adds, by cold caches or a slow clock, is added to single runs. A ratio above the bound is measured
//!   anew, and the fastest run of each input counts.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How many times larger the second input is.
pub const TIMES: usize = 32;

/// The most that the second input may take, in times of the first.
const RATIO_MAX: u32 = 128;
/// The least that counts as the time of the first input: shorter ones are too small to be compared.
const SHORTEST: Duration = Duration::from_micros(50);
/// How often a ratio above the bound is measured.
const ROUNDS: usize = 8;

/// Does `work` with the inputs of `size` and of 32 times that, and fails if it grows faster than they do.
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

/// CPU time of this thread that `work` takes.
fn spent(work: impl FnOnce()) -> Duration {
    let begin = now();
    work();
    now().saturating_sub(begin)
}

/// CPU time of this thread so far.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}
