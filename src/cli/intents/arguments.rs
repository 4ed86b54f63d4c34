//! Arguments of `antiphon intents`.

use clap::{Subcommand, ValueEnum, builder::PossibleValuesParser};

use crate::{
    cli::admin_list::{AdminAccess, ListFlags},
    late::{IntentId, IntentState},
};

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
For example, after a tool whose effect cannot be undone has disappeared:
  antiphon intents ls --state unknown
  antiphon intents resolve int_0123456789abcdef0123456789abcdef done

The commands ask the admin listener. If server.admin_token is set, they send the
token in ANTIPHON_ADMIN_TOKEN or --token-file.

Exit codes:
  0  done
  1  refused by Antiphon
  2  wrong usage, unusable input, or Antiphon cannot be reached";

/// Arguments of `antiphon intents`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    pub(super) action: IntentsAction,
}

/// Subcommands of `antiphon intents`.
#[derive(Debug, Subcommand)]
pub(super) enum IntentsAction {
    /// List the side effects that run, have happened, or may have happened, without their inputs and results
    #[command(alias = "list", after_help = AFTER_HELP)]
    Ls(ListArgs),
    /// Resolve an unknown outcome, once you have found out if the effect happened
    #[command(after_help = AFTER_HELP)]
    Resolve(ResolveArgs),
}

/// Arguments of `antiphon intents ls`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Only intents in this state [default: all]
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(IntentState::ALL.map(IntentState::label)))]
    pub(super) state: Option<String>,
    #[command(flatten)]
    pub(super) flags: ListFlags,
}

/// Arguments of `antiphon intents resolve`.
#[derive(Debug, clap::Args)]
pub(super) struct ResolveArgs {
    /// Id of the intent, as `ls` shows it
    #[arg(value_name = "ID")]
    pub(super) intent: IntentId,
    /// Your finding: after `done` the tool is not run again within the window, after `not-run` it may be
    #[arg(value_name = "OUTCOME")]
    pub(super) outcome: Outcome,
    #[command(flatten)]
    pub(super) access: AdminAccess,
}

/// The end of an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Outcome {
    /// The tool ran: the effect has happened
    Done,
    /// The tool did not run
    NotRun,
}
