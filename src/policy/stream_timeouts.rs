//! The stream timeouts of one answer: its state, the timeout in force, and the time used. Per exchange, never shared.
//!
//! Two timeouts run side by side. Any byte restarts the one for bytes; only events of the answer restart the one for
//! progress.

use std::time::{Duration, Instant};

use super::ExchangeTimeouts;
use crate::{
    printable::printable_name,
    wire::watch::{Facts, OutputPhase, ServerTool},
};

/// Heartbeats closer than this count as one: some servers send a comment and an event together.
const HEARTBEAT_GAP_MIN: Duration = Duration::from_secs(1);
/// Gaps between heartbeats that may pass without one.
const HEARTBEAT_GAPS_MAX: u32 = 4;
/// Longest believable age of a running tool.
const TOOL_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// `true` once an event of the answer itself has arrived.
    pub has_begun: bool,
    /// `true` if the provider reported the request as queued.
    pub is_queued: bool,
    /// The explanation for a silence.
    pub in_flight: InFlight,
}

/// An explanation for a silence, the longest timeout first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// A tool is running at the provider.
    ServerTool,
    /// The provider is compacting the history.
    Compaction,
    /// A reasoning block is open.
    Reasoning,
    /// No explanation.
    #[default]
    Nothing,
}

impl StreamState {
    /// Returns the state before any event. No event announces the compaction of a request that asks for one.
    pub fn before_head(compacts: bool) -> Self {
        let in_flight = if compacts {
            InFlight::Compaction
        } else {
            InFlight::Nothing
        };
        Self {
            in_flight,
            ..Self::default()
        }
    }

    /// Derives the state from the watcher's facts. A finished answer has nothing in flight.
    fn from_facts(facts: &Facts, compacts: bool) -> Self {
        // Checked first: a tool or block that the stream left open means nothing after its end.
        let open = if facts.terminal {
            InFlight::Nothing
        } else if !facts.server_tools.in_flight.is_empty() {
            InFlight::ServerTool
        } else if compacts || facts.compaction == OutputPhase::Open {
            InFlight::Compaction
        } else if facts.reasoning == OutputPhase::Open {
            InFlight::Reasoning
        } else {
            InFlight::Nothing
        };
        Self {
            has_begun: facts.has_output,
            is_queued: facts.queued,
            in_flight: open,
        }
    }
}

/// A timeout of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutKind {
    /// Since the head, nothing but heartbeats.
    FirstEvent,
    /// Like `FirstEvent`, but the client waits for at most half of the configured timeout.
    ClientPatience,
    /// No byte at all.
    Bytes,
    /// Nothing but heartbeats.
    Progress,
    /// Like `Progress`, while reasoning is open.
    Reasoning,
    /// Like `Progress`, while a provider-side tool is running.
    ServerTool,
    /// Like `Progress`, while the provider compacts the history.
    Compaction,
    /// The time limit of the whole exchange.
    Total,
}

/// The most recent running tool, safe to show: its texts are escaped and shortened, its age is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningTool {
    /// The tool's name.
    pub name: String,
    /// The tool's id.
    pub id: String,
    /// Time since its start was seen.
    pub age: Duration,
}

impl RunningTool {
    /// Creates the form that can be shown of a tool.
    fn from_tool(tool: &ServerTool, age: Duration) -> Self {
        // The provider chose these texts. They end up in logs and in the client's error.
        Self {
            name: printable_name(tool.name.as_bytes()),
            id: printable_name(tool.id.as_bytes()),
            age,
        }
    }
}

/// The timeouts of one answer.
#[derive(Clone, Debug)]
pub struct StreamTimeouts {
    limits: ExchangeTimeouts,
    first_event_limit: Duration,
    /// `true` if the client's own timeout shortens the limit above so much that its end proves nothing.
    is_hurried: bool,
    deadline: Instant,
    /// `true` if the request asks for a compaction only.
    compacts_only: bool,
    state: StreamState,
    /// Events of the answer so far.
    events_seen: u64,
    /// Heartbeats so far.
    heartbeats_seen: u64,
    /// The last heartbeat. `None` if none has come since the last event of the answer.
    last_heartbeat: Option<Instant>,
    /// The largest gap between two heartbeats in a row. `None` if there were no two: one alone shows no rhythm.
    heartbeat_gap: Option<Duration>,
    /// Tools started so far, and the start of the last.
    tools_started: u64,
    tool_started_at: Instant,
    /// The start of the present wait for the provider; `None` while the client is slow to read.
    waiting_since: Option<Instant>,
    /// Time without progress so far, without the present wait.
    waited: Duration,
}

