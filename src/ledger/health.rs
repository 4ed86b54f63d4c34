//! The health of a ledger: its present fault, which is checked in the background and on demand.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, timeout};

use super::Ledger;
use crate::telemetry::Telemetry;

/// The time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The timeout of a check in the background.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of quiet checks after which the ledger counts as fast again: one minute.
const QUIET_CHECKS: u32 = 6;

/// A reason why a ledger does not store what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerFault {
    /// The last write failed.
    WriteFailed,
    /// The last write found no room within the ledger's own limit.
    Full,
    /// The store could not be checked after it was opened. Until then nothing is read or written.
    Unchecked,
    /// The store is damaged beyond its indexes. Nothing is read or written.
    Damaged,
    /// The file was deleted, moved or replaced while it is open.
    FileGone,
    /// The store is closed, or its thread has ended.
    Closed,
    /// The store did not answer in time.
    Silent,
    /// The database cannot be reached, or refuses to answer.
    Unreachable,
    /// The clock of the database and that of this machine differ by more than 2 seconds.
    ClockSkew,
    /// The database contains no ledger any more, or another than the one that was opened: it was restored, or filled by a copy.
    OtherLedger,
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WriteFailed => "its last write failed: check the disk",
            Self::Full => "it is full: raise ledger.bytes_max",
            Self::Unchecked => "its first check failed: check the disk",
            Self::Damaged => {
                "its file is damaged: restore a copy of it and of its -wal, or move both away, and restart Antiphon"
            }
            Self::FileGone => "its file was deleted or replaced: restart Antiphon; records written until then are lost",
            Self::Closed => "it is closed",
            Self::Silent => "it does not answer in time: check the disk, or the database",
            Self::Unreachable => "its database cannot be reached: check the database and the network",
            Self::ClockSkew => {
                "the clocks of its database and of this machine differ by more than 2 s: synchronize them"
            }
            Self::OtherLedger => "its database is no longer the ledger that was opened: restart Antiphon",
        })
    }
}

/// Returns the fault of a ledger. `None` if it works.
pub async fn check_health(ledger: &dyn Ledger, limit: Duration) -> Option<LedgerFault> {
    match timeout(limit, ledger.find_fault()).await {
        Ok(Ok(fault)) => fault,
        Ok(Err(_)) => Some(LedgerFault::Closed),
        Err(_) => Some(LedgerFault::Silent),
    }
}

/// The state of a ledger that is too slow for the answers which wait for it.
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
