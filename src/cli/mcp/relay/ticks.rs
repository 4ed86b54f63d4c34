//! The passing of time in a relay: when it must be told, and what is due then.

use std::time::Duration;

use super::{events::RelayEffect, state::CallRelay};

/// The time between two looks for the run of another process.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

impl CallRelay {
    /// Returns the time of the next tick that is needed.
    pub(in crate::cli::mcp) fn next_wake(&self) -> Option<Duration> {
        let look = (!self.elsewhere.is_empty()).then(|| self.looked_at.saturating_add(LOOK_INTERVAL));
        let answer = self.answer_after().and_then(|after| {
            let runs = self.runs.values().filter(|run| run.is_open() || run.waits_elsewhere());
            let of_runs = runs.flat_map(|run| run.asker.iter().chain(&run.waiters));
            let askers = of_runs.chain(self.elsewhere.iter().map(|(_, asker)| asker));
            let readings = askers
                .filter(|asker| !asker.is_asked)
                .map(|asker| asker.since_active.saturating_add(after));
            self.clock.time_of(readings.min()?)
        });
        [look, answer, self.next_heartbeat(), self.next_claim()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Looks for what has become due.
    pub(super) fn take_tick(&mut self) {
        self.ask_for_due();
        self.send_due_claims();
        self.send_heartbeats();
        if !self.elsewhere.is_empty() && self.now >= self.looked_at.saturating_add(LOOK_INTERVAL) {
            self.looked_at = self.now;
            let mut hashes: Vec<_> = self.elsewhere.iter().map(|(hash, _)| *hash).collect();
            hashes.sort_unstable();
            hashes.dedup();
            self.effects.extend(hashes.into_iter().map(RelayEffect::Look));
        }
    }
}
