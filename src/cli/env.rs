//! `antiphon env`: prints the variables that point LLM clients at the proxy, for a shell to evaluate.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{
    io::{self, IsTerminal as _, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::{
    banner::{listener_url, reachable_address},
    client_variables::{base_url_variables, no_proxy_variables},
    output::{OutputFlag, OutputFormat, write_document},
    running_proxy::find_proxy,
};
use crate::{
    config::{self, CurrentFile, Flags, process_environment},
    provider::Routes,
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
For example:
  eval \"$(antiphon env)\"                                     sh, bash, zsh
  antiphon env --shell fish | source
  antiphon env --shell powershell | Out-String | Invoke-Expression
  for /f \"delims=\" %i in ('antiphon env --shell cmd') do %i   cmd, at the prompt

The variables stay set until the shell exits. `antiphon run -- CMD` sets them
for one command, and starts a proxy if none runs. If a forward proxy is set
(HTTP_PROXY, HTTPS_PROXY, ALL_PROXY), the proxy's address is added to NO_PROXY.

Exit codes:
  0  done, also if no proxy answers there yet
  1  a failure at run time
  2  wrong usage or bad configuration";

/// Arguments of `antiphon env`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Shell that evaluates the output; --output json ignores it
    #[arg(long, value_name = "SHELL", default_value = "sh")]
    shell: ShellName,
    #[command(flatten)]
    output: OutputFlag,
    /// Configuration file with the address of the proxy [env: ANTIPHON_CONFIG]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port of the proxy [env: ANTIPHON_LISTEN] [default: 127.0.0.1:4747]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

/// Syntax of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShellName {
    /// sh, bash, zsh, ksh
    Sh,
    /// fish
    Fish,
    /// PowerShell
    Powershell,
    /// The command prompt of Windows
    Cmd,
}

impl ShellName {
    /// Returns the line that evaluates the output.
    const fn evaluation(self) -> &'static str {
        match self {
            Self::Sh => "eval \"$(antiphon env)\"",
            Self::Fish => "antiphon env --shell fish | source",
            Self::Powershell => "antiphon env --shell powershell | Out-String | Invoke-Expression",
            Self::Cmd => "for /f \"delims=\" %i in ('antiphon env --shell cmd') do %i",
        }
    }

    /// Returns the line that sets a variable for the shell and its commands.
    fn assignment(self, name: &str, value: &str) -> String {
        match self {
            // Inside single quotes only the quote itself has a meaning.
            Self::Sh => format!("export {name}='{}'", value.replace('\'', r"'\''")),
            Self::Fish => {
                let value = value.replace('\\', r"\\").replace('\'', r"\'");
                format!("set -gx {name} '{value}'")
            }
            Self::Powershell => format!("$env:{name} = '{}'", value.replace('\'', "''")),
            // Quotes around the whole assignment do not become part of the value.
            Self::Cmd => format!("set \"{name}={value}\""),
        }
    }
}

/// Prints the variables.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let flags = Flags {
        config: args.config.clone(),
        given: args
            .listen
            .clone()
            .map(|listen| ("--listen", listen))
            .into_iter()
            .collect(),
        ..Flags::default()
    }
    .with_default_config(&process_environment);
    let loaded = config::load_config(&flags, &process_environment, &CurrentFile::default())?;
    let at = reachable_address(loaded.config.server.listen);
    let tls = loaded.config.server.tls;
    let root = listener_url(loaded.config.server.listen, tls.as_ref());
    let urls = base_url_variables(&Routes::new(loaded.config.upstreams), &root);
    let urls = urls.into_iter().map(|variable| (variable.name, variable.url));
    let variables: Vec<(&str, String)> = urls.chain(no_proxy_variables(at)).collect();
    let mut out = io::stdout().lock();
    match args.output.format() {
        OutputFormat::Text => {
            for (name, value) in &variables {
                writeln!(out, "{}", args.shell.assignment(name, value))?;
            }
        }
        OutputFormat::Json => {
            let members: Map<String, Value> = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            write_document(&mut out, json!({ "listen": at.to_string(), "variables": members }))?;
        }
    }
    out.flush()?;
    write_hints(args.shell, at, tls.is_some())
}

/// Writes to stderr what a person may have missed.
fn write_hints(shell: ShellName, at: SocketAddr, has_tls: bool) -> anyhow::Result<ExitCode> {
    let mut err = io::stderr().lock();
    // Text on a terminal sets nothing.
    if io::stdout().is_terminal() {
        drop(writeln!(
            err,
            "these lines are only printed; to set the variables: {}",
            shell.evaluation()
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if runtime.block_on(find_proxy(at, has_tls)).is_none() {
        drop(writeln!(
            err,
            "antiphon: no proxy answers at {at} yet; start it with `antiphon serve`"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_each_shell_reads_them() {
        let value = r"a'b\c $d";
        for (shell, wanted) in [
            (ShellName::Sh, r"export N='a'\''b\c $d'"),
            (ShellName::Fish, r"set -gx N 'a\'b\\c $d'"),
            (ShellName::Powershell, r"$env:N = 'a''b\c $d'"),
            (ShellName::Cmd, r#"set "N=a'b\c $d""#),
        ] {
            assert_eq!(shell.assignment("N", value), wanted);
        }
    }
}
