//! The command that `antiphon run` runs: its start, the signals that it gets, and its exit code.

#[cfg(unix)]
#[path = "unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "windows.rs"]
mod platform;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use tokio::process::{Child, Command};

use crate::cli::signals::{ReceivedSignal, Signals};

/// Exit code if the command exists but cannot be run.
const EXIT_CANNOT_RUN: u8 = 126;
/// Exit code if the command does not exist.
const EXIT_NOT_FOUND: u8 = 127;

/// The command, its arguments and the variables that it gets.
#[derive(Debug)]
pub(super) struct ChildCommand {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) variables: Vec<(String, String)>,
}

/// The end of the command.
#[derive(Debug)]
pub(super) struct ChildEnd {
    pub(super) code: ExitCode,
    /// `false` if the command could not be started.
    pub(super) has_run: bool,
}

impl ChildCommand {
    /// Runs the command to its end and forwards signals to it.
    pub(super) async fn run_to_end(&self, signals: &mut Signals) -> anyhow::Result<ChildEnd> {
        let mut child = match self.spawn_child() {
            Ok(child) => child,
            Err(error) => {
                let code = report_failed_start(&self.program, &error);
                return Ok(ChildEnd { code, has_run: false });
            }
        };
        loop {
            tokio::select! {
                // The end comes first: a process id that has ended may be reused.
                biased;
                status = child.wait() => {
                    let status = status.context("the command was lost")?;
                    // Other platforms have longer codes than a shell can return.
                    let code = platform::status_code(status).and_then(|code| u8::try_from(code).ok());
                    return Ok(ChildEnd { code: ExitCode::from(code.unwrap_or(1)), has_run: true });
                }
                signal = next_to_forward(signals) => platform::forward_signal(&mut child, signal),
            }
        }
    }

    /// Starts the command under the first of its names that exists.
    fn spawn_child(&self) -> io::Result<Child> {
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for name in platform::program_names(&self.program) {
            let variables = self.variables.iter().map(|(name, value)| (name, value));
            match Command::new(name).args(&self.arguments).envs(variables).spawn() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => failure = error,
                started => return started,
            }
        }
        Err(failure)
    }
}

/// Reports that the command cannot be started. Returns the exit code.
fn report_failed_start(program: &OsStr, error: &io::Error) -> ExitCode {
    let (why, code) = match error.kind() {
        io::ErrorKind::NotFound => ("there is no such command".to_owned(), EXIT_NOT_FOUND),
        _ => (error.to_string(), EXIT_CANNOT_RUN),
    };
    // A closed stderr must not change the exit code.
    drop(writeln!(
        io::stderr().lock(),
        "antiphon: cannot run {}: {why}",
        program.display()
    ));
    ExitCode::from(code)
}

/// Waits for the next signal that the command has not received itself.
async fn next_to_forward(signals: &mut Signals) -> ReceivedSignal {
    loop {
        let signal = signals.next().await;
        // In the foreground the terminal has already sent Ctrl-C to the command.
        if signal != ReceivedSignal::Interrupt || !platform::gets_interrupts_itself() {
            return signal;
        }
    }
}
