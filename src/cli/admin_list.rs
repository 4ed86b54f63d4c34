//! Lists of the admin API as tables, and the client of the commands that change what they show.
#![expect(clippy::doc_markdown, reason = "doc comments are help texts on a terminal")]

use std::{io, path::PathBuf, process::ExitCode};

use http::{HeaderMap, header::AUTHORIZATION};
use serde_json::{Value, json};

use super::{
    api_client::{AdminFlags, ApiClient, ApiReply, ApiUrl, ClientError, RefusedReply, SecretPlace},
    output::{OutputFlag, write_document, write_note},
    table::{NO_VALUE, TextTable},
};
use crate::printable::printable_text;

const ADMIN_TOKEN: SecretPlace = SecretPlace {
    noun: "the admin token",
    variable: "ANTIPHON_ADMIN_TOKEN",
    flag: "--token-file",
};

/// Flags of requests to the admin listener.
#[derive(Debug, clap::Args)]
pub(super) struct AdminAccess {
    #[command(flatten)]
    admin: AdminFlags,
    /// File that contains only the admin token [default: the variable ANTIPHON_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Flags of lists.
#[derive(Debug, clap::Args)]
pub(super) struct ListFlags {
    /// Rows of a page, 500 at most
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Cursor after which to begin: `ls` prints it if there are more rows
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    #[command(flatten)]
    output: OutputFlag,
    #[command(flatten)]
    access: AdminAccess,
}

/// A list of the admin API, and its table.
pub(super) struct AdminList<'l> {
    /// The path.
    pub(super) path: &'l str,
    /// More of the query, with `&` in front. Empty if there is none.
    pub(super) query: String,
    /// The member of the answer with the rows.
    pub(super) member: &'l str,
    /// The columns: the head of each, and the members of a row of which the first that exists is shown.
    pub(super) columns: &'l [(&'l str, &'l [&'l str])],
    /// The text for a page without rows.
    pub(super) empty: &'l str,
}

impl AdminAccess {
    /// Creates a client of the admin API. It sends a token only if there is one: a listener on loopback may need none.
    pub(super) fn client(&self) -> Result<ApiClient, ClientError> {
        let mut headers = HeaderMap::new();
        if let Some(token) = ADMIN_TOKEN.read_optional(self.token_file.as_deref())? {
            headers.insert(AUTHORIZATION, ADMIN_TOKEN.bearer_value(&token)?);
        }
        ApiClient::new(ApiUrl::of_admin(&self.admin)?, headers)
    }
}

impl AdminList<'_> {
    /// Prints one page.
    pub(super) async fn print_page(&self, flags: &ListFlags) -> Result<ExitCode, ClientError> {
        let client = flags.access.client()?;
        let mut path = format!("{}?limit={}{}", self.path, flags.limit, self.query);
        if let Some(after) = &flags.after {
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
        let rows = page[self.member].as_array().ok_or_else(|| client.foreign_answer())?;
        let mut out = io::stdout().lock();
        if flags.output.is_json() {
            let mut document = json!({ "next": page["next"] });
            document[self.member] = json!(rows);
            write_document(&mut out, document)?;
            return Ok(ExitCode::SUCCESS);
        }
        if rows.is_empty() {
            write_note(self.empty);
        } else {
            let heads: Vec<&str> = self.columns.iter().map(|(head, _)| *head).collect();
            let cells = |row: &Value| self.columns.iter().map(|(_, members)| cell(row, members)).collect();
            TextTable::new(&heads).write_page(&mut out, rows.iter().map(cells).collect())?;
        }
        if let Some(next) = page["next"].as_str() {
            write_note(&format!(
                "there are more: continue with --after {}",
                printable_text(next)
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the first of these members that a row has.
fn cell(row: &Value, members: &[&str]) -> String {
    let shown = |member: &&str| match &row[*member] {
        Value::String(text) => Some(printable_text(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    members.iter().find_map(shown).unwrap_or_else(|| NO_VALUE.to_owned())
}

/// Reports a refusal of the admin API. Returns the exit code.
pub(super) fn report_refusal(refusal: &RefusedReply, subject: &str) -> ExitCode {
    let message = match refusal.message.as_str() {
        "" => "the answer has no message: it may come from another server, so check --url".to_owned(),
        message => printable_text(message),
    };
    write_note(&format!(
        "antiphon: {subject}: refused with {}: {message}",
        refusal.status.as_u16()
    ));
    ExitCode::FAILURE
}
