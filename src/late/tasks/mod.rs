//! Tasks: the calls and intents of one person, for a page that its links open.

mod links;
mod listing;

pub use links::{LINK_TTL_MAX, MadeLink, TaskLink, TaskSecret};
pub use listing::{ListedTask, TaskCursor, TaskId, TaskState};

use std::sync::Arc;

use super::parts::LateParts;
use crate::auth::Caller;

/// The tasks of every person.
pub struct UserTasks(Arc<LateParts>);

impl UserTasks {
    pub(super) fn new(parts: &Arc<LateParts>) -> Self {
        Self(Arc::clone(parts))
    }

    /// Returns `true` if the page is served.
    pub fn has_page(&self) -> bool {
        self.0.settings.has_task_page
    }

    /// Returns `true` if the caller may have a link: it is one person, and not everybody with its credential.
    pub fn may_have_link(&self, caller: Caller) -> bool {
        self.0.is_strong_user(caller.principal(), caller.account())
    }
}
