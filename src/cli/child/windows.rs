//! Commands on Windows: every process of a console gets Ctrl-C itself, and npm installs commands as `.cmd` files.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::ExitStatus,
};

use tokio::process::Child;

use crate::cli::signals::ReceivedSignal;

/// Endings of commands that Windows itself does not look for.
const SCRIPT_ENDINGS: [&str; 2] = ["cmd", "bat"];

/// Returns the names under which the command may exist: its own, then those of scripts.
pub(super) fn program_names(program: &OsStr) -> Vec<OsString> {
    let mut names = vec![program.to_owned()];
    if Path::new(program).extension().is_none() {
        names.extend(SCRIPT_ENDINGS.map(|ending| Path::new(program).with_extension(ending).into_os_string()));
    }
    names
}

/// Ends the command when the console closes or the machine shuts down.
pub(super) fn forward_signal(child: &mut Child, signal: ReceivedSignal) {
    if signal != ReceivedSignal::Interrupt {
        // An error means that the command has just ended.
        drop(child.start_kill());
    }
}

/// Returns the exit code of an ended command.
pub(super) fn status_code(status: ExitStatus) -> Option<i32> {
    status.code()
}

/// Returns `true`: the console sends Ctrl-C to each of its processes.
pub(super) const fn gets_interrupts_itself() -> bool {
    true
}
