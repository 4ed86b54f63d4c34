//! What happens to a relay, and what it wants done about it.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;

use super::{message::RpcId, outcome::ToolOutcome};
use crate::cli::mcp::answer_after::AnswerAfter;

/// The number of a run in its relay.
pub(in crate::cli::mcp) type RunNumber = u64;
/// The hash of a server, a tool and an input.
pub(in crate::cli::mcp) type RunHash = [u8; 32];

/// The settings of a relay.
#[derive(Clone, Debug, Default)]
pub(in crate::cli::mcp) struct RelaySettings {
    /// The hash of the server's command, which tells its runs from those of other servers.
    pub(in crate::cli::mcp) server: RunHash,
    pub(in crate::cli::mcp) answer_after: AnswerAfter,
    /// The time after which the client gives a call up, if its configuration says so.
    pub(in crate::cli::mcp) client_timeout: Option<Duration>,
    /// The tools whose runs are stopped by any cancel.
    pub(in crate::cli::mcp) revertible: BTreeSet<String>,
    pub(in crate::cli::mcp) once: OnceTools,
    /// The name of the server until it has told its own.
    pub(in crate::cli::mcp) server_name: String,
}

/// The tools that run once.
#[derive(Clone, Debug, Default)]
pub(in crate::cli::mcp) struct OnceTools(BTreeSet<String>);

impl OnceTools {
    /// The name that stands for every tool.
    const ALL: &str = "*";

    /// Takes the names of tools.
    pub(in crate::cli::mcp) fn of_names(names: &[String]) -> Self {
        Self(names.iter().cloned().collect())
    }

    /// Returns `true` if a tool runs once.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.0.contains(tool) || self.0.contains(Self::ALL)
    }

    /// Returns `true` if no tool does.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The effect of a run, which is claimed before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) struct RunClaim {
    /// The name of the server.
    pub(in crate::cli::mcp) server: String,
    pub(in crate::cli::mcp) tool: String,
    /// The input, as the client wrote it.
    pub(in crate::cli::mcp) arguments: String,
    /// The hash of the canonical input.
    pub(in crate::cli::mcp) input: [u8; 32],
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) enum ClaimAnswer {
    /// The tool may run.
    Granted,
    /// It ran before, with this result. The text says when.
    Ran(ToolOutcome, String),
    /// It ran before, and its result cannot be given. The text says why.
    RanUnseen(String),
    /// It is running elsewhere.
    InFlight,
    /// It does not run. The text says why, and who can change that.
    Refused(String),
}

/// The end of a granted claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) enum ClaimOrder {
    /// The run has ended.
    Ended(ToolOutcome),
    /// The tool did not run, or has not finished.
    NotRun,
    /// A person has stopped the run, and nobody knows if it goes on: its end may still come.
    Leave,
    /// Its end will never be known.
    Lost,
}

/// Something that has happened.
#[derive(Debug)]
pub(in crate::cli::mcp) enum RelayEvent {
    /// A line of the client, with its end.
    ClientLine(Bytes),
    /// A part of a line that is too long to be read.
    ClientPiece(Bytes),
    /// The client has closed its input. It may still read.
    InputEnded,
    ClientGone,
    /// A line that could not be written to the client.
    Unwritten(Bytes),
    /// The client's pipe has every line.
    AllWritten,
    /// A line of the server, with its end.
    ServerLine(Bytes),
    /// A part of a line that is too long to be read, and `true` if it is the last one.
    ServerPiece(Bytes, bool),
    /// The connection of a call has ended before its answer. The line is the error for a client that waits.
    CallLost(RpcId, Option<Bytes>),
    /// A call has not reached the server. The line is the error.
    CallUnsent(RpcId, Bytes),
    ServerGone,
    /// Time has passed.
    Tick,
    /// The proxy knows the call, or does not.
    CallKnown(RunNumber, bool),
    /// The answer to a post.
    Posted(RunNumber, PostReply),
    /// The answer to a withdrawal.
    Withdrawn(RunNumber, WithdrawReply),
    /// The answer to a claim.
    Claimed(RunNumber, ClaimAnswer),
    /// The proxy has the end of a claimed run, or never will, for this reason.
    Reported(RunNumber, Option<String>),
    /// The answer to [`RelayEffect::Look`].
    Found(RunHash, FoundRun),
}

/// The answer to a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) enum PostReply {
    /// The proxy has the result with its call.
    Settled,
    /// The first try has failed, and others follow.
    Failing,
    /// It never will.
    Refused,
    /// The kept result was taken by another process meanwhile.
    Taken,
}

/// The answer to a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) enum WithdrawReply {
    /// No request will contain the result.
    Withdrawn,
    /// A request contains it already.
    Delivered,
    /// There is no answer that says so.
    Unclear,
}

/// The run of another process, or its result.
#[derive(Debug)]
pub(in crate::cli::mcp) enum FoundRun {
    Nothing,
    /// It goes on in another process.
    Running,
    /// It has ended. Its result is kept until it was given.
    Kept(KeptResult),
}

/// A result that nobody has yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) struct KeptResult {
    pub(in crate::cli::mcp) tool: String,
    pub(in crate::cli::mcp) call_id: Option<String>,
    pub(in crate::cli::mcp) place: KeptPlace,
    pub(in crate::cli::mcp) outcome: ToolOutcome,
}

/// The place where a result waits for its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::mcp) enum KeptPlace {
    /// Only a retry can get it.
    RetryOnly,
    /// It must still be posted.
    Due,
    /// The proxy has it.
    Posted,
}

/// Something to do.
#[derive(Debug)]
pub(in crate::cli::mcp) enum RelayEffect {
    ToServer(Bytes),
    ToClient(Bytes),
    /// A note for the person who reads the client's log.
    Say(String),
    /// Ask the proxy if it knows this call.
    Ask(RunNumber, String),
    /// Tell the proxy that the run of this call goes on.
    Heartbeat(String),
    /// Post this body for a call, until the proxy has it. `RunHash` is where the result is kept meanwhile.
    Post(RunNumber, RunHash, String, String),
    /// Post this body for a call, once: the client has read the result, or has not.
    PostIfMissing(String, String),
    /// Take a posted result back.
    Withdraw(RunNumber, String),
    /// Claim a run, and keep the claim until an order ends it.
    Claim(RunNumber, RunClaim),
    Order(RunNumber, ClaimOrder),
    /// Look for the run of another process. The answer follows at once.
    Look(RunHash),
    /// Tell other processes that this run is detached, with its tool and its call.
    Mark(RunHash, String, Option<String>),
    Unmark(RunHash),
    Keep(RunHash, KeptResult),
    /// Remove the kept result of a call.
    Forget(RunHash, Option<String>),
    /// Stop posting the result of a run: it goes elsewhere.
    StopPost(RunNumber),
}
