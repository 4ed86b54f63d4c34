//! The task page: what runs for one person, is done or was cancelled. It is off unless `ledger.task_page` is set.
//!
//! A link opens it. Its secret follows `#` in the URL, which browsers never send, and the page sends it as a bearer
//! token. No credential of a provider opens the list, and no link opens anything else.

mod access;
mod files;
pub(super) mod links;
pub(super) mod list;
mod views;

use http::{Response, request::Parts};

use super::{LedgerApi, LedgerReader, collect_body, operation::LedgerOperation};
use crate::{
    api::{ApiBody, Problem, ProblemCode},
    upstream::BoxedBody,
};
use links::{make_task_link, revoke_task_link};
use list::{ack_task, list_tasks, resolve_task};

/// The path of the page. Those of its files and of its requests begin with it.
const PAGE_PATH: &str = "/ledger/v1/tasks";

/// Returns `true` for the page, and for everything below it.
pub fn is_task_path(path: &str) -> bool {
    path.strip_prefix(PAGE_PATH)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request for the page, or of it.
pub(super) async fn answer_request(
    api: &LedgerApi,
    head: &Parts,
    ask: Result<LedgerOperation, Problem>,
    body: BoxedBody,
    reader: LedgerReader,
) -> Result<Response<ApiBody>, Problem> {
    let not_found = || Problem::from_code(ProblemCode::NotFound);
    if !api.late.tasks().has_page() {
        return Err(not_found());
    }
    access::check_connection(head)?;
    if let Some(file) = files::find_file(&head.method, head.uri.path()) {
        return Ok(file);
    }
    let ask = ask?;
    match ask {
        LedgerOperation::MakeTaskLink => {
            let owner = api.intent_reader(reader).await?;
            let body = collect_body(body, ask.bytes_max(), None).await?;
            make_task_link(api, owner, &body).await
        }
        LedgerOperation::RevokeTaskLink(link) => {
            let owner = api.intent_reader(reader).await?;
            revoke_task_link(api, owner, &link).await
        }
        LedgerOperation::ListTasks(after) => list_tasks(api, &access::find_link(api, head).await?, after).await,
        LedgerOperation::AckTask(task) => ack_task(api, &access::find_link(api, head).await?, &task).await,
        LedgerOperation::ResolveTask(task) => {
            let link = access::find_link(api, head).await?;
            let body = collect_body(body, 64 * 1024, None).await?;
            resolve_task(api, &link, &task, &body).await
        }
        _ => Err(not_found()),
    }
}
