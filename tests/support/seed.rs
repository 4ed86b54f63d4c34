//! The seed of a walk by chance: the same one for the same commit, so that a failure is of the change at hand.
//!
//! `SEED=<n>` replays another walk, `SEED=random` takes a new one by the clock. Whoever walks prints it.
#![expect(
    clippy::disallowed_methods,
    reason = "the environment names the seed, or the clock does where it is asked to"
)]

use std::{env, time::SystemTime};

/// Where nobody names one.
const SEED: u64 = 24;

/// The seed that `SEED` names. Panics where it names none.
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
