//! The stream timeouts of one answer: its state, the timeout in force, and the time used. Per exchange, never shared.
//!
//! Two timeouts run side by side. Any byte restarts the one for bytes; only events of the answer restart the one for
//! progress.

use std::time::{Duration, Instant};

use super::Clocks;
use crate::wire::watch::{Facts, Phase};

/// Bytes of a tool's name or id that are shown.
const SHOWN_MAX: usize = 64;
/// Longest believable age of a running tool.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// `true` once an event of the answer itself has arrived.
    pub begun: bool,
    /// `true` once a heartbeat has arrived.
    pub heartbeats: bool,
    /// `true` if the provider reported the request as queued.
    pub queued: bool,
    /// The explanation for a silence.
    pub open: Open,
}

/// An explanation for a silence, the longest timeout first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Open {
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

impl State {
    /// Derives the state from the watcher's facts. A finished answer has nothing in flight.
    fn of(facts: &Facts, compacts: bool) -> Self {
        // Checked first: a tool or block that the stream left open means nothing after its end.
        let open = if facts.terminal {
            Open::Nothing
        } else if !facts.server_tools.in_flight.is_empty() {
            Open::ServerTool
        } else if compacts || facts.compaction == Phase::Open {
            Open::Compaction
        } else if facts.reasoning == Phase::Open {
            Open::Reasoning
        } else {
            Open::Nothing
        };
        Self {
            begun: facts.begun,
            heartbeats: facts.heartbeats > 0,
            queued: facts.queued,
            open,
        }
    }
}

/// A timeout of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Since the head, nothing but heartbeats.
    FirstEvent,
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

/// The most recent running tool, safe to show: its texts are cut and printable, its age is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The tool's name.
    pub name: String,
    /// The tool's id.
    pub id: String,
    /// Time since its start was seen.
    pub age: Duration,
}

/// The timeouts of one answer.
#[derive(Clone, Debug)]
pub struct Course {
    clocks: Clocks,
    first_event: Duration,
    total_at: Instant,
    /// `true` if the request asks for a compaction only.
    compacts: bool,
    state: State,
    /// Events of the answer so far.
    events: u64,
    /// Tools started so far, and the start of the last.
    tools: u64,
    tool_at: Instant,
    /// The start of the present wait for the provider; `None` while the client is slow to read.
    waiting: Option<Instant>,
    /// Time without progress so far, without the present wait.
    waited: Duration,
}

impl Course {
    /// Starts the timeouts of an answer. Its exchange began at `began`; `budget` is the client's own timeout.
    pub fn new(clocks: &Clocks, compacts: bool, budget: Option<Duration>, began: Instant, now: Instant) -> Self {
        let state = State {
            // No event announces the compaction of a request that asks for one.
            open: if compacts { Open::Compaction } else { Open::Nothing },
            ..State::default()
        };
        Self {
            clocks: *clocks,
            // Without heartbeats the wait is as long as for a head that comes when the model is done.
            first_event: below(clocks.headers, budget),
            total_at: began + clocks.total,
            compacts,
            state,
            events: 0,
            tools: 0,
            tool_at: now,
            waiting: None,
            waited: Duration::ZERO,
        }
    }

    /// Returns the state of the answer.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Records that bytes arrived. `facts` is `None` if the answer is not watched. `now` is called only if needed.
    pub fn heard(&mut self, facts: Option<&Facts>, now: impl Fn() -> Instant) {
        let waiting = self.waiting.take();
        // An unwatched answer has no known events, so any byte counts as progress.
        let Some(facts) = facts else {
            self.waited = Duration::ZERO;
            return;
        };
        // Read before the state changes: it detects the first heartbeat below.
        let silent = !self.state.heartbeats;
        self.state = State::of(facts, self.compacts);
        // The facts contain no times, so the start is the moment at which the count changes.
        if facts.server_tools.started != self.tools {
            (self.tools, self.tool_at) = (facts.server_tools.started, now());
        }
        if facts.events == self.events {
            // A heartbeat only: the wait for progress continues.
            self.waited += waiting.map_or(Duration::ZERO, |since| now().saturating_duration_since(since));
            if silent && self.waited >= self.progress().1 {
                // The first heartbeat selects a shorter timeout, which must not end the answer at once.
                self.waited = self.progress().1.saturating_sub(self.clocks.heartbeat_idle);
            }
        } else {
            (self.events, self.waited) = (facts.events, Duration::ZERO);
        }
    }

