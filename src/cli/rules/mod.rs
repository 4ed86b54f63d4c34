//! `antiphon rules ls | test | try | clear`: the rows by which refusals of servers are read.

mod arguments;
mod list;
mod row_text;
mod tests_of_rows;
mod trial;
mod trial_report;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use serde_json::Value;

pub(super) use arguments::{AFTER_HELP, Args};

use super::{
    admin_list::report_refusal,
    api_client::{ApiReply, ClientError},
};
use arguments::{ClearArgs, RulesAction};

/// The path of what servers have taught a running proxy.
const TAUGHT: &str = "/admin/v1/taught";

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        RulesAction::Ls(args) => list::run(args),
        RulesAction::Test(args) => tests_of_rows::run(args),
        RulesAction::Try(args) => trial::run(args),
        RulesAction::Clear(args) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            // Boxed, since the future contains those of the HTTP client.
            Ok(runtime.block_on(Box::pin(clear_taught(args)))?)
        }
    }
}

/// Has a running proxy forget what servers have taught it.
async fn clear_taught(args: &ClearArgs) -> Result<ExitCode, ClientError> {
    let client = args.access.client()?;
    let answer = match client.delete(TAUGHT).await? {
        ApiReply::Done(answer) => answer,
        ApiReply::Refused(refusal) => return Ok(report_refusal(&refusal, "clear")),
    };
    let told: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let removed = told["removed"].as_u64().ok_or_else(|| client.foreign_answer())?;
    let facts = if removed == 1 { "fact" } else { "facts" };
    writeln!(
        io::stdout().lock(),
        "removed {removed} {facts}: each server is asked anew, which costs one refused request"
    )?;
    Ok(ExitCode::SUCCESS)
}
