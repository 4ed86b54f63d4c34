//! Process groups of Unix.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

/// Makes the program the leader of a group of its own.
pub(in crate::keys::credentials) fn lead_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Kills every process of the group that this process leads.
pub(in crate::keys::credentials) fn kill_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // An error means that the group has just ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}
