//! `antiphon completions SHELL`: the script that completes our command line.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap_complete::Shell;

/// What stands below the flags in the help text.
pub(super) const AFTER_HELP: &str = "\
For example:
  antiphon completions bash > ~/.local/share/bash-completion/completions/antiphon
  antiphon completions zsh  > ~/.zfunc/_antiphon        (with ~/.zfunc in fpath)
  antiphon completions fish > ~/.config/fish/completions/antiphon.fish";

/// Arguments of `antiphon completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Whose script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    // Into memory first: the generator panics where a pipe has closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "antiphon", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
