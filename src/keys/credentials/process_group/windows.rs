//! Windows has no process groups that can be killed: only the program itself ends, when it is dropped.

use tokio::process::Command;

/// Changes nothing.
pub(in crate::keys::credentials) fn lead_group(command: &mut Command) -> &mut Command {
    command
}

/// Does nothing: `kill_on_drop` ends the program itself.
pub(in crate::keys::credentials) const fn kill_group(_leader: u32) {}
