//! The entries of the dashboard's feed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use super::structure::StructureChange;
use crate::{
    conversation::Finding,
    printable::printable_name,
    repair::{Action, Mode},
    telemetry::events::ExchangeEnded,
    upstream::NetworkCause,
    wire::Format,
};

/// Limit of findings in an entry.
const FINDINGS_MAX: usize = 20;

/// The names of an exchange that come from outside: escaped and shortened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExchangeNames {
    /// The model; `None` if the request named none, or its body was not read.
    pub model: Option<String>,
    /// The client program; `None` if it does not name itself.
    pub client: Option<String>,
    /// The name of the client token; `None` if the client presented none.
    pub token: Option<String>,
    /// The lane; `None` if nothing identifies it.
    pub lane: Option<String>,
}

impl ExchangeNames {
    /// Returns the names that are known of an exchange.
    pub(super) fn of_exchange(event: &ExchangeEnded) -> Self {
        Self {
            model: event.model.clone(),
            client: event.client.clone(),
            token: event.client_token.clone(),
            lane: event.lane.clone(),
        }
    }
}

/// An exchange that failed.
#[derive(Clone, Debug)]
pub struct FailureEntry {
    /// The value of `x-antiphon-request-id`.
    pub id: String,
    /// The time when the exchange ended, since 1970.
    pub at: Duration,
    /// The status sent to the client; 0 if none was sent.
    pub status: u16,
    /// The side that caused the failure.
    pub side: &'static str,
    /// The stable name of the failure.
    pub code: &'static str,
    /// The phase of the exchange in which it failed.
    pub phase: &'static str,
    /// The cause of a failed send; `None` for every other failure.
    pub cause: Option<NetworkCause>,
    /// The name of the upstream; `None` if no route matched.
    pub upstream: Option<String>,
    /// The format of the body; `None` if requests on this path contain no history.
    pub format: Option<Format>,
    /// The names of who sent it, and to what.
    pub names: ExchangeNames,
    /// The provider-side tool that was running at the end.
    pub running_tool: Option<String>,
    /// The time from the first byte of the request to the end.
    pub duration: Duration,
    /// The number of sends to the provider.
    pub sends: u32,
}

impl FailureEntry {
    /// Creates the entry of an exchange that ended at `at`; `None` if it did not fail.
    pub(super) fn from_exchange(at: Duration, event: &ExchangeEnded) -> Option<Self> {
        let side = event.side?;
        Some(Self {
            id: event.request_id.clone(),
            at,
            status: event.status,
            side,
            code: event.code,
            phase: event.phase,
            cause: event.cause,
            upstream: event.upstream.clone(),
            format: event.format,
            names: ExchangeNames::of_exchange(event),
            running_tool: event.running_tool.as_ref().map(|tool| tool.name.clone()),
            duration: event.duration,
            sends: event.sends,
        })
    }

    /// Returns `true` if a client caused it.
    pub fn is_by_client(&self) -> bool {
        self.side == "client"
    }
}

/// A request with findings in its body.
#[derive(Clone, Debug)]
pub struct RepairEntry {
    /// The value of `x-antiphon-request-id`.
    pub id: String,
    /// The time when the exchange ended, since 1970.
    pub at: Duration,
    /// The name of the upstream.
    pub upstream: Option<String>,
    /// The names of who sent it, and to what.
    pub names: ExchangeNames,
    /// The format of the body.
    pub format: Option<Format>,
    /// The mode in force.
    pub mode: Option<Mode>,
    /// `repaired`, `rejected` or `observed`.
    pub outcome: &'static str,
    /// The status sent to the client.
    pub status: u16,
    /// The first findings, 20 at most. Their ids are escaped and shortened.
    pub findings: Vec<Finding>,
    /// The number of all findings.
    pub finding_count: usize,
    /// The repair actions, each with its count.
    pub actions: BTreeMap<Action, usize>,
    /// The structure of the body; `None` if it was not built, or not yet.
    pub structure: Option<Arc<StructureChange>>,
}

impl RepairEntry {
    /// Creates the entry of an exchange that ended at `at`; `None` if its body had no findings and was not changed.
    pub(super) fn from_exchange(at: Duration, event: &ExchangeEnded) -> Option<Self> {
        let report = event.report.as_ref()?;
        let (findings, actions) = (&report.findings, &report.actions);
        if findings.is_empty() && actions.is_empty() {
            return None;
        }
        Some(Self {
            id: event.request_id.clone(),
            at,
            upstream: event.upstream.clone(),
            names: ExchangeNames::of_exchange(event),
            format: event.format,
            mode: event.mode,
            // A rejected request was not sent, even if its report contains actions.
            outcome: match (event.is_rejected, actions.is_empty()) {
                (true, _) => "rejected",
                (false, true) => "observed",
                (false, false) => "repaired",
            },
            status: event.status,
            // Limited, because one broken history can have thousands of findings.
            findings: findings.iter().take(FINDINGS_MAX).map(shown_finding).collect(),
            finding_count: findings.len(),
            actions: actions.clone(),
            structure: None,
        })
    }

    /// Returns the names of tools by call id, for the calls in the body's structure.
    pub fn tool_names(&self) -> HashMap<&str, &str> {
        let change = self.structure.iter();
        let bodies = change.flat_map(|change| [&change.before, &change.after]).flatten();
        let blocks = bodies.flat_map(|body| &body.shown).flat_map(|message| &message.blocks);
        // Calls that are not shown are missing: the structure contains only messages near findings.
        let named = blocks.filter_map(|block| Some((block.id.as_deref()?, block.tool.as_deref()?)));
        named.collect()
    }
}

/// Returns a finding whose id can be kept and shown: the client chose it, and it may be as large as the body.
fn shown_finding(finding: &Finding) -> Finding {
    Finding {
        kind: finding.kind,
        message: finding.message,
        part: finding.part,
        id: printable_name(finding.id.as_bytes()),
        within: finding.within.clone(),
        detail: finding.detail,
    }
}

/// The call of a late result, ready to be shown: escaped and shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateCallLabel {
    /// The call id.
    pub call_id: String,
    /// The tool; `None` if it is not known.
    pub tool: Option<String>,
    /// The program whose result it is; `None` unless the event is of a post that says so.
    pub source: Option<String>,
}

impl LateCallLabel {
    /// Makes the label of a call.
    pub fn new(call_id: &[u8], tool: Option<&[u8]>) -> Self {
        Self {
            call_id: printable_name(call_id),
            tool: tool.map(printable_name),
            source: None,
        }
    }

    /// Adds the program whose result it is, as a post has told it.
    #[must_use]
    pub fn with_source(self, source: Option<&str>) -> Self {
        Self {
            source: source.map(|source| printable_name(source.as_bytes())),
            ..self
        }
    }
}

/// An event in the life of a late result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateResultChange {
    /// The time of the event, since 1970.
    pub at: Duration,
    /// One of [`LATE_RESULT_EVENTS`](crate::telemetry::LATE_RESULT_EVENTS).
    pub event: &'static str,
    /// The time since the result was posted; `None` unless it was delivered.
    pub age: Option<Duration>,
    /// The call; `None` if the event is of no single call.
    pub call: Option<LateCallLabel>,
}

/// An update that subscribers receive as it happens.
#[derive(Clone, Debug)]
pub enum DashboardUpdate {
    /// The end of a request with findings in its body.
    Repair(Arc<RepairEntry>),
    /// The end of an exchange that failed.
    Failure(Arc<FailureEntry>),
    /// An event in the life of a late result.
    LateResult(LateResultChange),
    /// The start or the end of a profile's cooldown.
    Profiles,
}
