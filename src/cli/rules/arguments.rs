//! Arguments of `antiphon rules`.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::path::PathBuf;

use clap::Subcommand;

use crate::{
    cli::{admin_list::AdminAccess, output::OutputFlag, wire_names::WireNames},
    wire::Wire,
};

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
A row says in which words a server refuses a history, and what meets that. Own
rows stand in the file of repair.rules_file, or in [[repair.rules]]. They come
before the built-in ones. docs/rules.md shows how to write one:
  antiphon rules try --rules rules.toml --text 'The refusal' body.json
  antiphon rules test rules.toml
  antiphon config check

Exit codes:
  0  done; test: no row has a fault; try: a row reads the text, and something
     would change
  1  test: a row has a fault; try: no row reads the text, or nothing would
     change; clear: refused by Antiphon
  2  wrong usage, an input that cannot be read, or Antiphon cannot be reached";

/// Arguments of `antiphon rules`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    pub(super) action: RulesAction,
}

/// Subcommands of `antiphon rules`.
#[derive(Debug, Subcommand)]
pub(super) enum RulesAction {
    /// List own and built-in rows
    #[command(after_help = AFTER_HELP)]
    Ls(ListArgs),
    /// Check rows, with their examples and repairs
    #[command(after_help = AFTER_HELP)]
    Test(TestArgs),
    /// Show which row reads the text of a refusal, and what would change in a body
    #[command(after_help = AFTER_HELP)]
    Try(TryArgs),
    /// Have a running proxy forget what servers have taught it
    #[command(after_help = AFTER_HELP)]
    Clear(ClearArgs),
}

/// Arguments of `antiphon rules ls`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Configuration file with own rows [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Arguments of `antiphon rules test`.
#[derive(Debug, clap::Args)]
pub(super) struct TestArgs {
    /// File with rows [default: the rows of the configuration]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(super) file: Option<PathBuf>,
    /// Configuration file with own rows [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// Arguments of `antiphon rules try`.
#[derive(Debug, clap::Args)]
pub(super) struct TryArgs {
    /// Text of the refusal: the message, or the whole body of the error; `@FILE` reads it from a file
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    pub(super) text: String,
    /// Status of the refusal [default: any]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(400..=599))]
    pub(super) status: Option<u16>,
    /// Request bodies that were refused; `-` is standard input
    #[arg(value_name = "BODY", default_value = "-")]
    pub(super) body: PathBuf,
    /// Wire format of the bodies; detected if not given
    #[arg(long, value_name = "NAME", value_parser = WireNames)]
    pub(super) wire: Option<Wire>,
    /// File with the own rows to try [default: those of the configuration]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(super) rules: Option<PathBuf>,
    /// Configuration file with own rows [env: ANTIPHON_CONFIG] [default: none needed]
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

/// Arguments of `antiphon rules clear`.
#[derive(Debug, clap::Args)]
pub(super) struct ClearArgs {
    #[command(flatten)]
    pub(super) access: AdminAccess,
}

/// Reads the text of a refusal, from a file if it begins with `@`.
fn parse_text(text: &str) -> Result<String, String> {
    let Some(path) = text.strip_prefix('@') else {
        return Ok(text.to_owned());
    };
    let read = crate::server::regular_file::read_regular(path.as_ref());
    read.map_err(|error| format!("cannot read {path}: {error}"))
}
