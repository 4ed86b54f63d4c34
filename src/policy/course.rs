//! The course of one answer: what is in flight, which clock runs, and how long it has run. Per exchange, never shared.
//!
//! Two clocks run side by side: bytes, which every sign of life feeds, and progress, which only the answer feeds.

use std::time::{Duration, Instant};

use super::Clocks;
use crate::wire::watch::{Facts, Phase};

/// Bytes of a tool's name or id that are shown.
const SHOWN_MAX: usize = 64;
/// The greatest age that is believed of a tool in flight.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What is in flight in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether anything of the answer itself has come.
    pub begun: bool,
    /// Whether a sign of life was seen.
    pub heartbeats: bool,
    /// Whether the provider said that the request is queued.
    pub queued: bool,
    /// What explains that nothing comes.
    pub open: Open,
}

/// What explains that nothing comes, the longest patience first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Open {
    /// A tool runs at the provider.
    ServerTool,
    /// The provider compacts the history.
    Compaction,
    /// Reasoning is open.
    Reasoning,
    /// Nothing.
    #[default]
    Nothing,
}

impl State {
    /// The state that an answer's facts tell. Of an answer that is over, nothing is in flight.
    fn of(facts: &Facts, compacts: bool) -> Self {
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

/// A clock of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Nothing but signs of life since the head.
    FirstEvent,
    /// No byte at all.
    Bytes,
    /// Nothing but signs of life.
    Progress,
    /// As `Progress`, while reasoning is open.
    Reasoning,
    /// As `Progress`, with a tool in flight.
    ServerTool,
    /// As `Progress`, while compacting.
    Compaction,
    /// The whole exchange.
    Total,
}

/// The most recent tool in flight, as it may be shown: cut, printable, of a believable age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Since it was seen to start.
    pub age: Duration,
}

/// The course of one answer.
#[derive(Clone, Debug)]
pub struct Course {
    clocks: Clocks,
    first_event: Duration,
    total_at: Instant,
    /// Whether the request asks for nothing but a compaction.
    compacts: bool,
    state: State,
    /// Events of the answer that were seen.
    events: u64,
    /// Tools that were started, and when the last of them was.
    tools: u64,
    tool_at: Instant,
    /// When we began to wait for the provider; none while the client is slow to take.
    waiting: Option<Instant>,
    /// How long we have waited for progress, the wait at hand excluded.
    waited: Duration,
}

impl Course {
    /// The course of an answer whose exchange began at `began`. `budget` is the client's own patience.
    pub fn new(clocks: &Clocks, compacts: bool, budget: Option<Duration>, began: Instant, now: Instant) -> Self {
        let state = State {
            open: if compacts { Open::Compaction } else { Open::Nothing },
            ..State::default()
        };
        Self {
            clocks: *clocks,
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

    /// What is in flight.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Bytes came; `facts` is what the watcher made of them, if the answer is watched. `now` is asked only if needed.
    pub fn heard(&mut self, facts: Option<&Facts>, now: impl Fn() -> Instant) {
        let waiting = self.waiting.take();
        let Some(facts) = facts else {
            self.waited = Duration::ZERO;
            return;
        };
        let silent = !self.state.heartbeats;
        self.state = State::of(facts, self.compacts);
        if facts.server_tools.started != self.tools {
            (self.tools, self.tool_at) = (facts.server_tools.started, now());
        }
        if facts.events == self.events {
            // A sign of life: the wait for progress goes on.
            self.waited += waiting.map_or(Duration::ZERO, |since| now().saturating_duration_since(since));
            if silent && self.waited >= self.progress().1 {
                // The first of them brings a shorter clock: it must not be what ends the answer.
                self.waited = self.progress().1.saturating_sub(self.clocks.heartbeat_idle);
            }
        } else {
            (self.events, self.waited) = (facts.events, Duration::ZERO);
        }
    }

    /// Nothing is there: until when to wait, and which clock runs out then. `watched` is whether progress can be told.
    pub fn wait(&mut self, watched: bool, now: impl FnOnce() -> Instant) -> (Instant, Clock) {
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

    /// Whether more than half of the patience for the silence at hand is used up.
    pub fn is_late(&self, watched: bool, now: Instant) -> bool {
        let Some(since) = self.waiting else { return false };
        let silent = now.saturating_duration_since(since);
        let bytes = self.bytes(watched).is_some_and(|limit| silent * 2 > limit);
        let (_, limit) = self.progress();
        bytes || (watched && (self.waited + silent) * 2 > limit)
    }

    /// The most recent tool in flight.
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

    /// The clock of bytes, where it runs. A stream without heartbeats may be silent while something is in flight.
    fn bytes(&self, watched: bool) -> Option<Duration> {
        if self.state.heartbeats {
            return Some(self.clocks.heartbeat_idle);
        }
        let excused = self.state.open != Open::Nothing || !self.state.begun;
        (!watched || !excused).then_some(self.clocks.idle)
    }

    /// The clock of progress that runs now.
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
            (Open::ServerTool, _) => (Clock::ServerTool, server_tool),
            (Open::Compaction, _) => (Clock::Compaction, compaction),
            (Open::Reasoning, _) => (Clock::Reasoning, reasoning),
            (Open::Nothing, true) => (Clock::Progress, progress),
            (Open::Nothing, false) if self.state.heartbeats => (Clock::FirstEvent, first_event),
            (Open::Nothing, false) => (Clock::FirstEvent, self.first_event),
        }
    }
}

/// `limit`, or a little less than the client's own patience: the side that can see should be the first to judge.
pub fn below(limit: Duration, budget: Option<Duration>) -> Duration {
    const AHEAD: Duration = Duration::from_secs(5);
    match budget {
        Some(budget) => limit.min(budget.saturating_sub(AHEAD).max(budget / 2)),
        None => limit,
    }
}

/// A text of a provider's as it may be shown.
fn shown(text: &str) -> String {
    let letters = text.chars().take(SHOWN_MAX);
    let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '_' };
    letters.map(plain).collect()
}
