//! `antiphon config check | print | schema | token`.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Subcommand;

use crate::{
    auth::TokenHash,
    config::{self, Flags, LoadedConfig},
    upstream::{RandomError, random_bytes},
};

/// Arguments of `antiphon config`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: ConfigAction,
}

/// Subcommands of `antiphon config`.
#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Report every problem of the configuration with its line; exit 2 if there is one
    Check(ConfigSource),
    /// Print the effective configuration as TOML: file, variables and defaults merged
    Print {
        #[command(flatten)]
        source: ConfigSource,
        /// Print the defaults only, without file and variables
        #[arg(long, conflicts_with = "config")]
        defaults: bool,
    },
    /// Print the JSON Schema of the configuration file, for editors
    Schema,
    /// Make a client token: standard output gets the token, which is shown only once, and standard error the lines for
    /// the configuration file
    Token {
        /// Name of the client
        #[arg(value_name = "NAME", value_parser = parse_client_name)]
        name: String,
    },
}

/// Parses the name of a client token.
fn parse_client_name(name: &str) -> Result<String, String> {
    config::check_client_name(name).map(|()| name.to_owned())
}

/// Flags that choose the configuration.
#[derive(Debug, clap::Args)]
struct ConfigSource {
    /// Configuration file [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Loads the configuration that `--config` and the environment choose.
pub(super) fn load_chosen(config: Option<PathBuf>) -> Result<LoadedConfig, config::ConfigError> {
    let flags = Flags {
        config,
        ..Flags::default()
    };
    config::load_config(&flags, &config::process_environment)
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match &args.action {
        ConfigAction::Check(source) => {
            let loaded = load_chosen(source.config.clone())?;
            let count = loaded.config.upstreams.len();
            writeln!(
                out,
                "ok: {count} upstreams, listening on {}",
                loaded.config.server.listen
            )?;
        }
        ConfigAction::Print { source, defaults } => {
            let loaded = if *defaults {
                // No variables and no secret files: the output must not depend on this machine.
                config::build_config(None, &Flags::default(), &|_| None, &|_| {
                    Err(io::ErrorKind::NotFound.into())
                })?
            } else {
                load_chosen(source.config.clone())?
            };
            out.write_all(loaded.to_toml()?.as_bytes())?;
        }
        ConfigAction::Schema => writeln!(out, "{:#}", config::file_schema().as_value())?,
        ConfigAction::Token { name } => {
            let token = random_token()?;
            // Alone on stdout, so that scripts can capture it without the rest.
            writeln!(out, "{token}")?;
            let hash = TokenHash::hash_token(token.as_bytes());
            writeln!(
                io::stderr().lock(),
                "[client_tokens]\n{name:?} = \"{hash}\"\n\n# Or, for a tool service that posts results:\n# [services.{name:?}]\n# token = \"{hash}\""
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates a token from 32 random bytes.
fn random_token() -> Result<String, RandomError> {
    let digits = blake3::Hash::from_bytes(random_bytes()?).to_hex();
    Ok(format!("antiphon_{digits}"))
}
