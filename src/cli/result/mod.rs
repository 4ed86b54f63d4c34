//! `antiphon result post | ls | show | ack | withdraw | heartbeat`: a client of `/ledger/v1` of a running proxy.

mod arguments;
mod content;
mod credentials;
mod document;
mod report;
mod requests;
mod rows;

use std::{
    io::{self, BufWriter, IsTerminal as _, Write},
    process::ExitCode,
};

use bytes::Bytes;

pub(super) use arguments::{AFTER_HELP, Args};
pub(super) use credentials::{service_access, service_client};
pub(super) use requests::call_path;

use crate::{
    cli::{
        api_client::{ApiClient, ApiReply, ApiUrl, ClientError},
        output::{OutputFormat, ReportOutput},
        table::TextTable,
    },
    printable::printable_text,
    wire::json::compact_json,
};
use arguments::{AckArgs, ListArgs, PostArgs, ResultAction, ServiceCallArgs, ShowArgs, WantedState};
use document::RowDocument;
use report::{RefusedRequest, report_refusal};
use rows::{ListedRow, ListedRows};

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Boxed, since the future contains those of the HTTP client.
    Ok(runtime.block_on(Box::pin(run_action(&args.action)))?)
}

/// Runs one action. Returns its exit code.
async fn run_action(action: &ResultAction) -> Result<ExitCode, ClientError> {
    match action {
        ResultAction::Post(args) => post_result(args).await,
        ResultAction::Ls(args) => list_calls(args).await,
        ResultAction::Show(args) => show_results(args).await,
        ResultAction::Ack(args) => ack_results(args).await,
        ResultAction::Withdraw(args) => withdraw_result(args).await,
        ResultAction::Heartbeat(args) => send_heartbeat(args).await,
    }
}

