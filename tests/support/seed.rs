//! The seed of random tests. The default is fixed, so that a failure comes from the change under test.
//!
//! `SEED=<n>` replays another walk, `SEED=random` takes a new one from the clock. Each random test prints its seed.
#![expect(
    clippy::disallowed_methods,
    reason = "the environment names the seed, or the clock does where it is asked to"
)]

use std::{env, time::SystemTime};

/// The seed without `SEED`.
const SEED: u64 = 24;

/// Returns the seed. Panics if `SEED` is not a number or `random`.
pub fn seed() -> u64 {
    match env::var("SEED").as_deref() {
        Err(_) => SEED,
        Ok("random") => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.unwrap().subsec_nanos().into()
        }
        Ok(named) => named.parse().expect("SEED is a number, or random"),
    }
}

/// Returns the number in an environment variable, such as `STEPS`. `None` if it is not set or no number.
pub fn number(name: &str) -> Option<usize> {
    env::var(name).ok()?.parse().ok()
}
