//! The calls that a relay watches, and what it knows of client and server.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use super::{
    events::{RelayEffect, RelaySettings, RunHash, RunNumber},
    message::{CallRequest, RpcId},
    outcome::ToolOutcome,
};

/// Most bytes of own lines that wait for the end of a long line of the server.
const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The part that a client still takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientPresence {
    #[default]
    Speaking,
    /// Its input has ended. It may still read.
    Reading,
    Gone,
}

/// A relay between one client and one server. Times are since its start.
#[derive(Debug, Default)]
pub(in crate::cli::mcp) struct CallRelay {
    pub(super) settings: RelaySettings,
    pub(super) now: Duration,
    pub(super) runs: BTreeMap<RunNumber, ToolRun>,
    pub(super) last_number: RunNumber,
    /// Answers on their way to the client.
    pub(super) sent: BTreeMap<RpcId, SentAnswer>,
    /// Kept results on their way to the client. They are forgotten once its pipe has them.
    pub(super) given: BTreeSet<(RunHash, Option<String>)>,
    /// Answers that the client's pipe has, in their order.
    pub(super) written: VecDeque<WrittenAnswer>,
    /// Requests that wait for the run of another process.
    pub(super) elsewhere: Vec<(RunHash, Asker)>,
    pub(super) looked_at: Duration,
    /// The name of the client's program.
    pub(super) client: String,
    pub(super) presence: ClientPresence,
    /// Requests of the client for the list of tools.
    pub(super) lists: BTreeSet<RpcId>,
    /// Tools whose results must have a structured part.
    pub(super) structured_tools: BTreeSet<String>,
    /// Requests of the server that the client has not answered: `true` for a ping.
    pub(super) server_requests: BTreeMap<RpcId, bool>,
    pub(super) clock: WaitingClock,
    pub(super) is_crowd_said: bool,
    pub(super) is_server_gone: bool,
    /// Requests of the client whose answers name the server.
    pub(super) greetings: BTreeSet<RpcId>,
    pub(super) server_name: Option<String>,
    pub(super) once: OnceRuns,
    /// Own lines that wait for the end of a line of the server that is too long to be read.
    pub(super) held_lines: Option<Vec<Bytes>>,
    pub(super) effects: Vec<RelayEffect>,
}

/// The runs of tools that run once.
#[derive(Debug, Default)]
pub(super) struct OnceRuns {
    /// Those whose claim is granted, and whose end is still to come.
    pub(super) claimed: BTreeSet<RunNumber>,
    /// Ended ones of which the proxy is told.
    pub(super) reports: BTreeSet<RunNumber>,
    pub(super) is_long_line_said: bool,
}

/// One execution of a tool.
#[derive(Debug)]
pub(super) struct ToolRun {
    pub(super) hash: RunHash,
    pub(super) tool: String,
    /// The call whose conversation gets the result, if no request does.
    pub(super) call_id: Option<String>,
    /// The id of the request that the server answers.
    pub(super) request_id: RpcId,
    pub(super) progress: Option<RpcId>,
    /// The request that started it, while its client waits: the run is attached.
    pub(super) asker: Option<Asker>,
    /// Requests that have joined it.
    pub(super) waiters: Vec<Asker>,
    pub(super) stage: RunStage,
    /// The time of the next heartbeat, while the run is detached.
    pub(super) heartbeat_at: Duration,
}

/// The answer to a call, on its way to the client.
#[derive(Debug)]
pub(super) struct SentAnswer {
    pub(super) hash: RunHash,
    pub(super) tool: String,
    pub(super) call_id: Option<String>,
    pub(super) sent_at: Duration,
    pub(super) line: Bytes,
}

/// The answer to a call, which the client may have read.
#[derive(Debug)]
pub(super) struct WrittenAnswer {
    /// The time at which it was sent.
    pub(super) sent_at: Duration,
    pub(super) call_id: String,
    pub(super) line: Bytes,
}

/// The stage of a run.
#[derive(Debug)]
pub(super) enum RunStage {
    /// The server does not have it yet.
    Claiming(ClaimWait),
    Running,
    /// A cancel has told the server to stop it.
    Cancelled,
    /// It has ended, and its result is on its way to the proxy. `true` if a try has failed already.
    Posting(ToolOutcome, bool),
    /// It has ended, and its posted result is taken back.
    Withdrawing(ToolOutcome),
}

/// A run that waits for the answer to its claim.
#[derive(Debug)]
pub(super) struct ClaimWait {
    /// The time of the next claim. `None` while one is on its way.
    pub(super) retry_at: Option<Duration>,
    /// The pause before the next one.
    pub(super) pause: Duration,
    /// It goes on elsewhere.
    pub(super) is_elsewhere: bool,
}

/// A request that waits for a run.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) request: CallRequest,
    /// The whole line. Empty once the server has it.
    pub(super) line: Bytes,
    pub(super) since: Duration,
    /// The reading of the waiting clock when it came.
    pub(super) since_active: Duration,
    /// The proxy was asked if it knows the call, for an early answer.
    pub(super) is_asked: bool,
    /// If the result is in its conversation already, the call is meant once more.
    pub(super) may_start: bool,
}

/// The time in which a client waits for the server, and not the server for its client.
#[derive(Debug, Default)]
pub(super) struct WaitingClock {
    stopped_at: Option<Duration>,
    stopped_for: Duration,
}

impl WaitingClock {
    /// Returns the reading of the clock.
    pub(super) fn reading(&self, now: Duration) -> Duration {
        self.stopped_at.unwrap_or(now).saturating_sub(self.stopped_for)
    }

