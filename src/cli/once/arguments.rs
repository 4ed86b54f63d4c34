//! Arguments of `antiphon once`.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{ffi::OsString, path::PathBuf};

use clap::ValueEnum;

use crate::cli::api_client::ProxyFlags;

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
For example, in a script or as the tool of an agent:
  antiphon once --tool deploy -- ./deploy.sh production
  antiphon once --tool mail --window 24h --key invoice-47 -- ./invoice.sh 47

The first run claims the effect with the running proxy, runs the command, and
stores its exit code and output. Until the window ends, the same command with
the same tool, arguments and working directory does not run: its output and exit
code are replayed, and standard error says so. Two runs at the same time are one
run: the second exits with 75. A failed command may run again; where
[tools.NAME] has tier = \"one_way\", only with --retry-failed.

The proxy must keep its ledger on disk. On this machine no token is needed:
`antiphon serve` writes one that only its user can read. Elsewhere put a client
token with personal = true into ANTIPHON_TOKEN. Outputs are encrypted with a key
from the token, arguments are stored as keyed hashes only, and a new token knows
nothing of earlier runs. The command finds a key for the systems behind it in
ANTIPHON_IDEMPOTENCY_KEY.

Exit codes:
  0-125  that of the command, also if it is replayed
  126    the command cannot be run
  127    there is no such command
  128+N  signal N ended the command
  64     also: wrong usage, an unusable token, or --key was used for other
         arguments or with another token
  69     also: the proxy cannot be reached, has no durable ledger or no room, or
         gets too many requests; the command did not run
  73     also: the command ran before, but its output cannot be replayed
  75     also: the command is running elsewhere
  76     also: the command may have run: see `antiphon intents resolve`";

/// Arguments of `antiphon once`.
#[derive(Debug, clap::Args)]
#[group(id = "once")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    pub(super) proxy: ProxyFlags,
    /// Name of the tool, as in [tools.NAME] of the configuration
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) tool: String,
    /// Time after the end of a run in which it is replayed [default: the configured one, or that of the tool's tier:
    /// 1h if no tier is configured]
    #[arg(long, value_name = "DURATION")]
    pub(super) window: Option<String>,
    /// Name of the effect, in place of the arguments and the working directory
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) key: Option<String>,
    /// Ignore the working directory
    #[arg(long)]
    pub(super) no_cwd: bool,
    /// Parts of a run that are stored for a replay
    #[arg(long, value_name = "PARTS", default_value = "output")]
    pub(super) store: StoredParts,
    /// Reaction to a proxy that cannot be reached, or has no durable ledger
    #[arg(long, value_name = "REACTION", default_value = "fail")]
    pub(super) if_unavailable: IfUnavailable,
    /// Run a command again that failed, although its effect cannot be undone
    #[arg(long)]
    pub(super) retry_failed: bool,
    /// Run the command although it ran before. It still never runs twice at the same time
    #[arg(long)]
    pub(super) again: bool,
    /// File that contains only the token [default: the variable ANTIPHON_TOKEN, else the token of this machine's proxy]
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Command to run, with its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(super) command: Vec<OsString>,
}

/// The parts of a run that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StoredParts {
    /// Only the fact that the command ran
    None,
    /// The exit code
    Exit,
    /// The exit code, and up to 64 KiB of each output
    Output,
}

/// The reaction to a proxy that cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum IfUnavailable {
    /// Exit with 69, without running the command
    Fail,
    /// Run the command without protection
    Run,
}
