//! `antiphon webhooks ls | resend`: the messages of a running proxy that no receiver has accepted yet.

mod arguments;

use std::{
    io::{self, Write},
    process::ExitCode,
};

pub(super) use arguments::{AFTER_HELP, Args};

use super::{
    admin_list::{AdminList, ListFlags, report_refusal},
    api_client::{ApiReply, ClientError},
};
use arguments::{ResendArgs, WebhooksAction};

/// Columns of the table, with the members of the API that they show.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("MESSAGE", &["message"]),
    ("EVENT", &["event"]),
    ("WEBHOOK", &["webhook"]),
    ("STATE", &["state"]),
    ("TRIES", &["tries"]),
    ("SINCE", &["since"]),
    ("NEXT", &["next_try"]),
];

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let action = async {
        match &args.action {
            WebhooksAction::Ls(flags) => list_messages(flags).await,
            WebhooksAction::Resend(args) => resend_message(args).await,
        }
    };
    // Boxed, since the future contains those of the HTTP client.
    Ok(runtime.block_on(Box::pin(action))?)
}

/// Lists one page of messages.
async fn list_messages(flags: &ListFlags) -> Result<ExitCode, ClientError> {
    let list = AdminList {
        path: "/admin/v1/webhooks",
        query: String::new(),
        member: "messages",
        columns: &COLUMNS,
        empty: "no message waits",
    };
    list.print_page(flags).await
}

/// Has a message sent at once.
async fn resend_message(args: &ResendArgs) -> Result<ExitCode, ClientError> {
    let client = args.access.client()?;
    let path = format!("/admin/v1/webhooks/{}/resend", args.message);
    match client.post(&path, "{}".to_owned()).await? {
        ApiReply::Done(_) => {
            writeln!(
                io::stdout().lock(),
                "the message is due now: `antiphon webhooks ls` lists it until its receiver has it"
            )?;
            Ok(ExitCode::SUCCESS)
        }
        ApiReply::Refused(refusal) => Ok(report_refusal(&refusal, &args.message)),
    }
}
