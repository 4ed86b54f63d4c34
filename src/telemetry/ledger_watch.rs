//! The watch over a ledger's health: checks in the background, the gauge, and one log line for each change.

use std::{sync::Arc, time::Duration};

use tokio::time::MissedTickBehavior;

use super::Telemetry;
use crate::ledger::{Ledger, check_health};

/// The time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The timeout of a check in the background.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of quiet checks after which the ledger counts as fast again: one minute.
const QUIET_CHECKS: u32 = 6;

/// The state of a ledger that is too slow for the answers that wait for it.
#[derive(Debug, Default)]
struct SlowLedger {
    /// Answers that were sent too early, up to the last check.
    missed: u64,
    /// The checks since the last such answer; `None` if operators were told of none.
    quiet_checks: Option<u32>,
}

impl SlowLedger {
    /// Logs when answers begin to be sent too early, and when none was for a minute.
    ///
    /// A degraded ledger has a log line of its own.
    fn check(&mut self, missed: u64, is_degraded: bool) {
        let has_missed = missed > std::mem::replace(&mut self.missed, missed);
        self.quiet_checks = match self.quiet_checks {
            None if has_missed && !is_degraded => {
                tracing::warn!(
                    "the ledger is slow: answers are sent before what belongs to them is stored; check the disk, or the database"
                );
                Some(0)
            }
            Some(_) if has_missed => Some(0),
            Some(checks) if checks.saturating_add(1) >= QUIET_CHECKS => {
                tracing::info!("the ledger is no longer slow: no answer was sent too early for a minute");
                None
            }
            quiet => quiet.map(|checks| checks.saturating_add(1)),
        };
    }
}

/// Checks a ledger for as long as the process lives. Sets the gauge, and logs each change once, with the `place` of the
/// ledger: its file or its database. `None` if it is in memory.
pub async fn watch_health(ledger: Arc<dyn Ledger>, place: Option<String>, telemetry: Telemetry) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut known, mut slow) = (None, SlowLedger::default());
    loop {
        ticks.tick().await;
        let fault = check_health(&*ledger, CHECK_TIMEOUT).await;
        telemetry.set_ledger_health(fault.is_none());
        if let Some(skew) = ledger.clock_skew() {
            telemetry.set_ledger_clock_skew(skew);
        }
        match (fault, known) {
            // Another fault needs another action of the operator, so it is told too.
            (Some(fault), known) if known != Some(fault) => {
                tracing::warn!(ledger = place, "the ledger is degraded: {fault}");
            }
            (None, Some(_)) => tracing::info!(ledger = place, "the ledger works again"),
            _ => {}
        }
        slow.check(telemetry.missed_holds(), fault.is_some());
        known = fault;
    }
}