    /// Stops the clock, or lets it go on.
    pub(super) fn set_stopped(&mut self, is_stopped: bool, now: Duration) {
        match (self.stopped_at, is_stopped) {
            (None, true) => self.stopped_at = Some(now),
            (Some(since), false) => {
                self.stopped_for = self.stopped_for.saturating_add(now.saturating_sub(since));
                self.stopped_at = None;
            }
            _ => {}
        }
    }

    /// Returns the time at which the clock reads this. `None` while it is stopped.
    pub(super) fn time_of(&self, reading: Duration) -> Option<Duration> {
        self.stopped_at
            .is_none()
            .then(|| reading.saturating_add(self.stopped_for))
    }
}

impl ToolRun {
    /// Returns `true` if nobody waits for it whose request started it, and its result is still to come.
    pub(super) fn is_detached(&self) -> bool {
        self.asker.is_none() && matches!(self.stage, RunStage::Running)
    }

    /// Returns the number of calls that it is watched for.
    pub(super) const fn watched(&self) -> usize {
        let own = match self.stage {
            // A server need not answer what was cancelled.
            RunStage::Claiming(_) | RunStage::Cancelled => 0,
            RunStage::Running | RunStage::Posting(..) | RunStage::Withdrawing(_) => 1,
        };
        self.waiters.len().saturating_add(own)
    }

    /// Returns `true` if a cancel has told the server to stop it.
    pub(super) const fn is_cancelled(&self) -> bool {
        matches!(self.stage, RunStage::Cancelled)
    }

    /// Returns `true` if its server has still to answer.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.stage, RunStage::Running | RunStage::Cancelled)
    }

    /// Returns `true` if it waits for its run elsewhere.
    pub(super) const fn waits_elsewhere(&self) -> bool {
        matches!(self.stage, RunStage::Claiming(ClaimWait { is_elsewhere: true, .. }))
    }

    /// Returns the wait for its claim. `None` if it has begun.
    pub(super) fn claim_wait(&mut self) -> Option<&mut ClaimWait> {
        match &mut self.stage {
            RunStage::Claiming(wait) => Some(wait),
            _ => None,
        }
    }

    /// Forgets a request that joined it. Its conversation gets the result, unless that has ended and is another's.
    pub(super) fn drop_waiter(&mut self, place: usize) {
        if place < self.waiters.len() {
            let waiter = self.waiters.remove(place);
            if self.is_open() {
                self.call_id = waiter.request.call_id.or_else(|| self.call_id.take());
            }
        }
    }
}

impl CallRelay {
    /// Creates a relay.
    pub(in crate::cli::mcp) fn new(settings: RelaySettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Returns `true` if no detached run goes on, and every result is where it belongs.
    pub(in crate::cli::mcp) fn is_idle(&self) -> bool {
        self.once.reports.is_empty() && self.runs.values().all(|run| matches!(run.stage, RunStage::Cancelled))
    }

    /// Returns the tool and the call of a run whose result the proxy does not have yet.
    pub(in crate::cli::mcp) fn unposted_run(&self) -> Option<(String, Option<String>)> {
        let mut runs = self.runs.values();
        let run = runs.find(|run| matches!(run.stage, RunStage::Posting(..)))?;
        Some((run.tool.clone(), run.call_id.clone()))
    }

    /// Returns `true` if the answer to a watched call may still be on its way to the client.
    pub(in crate::cli::mcp) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Returns `true` if a run goes on in the server, or is about to.
    pub(in crate::cli::mcp) fn is_running(&self) -> bool {
        let goes_on = |run: &ToolRun| match run.stage {
            RunStage::Running => true,
            RunStage::Claiming(_) => !run.waiters.is_empty(),
            RunStage::Cancelled | RunStage::Posting(..) | RunStage::Withdrawing(_) => false,
        };
        self.runs.values().any(goes_on)
    }

    /// Returns the open run that answers this request.
    pub(super) fn open_run(&self, id: &RpcId) -> Option<RunNumber> {
        let is_meant = |(_, run): &(&RunNumber, &ToolRun)| run.is_open() && run.request_id == *id;
        self.runs.iter().find(is_meant).map(|(number, _)| *number)
    }

    /// Removes the mark of a run, unless another run of the same input needs it.
    pub(super) fn unmark(&mut self, hash: RunHash) {
        let is_given = self.given.iter().any(|(of, _)| *of == hash);
        if !is_given && !self.runs.values().any(|run| run.hash == hash && run.is_detached()) {
            self.effects.push(RelayEffect::Unmark(hash));
        }
    }

    pub(super) fn add_run(&mut self, run: ToolRun) -> RunNumber {
        self.last_number = self.last_number.saturating_add(1);
        self.runs.insert(self.last_number, run);
        self.last_number
    }

    /// Sends a line of the wrapper's own to the client.
    pub(super) fn send_own(&mut self, line: Bytes) {
        let Some(held) = &mut self.held_lines else {
            self.effects.push(RelayEffect::ToClient(line));
            return;
        };
        let bytes: usize = held.iter().map(Bytes::len).sum();
        if bytes.saturating_add(line.len()) <= HELD_BYTES_MAX {
            held.push(line);
        } else {
            self.take_unwritten(&line);
        }
    }

    /// Returns the name of the server: its own, once it has told that.
    pub(super) fn server_label(&self) -> &str {
        self.server_name.as_deref().unwrap_or(&self.settings.server_name)
    }

    pub(super) fn say(&mut self, note: String) {
        self.effects.push(RelayEffect::Say(note));
    }
}
