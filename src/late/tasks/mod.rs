//! Tasks: the calls and intents of one person, for a page that its links open.

mod links;
mod listing;

pub use links::{LINK_TTL_MAX, MadeLink, TaskLink, TaskSecret};
pub use listing::{ListedTask, TaskCursor, TaskId, TaskState};

use super::{
    LateError, LateStore,
    intents::{Resolution, ResolveOutcome, storing},
    records::IntentId,
};
use crate::{
    auth::{Caller, Principal},
    clock,
};

/// Access to the tasks of a store.
#[derive(Clone, Copy, Debug)]
pub struct UserTasks<'l>(&'l LateStore);

impl<'l> UserTasks<'l> {
    /// Returns the tasks of a store.
    pub const fn of_store(late: &'l LateStore) -> Self {
        Self(late)
    }

    /// Returns `true` if the page is served.
    pub fn has_page(self) -> bool {
        self.0.0.parts.settings.has_task_page
    }

    /// Returns `true` if the caller may have a link: it is one person, and not everybody with its credential.
    pub fn may_have_link(self, caller: Caller) -> bool {
        self.0.0.parts.is_strong_user(caller.principal(), caller.account())
    }

    /// Resolves an unknown outcome of the owner.
    pub async fn resolve(
        self,
        owner: Caller,
        intent: IntentId,
        resolution: Resolution,
    ) -> Result<ResolveOutcome, LateError> {
        let now = clock::unix_time();
        let found = storing::find_intent(&self.0.0.parts, intent, now).await?;
        let is_own = |principal| Principal::from_bytes(principal) == owner.principal();
        if !found.is_some_and(|found| is_own(found.record.key.principal)) {
            return Ok(ResolveOutcome::NotFound);
        }
        self.0.intents().resolve(intent, resolution, now).await
    }
}
