//! The pauses between the tries of a message. Pure.

use std::time::Duration;

/// The pause after the first failure. Each further one doubles it.
const FIRST: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Returns the pause after so many failed tries.
pub(in crate::late) fn pause_after(tries: u32) -> Duration {
    let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST.saturating_mul(factor).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_five_seconds_to_an_hour() {
        let seconds = [0, 1, 2, 3, 10, 11, 32, 33, u32::MAX].map(|tries| pause_after(tries).as_secs());
        assert_eq!(seconds, [5, 5, 10, 20, 2560, 3600, 3600, 3600, 3600]);
    }
}
