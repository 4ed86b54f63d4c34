//! `antiphon mcp -- SERVER`: runs an MCP server so that the results of its calls survive their clients.
//!
//! The client starts the front, which starts the keeper and waits for it. The keeper has a session of its own and owns
//! the server: the end of the front, by whatever signal, ends neither.

mod answer_after;
mod arguments;
#[cfg(unix)]
mod call_ledger;
#[cfg(unix)]
mod front;
#[cfg(unix)]
mod http_target;
#[cfg(unix)]
mod keeper;
#[cfg(unix)]
mod keeper_list;
#[cfg(unix)]
mod left_over;
#[cfg(unix)]
mod relay;
#[cfg(unix)]
mod run_claims;
#[cfg(unix)]
mod run_folder;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use super::{EXIT_USAGE, mcp_wrap};
use arguments::McpCommand;
pub(super) use arguments::{AFTER_HELP, Args};
#[cfg(unix)]
pub(super) use left_over::post_left_over;

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(McpCommand::Wrap(args)) => mcp_wrap::run_wrap(args),
        Some(McpCommand::Unwrap(args)) => mcp_wrap::run_unwrap(args),
        _ => run_wrapper(args),
    }
}

#[cfg(unix)]
fn run_wrapper(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(McpCommand::Ps) => keeper_list::list_runs(),
        Some(McpCommand::Stop { id }) => keeper_list::stop_runs(id.as_deref()),
        Some(McpCommand::Keep { front, wrapper }) => keeper::run(*front, wrapper),
        None if args.wrapper.server.is_empty() && args.wrapper.url.is_none() => Ok(refuse(
            "the server is missing: antiphon mcp [FLAGS] -- SERVER ARGS…, or antiphon mcp [FLAGS] --url URL",
        )),
        _ => front::run(),
    }
}

/// Refuses to run: the keeper needs sessions of Unix.
#[cfg(not(unix))]
fn run_wrapper(_args: &Args) -> anyhow::Result<ExitCode> {
    Ok(refuse("`antiphon mcp` does not run on Windows yet: use WSL"))
}

/// Posts nothing: the wrapper leaves nothing over where it does not run.
#[cfg(not(unix))]
pub(super) async fn post_left_over(_proxy: super::api_client::ProxyFlags) {}

fn refuse(why: &str) -> ExitCode {
    // A closed stderr must not change the exit code.
    drop(writeln!(io::stderr().lock(), "antiphon: {why}"));
    ExitCode::from(EXIT_USAGE)
}
