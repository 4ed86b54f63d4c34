//! `antiphon completions SHELL`: writes the completion script of a shell.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap_complete::Shell;

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
For example:
  antiphon completions bash >~/.local/share/bash-completion/completions/antiphon
  antiphon completions zsh  >~/.zfunc/_antiphon         (with ~/.zfunc in fpath)
  antiphon completions fish >~/.config/fish/completions/antiphon.fish";

/// Arguments of `antiphon completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Shell of the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Writes the script to stdout.
pub(super) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    // Into memory first, since the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "antiphon", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
