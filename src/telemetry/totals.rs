//! Totals of exchanges since the start of the process, for the summary of `antiphon run`.
//!
//! The metrics know only classes of statuses, and the dashboard only the last hour.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::events::ExchangeEnded;

/// Lowest status that is a failure by itself.
const FAILURE_STATUS_MIN: u16 = 400;

/// Answer to a client that tries a WebSocket.
const UPGRADE_REQUIRED: u16 = 426;

/// Totals of exchanges that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTotals {
    /// Exchanges.
    pub requests: u64,
    /// Exchanges whose body was repaired.
    pub repaired: u64,
    /// Repair actions, by their label.
    pub actions: BTreeMap<&'static str, u64>,
    /// Failed exchanges, by status, or by the stable name of a failure after a good status.
    pub failures: BTreeMap<String, u64>,
    /// The same, of exchanges that asked no model.
    pub side_failures: BTreeMap<String, u64>,
}

/// The totals of one process. Statuses and names of failures are few, which bounds the memory.
#[derive(Debug, Default)]
pub(super) struct TotalsTable(Mutex<ExchangeTotals>);

impl TotalsTable {
    /// Counts an exchange that ended.
    pub(super) fn record_exchange(&self, event: &ExchangeEnded) {
        let mut totals = self.lock_totals();
        totals.requests += 1;
        // A rejected request was not sent, whatever its report contains.
        let report = event.report.as_ref().filter(|_| !event.is_rejected);
        if let Some(report) = report.filter(|report| !report.actions.is_empty()) {
            totals.repaired += 1;
            for (action, times) in &report.actions {
                *totals.actions.entry(action.label()).or_default() += *times as u64;
            }
        }
        // A client that offers a WebSocket goes on without it. It has not failed.
        if event.side.is_some() && event.status != UPGRADE_REQUIRED {
            let failures = if event.asks_model {
                &mut totals.failures
            } else {
                &mut totals.side_failures
            };
            *failures.entry(failure_name(event)).or_default() += 1;
        }
    }

    /// Returns the totals so far.
    pub(super) fn current_totals(&self) -> ExchangeTotals {
        self.lock_totals().clone()
    }

    fn lock_totals(&self) -> MutexGuard<'_, ExchangeTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the status of a failed exchange, or the name of a failure that came after a good status.
fn failure_name(event: &ExchangeEnded) -> String {
    if event.status >= FAILURE_STATUS_MIN {
        return event.status.to_string();
    }
    event.code.to_owned()
}
