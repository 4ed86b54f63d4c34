//! `antiphon intents ls | resolve`: the side effects that a running proxy knows, and the end of unknown outcomes.

mod arguments;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use bytes::Bytes;
use clap::ValueEnum as _;
use serde_json::Value;

pub(super) use arguments::{AFTER_HELP, Args};

use super::{
    admin_list::{AdminList, report_refusal},
    api_client::{ApiReply, ClientError},
};
use crate::wire::json::quote_string;
use arguments::{IntentsAction, ListArgs, ResolveArgs};

/// Columns of the table, with the members of the API that they show.
const COLUMNS: [(&str, &[&str]); 8] = [
    ("INTENT", &["intent"]),
    ("STATE", &["state"]),
    ("TOOL", &["tool"]),
    ("TIER", &["tier"]),
    ("SCOPE", &["scope"]),
    // A caller without a client token has only its short id.
    ("CALLER", &["caller_name", "caller"]),
    ("SERVICE", &["service"]),
    ("SINCE", &["since"]),
];

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let action = async {
        match &args.action {
            IntentsAction::Ls(args) => list_intents(args).await,
            IntentsAction::Resolve(args) => resolve_intent(args).await,
        }
    };
    // Boxed, since the future contains those of the HTTP client.
    Ok(runtime.block_on(Box::pin(action))?)
}

/// Lists one page of intents.
async fn list_intents(args: &ListArgs) -> Result<ExitCode, ClientError> {
    let state = args.state.as_ref();
    let list = AdminList {
        path: "/admin/v1/intents",
        query: state.map_or_else(String::new, |state| format!("&state={state}")),
        member: "intents",
        columns: &COLUMNS,
        empty: "no such intent on this page",
    };
    list.print_page(&args.flags).await
}

/// Resolves an unknown outcome.
async fn resolve_intent(args: &ResolveArgs) -> Result<ExitCode, ClientError> {
    let client = args.access.client()?;
    let outcome = args.outcome.to_possible_value();
    let outcome = quote_string(outcome.as_ref().map_or("", |outcome| outcome.get_name()));
    let path = format!("/admin/v1/intents/{}/resolve", args.intent);
    let answer = match client.post(&path, format!("{{\"outcome\":{outcome}}}")).await? {
        ApiReply::Done(answer) => answer,
        ApiReply::Refused(refusal) => return Ok(report_refusal(&refusal, &args.intent.to_string())),
    };
    let line = match state_of(&answer).as_deref() {
        Some("settled") => "settled: the tool is not run again until the window ends",
        Some("cancelled") => "cancelled: the tool may be run again",
        _ => return Err(client.foreign_answer()),
    };
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

fn state_of(answer: &Bytes) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    answer["state"].as_str().map(str::to_owned)
}
