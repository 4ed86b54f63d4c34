//! Lanes as operators see them, and the selection of those that are shown.

use std::time::Duration;

use super::{CallView, ProfilePin};
use crate::policy::stream_timeouts::RunningTool;

/// The time for which a stall is shown. A client that gave up sends nothing that would end it.
pub(super) const STALL_SHOWN: Duration = Duration::from_secs(15 * 60);

/// One lane, for the admin page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The beginning of its hash.
    pub lane: String,
    /// The names of its last request.
    pub labels: LaneLabels,
    /// The profile that serves it.
    pub pin: Option<ProfilePin>,
    /// The open calls.
    pub calls: Vec<CallView>,
    /// The number of forks that were seen.
    pub forks: usize,
    /// The number of calls that the model made again after their result was lost.
    pub repeats: usize,
    /// The stall that ended its last answer.
    pub stalled_tool: Option<StalledTool>,
    /// The time since its last use.
    pub idle: Duration,
    /// The time since its first use.
    pub age: Duration,
}

/// The names of a lane's last request, ready to be shown: escaped and shortened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneLabels {
    /// The upstream. `None` if it is not known yet.
    pub upstream: Option<Box<str>>,
    /// The model. `None` if the request names none.
    pub model: Option<Box<str>>,
    /// The client program. `None` if it does not name itself.
    pub client: Option<Box<str>>,
    /// The name of the client token. `None` if the client presented none.
    pub token: Option<Box<str>>,
}

/// A provider-side tool that ran when an answer stalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StalledTool {
    /// The tool, and its age at the end of the answer.
    pub tool: RunningTool,
    /// The time since the end of the answer.
    pub ended: Duration,
}

/// The selection of lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneFilter {
    /// A text that a name of the lane must contain, in any case. Empty for all lanes.
    pub text: String,
    /// `true` for lanes with open calls alone, `false` for those without. `None` for both.
    pub is_busy: Option<bool>,
}

/// Sums over all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTotals {
    /// The number of lanes.
    pub lanes: usize,
    /// Lanes with a profile of their own.
    pub pinned: usize,
    /// Lanes with open calls.
    pub waiting: usize,
    /// Open calls.
    pub open_calls: usize,
    /// Open calls beyond the time limit of their tool.
    pub overdue_calls: usize,
}

/// The names that a request gives its lane. They become its [`LaneLabels`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneNames<'n> {
    /// The upstream.
    pub upstream: Option<&'n str>,
    /// The model.
    pub model: Option<&'n str>,
    /// The client program.
    pub client: Option<&'n str>,
    /// The name of the client token.
    pub token: Option<&'n str>,
}

impl LaneLabels {
    /// Replaces the names. Most requests of a lane repeat those of the last one, which allocates nothing.
    pub(super) fn set_names(&mut self, names: LaneNames<'_>) {
        for (label, name) in [
            (&mut self.upstream, names.upstream),
            (&mut self.model, names.model),
            (&mut self.client, names.client),
            (&mut self.token, names.token),
        ] {
            if label.as_deref() != name {
                *label = name.map(Box::from);
            }
        }
    }

    /// Returns the bytes that the names occupy.
    pub(super) fn memory_bytes(&self) -> usize {
        self.names().map(str::len).fold(0, usize::saturating_add)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        [&self.upstream, &self.model, &self.client, &self.token]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref)
    }
}

impl LaneFilter {
    /// Creates the filter of a text that an operator typed.
    pub fn new(text: &str, is_busy: Option<bool>) -> Self {
        Self {
            text: text.trim().to_lowercase(),
            is_busy,
        }
    }

    /// Returns `true` if the text is in one of the lane's names: its hash, its labels, its profile, its open tools.
    pub(super) fn matches_names(
        &self,
        lane: &str,
        labels: &LaneLabels,
        pin: Option<&ProfilePin>,
        mut tools: impl Iterator<Item = impl AsRef<str>>,
    ) -> bool {
        let contains = |name: &str| name.to_lowercase().contains(&self.text);
        self.text.is_empty()
            || contains(lane)
            || labels.names().any(contains)
            || pin.is_some_and(|pin| contains(&pin.upstream) || contains(&pin.profile))
            || tools.any(|tool| contains(tool.as_ref()))
    }
}
