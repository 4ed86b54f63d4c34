//! Arguments of `antiphon webhooks`.

use clap::Subcommand;

use crate::cli::admin_list::{AdminAccess, ListFlags};

/// Text below the flags in the help.
pub(in crate::cli) const AFTER_HELP: &str = "\
For example, after the receiver of a webhook was repaired:
  antiphon webhooks ls
  antiphon webhooks resend msg_0123456789abcdef0123456789abcdef_1795767130

The commands ask the admin listener. If server.admin_token is set, they send the
token in ANTIPHON_ADMIN_TOKEN or --token-file.

Exit codes:
  0  done
  1  refused by Antiphon
  2  wrong usage, unusable input, or Antiphon cannot be reached";

/// Arguments of `antiphon webhooks`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(subcommand)]
    pub(super) action: WebhooksAction,
}

/// Subcommands of `antiphon webhooks`.
#[derive(Debug, Subcommand)]
pub(super) enum WebhooksAction {
    /// List the messages that no receiver has accepted yet, without their contents
    #[command(alias = "list", after_help = AFTER_HELP)]
    Ls(ListFlags),
    /// Have a message sent at once, also one that was given up
    #[command(after_help = AFTER_HELP)]
    Resend(ResendArgs),
}

/// Arguments of `antiphon webhooks resend`.
#[derive(Debug, clap::Args)]
pub(super) struct ResendArgs {
    /// Id of the message, as `ls` shows it
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub(super) message: String,
    #[command(flatten)]
    pub(super) access: AdminAccess,
}

/// Checks that an id has no characters that could change the path of a request.
fn parse_id(text: &str) -> Result<String, String> {
    let is_id = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_id
        .then(|| text.to_owned())
        .ok_or_else(|| "expected an id that `ls` printed: msg_ with digits and letters".to_owned())
}
