//! The answers of the task page's requests.

use serde::Serialize;
use utoipa::{ToSchema, openapi::schema::Object};

use crate::{
    api::json::name_schema,
    api::ledger_api::delivery_id::format_delivery_id,
    late::{ListedTask, TaskId, TaskState},
    repair::{readable_text, requested_result},
};

/// The longest result that the page shows, in bytes.
const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// A new link to the task page.
#[derive(Serialize, ToSchema)]
#[schema(as = TaskLink)]
pub(in crate::api::ledger_api) struct MadeLinkView {
    /// The id by which it is revoked
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(in crate::api::ledger_api) link: String,
    /// The path of the page, with the secret of the link
    pub(in crate::api::ledger_api) url: String,
    /// The time from which it opens nothing, in seconds since 1970
    pub(in crate::api::ledger_api) expires_at: u64,
}

impl std::fmt::Debug for MadeLinkView {
    // The URL contains the secret, so it never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MadeLinkView({})", self.link)
    }
}

/// A revoked link.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RevokedTaskLink)]
pub(in crate::api::ledger_api) struct RevokedLinkView {
    /// Always `true`
    pub(in crate::api::ledger_api) revoked: bool,
}

/// A page of tasks.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TaskList)]
pub(in crate::api::ledger_api) struct TaskListView {
    /// Intents, then calls, each in the order of their recording
    pub(in crate::api::ledger_api) tasks: Vec<TaskView>,
    /// The `after` of the next page. `null` if this is the last
    pub(in crate::api::ledger_api) next: Option<String>,
    /// The time from which the link opens nothing, in seconds since 1970
    pub(in crate::api::ledger_api) link_expires_at: u64,
}

/// A task.
#[derive(Serialize, ToSchema)]
#[schema(as = Task)]
pub(in crate::api::ledger_api) struct TaskView {
    #[schema(pattern = "^(call_[0-9a-f]{64}|int_[0-9a-f]{32})$")]
    task: String,
    /// The name of the tool
    tool: String,
    /// The name of the session
    session: Option<String>,
    #[schema(schema_with = state_schema)]
    state: &'static str,
    /// Seconds since 1970
    started_at: u64,
    /// The time of the result, in seconds since 1970
    ended_at: Option<u64>,
    /// The result as text, at most 4 KiB
    result: Option<String>,
    /// `true` if there is more of the result
    is_shortened: bool,
    can_acknowledge: bool,
    can_resolve: bool,
}

impl std::fmt::Debug for TaskView {
    // The result belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskView({}, {})", self.task, self.state)
    }
}

/// The new state of a task.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TaskState)]
pub(in crate::api::ledger_api) struct TaskStateView {
    #[schema(schema_with = state_schema)]
    pub(in crate::api::ledger_api) state: &'static str,
}

fn state_schema() -> Object {
    name_schema(
        "`unknown` if nobody knows whether the tool ran; `done` and `failed` calls wait for an acknowledgement",
        TaskState::ALL.map(TaskState::label),
    )
}

impl TaskView {
    /// Describes a task. Its outcome can be reported if it is unknown and `may_resolve` is set.
    pub(in crate::api::ledger_api) fn of_task(task: ListedTask, may_resolve: bool) -> Self {
        let text = task
            .content
            .as_deref()
            .map(|content| readable_text(&requested_result(content, "", usize::MAX)));
        let shown = text.as_deref().map(|text| {
            let mut ends = (0..=text.len().min(SHOWN_BYTES_MAX)).rev();
            let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or_default();
            text.get(..end).unwrap_or_default().to_owned()
        });
        Self {
            is_shortened: task.is_too_long || text.map(|text| text.len()) != shown.as_ref().map(String::len),
            task: match task.id {
                TaskId::Call(name) => format!("call_{}", format_delivery_id(&name)),
                TaskId::Intent(id) => id.to_string(),
            },
            tool: String::from_utf8_lossy(&task.tool).into_owned(),
            session: task.session.map(String::from),
            state: task.state.label(),
            started_at: task.started_at.as_secs(),
            ended_at: task.ended_at.map(|at| at.as_secs()),
            result: shown,
            can_acknowledge: task.is_waiting,
            can_resolve: may_resolve && task.state == TaskState::Unknown,
        }
    }
}