/// Posts a result, and prints its state.
async fn post_result(args: &PostArgs) -> Result<ExitCode, ClientError> {
    // The credential first: a pipe must not run to its end for a post that cannot be sent.
    let client = service_client(&args.service.proxy, args.service.token_file.as_deref())?;
    let body = requests::result_body(args, &content::read_content(&args.content)?)?;
    let path = call_path(&args.call.call_id, "result");
    let reply = client.post(&path, body).await?;
    let Some(answer) = accepted_answer(reply, RefusedRequest::Post, &args.call.call_id) else {
        return Ok(ExitCode::FAILURE);
    };
    let line = report::describe_post(&answer).ok_or_else(|| client.foreign_answer())?;
    let line = if args.output.is_json() {
        compact_json(&answer)
    } else {
        line
    };
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

/// Withdraws a posted result.
async fn withdraw_result(args: &ServiceCallArgs) -> Result<ExitCode, ClientError> {
    let client = service_client(&args.service.proxy, args.service.token_file.as_deref())?;
    let path = call_path(&args.call.call_id, "withdraw");
    let reply = client.post(&path, requests::call_body(&args.call)).await?;
    let Some(answer) = accepted_answer(reply, RefusedRequest::Withdraw, &args.call.call_id) else {
        return Ok(ExitCode::FAILURE);
    };
    report::answer_state(&answer).ok_or_else(|| client.foreign_answer())?;
    writeln!(io::stdout().lock(), "withdrawn: the call waits for a result again")?;
    Ok(ExitCode::SUCCESS)
}

/// Reports that the tool of a call still runs.
async fn send_heartbeat(args: &ServiceCallArgs) -> Result<ExitCode, ClientError> {
    let client = service_client(&args.service.proxy, args.service.token_file.as_deref())?;
    let path = call_path(&args.call.call_id, "heartbeat");
    let reply = client.post(&path, requests::call_body(&args.call)).await?;
    let Some(answer) = accepted_answer(reply, RefusedRequest::Heartbeat, &args.call.call_id) else {
        return Ok(ExitCode::FAILURE);
    };
    let line = report::describe_heartbeat(&answer).ok_or_else(|| client.foreign_answer())?;
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

/// Lists one page of calls, or all of them.
async fn list_calls(args: &ListArgs) -> Result<ExitCode, ClientError> {
    let client = ApiClient::new(
        ApiUrl::of_proxy(&args.caller.proxy)?,
        credentials::caller_headers(&args.caller)?,
    )?;
    let mut out = BufWriter::new(io::stdout());
    let (mut table, mut after, mut has_rows) = (TextTable::new(&rows::COLUMNS), args.after.unwrap_or(0), false);
    let mut document = None;
    let mut next_page = None;
    loop {
        let reply = client.get(&requests::page_path(args, after)).await?;
        let Some(answer) = accepted_answer(reply, RefusedRequest::OfCaller, "list") else {
            return Ok(ExitCode::FAILURE);
        };
        let page = ListedRows::read(&answer, "outstanding").ok_or_else(|| client.foreign_answer())?;
        has_rows |= !page.rows.is_empty();
        if args.output == OutputFormat::Json {
            // Only now: a refusal has no rows.
            let mut begun = match document.take() {
                Some(begun) => begun,
                None => RowDocument::begin(&mut out, "outstanding")?,
            };
            page.rows.iter().try_for_each(|row| begun.write_row(&mut out, row))?;
            document = Some(begun);
        } else if args.json {
            page.rows
                .iter()
                .try_for_each(|row| writeln!(out, "{}", row.json_line()))?;
        } else {
            table.write_page(&mut out, page.rows.iter().map(rows::row_cells).collect())?;
        }
        out.flush()?;
        match page.next {
            // A cursor that does not rise would repeat pages for ever.
            Some(next) if args.all && next > after => after = next,
            Some(next) => {
                next_page = Some(next);
                note(&format!(
                    "there are more: continue with --after {next}, or list all with --all"
                ));
                break;
            }
            None => break,
        }
    }
    if let Some(document) = document {
        document.finish(&mut out, next_page)?;
    } else if !has_rows && !args.json {
        note(match args.state {
            WantedState::Settled => "no result waits",
            WantedState::Open => "no call is running",
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the contents of posted results.
async fn show_results(args: &ShowArgs) -> Result<ExitCode, ClientError> {
    let client = ApiClient::new(
        ApiUrl::of_proxy(&args.caller.proxy)?,
        credentials::caller_headers(&args.caller)?,
    )?;
    let mut code = ExitCode::SUCCESS;
    let is_document = args.output == OutputFormat::Json;
    let mut out = ReportOutput::default();
    let begin = || RowDocument::begin(&mut out, "results");
    let mut document = is_document.then(begin).transpose()?;
    // One lookup for each call: a single answer for all could have any size.
    for call_id in &args.call_ids {
        let reply = client
            .post(requests::LOOKUP_PATH, requests::lookup_body(call_id))
            .await?;
        let Some(answer) = accepted_answer(reply, RefusedRequest::OfCaller, call_id) else {
            return Ok(ExitCode::FAILURE);
        };
        let found = ListedRows::read(&answer, "results").ok_or_else(|| client.foreign_answer())?;
        if let Some(row) = found.rows.first() {
            match &mut document {
                Some(document) => document.write_row(&mut out, row)?,
                None => write_result(&mut out, row, args.json)?,
            }
        } else {
            let call_id = printable_text(call_id);
            note(&format!(
                "{call_id}: no result was posted for a call of this caller with this id"
            ));
            code = ExitCode::FAILURE;
        }
    }
    if let Some(document) = document {
        document.finish(&mut out, None)?;
    }
    Ok(code)
}

/// Writes one result: the content to standard output, or the whole row as JSON.
fn write_result(out: &mut impl Write, row: &ListedRow, as_json: bool) -> io::Result<()> {
    if as_json {
        return writeln!(out, "{}", row.json_line());
    }
    // On standard error, so that standard output contains the content and nothing else.
    note(&report::describe_result(row));
    let content = row.content_bytes().unwrap_or_default();
    out.write_all(&content)?;
    if io::stdout().is_terminal() && !content.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Acknowledges results. Goes on after a refused one.
async fn ack_results(args: &AckArgs) -> Result<ExitCode, ClientError> {
    let client = ApiClient::new(
        ApiUrl::of_proxy(&args.caller.proxy)?,
        credentials::caller_headers(&args.caller)?,
    )?;
    let (mut code, mut acked) = (ExitCode::SUCCESS, Vec::new());
    let mut failure = None;
    for delivery in &args.deliveries {
        match ack_delivery(&client, delivery).await {
            Ok(true) => acked.push(delivery),
            Ok(false) => code = ExitCode::FAILURE,
            Err(error) => {
                // Without an answer the next request would only wait for another timeout.
                failure = Some(error);
                break;
            }
        }
    }
    let mut out = ReportOutput::default();
    acked
        .iter()
        .try_for_each(|delivery| writeln!(out, "acknowledged: {delivery}"))?;
    failure.map_or(Ok(code), Err)
}

/// Acknowledges one result. Returns `false` if that was refused.
async fn ack_delivery(client: &ApiClient, delivery: &str) -> Result<bool, ClientError> {
    let reply = client.post(&requests::ack_path(delivery), String::new()).await?;
    let Some(answer) = accepted_answer(reply, RefusedRequest::OfCaller, delivery) else {
        return Ok(false);
    };
    report::answer_state(&answer).ok_or_else(|| client.foreign_answer())?;
    Ok(true)
}

/// Returns the body of a success. Reports a refusal of `subject`, and returns `None`.
fn accepted_answer(reply: ApiReply, request: RefusedRequest, subject: &str) -> Option<Bytes> {
    match reply {
        ApiReply::Done(answer) => Some(answer),
        ApiReply::Refused(refusal) => {
            report_refusal(&refusal, request, subject);
            None
        }
    }
}

/// Writes a line for people to standard error.
fn note(line: &str) {
    // A closed standard error must not change the exit code.
    drop(writeln!(io::stderr().lock(), "antiphon: {line}"));
}
