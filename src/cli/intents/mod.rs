//! `antiphon intents ls | resolve`: the side effects that a running proxy knows, and the end of unknown outcomes.

mod arguments;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use bytes::Bytes;
use clap::ValueEnum as _;
use http::{HeaderMap, header::AUTHORIZATION};
use serde_json::{Value, json};

pub(super) use arguments::{AFTER_HELP, Args};

use super::{
    api_client::{ApiClient, ApiReply, ApiUrl, ClientError, RefusedReply, SecretPlace},
    output::{OutputFormat, write_document},
    table::write_table,
};
use crate::{printable::printable_text, wire::json::quote_string};
use arguments::{AdminAccess, IntentsAction, ListArgs, ResolveArgs};

const ADMIN_TOKEN: SecretPlace = SecretPlace {
    noun: "the admin token",
    variable: "ANTIPHON_ADMIN_TOKEN",
    flag: "--token-file",
};
/// Columns of the table, with the members of the API that they show.
const COLUMNS: [(&str, &str); 8] = [
    ("INTENT", "intent"),
    ("STATE", "state"),
    ("TOOL", "tool"),
    ("TIER", "tier"),
    ("SCOPE", "scope"),
    ("CALLER", "caller_name"),
    ("SERVICE", "service"),
    ("SINCE", "since"),
];
/// Text of a cell without a value.
const NO_VALUE: &str = "-";

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
    let client = admin_client(&args.access)?;
    let mut path = format!("/admin/v1/intents?limit={}", args.limit);
    if let Some(state) = &args.state {
        path = format!("{path}&state={state}");
    }
    if let Some(after) = &args.after {
        // Cursors have no other characters, so that a wrong one cannot add to the query.
        if !after.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err(ClientError::Unusable(
                "--after: expected a cursor that `ls` printed".to_owned(),
            ));
        }
        path = format!("{path}&after={after}");
    }
    let answer = match client.get(&path).await? {
        ApiReply::Done(answer) => answer,
        ApiReply::Refused(refusal) => return Ok(report_refusal(&refusal, "list")),
    };
    let page = serde_json::from_slice::<Value>(&answer).unwrap_or_default();
    let rows = page["intents"].as_array().ok_or_else(|| client.foreign_answer())?;
    let mut out = io::stdout().lock();
    if args.output == OutputFormat::Json {
        let document = json!({ "intents": rows, "next": page["next"] });
        write_document(&mut out, document).map_err(io::Error::other)?;
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        note("no such intent on this page");
    } else {
        let heads = COLUMNS.map(|(head, _)| head.to_owned()).to_vec();
        let lines: Vec<Vec<String>> = std::iter::once(heads).chain(rows.iter().map(row_cells)).collect();
        write_table(&mut out, &lines)?;
    }
    if let Some(next) = page["next"].as_str() {
        note(&format!(
            "there are more: continue with --after {}",
            printable_text(next)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn row_cells(row: &Value) -> Vec<String> {
    let cell = |(_, member): (&str, &str)| match row[member].as_str() {
        Some(text) => printable_text(text),
        // A caller without a client token has only its short id.
        None if member == "caller_name" => row["caller"]
            .as_str()
            .map_or_else(|| NO_VALUE.to_owned(), printable_text),
        None => NO_VALUE.to_owned(),
    };
    COLUMNS.map(cell).to_vec()
}

/// Resolves an unknown outcome.
async fn resolve_intent(args: &ResolveArgs) -> Result<ExitCode, ClientError> {
    let client = admin_client(&args.access)?;
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

/// Creates a client of the admin API. It sends a token only if there is one: a listener on loopback may need none.
fn admin_client(access: &AdminAccess) -> Result<ApiClient, ClientError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = ADMIN_TOKEN.read_optional(access.token_file.as_deref())? {
        headers.insert(AUTHORIZATION, ADMIN_TOKEN.bearer_value(&token)?);
    }
    ApiClient::new(ApiUrl::of_admin(&access.admin)?, headers)
}

fn report_refusal(refusal: &RefusedReply, subject: &str) -> ExitCode {
    let message = match refusal.message.as_str() {
        "" => "the answer has no message: it may come from another server, so check --url".to_owned(),
        message => printable_text(message),
    };
    note(&format!(
        "antiphon: {subject}: refused with {}: {message}",
        refusal.status.as_u16()
    ));
    ExitCode::FAILURE
}

/// Writes a message to standard error. A closed one must not change the exit code.
fn note(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}