impl StreamTimeouts {
    /// Starts the timeouts of an answer. Its exchange began at `began`; `budget` is the client's own timeout.
    pub fn new(
        clocks: &ExchangeTimeouts,
        compacts: bool,
        budget: Option<Duration>,
        began: Instant,
        now: Instant,
    ) -> Self {
        // Without heartbeats the wait is as long as for a head that comes when the model is done.
        let first_event_limit = within_budget(clocks.headers, budget);
        Self {
            limits: *clocks,
            first_event_limit,
            is_hurried: is_hurried(clocks.headers, budget),
            deadline: began + clocks.total,
            compacts_only: compacts,
            state: StreamState::before_head(compacts),
            events_seen: 0,
            heartbeats_seen: 0,
            last_heartbeat: None,
            heartbeat_gap: None,
            tools_started: 0,
            tool_started_at: now,
            waiting_since: None,
            waited: Duration::ZERO,
        }
    }

    /// Returns the state of the answer.
    pub const fn state(&self) -> StreamState {
        self.state
    }

    /// Records that bytes arrived. `facts` is `None` if the answer is not watched. `now` is called only if needed.
    pub fn record_bytes(&mut self, facts: Option<&Facts>, now: impl Fn() -> Instant) {
        let waiting = self.waiting_since.take();
        // An unwatched answer has no known events, so any byte counts as progress.
        let Some(facts) = facts else {
            self.waited = Duration::ZERO;
            return;
        };
        // Read before it changes: it detects the beginning of a rhythm below.
        let was_arrhythmic = self.heartbeat_gap.is_none();
        self.record_heartbeats(facts, &now);
        self.state = StreamState::from_facts(facts, self.compacts_only);
        // The facts contain no times, so the start is the moment at which the count changes.
        if facts.server_tools.started != self.tools_started {
            (self.tools_started, self.tool_started_at) = (facts.server_tools.started, now());
        }
        if facts.events == self.events_seen {
            // A heartbeat only: the wait for progress continues.
            self.waited += waiting.map_or(Duration::ZERO, |since| now().saturating_duration_since(since));
            let has_rhythm = self.heartbeat_gap.is_some();
            if was_arrhythmic && has_rhythm && self.waited >= self.progress_timeout().1 {
                // The second heartbeat selects a shorter timeout, which must not end the answer at once.
                self.waited = self.progress_timeout().1.saturating_sub(self.limits.heartbeat_idle);
            }
        } else {
            (self.events_seen, self.waited) = (facts.events, Duration::ZERO);
        }
    }

    /// Records the heartbeats among the bytes that arrived.
    fn record_heartbeats(&mut self, facts: &Facts, now: impl Fn() -> Instant) {
        let has_heartbeat = facts.heartbeats != self.heartbeats_seen;
        self.heartbeats_seen = facts.heartbeats;
        // A gap with other events inside is none: some servers send heartbeats only while nothing else comes.
        if facts.events != self.events_seen {
            self.last_heartbeat = None;
        }
        if !has_heartbeat || facts.heartbeats_in_row == 0 {
            return;
        }
        let now = now();
        if let Some(last) = self.last_heartbeat {
            let gap = now.saturating_duration_since(last);
            if gap < HEARTBEAT_GAP_MIN {
                return;
            }
            self.heartbeat_gap = self.heartbeat_gap.max(Some(gap));
        }
        self.last_heartbeat = Some(now);
    }

    /// Returns the end of the present wait and the timeout that expires then. Progress counts only if `watched`.
    pub fn next_timeout(&mut self, watched: bool, now: impl FnOnce() -> Instant) -> (Instant, TimeoutKind) {
        // Repeated polls of one wait share its start.
        let since = *self.waiting_since.get_or_insert_with(now);
        let mut first = (self.deadline, TimeoutKind::Total);
        let mut also = |at: Instant, clock| {
            if at < first.0 {
                first = (at, clock);
            }
        };
        if let Some(limit) = self.bytes_timeout(watched) {
            also(since + limit, TimeoutKind::Bytes);
        }
        if watched {
            let (clock, limit) = self.progress_timeout();
            also(since + limit.saturating_sub(self.waited), clock);
        }
        first
    }

