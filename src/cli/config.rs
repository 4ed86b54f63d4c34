//! `antiphon config init | check | print | schema | token`.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{
    EXIT_USAGE, config_init,
    output::{OutputFlag, OutputFormat, ReportOutput, write_document, write_note},
};
use crate::{
    auth::{TOKEN_PREFIX, TokenHash},
    config::{self, ConfigError, CurrentFile, Flags, LoadedConfig, process_environment},
    upstream::{RandomError, random_bytes},
};

/// Text below the flags in the help.
pub(super) const AFTER_HELP: &str = "\
The file is -c, else ANTIPHON_CONFIG, else
$XDG_CONFIG_HOME/antiphon/antiphon.toml (~/.config/antiphon/antiphon.toml), else
/etc/antiphon/antiphon.toml, else none. One at a default path is refused if
other users may write it.

Exit codes:
  0  done, or the configuration is good
  1  a failure at run time
  2  wrong usage, a bad configuration, or a file that exists (init)";

/// Arguments of `antiphon config`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: ConfigAction,
}

/// Subcommands of `antiphon config`.
#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Write a configuration file with every key, its default and its meaning, commented out
    #[command(after_help = AFTER_HELP)]
    Init(config_init::Args),
    /// Report every problem of the configuration with its line; exit 2 if there is one
    #[command(after_help = AFTER_HELP)]
    Check {
        #[command(flatten)]
        source: ConfigSource,
        #[command(flatten)]
        output: OutputFlag,
    },
    /// Print the effective configuration as TOML: file, variables and defaults merged
    #[command(after_help = AFTER_HELP)]
    Print {
        #[command(flatten)]
        source: ConfigSource,
        /// Print the defaults only, without file and variables
        #[arg(long, conflicts_with = "config")]
        defaults: bool,
        #[command(flatten)]
        output: OutputFlag,
    },
    /// Print the JSON Schema of the configuration file, for editors
    Schema,
    /// Make a token for a client, a tool service or the admin listener. Standard output gets the token, which is shown
    /// only once. Standard error gets its hash, in the lines of the configuration file for each use: copy one use
    Token {
        /// Name of the client or service
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
pub(super) fn load_chosen(config: Option<PathBuf>) -> Result<LoadedConfig, ConfigError> {
    let flags = Flags {
        config,
        ..Flags::default()
    };
    let flags = flags.with_default_config(&process_environment);
    config::load_config(&flags, &process_environment, &CurrentFile::default())
}

/// Checks the configuration, and reports its problems or its main settings.
fn check_config(out: &mut impl Write, config: Option<PathBuf>, output: OutputFormat) -> anyhow::Result<ExitCode> {
    let flags = Flags {
        config: config.clone(),
        ..Flags::default()
    }
    .with_default_config(&process_environment);
    let path = config::config_path(&flags, &process_environment).map(|(path, _)| path.display().to_string());
    let loaded = match (load_chosen(config), output) {
        (Err(error), OutputFormat::Json) => {
            write_document(out, problems_document(path.as_deref(), &error))?;
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        (loaded, _) => loaded?,
    };
    let (count, listen) = (loaded.config.upstreams.len(), loaded.config.server.listen);
    let secrets = loaded.config.literal_secrets.iter();
    let old_keys = loaded.config.old_keys.iter();
    let warnings: Vec<String> = secrets
        .map(|key| literal_secret_warning(key))
        .chain(old_keys.map(|(key, advice)| format!("{key}: the next version does not read this key: {advice}")))
        .chain(loaded.config.rules.warnings.iter().cloned())
        .chain(config::exposed_key_warning(&loaded.config))
        .collect();
    match output {
        OutputFormat::Text => {
            for warning in &warnings {
                write_note(&format!("warning: {warning}"));
            }
            let origin = config::config_at_default_path(&flags, &process_environment);
            let origin = origin.map_or_else(String::new, |path| format!(" ({})", path.display()));
            writeln!(out, "ok: {count} upstreams, listening on {listen}{origin}")?;
        }
        OutputFormat::Json => {
            let report = json!({
                "ok": true, "file": path, "upstreams": count, "listen": listen.to_string(),
                "warnings": warnings, "problems": [],
            });
            write_document(out, report)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the warning about a secret that the file itself contains.
pub(super) fn literal_secret_warning(key: &str) -> String {
    format!("{key}: the configuration file contains this secret: write ${{NAME}} instead, or name a file")
}

/// Returns the problems of a configuration as JSON.
fn problems_document(path: Option<&str>, error: &ConfigError) -> Value {
    let problem = |problem: &config::ConfigProblem| {
        let column = problem.place.as_ref().map(|place| place.column);
        json!({
            "key": problem.key, "message": problem.message, "hint": problem.hint,
            "file": problem.file, "line": problem.line_number(), "column": column,
        })
    };
    let problems: Vec<Value> = error.problems.iter().map(problem).collect();
    json!({
        "ok": false, "file": path, "upstreams": null, "listen": null, "warnings": [], "problems": problems,
    })
}

/// Loads the configuration, or only its defaults.
fn load_for_print(config: Option<PathBuf>, is_default: bool) -> Result<LoadedConfig, ConfigError> {
    if !is_default {
        return load_chosen(config);
    }
    // No variables and no secret files: the output must not depend on this machine.
    config::build_config(None, &Flags::default(), &|_| None, &|_| {
        Err(io::ErrorKind::NotFound.into())
    })
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = ReportOutput::default();
    match &args.action {
        ConfigAction::Init(args) => return config_init::run(args),
        ConfigAction::Check { source, output } => {
            return check_config(&mut out, source.config.clone(), output.format());
        }
        ConfigAction::Print {
            source,
            defaults,
            output,
        } => {
            let text = load_for_print(source.config.clone(), *defaults)?.to_toml()?;
            match output.format() {
                OutputFormat::Text => out.write_all(text.as_bytes())?,
                OutputFormat::Json => {
                    let config: Value = serde_json::to_value(toml::from_str::<toml::Value>(&text)?)?;
                    write_document(&mut out, json!({ "config": config }))?;
                }
            }
        }
        ConfigAction::Schema => writeln!(out, "{:#}", config::file_schema().as_value())?,
        ConfigAction::Token { name } => {
            let token = random_token()?;
            // Alone on stdout, so that scripts can capture it without the rest.
            writeln!(out, "{token}")?;
            let hash = TokenHash::hash_token(token.as_bytes());
            // As text, so that it is not taken for an error of standard output.
            let failed = |error| anyhow!("standard error: {error}");
            io::stderr()
                .lock()
                .write_all(token_lines(name, &hash).as_bytes())
                .map_err(failed)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the lines for the configuration file. All are comments, so that the wrong use is not pasted with the right one.
fn token_lines(name: &str, hash: &TokenHash) -> String {
    format!(
        "# For a client that uses the proxy's profiles:\n\
         #[client_tokens]\n\
         #{name:?} = \"{hash}\"\n\
         # For a tool service that posts results:\n\
         #[services.{name:?}]\n\
         #token = \"{hash}\"\n\
         # For the admin listener, below [server]:\n\
         #admin_token = \"{hash}\"\n"
    )
}

/// Creates a token from 32 random bytes.
fn random_token() -> Result<String, RandomError> {
    let digits = blake3::Hash::from_bytes(random_bytes()?).to_hex();
    Ok(format!("{TOKEN_PREFIX}{digits}"))
}
