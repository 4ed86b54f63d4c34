//! `antiphon mcp`: what it does with MCP servers, by its subcommands.

use std::process::ExitCode;

use super::mcp_wrap::{self, ChangeArgs};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = mcp_wrap::AFTER_HELP;

/// Arguments of `antiphon mcp`.
#[derive(Debug, clap::Args)]
#[group(id = "mcp")]
pub(super) struct Args {
    #[command(subcommand)]
    action: McpAction,
}

/// Subcommands of `antiphon mcp`.
#[derive(Debug, clap::Subcommand)]
enum McpAction {
    /// Put antiphon mcp before the servers in a client's file: antiphon mcp wrap .mcp.json
    #[command(after_help = mcp_wrap::AFTER_HELP)]
    Wrap(ChangeArgs),
    /// Take antiphon mcp away again, byte for byte
    #[command(after_help = mcp_wrap::AFTER_HELP)]
    Unwrap(ChangeArgs),
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        McpAction::Wrap(args) => mcp_wrap::run_wrap(args),
        McpAction::Unwrap(args) => mcp_wrap::run_unwrap(args),
    }
}
