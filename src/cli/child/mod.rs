//! A command that a subcommand runs: its start, the signals that it gets, its exit code, and a copy of its output.

mod captured;
#[cfg(unix)]
#[path = "unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "windows.rs"]
mod platform;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    pin::pin,
    process::{ExitStatus, Stdio},
};

use anyhow::Context;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

pub(in crate::cli) use captured::CapturedOutput;

use crate::cli::signals::{ReceivedSignal, Signals};
use captured::{REST_TIMEOUT, copy_outputs};

/// Exit code if the command exists but cannot be run.
const EXIT_CANNOT_RUN: u8 = 126;
/// Exit code if the command does not exist.
const EXIT_NOT_FOUND: u8 = 127;

/// The command, its arguments and the variables that it gets.
#[derive(Debug)]
pub(in crate::cli) struct ChildCommand {
    pub(in crate::cli) program: OsString,
    pub(in crate::cli) arguments: Vec<OsString>,
    pub(in crate::cli) variables: Vec<(String, String)>,
}

/// The end of the command.
#[derive(Debug)]
pub(in crate::cli) struct ChildEnd {
    pub(in crate::cli) code: u8,
    /// `false` if the command could not be started.
    pub(in crate::cli) has_run: bool,
}

impl ChildCommand {
    /// Runs the command to its end and forwards signals to it.
    pub(in crate::cli) async fn run_to_end(&self, signals: &mut Signals) -> anyhow::Result<ChildEnd> {
        match self.start(Stdio::inherit) {
            Ok(mut child) => wait_for_end(&mut child, signals).await,
            Err(code) => Ok(ChildEnd { code, has_run: false }),
        }
    }

    /// Runs the command like [`run_to_end`](Self::run_to_end), and keeps up to `bytes_max` of each of its outputs.
    pub(in crate::cli) async fn run_captured(
        &self,
        signals: &mut Signals,
        bytes_max: usize,
    ) -> anyhow::Result<(ChildEnd, CapturedOutput)> {
        let mut child = match self.start(Stdio::piped) {
            Ok(child) => child,
            Err(code) => return Ok((ChildEnd { code, has_run: false }, CapturedOutput::default())),
        };
        let mut copying = pin!(copy_outputs(child.stdout.take(), child.stderr.take(), bytes_max));
        let mut ending = pin!(wait_for_end(&mut child, signals));
        tokio::select! {
            // Both outputs may end long before the command.
            output = &mut copying => Ok((ending.await?, output)),
            end = &mut ending => {
                let output = timeout(REST_TIMEOUT, copying).await;
                Ok((end?, output.unwrap_or_default()))
            }
        }
    }

    /// Starts the command with these outputs. Reports a failure, and returns its exit code.
    fn start(&self, output: fn() -> Stdio) -> Result<Child, u8> {
        self.spawn_child(output)
            .map_err(|error| report_failed_start(&self.program, &error))
    }

    /// Starts the command under the first of its names that exists.
    fn spawn_child(&self, output: fn() -> Stdio) -> io::Result<Child> {
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for name in platform::program_names(&self.program) {
            let variables = self.variables.iter().map(|(name, value)| (name, value));
            let mut command = Command::new(name);
            command.args(&self.arguments).envs(variables);
            match command.stdout(output()).stderr(output()).spawn() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => failure = error,
                started => return started,
            }
        }
        Err(failure)
    }
}

/// Waits for the end of a command and forwards signals to it.
async fn wait_for_end(child: &mut Child, signals: &mut Signals) -> anyhow::Result<ChildEnd> {
    loop {
        tokio::select! {
            // The end comes first: a process id that has ended may be reused.
            biased;
            status = child.wait() => {
                let status = status.context("the command was lost")?;
                return Ok(ChildEnd { code: exit_code(status), has_run: true });
            }
            signal = next_to_forward(signals) => platform::forward_signal(child, signal),
        }
    }
}

/// Returns the exit code of an ended command, as a shell gives it.
pub(in crate::cli) fn exit_code(status: ExitStatus) -> u8 {
    // Other platforms have longer codes than a shell can return.
    let code = platform::status_code(status).and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(1)
}

/// Returns why a program cannot be started, and the exit code, as a shell gives it.
pub(in crate::cli) fn failed_start(program: &OsStr, error: &io::Error) -> (String, u8) {
    let (why, code) = match error.kind() {
        io::ErrorKind::NotFound => ("there is no such command".to_owned(), EXIT_NOT_FOUND),
        _ => (error.to_string(), EXIT_CANNOT_RUN),
    };
    (format!("cannot run {}: {why}", program.display()), code)
}

/// Reports that the command cannot be started. Returns the exit code.
fn report_failed_start(program: &OsStr, error: &io::Error) -> u8 {
    let (text, code) = failed_start(program, error);
    // A closed stderr must not change the exit code.
    drop(writeln!(io::stderr().lock(), "antiphon: {text}"));
    code
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
