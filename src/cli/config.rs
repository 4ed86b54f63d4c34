//! `antiphon config check | print | schema | token`.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{
    fmt::Write as _,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Subcommand;

use crate::{
    auth::TokenHash,
    config::{self, Flags, Loaded},
    upstream::{RandomError, random_bytes},
};

/// Arguments of `antiphon config`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Subcommands of `antiphon config`.
#[derive(Debug, Subcommand)]
enum Action {
    /// Report every problem of the configuration with its line; exit 2 if there is one
    Check(Source),
    /// Print the effective configuration as TOML: file, variables and defaults merged
    Print {
        #[command(flatten)]
        source: Source,
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
        #[arg(value_name = "NAME", value_parser = client_name)]
        name: String,
    },
}

/// Parses the name of a client token.
fn client_name(name: &str) -> Result<String, String> {
    config::client_name(name).map(|()| name.to_owned())
}

/// Flags that choose the configuration.
#[derive(Debug, clap::Args)]
struct Source {
    /// Configuration file [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Source {
    /// Loads the configuration that the flags and the environment choose.
    fn load(&self) -> Result<Loaded, config::ConfigError> {
        let flags = Flags {
            config: self.config.clone(),
            ..Flags::default()
        };
        config::load(&flags, &config::process_environment)
    }
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match &args.action {
        Action::Check(source) => {
            let loaded = source.load()?;
            let count = loaded.config.upstreams.len();
            writeln!(
                out,
                "ok: {count} upstreams, listening on {}",
                loaded.config.server.listen
            )?;
        }
        Action::Print { source, defaults } => {
            let loaded = if *defaults {
                // No variables and no secret files: the output must not depend on this machine.
                config::lower(None, &Flags::default(), &|_| None, &|_| {
                    Err(io::ErrorKind::NotFound.into())
                })?
            } else {
                source.load()?
            };
            out.write_all(loaded.to_toml()?.as_bytes())?;
        }
        Action::Schema => writeln!(out, "{:#}", config::schema().as_value())?,
        Action::Token { name } => {
            let token = client_token()?;
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
fn client_token() -> Result<String, RandomError> {
    let mut token = "antiphon_".to_owned();
    for byte in random_bytes()? {
        // Writing to a string cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
}
