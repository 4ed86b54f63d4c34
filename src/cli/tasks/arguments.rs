//! Arguments of `antiphon tasks`.

use clap::Subcommand;

use crate::cli::admin_list::AdminAccess;

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
For example, for the person behind a client token:
  antiphon tasks link --client ann
  antiphon tasks revoke ID_OF_A_LINK

The page needs ledger.task_page = true. A link opens it for one person, for an
hour at most.

The commands ask the admin listener. If server.admin_token is set, they send the
token in ANTIPHON_ADMIN_TOKEN or --token-file.

Exit codes:
  0  done
  1  refused by Antiphon
  2  wrong usage, unusable input, or Antiphon cannot be reached";

/// Arguments of `antiphon tasks`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    pub(super) action: TasksAction,
}

/// Subcommands of `antiphon tasks`.
#[derive(Debug, Subcommand)]
pub(super) enum TasksAction {
    /// Print a link to the task page of one person: its holder may also report unknown outcomes
    #[command(after_help = AFTER_HELP)]
    Link(LinkArgs),
    /// Revoke a link
    #[command(after_help = AFTER_HELP)]
    Revoke(RevokeArgs),
}

/// Arguments of `antiphon tasks link`.
#[derive(Debug, clap::Args)]
pub(super) struct LinkArgs {
    /// Name of the person's client token [default: the only caller of principals.mode = "single"]
    #[arg(long, value_name = "NAME")]
    pub(super) client: Option<String>,
    /// User within the client, as its requests name it
    #[arg(long, value_name = "USER")]
    pub(super) user: Option<String>,
    /// Lifetime of the link, 60 at most
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(super) minutes: u64,
    #[command(flatten)]
    pub(super) access: AdminAccess,
}

/// Arguments of `antiphon tasks revoke`.
#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// Id of the link, as `link` printed it
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub(super) link: String,
    #[command(flatten)]
    pub(super) access: AdminAccess,
}

/// Checks that an id has no characters that could change the path of a request.
fn parse_id(text: &str) -> Result<String, String> {
    let is_id = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id
        .then(|| text.to_owned())
        .ok_or_else(|| "expected an id that `antiphon tasks link` printed: 64 hexadecimal digits".to_owned())
}
