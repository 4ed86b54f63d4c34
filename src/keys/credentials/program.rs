//! Programs that print a credential. They run without a shell, and nothing that they print is logged.

use std::{
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt as _,
    process::{Child, ChildStdout, Command},
};

use super::{process_group, renewal::CredentialFetcher};
use crate::{
    clock,
    keys::credential_source::{
        AwsScope, CommandLine, OUTPUT_BYTES_MAX, SourceFailure, SuppliedCredential, parse_process_output,
        parse_token_output,
    },
};

/// Time after the end of a program for its output to end too. It does not if a program that it has started keeps it open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// A program that is run for each refresh.
pub(super) struct ProgramFetcher {
    command: CommandLine,
    /// The scope of AWS keys; `None` if the program prints a token.
    aws_scope: Option<AwsScope>,
}

impl ProgramFetcher {
    /// Creates the fetcher of a program that prints a token.
    pub(super) const fn for_token(command: CommandLine) -> Self {
        Self {
            command,
            aws_scope: None,
        }
    }

    /// Creates the fetcher of a program that prints AWS keys.
    pub(super) const fn for_aws(command: CommandLine, scope: AwsScope) -> Self {
        Self {
            command,
            aws_scope: Some(scope),
        }
    }
}

impl CredentialFetcher for ProgramFetcher {
    async fn fetch_credential(&mut self) -> Result<SuppliedCredential, SourceFailure> {
        let output = run_program(&self.command).await?;
        let now = clock::system_time();
        match &self.aws_scope {
            Some(scope) => parse_process_output(&output, now).map(|keys| keys.with_scope(scope)),
            None => parse_token_output(&output, now),
        }
    }
}

/// A running program. If it has not ended, it is killed on drop, together with every program that it has started.
struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // The id is known until the program has been waited for. After that it may belong to another.
        if let Some(leader) = self.0.id() {
            process_group::kill_group(leader);
        }
    }
}

/// Runs a program to its end and returns its output. The caller limits the time.
async fn run_program(command: &CommandLine) -> Result<Vec<u8>, SourceFailure> {
    let mut started = Command::new(&command.program);
    started
        .args(&command.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Not read: an error text may contain a secret.
        .stderr(Stdio::null())
        .kill_on_drop(true);
    // A group of its own, so that programs which it starts can be killed with it.
    let spawned = process_group::lead_group(&mut started).spawn();
    let mut running = RunningProgram(spawned.map_err(|_| SourceFailure::NotStarted)?);
    let mut output = Vec::new();
    let mut stdout = running.0.stdout.take();
    tokio::select! {
        read = read_output(stdout.as_mut(), &mut output) => read?,
        ended = running.0.wait() => drop(ended),
    }
    // The group's id cannot belong to another program before this.
    let status = running.0.wait().await.map_err(|_| SourceFailure::NotStarted)?;
    check_status(status)?;
    // What the program itself has printed is in the pipe by now. Those that it has started may still print.
    let rest = tokio::time::timeout(OUTPUT_GRACE, read_output(stdout.as_mut(), &mut output));
    rest.await.unwrap_or(Ok(()))?;
    Ok(output)
}

/// Reads the output to its end. A reading that is cancelled may be repeated.
async fn read_output(stdout: Option<&mut ChildStdout>, output: &mut Vec<u8>) -> Result<(), SourceFailure> {
    let Some(stdout) = stdout else { return Ok(()) };
    while output.len() <= OUTPUT_BYTES_MAX {
        let read = stdout.read_buf(output).await;
        if read.map_err(|_| SourceFailure::Unreadable)? == 0 {
            return Ok(());
        }
    }
    Err(SourceFailure::TooLong)
}

fn check_status(status: ExitStatus) -> Result<(), SourceFailure> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(SourceFailure::ExitStatus(code)),
        None => Err(SourceFailure::Signalled),
    }
}
