//! The first calls that the findings of a history are about, by tool and id, for operators.

use super::parsed::PairedHistory;
use crate::{
    conversation::{
        Finding, FindingKind, PartId, PartKind,
        pairing::{ResultRole, id_of},
    },
    wire::json::Json,
    work,
};

/// Limit of calls in a report. A broken history can have thousands.
pub const BROKEN_CALLS_MAX: usize = 3;
/// Limit of findings that are looked at. Many findings can be about one call, whose input is long.
const FINDINGS_READ_MAX: usize = 16;
/// Limit of bytes of an id or a tool's name.
const NAME_BYTES_MAX: usize = 256;

/// A call that a finding is about, in the client's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenCall {
    /// The kind of breach.
    pub kind: FindingKind,
    /// The start of the tool's name. Empty if the body does not contain it.
    pub tool: String,
    /// The start of the call id. Empty if there is none.
    pub id: String,
}

impl BrokenCall {
    /// Returns `true` if this is the call with this id.
    pub fn has_id(&self, id: &str) -> bool {
        !self.id.is_empty() && self.id == start_of(id.as_bytes())
    }
}

/// Returns the first calls that the first findings are about.
pub(super) fn broken_calls(history: &PairedHistory<'_>) -> Vec<BrokenCall> {
    let mut calls: Vec<BrokenCall> = Vec::new();
    for finding in history.findings.iter().take(FINDINGS_READ_MAX) {
        let Some(call) = broken_call(history, finding) else {
            continue;
        };
        // One call can have several faults, and one entry is enough to find it.
        if !calls
            .iter()
            .any(|known| (&known.tool, &known.id) == (&call.tool, &call.id))
        {
            calls.push(call);
        }
        if calls.len() == BROKEN_CALLS_MAX {
            break;
        }
    }
    calls
}

/// Returns the call that a finding is about. `None` if it is about something else.
fn broken_call(history: &PairedHistory<'_>, finding: &Finding) -> Option<BrokenCall> {
    let conversation = &history.conversation;
    let message = conversation.messages.get(finding.message)?;
    let part = PartId::new(message.parts.start.saturating_add(finding.part.unwrap_or(0)));
    let name_of = |call: PartId| {
        let name = conversation.call_details(call).name?;
        Some(start_of(&Json::new(conversation.body).decode_string(name)))
    };
    let (tool, id) = match &conversation.part(part)?.kind {
        PartKind::Call(call) => (name_of(part), start_of(&call.id)),
        PartKind::ServerCall(call) => (name_of(part), start_of(&call.id)),
        PartKind::Result(result) => {
            let named = (!result.name.is_empty()).then(|| start_of(&result.name));
            let tool = call_of_result(history, part).and_then(name_of).or(named);
            (tool, start_of(&result.id))
        }
        // Text beside a call, whose id is in the finding, or a fault that belongs to no call.
        _ => (None, start_of(finding.id.as_bytes())),
    };
    let tool = tool.unwrap_or_default();
    (!tool.is_empty() || !id.is_empty()).then_some(BrokenCall {
        kind: finding.kind,
        tool,
        id,
    })
}

/// Returns the call that a result answers or repeats. `None` if the history does not contain it.
fn call_of_result(history: &PairedHistory<'_>, result: PartId) -> Option<PartId> {
    let pairing = &history.pairing;
    let row = pairing.role_of(result).and_then(ResultRole::call);
    if let Some(row) = row {
        return Some(pairing.calls[row].part);
    }
    // An orphan may name a call that has a result already, or one of another kind.
    let id = id_of(&history.conversation, result);
    let mut calls = pairing.calls.iter();
    work::count(pairing.calls.len());
    let named = |part: PartId| !id.is_empty() && id_of(&history.conversation, part) == id;
    calls.find(|call| named(call.part)).map(|call| call.part)
}

/// Returns the start of a name as text.
fn start_of(name: &[u8]) -> String {
    let start = name.get(..NAME_BYTES_MAX).unwrap_or(name);
    String::from_utf8_lossy(start).into_owned()
}
