//! The arguments of `antiphon mcp wrap` and `antiphon mcp unwrap`.

use std::path::PathBuf;

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
For example:
  antiphon mcp wrap .mcp.json              prints the changed file
  antiphon mcp wrap --write ~/.claude.json
  antiphon mcp unwrap --write ~/.codex/config.toml my-server

Files of Claude Code, Claude Desktop, Cursor, VS Code, opencode, gemini-cli,
Qwen Code and Codex, and others with the same members. Every other byte stays.
Standard error has the names of the servers, and what becomes of each.
Close the client before --write: some write their file while they run.

Exit codes:
  0  done: each server that was asked for is changed
  1  nothing to do, or a server is left alone that should be changed
  2  wrong usage, no such server, or a file that cannot be read or understood";

/// Arguments of both subcommands.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ChangeArgs {
    /// The client's file
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Servers to change, by their names; all if none is given
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Write the file, and keep its old text beside it
    #[arg(long)]
    pub(super) write: bool,
    /// Print the changed file and write nothing (the default)
    #[arg(long, conflicts_with = "write")]
    pub(super) dry_run: bool,
}
