//! `antiphon tasks link | revoke`: links to the task page of a running proxy.

mod arguments;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use serde_json::{Value, json};

pub(super) use arguments::{AFTER_HELP, Args};

use super::{
    admin_list::report_refusal,
    api_client::{ApiReply, ClientError},
    output::write_note,
};
use arguments::{LinkArgs, RevokeArgs, TasksAction};

const LINKS: &str = "/admin/v1/tasks/links";

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let action = async {
        match &args.action {
            TasksAction::Link(args) => make_link(args).await,
            TasksAction::Revoke(args) => revoke_link(args).await,
        }
    };
    // Boxed, since the future contains those of the HTTP client.
    Ok(runtime.block_on(Box::pin(action))?)
}

/// Makes a link, and prints its address.
async fn make_link(args: &LinkArgs) -> Result<ExitCode, ClientError> {
    let client = args.access.client()?;
    let wanted = json!({ "client": args.client, "user": args.user, "ttl": format!("{}m", args.minutes) });
    let answer = match client.post(LINKS, wanted.to_string()).await? {
        ApiReply::Done(answer) => answer,
        ApiReply::Refused(refusal) => return Ok(report_refusal(&refusal, "link")),
    };
    let made: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let (Some(url), Some(link)) = (made["url"].as_str(), made["link"].as_str()) else {
        return Err(client.foreign_answer());
    };
    writeln!(io::stdout().lock(), "{url}")?;
    write_note(&format!(
        "whoever has this address can see the tasks, acknowledge results and report unknown outcomes for {} minutes; revoke it: \
         antiphon tasks revoke {link}",
        args.minutes
    ));
    Ok(ExitCode::SUCCESS)
}

/// Revokes a link.
async fn revoke_link(args: &RevokeArgs) -> Result<ExitCode, ClientError> {
    let client = args.access.client()?;
    match client.delete(&format!("{LINKS}/{}", args.link)).await? {
        ApiReply::Done(_) => {
            writeln!(io::stdout().lock(), "revoked: the link opens nothing any more")?;
            Ok(ExitCode::SUCCESS)
        }
        ApiReply::Refused(refusal) => Ok(report_refusal(&refusal, "revoke")),
    }
}
