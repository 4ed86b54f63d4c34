//! Heartbeats of detached runs: the proxy waits for a result only as long as its tool may take.

use std::time::Duration;

use super::{
    events::RelayEffect,
    state::{CallRelay, ToolRun},
};

/// The time between two heartbeats of a run. A proxy tells services to stop runs that are silent for 5 minutes.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);

impl CallRelay {
    /// Returns the time of the next heartbeat.
    pub(super) fn next_heartbeat(&self) -> Option<Duration> {
        let runs = self.runs.values().filter(|run| is_reported(run));
        runs.map(|run| run.heartbeat_at).min()
    }

    /// Sends the heartbeats that are due.
    pub(super) fn send_heartbeats(&mut self) {
        let now = self.now;
        for run in self.runs.values_mut().filter(|run| is_reported(run)) {
            if let Some(call_id) = run.call_id.clone().filter(|_| run.heartbeat_at <= now) {
                run.heartbeat_at = now.saturating_add(HEARTBEAT_INTERVAL);
                self.effects.push(RelayEffect::Heartbeat(call_id));
            }
        }
    }
}

fn is_reported(run: &ToolRun) -> bool {
    run.is_detached() && run.call_id.is_some()
}
