//! The command line. Each subcommand has a file or a folder with its arguments and its `run`.
//!
//! Data goes to stdout, messages to stderr. Exit codes: 0 done or no findings, 1 findings or a failure at run time,
//! 2 wrong usage, bad configuration or unreadable input, 130 or 143 on a second SIGINT or SIGTERM.

mod admin_list;
mod api_client;
pub mod banner;
mod check;
mod child;
mod claims;
mod client_variables;
mod completions;
mod config;
mod config_init;
mod demo;
mod diff;
mod doctor;
mod env;
mod file_work;
mod findings;
mod healthcheck;
mod help;
mod http_get;
mod input;
mod intents;
mod man;
mod mcp;
mod mcp_wrap;
mod notify;
mod once;
mod output;
mod proxy_trust;
mod reload;
mod repair;
mod result;
mod rules;
mod run;
mod running_proxy;
mod sealing;
mod serve;
mod signals;
mod store;
mod store_copy;
mod store_database;
mod store_error;
mod store_list;
mod store_migrate;
mod style;
mod table;
mod tasks;
mod time_format;
mod webhooks;
mod wire_names;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};

use crate::{app::StartError, config::ConfigError};
use input::InputError;

/// Exit code for wrong usage, bad configuration or unreadable input.
const EXIT_USAGE: u8 = 2;
/// Exit code after SIGHUP.
const EXIT_HUNG_UP: u8 = 129;
/// Exit code if the second signal that asked the process to end was SIGINT.
const EXIT_INTERRUPTED: u8 = 130;
/// Exit code if it was SIGTERM.
const EXIT_TERMINATED: u8 = 143;

const ABOUT: &str = "A reverse proxy for LLM provider APIs that makes sure every tool call has exactly one answer";

/// Columns of the help on a wide terminal: longer lines are hard to read.
const HELP_COLUMNS_MAX: usize = 100;

const EXIT_CODES: &str = "\
Exit codes:
  0    done, or nothing found
  1    findings, or a failure at run time
  2    wrong usage, bad configuration or unreadable input
  130  stopped at once by a second signal: Ctrl-C
  143  stopped at once by a second signal: SIGTERM
`antiphon run` and `antiphon once` exit with the exit code of their command;
`antiphon once --help` lists its own codes.";

#[derive(Debug, Parser)]
#[command(name = "antiphon", version, about = ABOUT, after_help = EXIT_CODES, max_term_width = HELP_COLUMNS_MAX)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<CliCommand>,
    #[command(flatten)]
    serve: serve::Args,
}

/// Subcommands of `antiphon`.
#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the proxy (the default without a subcommand)
    #[command(after_help = serve::AFTER_HELP)]
    Serve(serve::Args),
    /// Run a command with its LLM clients pointed at the proxy: antiphon run -- claude
    #[command(after_help = run::AFTER_HELP)]
    Run(run::Args),
    /// Run a command at most once: a second run replays the output of the first
    #[command(after_help = once::AFTER_HELP)]
    Once(once::Args),
    /// Keep the late results of any MCP server: antiphon mcp -- npx -y server
    #[command(after_help = mcp::AFTER_HELP)]
    Mcp(mcp::Args),
    /// Print the variables that point LLM clients at the proxy: eval "$(antiphon env)"
    #[command(after_help = env::AFTER_HELP)]
    Env(env::Args),
    /// Report what breaks the pairing rules in request bodies and agents' sessions, offline
    #[command(after_help = check::AFTER_HELP)]
    Check(check::Args),
    /// Repair the request bodies in a file as the proxy would, offline
    #[command(after_help = repair::AFTER_HELP)]
    Repair(repair::Args),
    /// Find and explain damaged session files of coding agents, and mend those of Claude Code and Codex
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::Args),
    /// Play reported failures with and without the proxy: no key, no network, no file
    #[command(after_help = demo::AFTER_HELP)]
    Demo(demo::Args),
    /// Write, check, print or describe the configuration
    #[command(after_help = config::AFTER_HELP)]
    Config(config::Args),
    /// List, verify or clean up the ledger's file
    #[command(after_help = store::AFTER_HELP)]
    Store(store::Args),
    /// Post results of tool calls to a running proxy, or list, show and acknowledge one's own
    #[command(after_help = result::AFTER_HELP)]
    Result(result::Args),
    /// List the side effects that a running proxy knows, and resolve unknown outcomes
    #[command(after_help = intents::AFTER_HELP)]
    Intents(intents::Args),
    /// List the messages to webhooks that no receiver has accepted yet, and have one sent again
    #[command(after_help = webhooks::AFTER_HELP)]
    Webhooks(webhooks::Args),
    /// List, test and try the rows by which refusals are read, and clear what servers have taught
    #[command(after_help = rules::AFTER_HELP)]
    Rules(rules::Args),
    /// Make and revoke links to the task page of one person
    #[command(after_help = tasks::AFTER_HELP)]
    Tasks(tasks::Args),
    /// Ask a running proxy whether it is alive: exit 0 if so, else 1
    #[command(after_help = healthcheck::AFTER_HELP)]
    Healthcheck(healthcheck::Args),
    /// Write the completion script of a shell to standard output
    #[command(after_help = completions::AFTER_HELP)]
    Completions(completions::Args),
    /// Write the manual page to standard output: antiphon man | man -l -
    Man,
    /// Print the help of a command: antiphon help config check
    Help(help::HelpArgs),
    /// Print the version
    Version(help::VersionArgs),
}

