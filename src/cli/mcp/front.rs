//! The process that a client starts. It starts the keeper, waits for it, and has nothing to lose.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Context as _;
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

/// Starts the keeper with the arguments of this process. Returns the exit code of the server.
///
/// Also returns if the keeper goes on without the client: with success while the server runs or has ended well, and with
/// failure if it has failed.
pub(super) fn run() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let code = runtime.block_on(wait_for_keeper());
    runtime.shutdown_background();
    code
}

async fn wait_for_keeper() -> anyhow::Result<ExitCode> {
    // Taken over before the keeper can send it.
    let mut release = signal(SignalKind::user_defined1()).context("cannot listen for signals")?;
    let mut failure = signal(SignalKind::user_defined2()).context("cannot listen for signals")?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // `antiphon mcp …` becomes `antiphon mcp keep --front PID …`.
    let after_name = 1.min(arguments.len());
    let own_id = std::process::id().to_string();
    arguments.splice(after_name..after_name, ["keep".into(), "--front".into(), own_id.into()]);
    let mut keeper = Command::new(program)
        .args(arguments)
        .spawn()
        .context("cannot start the keeper")?;
    tokio::select! {
        ended = keeper.wait() => {
            let ended = ended.context("the keeper was lost")?;
            let code = ended.code().and_then(|code| u8::try_from(code).ok());
            Ok(ExitCode::from(code.unwrap_or(1)))
        }
        _ = release.recv() => Ok(ExitCode::SUCCESS),
        _ = failure.recv() => Ok(ExitCode::FAILURE),
    }
}
