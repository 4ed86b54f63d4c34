//! Lists of tasks: the calls of one person that run, have a result that waits, or were cancelled, and the person's intents.

use std::collections::{HashMap, HashSet};

use super::UserTasks;
use crate::{
    auth::Caller,
    clock,
    late::{
        LateError,
        contents::whole_content,
        matching,
        page::{ListCursor, Page, PageScan},
        records::{IntentId, IntentRecord, IntentState, RecordedCall, RecordedCallState, delivery_value, intent_rules},
    },
    ledger::{Moment, PlacedRecord, Record, RecordKey, RecordKind, RecordName, read_all},
    table::{RecordValue, Stored},
};

/// The most records of one read. Their results are in memory together.
const READ_ROWS: usize = 256;
/// The most tasks of one page.
const PAGE_TASKS: usize = 100;
/// The longest result that a list contains, in bytes.
const RESULT_BYTES_MAX: u64 = 16 * 1024;

/// The place after which a page begins. Intents come first: some wait for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskCursor {
    /// After this place among the intents. 0 begins the list.
    Intents(u64),
    /// After this place among the calls.
    Calls(u64),
}

/// The name of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskId {
    /// A recorded call.
    Call(RecordName),
    /// An intent: one of the person itself, or one whose outcome is unknown.
    Intent(IntentId),
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// The tool runs.
    Running,
    /// The tool has succeeded.
    Done,
    /// The tool has reported an error.
    Failed,
    /// Its service was asked to undo it.
    CancelRequested,
    /// It was undone.
    Cancelled,
    /// Its service will not undo it, and goes on.
    CancelRefused,
    /// Nobody knows if it ran.
    Unknown,
    /// No result came in time.
    Expired,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::CancelRequested,
        Self::Cancelled,
        Self::CancelRefused,
        Self::Unknown,
        Self::Expired,
    ];

    /// Returns the name in answers.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::CancelRequested => "cancel_requested",
            Self::Cancelled => "cancelled",
            Self::CancelRefused => "cancel_refused",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
        }
    }

    /// Returns the state of the task of an intent.
    pub const fn of_intent(state: IntentState) -> Self {
        match state {
            IntentState::Claimed => Self::Running,
            IntentState::Settled => Self::Done,
            IntentState::Failed => Self::Failed,
            IntentState::CancelRequested => Self::CancelRequested,
            IntentState::Cancelled => Self::Cancelled,
            IntentState::CancelRefused => Self::CancelRefused,
            IntentState::Unknown => Self::Unknown,
            IntentState::Expired => Self::Expired,
        }
    }
}

/// A task in a list.
#[derive(Clone)]
pub struct ListedTask {
    /// The name.
    pub id: TaskId,
    /// The tool.
    pub tool: Vec<u8>,
    /// The name of the session. `None` if there is none.
    pub session: Option<Box<str>>,
    /// The state.
    pub state: TaskState,
    /// The time at which it began.
    pub started_at: Moment,
    /// The time of its result. `None` if there is none.
    pub ended_at: Option<Moment>,
    /// The result as JSON. `None` if there is none, or it is longer than 16 KiB.
    pub content: Option<String>,
    /// `true` if a result is too long for the list.
    pub is_too_long: bool,
    /// `true` if the result waits for its owner.
    pub is_waiting: bool,
}

impl std::fmt::Debug for ListedTask {
    // The content belongs to a conversation, so it never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ListedTask({:?}, {:?})", self.id, self.state)
    }
}

impl UserTasks {
    /// Returns one page of the tasks of a link's owner: intents, then calls, each in the order of their recording.
    pub async fn list(&self, owner: Caller, after: TaskCursor) -> Result<Page<ListedTask, TaskCursor>, LateError> {
        let now = clock::unix_time();
        let (kind, place) = match after {
            TaskCursor::Calls(place) => (RecordKind::Call, place),
            TaskCursor::Intents(place) => (RecordKind::Intent, place),
        };
        let start = ListCursor {
            principal: *owner.principal().as_bytes(),
            place,
        };
        // Most calls have their answer, and are no task any more, so that there is a limit.
        let mut scan = PageScan::of_caller(&*self.0.ledger, (kind, READ_ROWS), start, PAGE_TASKS, now).with_budget();
        if matches!(after, TaskCursor::Intents(_)) {
            let page = scan.list_records(|record| task_of_intent(record, now)).await?;
            let page = page.map_next(|next| TaskCursor::Intents(next.place));
            let next = page.next.unwrap_or(TaskCursor::Calls(0));
            return Ok(Page {
                next: Some(next),
                ..page
            });
        }
        while let Some(batch) = scan.next_batch().await? {
            for (place, task) in self.tasks_of_calls(owner, batch, now).await? {
                scan.add_row(place, task);
            }
        }
        Ok(scan.into_page().map_next(|next| TaskCursor::Calls(next.place)))
    }

