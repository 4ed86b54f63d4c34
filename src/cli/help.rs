//! `antiphon help [COMMAND]` and `antiphon version`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context as _;
use serde_json::json;

use super::output::{OutputFlag, OutputFormat, write_document};

/// Arguments of `antiphon help`.
#[derive(Debug, clap::Args)]
pub(super) struct HelpArgs {
    /// Command to explain, such as: config check
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Arguments of `antiphon version`.
#[derive(Debug, clap::Args)]
pub(super) struct VersionArgs {
    #[command(flatten)]
    output: OutputFlag,
}

/// Error for a command that does not exist. Exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("there is no command {name:?}; the commands are {known}")]
pub(super) struct UnknownCommand {
    name: String,
    known: String,
}

/// Prints the help of a command.
pub(super) fn run(args: &HelpArgs, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    // Without `build` the subcommands do not know their full names.
    command.build();
    let mut found = &mut command;
    for name in &args.command {
        let names: Vec<&str> = found.get_subcommands().map(clap::Command::get_name).collect();
        let known = names.join(", ");
        let below = found.find_subcommand_mut(name);
        found = below.ok_or_else(|| UnknownCommand {
            name: name.clone(),
            known,
        })?;
    }
    found.print_help().context("cannot write the help")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the version.
pub(super) fn print_version(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let (mut out, version) = (io::stdout().lock(), env!("CARGO_PKG_VERSION"));
    match args.output.format() {
        OutputFormat::Text => writeln!(out, "antiphon {version}")?,
        OutputFormat::Json => write_document(&mut out, json!({ "antiphon": version }))?,
    }
    Ok(ExitCode::SUCCESS)
}
