//! Arguments of `antiphon mcp`.
#![cfg_attr(not(unix), allow(dead_code, reason = "the wrapper runs on Unix only"))]

use std::{ffi::OsString, time::Duration};

use super::answer_after::AnswerAfter;
use crate::{
    cli::mcp_wrap::{self, ChangeArgs},
    repair::Tier,
};

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
Write it in front of a server's command in the configuration of a client:
  claude mcp add NAME -- antiphon mcp -- npx -y server
  \"command\": \"antiphon\", \"args\": [\"mcp\", \"--\", \"npx\", \"-y\", \"server\"]

Lines pass as they came. A call that its client gives up goes on: the server does
not get the cancel, and the same call joins it and does not start the tool again.
If nobody waits when it ends, its result is posted to the running proxy, which adds
it to its conversation. Without the name of the call, or with a conversation that
the proxy does not know, it is kept for 1 hour, and the same call gets it.

A tool named with --once runs once for the same input, also over sessions: the
same call gets the stored result. It does not run without the proxy, which keeps
its ledger on the disk. See `antiphon once --help` for the windows.

A server with streamable HTTP has a URL in place of a command, and any headers:
  antiphon mcp --url https://mcp.example/mcp --header 'Authorization=Bearer ${TOKEN}'
There is no OAuth: for a server that wants a login, put mcp-remote behind `--`.

ANTIPHON_URL and ANTIPHON_SERVICE_TOKEN name another proxy than that of this
machine. The server does not get the tokens of Antiphon.

A server named `ps`, `stop`, `wrap` or `unwrap` stands behind `--` like any other.

Exit codes: that of the server, 0 at the end of one with a URL; 126 if it cannot be
run, 127 if there is no such command, 2 for wrong usage. If a run outlives the
client: 0, or 1 if the server has failed.";

/// Longest time of a flag.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Arguments of `antiphon mcp`.
#[derive(Debug, clap::Args)]
#[group(id = "mcp")]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    pub(super) command: Option<McpCommand>,
    #[command(flatten)]
    pub(super) wrapper: WrapperArgs,
}

/// Subcommands of `antiphon mcp`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum McpCommand {
    /// Put antiphon mcp before the servers in a client's file: antiphon mcp wrap .mcp.json
    #[command(after_help = mcp_wrap::AFTER_HELP)]
    Wrap(ChangeArgs),
    /// Take antiphon mcp away again, byte for byte
    #[command(after_help = mcp_wrap::AFTER_HELP)]
    Unwrap(ChangeArgs),
    /// List the runs that go on without their clients
    Ps,
    /// End the processes of such runs: of all, or of the one with this id
    Stop {
        /// Id of a run, as `ps` lists it
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// Own a server for the process with this id
    #[command(hide = true)]
    Keep {
        /// Id of the process that the client has started
        #[arg(long, value_name = "PID")]
        front: u32,
        #[command(flatten)]
        wrapper: WrapperArgs,
    },
}

/// The server and how its calls are treated.
#[derive(Debug, clap::Args)]
pub(super) struct WrapperArgs {
    /// Time after which a call that still runs gets an answer that says so: `auto`, `never` or a duration [default:
    /// auto, shortly before the client's timeout where that is known]
    #[arg(long, value_name = "DURATION", value_parser = parse_answer_after)]
    pub(super) answer_after: Option<AnswerAfter>,
    /// Time after which the client gives a call up, as its configuration says
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    pub(super) client_timeout: Option<Duration>,
    /// Tier of a tool. Of `revertible` ones every cancel reaches the server; the others count with `--once` alone
    #[arg(long, value_name = "TOOL=read|revertible|durable|one_way", value_parser = parse_tier)]
    pub(super) tier: Vec<GivenTier>,
    /// Tool that runs once for the same input, over sessions and processes. `*` stands for all
    #[arg(long, value_name = "TOOL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) once: Vec<String>,
    /// Time that a run goes on without a client
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_time)]
    pub(super) linger: Duration,
    /// URL of a server with streamable HTTP, in place of a command
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    pub(super) url: Option<String>,
    /// Header of every request to that URL. `${NAME}` in the value is the variable, and `@FILE` is the text of the file,
    /// which is read again for each request. A value that stands here as it is can be seen in the list of processes
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) header: Vec<String>,
    /// Command of the server, with its arguments
    #[arg(value_name = "SERVER", last = true)]
    pub(super) server: Vec<OsString>,
}

/// The value of `--tier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenTier {
    pub(super) tool: String,
    pub(super) tier: Tier,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|_| "expected a duration such as 90s, 5m or 1h".to_owned())?;
    if time.is_zero() || time > LONGEST {
        return Err("expected a duration from 1 ms to 7 days".to_owned());
    }
    Ok(time)
}

fn parse_answer_after(text: &str) -> Result<AnswerAfter, String> {
    match text {
        "auto" => Ok(AnswerAfter::Auto),
        "never" => Ok(AnswerAfter::Never),
        _ => parse_time(text)
            .map(AnswerAfter::After)
            .map_err(|error| format!("{error}, or auto, or never")),
    }
}

fn parse_tier(text: &str) -> Result<GivenTier, String> {
    let (tool, tier) = text.rsplit_once('=').unwrap_or_default();
    let known = Tier::ALL.into_iter().find(|known| known.label() == tier);
    let known = known.filter(|_| !tool.is_empty());
    let tool = tool.to_owned();
    known
        .map(|tier| GivenTier { tool, tier })
        .ok_or_else(|| "expected TOOL=TIER with the tier read, revertible, durable or one_way".to_owned())
}