/// Returns the whole command line: subcommands, flags and their values.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one command line, program name first. Returns the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let wrong_usage = usage_code(arguments.get(1));
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version are no errors. If writing them fails, there is nowhere to report it.
            drop(answer.print());
            return if answer.use_stderr() {
                ExitCode::from(wrong_usage)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    // `antiphon` alone is `antiphon serve`, with the same flags.
    let result = match cli.command.unwrap_or(CliCommand::Serve(cli.serve)) {
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Run(args) => run::run(&args),
        CliCommand::Once(args) => Ok(once::run(&args)),
        CliCommand::Mcp(args) => mcp::run(&args),
        CliCommand::Env(args) => env::run(&args),
        CliCommand::Check(args) => check::run(&args),
        CliCommand::Repair(args) => repair::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Config(args) => config::run(&args),
        CliCommand::Store(args) => store::run(&args),
        CliCommand::Result(args) => result::run(&args),
        CliCommand::Intents(args) => intents::run(&args),
        CliCommand::Webhooks(args) => webhooks::run(&args),
        CliCommand::Rules(args) => rules::run(&args),
        CliCommand::Tasks(args) => tasks::run(&args),
        CliCommand::Healthcheck(args) => healthcheck::run(&args),
        CliCommand::Completions(args) => completions::run(&args, command()),
        CliCommand::Man => man::run(command()),
        CliCommand::Help(args) => help::run(&args, command()),
        CliCommand::Version(args) => help::print_version(&args),
    };
    result.unwrap_or_else(|error| report_error(&error))
}

/// Returns the exit code for wrong usage of a subcommand.
fn usage_code(subcommand: Option<&OsString>) -> u8 {
    // The codes of `once` stand beside those of the command that it runs.
    if subcommand.is_some_and(|name| name == "once") {
        once::EXIT_USAGE
    } else {
        EXIT_USAGE
    }
}

/// Returns the exit code of a command that ended: 0 if all is good, else 1.
fn success_if(is_good: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_good))
}

/// Joins an error and its causes. Leaves out a cause that the text before it already contains.
fn describe_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns the kind of an error of standard output. `None` if it is another error.
///
/// Commands turn errors of other files and of connections into types or texts of their own before they return them.
fn output_error_kind(error: &anyhow::Error) -> Option<io::ErrorKind> {
    if let Some(api_client::ClientError::Output(error)) = error.downcast_ref() {
        return Some(error.kind());
    }
    match error.downcast_ref::<serde_json::Error>() {
        Some(error) => error.io_error_kind(),
        None => error.downcast_ref::<io::Error>().map(io::Error::kind),
    }
}

/// Reports an error on stderr. Returns its exit code.
fn report_error(error: &anyhow::Error) -> ExitCode {
    if output_error_kind(error) == Some(io::ErrorKind::BrokenPipe) {
        // The reader of a pipe, such as `head`, has read enough. Commands with a verdict use `ReportOutput`.
        return ExitCode::SUCCESS;
    }
    let mut err = io::stderr().lock();
    drop(writeln!(err, "antiphon: {}", describe_causes(error)));
    let start = error.downcast_ref::<StartError>();
    let unbound = match start {
        Some(StartError::Bind(cause)) => Some(cause),
        _ => None,
    };
    if let Some(cause) = unbound {
        drop(writeln!(err, "{}", cause.remedy()));
    }
    // Errors that the operator fixes by other arguments, other files or another configuration.
    let unusable = matches!(
        start,
        Some(StartError::Ledger(_) | StartError::Database(_) | StartError::Inherit(_))
    ) || error.is::<store_error::StoreError>();
    let no_answer = error.is::<api_client::ClientError>();
    let unmet = error.is::<config_init::InitError>() || error.is::<help::UnknownCommand>();
    if unbound.is_some() || unusable || no_answer || unmet || error.is::<ConfigError>() || error.is::<InputError>() {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::FAILURE
    }
}
