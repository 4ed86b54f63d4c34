//! Commands on Unix: signals are forwarded, and their numbers become exit codes, as in shells.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
};

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use tokio::process::Child;

use crate::cli::signals::ReceivedSignal;

/// Offset of the exit code if a signal ended the command, as shells do.
const EXIT_SIGNAL: i32 = 128;

/// Returns the names under which the command may exist: only its own.
pub(super) fn program_names(program: &OsStr) -> Vec<OsString> {
    vec![program.to_owned()]
}

/// Sends a signal to the command.
pub(super) fn forward_signal(child: &mut Child, signal: ReceivedSignal) {
    let number = match signal {
        ReceivedSignal::Terminate => Signal::TERM,
        ReceivedSignal::Interrupt => Signal::INT,
        ReceivedSignal::HangUp => Signal::HUP,
    };
    // The id is known until the command has been waited for. After that it may belong to another.
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // An error means that the command has just ended, as the signal wants.
        let _ = kill_process(pid, number);
    }
}

/// Returns the exit code of an ended command, with 128 plus the signal that ended it.
pub(super) fn status_code(status: ExitStatus) -> Option<i32> {
    status
        .code()
        .or_else(|| status.signal().map(|number| EXIT_SIGNAL.saturating_add(number)))
}

/// Returns `true` if this process is in the foreground of a terminal.
///
/// The terminal then sends Ctrl-C to the command as well, since both are in one process group. A forwarded signal would
/// be the second one, which often means "stop at once".
pub(super) fn gets_interrupts_itself() -> bool {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    // Any of the three may be redirected.
    let group = if stdin.is_terminal() {
        rustix::termios::tcgetpgrp(stdin)
    } else if stdout.is_terminal() {
        rustix::termios::tcgetpgrp(stdout)
    } else {
        rustix::termios::tcgetpgrp(stderr)
    };
    group.is_ok_and(|group| group == getpgrp())
}