    async fn tasks_of_calls(
        &self,
        owner: Caller,
        page: Vec<PlacedRecord>,
        now: Moment,
    ) -> Result<Vec<(u64, ListedTask)>, LateError> {
        let decode = |(place, record): PlacedRecord| Some((place, (record.key, RecordedCall::decode(&record.value)?)));
        let (places, calls): (Vec<u64>, Vec<(RecordKey, RecordedCall)>) = page.into_iter().filter_map(decode).unzip();
        let unknown = self.unknown_intents(&calls, now).await?;
        let waiting = self.waiting_results(owner, &calls, now).await?;
        let contents = self.contents_of(&calls, &waiting, now).await?;
        let mut tasks = Vec::new();
        for (place, (key, call)) in places.into_iter().zip(calls) {
            // It is listed as an intent, which can be resolved.
            if call.intent.is_some_and(|intent| unknown.contains(&intent)) {
                continue;
            }
            let is_waiting = waiting.contains(&key.name);
            let Some(state) = state_of_call(&call, is_waiting, now) else {
                continue;
            };
            let posted = call.posted.as_ref();
            let task = ListedTask {
                id: TaskId::Call(key.name),
                state,
                started_at: call.opened_at,
                ended_at: posted.map(|posted| posted.posted_at),
                is_too_long: posted.is_some_and(|posted| posted.content.byte_len() > RESULT_BYTES_MAX),
                content: contents.get(&key.name).cloned(),
                is_waiting,
                tool: call.tool,
                session: call.session_label,
            };
            tasks.push((place, task));
        }
        Ok(tasks)
    }
}

/// Returns the state of a call. `None` if its conversation has its answer.
fn state_of_call(call: &RecordedCall, is_waiting: bool, now: Moment) -> Option<TaskState> {
    match call.state {
        RecordedCallState::Cancelled => Some(TaskState::Cancelled),
        _ if matching::is_running(call) && now >= call.deadline => Some(TaskState::Expired),
        RecordedCallState::CancelRequested => Some(TaskState::CancelRequested),
        RecordedCallState::CancelRefused => Some(TaskState::CancelRefused),
        _ if matching::is_running(call) => Some(TaskState::Running),
        _ if !is_waiting => None,
        _ if call.posted.as_ref().is_some_and(|posted| posted.failed) => Some(TaskState::Failed),
        _ => Some(TaskState::Done),
    }
}

impl UserTasks {
    /// Returns the intents of these calls whose outcome is unknown.
    async fn unknown_intents(
        &self,
        calls: &[(RecordKey, RecordedCall)],
        now: Moment,
    ) -> Result<HashSet<RecordName>, LateError> {
        let key = |(key, call): &(RecordKey, RecordedCall)| Some(IntentRecord::key(key.owner(), call.intent?));
        let keys: Vec<RecordKey> = calls.iter().filter_map(key).collect();
        let records = read_all(&*self.0.ledger, keys, now).await?;
        let is_unknown = |record: &Record| {
            IntentRecord::decode(&record.value)
                .is_some_and(|intent| intent_rules::state_at(&intent, now) == IntentState::Unknown)
        };
        let unknown = records.into_iter().flatten().filter(is_unknown);
        Ok(unknown.map(|record| record.key.name).collect())
    }

    /// Returns the names of those calls whose result waits for its owner.
    async fn waiting_results(
        &self,
        owner: Caller,
        calls: &[(RecordKey, RecordedCall)],
        now: Moment,
    ) -> Result<HashSet<RecordName>, LateError> {
        let posted = calls.iter().filter(|(_, call)| call.posted.is_some());
        let keys = posted.map(|(key, _)| RecordKey::new(RecordKind::Delivery, owner.principal(), key.name));
        let records = read_all(&*self.0.ledger, keys.collect(), now).await?;
        let waiting = records
            .into_iter()
            .flatten()
            .filter(|record| record.value != delivery_value::RECEIVED);
        Ok(waiting.map(|record| record.key.name).collect())
    }

    /// Reads the contents of the results that wait and are not too long.
    async fn contents_of(
        &self,
        calls: &[(RecordKey, RecordedCall)],
        waiting: &HashSet<RecordName>,
        now: Moment,
    ) -> Result<HashMap<RecordName, String>, LateError> {
        let shown = calls.iter().filter_map(|(key, call)| {
            let posted = call.posted.as_ref()?;
            let is_shown = waiting.contains(&key.name) && posted.content.byte_len() <= RESULT_BYTES_MAX;
            is_shown.then_some((key, posted))
        });
        let (keys, posted): (Vec<_>, Vec<_>) = shown
            .map(|(key, posted)| (key.with_kind(RecordKind::ResultContent), posted))
            .unzip();
        let records = read_all(&*self.0.ledger, keys.clone(), now).await?;
        let whole = keys
            .iter()
            .zip(posted)
            .zip(records)
            .filter_map(|((key, posted), apart)| Some((key.name, whole_content(posted.content.clone(), apart)?)));
        Ok(whole.collect())
    }
}

/// Returns the task of an intent. `None` if its call is listed in its place.
fn task_of_intent(record: Record, now: Moment) -> Option<ListedTask> {
    let stored = Stored::<IntentRecord>::from_record(record)?;
    let id = IntentId::of_key(&stored.record.key);
    let intent = stored.value;
    let state = intent_rules::state_at(&intent, now);
    if intent.run.call.is_some() && state != IntentState::Unknown {
        return None;
    }
    Some(ListedTask {
        id: TaskId::Intent(id),
        session: None,
        state: TaskState::of_intent(state),
        started_at: intent.run.claimed_at,
        ended_at: intent.result.as_ref().map(|result| result.settled_at),
        // The results of a person's own runs are sealed by whoever ran them.
        content: None,
        is_too_long: false,
        is_waiting: false,
        tool: intent.tool,
    })
}
