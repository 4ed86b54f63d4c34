//! Arguments of `antiphon result`.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use http::{HeaderName, HeaderValue};

use crate::{
    auth::Owner,
    cli::{
        api_client::ProxyFlags,
        output::{OutputFlag, OutputFormat},
    },
};

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
For example, as a tool service:
  render film.blend | antiphon result post toolu_01A09q90qw --owner $OWNER
And as the caller whose calls they are:
  antiphon result ls
  antiphon result show toolu_01A09q90qw

Credentials are no arguments, since other users of the machine can read those.
`post`, `withdraw` and `heartbeat` send the token of a service, from
ANTIPHON_SERVICE_TOKEN or --token-file. On the machine of the proxy they need
none: the user that runs it may post results of every caller. `ls`, `show` and `ack` send the key, or the client token,
that the caller sends with its requests to providers, from ANTIPHON_API_KEY or
--key-file.
HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY apply, except for loopback
addresses.

Exit codes:
  0  done
  1  refused by Antiphon, or no result found (show)
  2  wrong usage, unusable input, or Antiphon cannot be reached";

/// Text below the flags in the help of a subcommand.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused by Antiphon, or no result found (show)
  2  wrong usage, unusable input, or Antiphon cannot be reached";

/// Arguments of `antiphon result`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    pub(super) action: ResultAction,
}

/// Subcommands of `antiphon result`.
#[derive(Debug, Subcommand)]
pub(super) enum ResultAction {
    /// Post the result of a call, as its tool service; the content is read from standard input unless a flag gives it
    #[command(after_help = EXIT_CODES)]
    Post(PostArgs),
    /// List results that wait for the caller, or calls that still run, oldest first and without content
    #[command(alias = "list", after_help = EXIT_CODES)]
    Ls(ListArgs),
    /// Write the content of posted results to standard output, and a line about each to standard error
    #[command(after_help = EXIT_CODES)]
    Show(ShowArgs),
    /// Acknowledge results: they are not listed any more
    #[command(after_help = EXIT_CODES)]
    Ack(AckArgs),
    /// Withdraw a posted result that no request contains yet, as its tool service: the call waits again
    #[command(after_help = EXIT_CODES)]
    Withdraw(ServiceCallArgs),
    /// Report that the tool of a call still runs, as its tool service: the call waits longer
    #[command(after_help = EXIT_CODES)]
    Heartbeat(ServiceCallArgs),
}

/// Arguments of `antiphon result post`.
#[derive(Debug, clap::Args)]
pub(super) struct PostArgs {
    #[command(flatten)]
    pub(super) call: NamedCallArgs,
    #[command(flatten)]
    pub(super) content: ContentArgs,
    /// Report that the tool failed
    #[arg(long)]
    pub(super) error: bool,
    /// Digest of the stored result that this one corrects: `post` printed it
    #[arg(long, value_name = "DIGEST", value_parser = parse_digest)]
    pub(super) replaces: Option<String>,
    /// Restore the result in the place of its call if it is missing there, and never append it to a message
    #[arg(long)]
    pub(super) only_if_missing: bool,
    #[command(flatten)]
    pub(super) output: OutputFlag,
    #[command(flatten)]
    pub(super) service: ServiceAccess,
}

/// The content of a posted result.
#[derive(Debug, clap::Args)]
pub(super) struct ContentArgs {
    /// Content of the result, as text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) text: Option<String>,
    /// File with the content, sent byte for byte as text; `-` is standard input, which is the default
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub(super) file: Option<PathBuf>,
    /// Send the file or standard input as JSON instead of as text
    #[arg(long, conflicts_with = "text")]
    pub(super) as_json: bool,
}

/// Arguments of `antiphon result ls`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Calls to list
    #[arg(long, value_name = "STATE", default_value = "settled")]
    pub(super) state: WantedState,
    /// Only calls of this session
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Rows of a page, 1000 at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) limit: u16,
    /// Cursor after which to begin: `ls` prints it if there are more rows
    #[arg(long, value_name = "CURSOR")]
    pub(super) after: Option<u64>,
    /// Read every page
    #[arg(long)]
    pub(super) all: bool,
    /// Print each row of the API as JSON on a line of its own
    #[arg(long, hide = true, conflicts_with = "output")]
    pub(super) json: bool,
    /// Format of the output; json is one document with all rows
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(super) output: OutputFormat,
    #[command(flatten)]
    pub(super) caller: CallerAccess,
}

/// The calls that `antiphon result ls` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WantedState {
    /// Calls whose posted result waits for the caller
    Settled,
    /// Calls that still run
    Open,
}