    /// Returns the end of the present wait and the timeout that expires then. Progress counts only if `watched`.
    pub fn wait(&mut self, watched: bool, now: impl FnOnce() -> Instant) -> (Instant, Clock) {
        // Repeated polls of one wait share its start.
        let since = *self.waiting.get_or_insert_with(now);
        let mut first = (self.total_at, Clock::Total);
        let mut also = |at: Instant, clock| {
            if at < first.0 {
                first = (at, clock);
            }
        };
        if let Some(limit) = self.bytes(watched) {
            also(since + limit, Clock::Bytes);
        }
        if watched {
            let (clock, limit) = self.progress();
            also(since + limit.saturating_sub(self.waited), clock);
        }
        first
    }

    /// Returns `true` if more than half of the timeout for the present silence is used.
    pub fn is_late(&self, watched: bool, now: Instant) -> bool {
        let Some(since) = self.waiting else { return false };
        let silent = now.saturating_duration_since(since);
        // Either timeout may expire first, so the nearer one decides.
        let bytes = self.bytes(watched).is_some_and(|limit| silent * 2 > limit);
        let (_, limit) = self.progress();
        bytes || (watched && (self.waited + silent) * 2 > limit)
    }

    /// Returns the most recent running tool; `None` if no tool is running.
    pub fn snapshot(&self, facts: &Facts, now: Instant) -> Option<Snapshot> {
        let tool = facts
            .server_tools
            .latest()
            .filter(|_| self.state.open == Open::ServerTool)?;
        Some(Snapshot {
            name: shown(&tool.name),
            id: shown(&tool.id),
            age: now.saturating_duration_since(self.tool_at).min(AGE_MAX),
        })
    }

    /// Returns the timeout for bytes; `None` if it does not apply. A stream without heartbeats may be silent while
    /// something is in flight.
    fn bytes(&self, watched: bool) -> Option<Duration> {
        // A provider that sends heartbeats is expected to go on with them, whatever is in flight.
        if self.state.heartbeats {
            return Some(self.clocks.heartbeat_idle);
        }
        // Without heartbeats a silence before the first event is normal, however long the model thinks.
        let excused = self.state.open != Open::Nothing || !self.state.begun;
        (!watched || !excused).then_some(self.clocks.idle)
    }

    /// Returns the progress timeout in force.
    const fn progress(&self) -> (Clock, Duration) {
        let Clocks {
            first_event,
            progress,
            reasoning,
            server_tool,
            compaction,
            ..
        } = self.clocks;
        match (self.state.open, self.state.begun) {
            // What is in flight decides first, even before the first event of the answer.
            (Open::ServerTool, _) => (Clock::ServerTool, server_tool),
            (Open::Compaction, _) => (Clock::Compaction, compaction),
            (Open::Reasoning, _) => (Clock::Reasoning, reasoning),
            (Open::Nothing, true) => (Clock::Progress, progress),
            (Open::Nothing, false) if self.state.heartbeats => (Clock::FirstEvent, first_event),
            (Open::Nothing, false) => (Clock::FirstEvent, self.first_event),
        }
    }
}

/// Returns `limit`, or slightly less than the client's own timeout if that is shorter. The proxy sees the cause of a
/// silence, so it should time out first.
pub fn below(limit: Duration, budget: Option<Duration>) -> Duration {
    // Time for the proxy's error to reach the client before the client gives up.
    const AHEAD: Duration = Duration::from_secs(5);
    match budget {
        // Half of a very short timeout, where five seconds would leave nothing.
        Some(budget) => limit.min(budget.saturating_sub(AHEAD).max(budget / 2)),
        None => limit,
    }
}

/// Returns a provider's text, cut and printable.
fn shown(text: &str) -> String {
    let letters = text.chars().take(SHOWN_MAX);
    // The text ends up in logs and headers, where control characters could forge lines.
    let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '_' };
    letters.map(plain).collect()
}