    /// Returns `true` if more than half of the timeout for the present silence is used.
    pub fn is_late(&self, watched: bool, now: Instant) -> bool {
        let Some(since) = self.waiting_since else { return false };
        let silent = now.saturating_duration_since(since);
        // Either timeout may expire first, so the nearer one decides.
        let bytes = self.bytes_timeout(watched).is_some_and(|limit| silent * 2 > limit);
        let limit = match self.progress_timeout() {
            // The client's own timeout shows nothing about the provider.
            (TimeoutKind::ClientPatience | TimeoutKind::FirstEvent, _) if self.heartbeat_gap.is_none() => {
                self.limits.headers
            }
            (_, limit) => limit,
        };
        bytes || (watched && (self.waited + silent) * 2 > limit)
    }

    /// Returns the most recent running tool; `None` if no tool is running.
    pub fn running_tool(&self, facts: &Facts, now: Instant) -> Option<RunningTool> {
        let tool = facts
            .server_tools
            .latest_tool()
            .filter(|_| self.state.in_flight == InFlight::ServerTool)?;
        let age = now.saturating_duration_since(self.tool_started_at).min(TOOL_AGE_MAX);
        Some(RunningTool::from_tool(tool, age))
    }

    /// Returns the timeout for bytes; `None` if it does not apply. A stream without a rhythm of heartbeats may be silent
    /// while something is in flight.
    fn bytes_timeout(&self, watched: bool) -> Option<Duration> {
        // A provider that sends heartbeats is expected to go on with them, whatever is in flight.
        if let Some(gap) = self.heartbeat_gap {
            let limit = gap.saturating_mul(HEARTBEAT_GAPS_MAX).max(self.limits.heartbeat_idle);
            // Slow heartbeats must not allow more than the state itself does.
            return (limit < self.progress_timeout().1).then_some(limit);
        }
        // Without heartbeats a silence before the first event is normal, however long the model thinks.
        let excused = self.state.in_flight != InFlight::Nothing || !self.state.has_begun;
        (!watched || !excused).then_some(self.limits.idle)
    }

    /// Returns the progress timeout in force.
    const fn progress_timeout(&self) -> (TimeoutKind, Duration) {
        let limits = &self.limits;
        match (self.state.in_flight, self.state.has_begun) {
            // What is in flight decides first, even before the first event of the answer.
            (InFlight::ServerTool, _) => (TimeoutKind::ServerTool, limits.server_tool),
            (InFlight::Compaction, _) => (TimeoutKind::Compaction, limits.compaction),
            (InFlight::Reasoning, _) => (TimeoutKind::Reasoning, limits.reasoning),
            (InFlight::Nothing, true) => (TimeoutKind::Progress, limits.progress),
            (InFlight::Nothing, false) if self.heartbeat_gap.is_some() => (TimeoutKind::FirstEvent, limits.first_event),
            (InFlight::Nothing, false) if self.is_hurried => (TimeoutKind::ClientPatience, self.first_event_limit),
            (InFlight::Nothing, false) => (TimeoutKind::FirstEvent, self.first_event_limit),
        }
    }
}

/// Returns `limit`, or slightly less than the client's own timeout if that is shorter. The proxy sees the cause of a
/// silence, so it should time out first.
pub fn within_budget(limit: Duration, budget: Option<Duration>) -> Duration {
    // Time for the proxy's error to reach the client before the client gives up.
    const AHEAD: Duration = Duration::from_secs(5);
    match budget {
        // Half of a very short timeout, where five seconds would leave nothing.
        Some(budget) => limit.min(budget.saturating_sub(AHEAD).max(budget / 2)),
        None => limit,
    }
}

/// Returns `true` if the client's own timeout ends the wait within half of `limit`. The provider has not failed then.
pub fn is_hurried(limit: Duration, budget: Option<Duration>) -> bool {
    // The same half after which a client that leaves counts against the endpoint.
    within_budget(limit, budget) <= limit / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_tool_is_shown_escaped_and_short() {
        let tool = ServerTool {
            id: "ws_\u{202e}\n1".into(),
            name: "größe ".repeat(100).into(),
            ..ServerTool::default()
        };
        let shown = RunningTool::from_tool(&tool, Duration::ZERO);
        assert_eq!(shown.id, "ws_\\u{202e}\\n1");
        assert!(shown.name.starts_with("größe größe ") && shown.name.chars().count() == 80);
    }
}