/// Arguments of `antiphon result show`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Ids of the calls; reusable ids such as call_0 cannot be looked up
    #[arg(value_name = "CALL_ID", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(super) call_ids: Vec<String>,
    /// Print each result of the API as JSON on a line of its own, with its content
    #[arg(long, hide = true, conflicts_with = "output")]
    pub(super) json: bool,
    /// Format of the output; json is one document with all results and their contents
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(super) output: OutputFormat,
    #[command(flatten)]
    pub(super) caller: CallerAccess,
}

/// Arguments of `antiphon result ack`.
#[derive(Debug, clap::Args)]
pub(super) struct AckArgs {
    /// Delivery ids of the results, as `list` shows them
    #[arg(value_name = "DELIVERY", required = true, value_parser = parse_digest)]
    pub(super) deliveries: Vec<String>,
    #[command(flatten)]
    pub(super) caller: CallerAccess,
}

/// Arguments of `antiphon result withdraw` and `antiphon result heartbeat`.
#[derive(Debug, clap::Args)]
pub(super) struct ServiceCallArgs {
    #[command(flatten)]
    pub(super) call: NamedCallArgs,
    #[command(flatten)]
    pub(super) service: ServiceAccess,
}

/// The call that a service means.
#[derive(Debug, clap::Args)]
pub(super) struct NamedCallArgs {
    /// Id of the call
    #[arg(value_name = "CALL_ID", value_parser = NonEmptyStringValueParser::new())]
    pub(super) call_id: String,
    /// Owner of the call: the header x-antiphon-owner of the answer that contained it
    #[arg(long, value_name = "OWNER")]
    pub(super) owner: Option<Owner>,
    /// Session of the call, for a reusable id such as call_0
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Tool of the call, for a reusable id
    #[arg(long, value_name = "TOOL", requires = "input")]
    pub(super) tool: Option<String>,
    /// Input of the call, with --tool
    #[arg(long, value_name = "JSON", requires = "tool", value_parser = parse_json)]
    pub(super) input: Option<String>,
}

/// Flags of requests of a tool service.
#[derive(Debug, clap::Args)]
pub(super) struct ServiceAccess {
    #[command(flatten)]
    pub(super) proxy: ProxyFlags,
    /// File that contains only the token of the service [default: the variable ANTIPHON_SERVICE_TOKEN, else the token of this machine's proxy]
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
}

/// Flags of requests of a caller.
#[derive(Debug, clap::Args)]
pub(super) struct CallerAccess {
    #[command(flatten)]
    pub(super) proxy: ProxyFlags,
    /// File that contains only the caller's API key or client token [default: the variable ANTIPHON_API_KEY]
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Header in which the key is sent. Antiphon finds the same caller in each of them; a gateway in front may not
    #[arg(long, value_name = "HEADER", default_value = "x-api-key")]
    pub(super) key_header: KeyHeader,
    /// User within the caller: the header of principals.user_header, or x-antiphon-user, and the name of the user
    #[arg(long, value_name = "HEADER=USER", value_parser = parse_user)]
    pub(super) user: Option<UserField>,
}

/// The header in which a caller's key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum KeyHeader {
    /// Anthropic's header
    XApiKey,
    /// A bearer token, as OpenAI's clients send it
    Authorization,
    /// Gemini's header
    XGoogApiKey,
    /// Azure's header
    ApiKey,
    /// The header of client tokens
    XAntiphonClientToken,
}

/// The header that names the user of a caller.
#[derive(Clone, Debug)]
pub(super) struct UserField {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
}

/// Parses a digest or a delivery id.
fn parse_digest(text: &str) -> Result<String, String> {
    let hash = blake3::Hash::from_hex(text).map_err(|_| "expected 64 hexadecimal digits".to_owned())?;
    Ok(hash.to_hex().to_string())
}

/// Checks that a text is JSON. Returns it unchanged, because its numbers must keep their form.
fn parse_json(text: &str) -> Result<String, String> {
    let checked = crate::wire::json::validate(text.as_bytes());
    checked
        .map(|()| text.to_owned())
        .map_err(|_| "expected JSON, such as '{\"path\": \"a.txt\"}'".to_owned())
}

/// Parses the header and the name of a user.
fn parse_user(text: &str) -> Result<UserField, String> {
    let wrong = || "expected HEADER=USER, such as x-user=ann".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok(UserField {
        name: name.parse().map_err(|_| wrong())?,
        // As bytes: names of users may have any letters.
        value: HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?,
    })
}
