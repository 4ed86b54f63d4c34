//! Requests in whose bodies something was found: in words, and in structure.

use serde::Serialize;
use utoipa::ToSchema;

use super::date;
use crate::{
    conversation::Finding,
    telemetry::{
        Telemetry,
        dashboard::{BlockStructure, BodyStructure, MessageStructure, RepairEntry},
    },
};

/// The last requests in whose bodies something was found, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct RepairsPage {
    /// How many are kept.
    kept: usize,
    repairs: Vec<Repair>,
}

/// One of them.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct Repair {
    /// `x-antiphon-request-id`.
    id: String,
    /// When it ended, RFC 3339.
    at: String,
    upstream: Option<String>,
    format: Option<&'static str>,
    /// `repair`, `strict` or `observe`.
    mode: Option<&'static str>,
    /// `repaired`, `rejected` or `observed`.
    outcome: &'static str,
    /// What the client was given; 0 where it left before.
    status: u16,
    /// Messages of the body as it came; null where it was not sketched.
    messages: Option<usize>,
    /// The first of what was found.
    findings: Vec<Found>,
    /// How much was found in all.
    finding_count: usize,
    actions: Vec<Done>,
    /// Whether `before` is there to be asked for.
    sketched: bool,
    /// The structure of the body as it came.
    before: Option<Sketch>,
    /// The structure of the body as it went up, where it was changed.
    after: Option<Sketch>,
}

/// A breach of the pairing rules.
#[derive(Debug, Serialize, ToSchema)]
struct Found {
    kind: &'static str,
    message: usize,
    call_id: Option<String>,
    tool: Option<String>,
    explanation: &'static str,
}

/// What was done, how often.
#[derive(Debug, Serialize, ToSchema)]
struct Done {
    action: &'static str,
    count: usize,
    explanation: &'static str,
}

/// The structure of a body around what was found and done. Never content.
#[derive(Debug, Serialize, ToSchema)]
struct Sketch {
    /// Messages of the body.
    messages: usize,
    /// Those that are shown; a jump in `index` leaves some out.
    shown: Vec<Message>,
}

/// One message.
#[derive(Debug, Serialize, ToSchema)]
struct Message {
    index: usize,
    /// `user`, `assistant`, `tool` or `system`.
    role: &'static str,
    blocks: Vec<Block>,
}

/// One block.
#[derive(Debug, Serialize, ToSchema)]
struct Block {
    /// `call`, `result`, `server_call`, `server_result`, `thinking`, `compaction` or `other`.
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// Whether the body before has nothing like it in this place.
    new: bool,
    /// Whether the body behind has nothing like it in this place.
    gone: bool,
}

/// The page of the last `limit`.
pub(in crate::admin) fn repairs(telemetry: &Telemetry, limit: usize) -> RepairsPage {
    let shown = telemetry.dashboard().repairs(limit);
    RepairsPage {
        kept: telemetry.dashboard().repair_count(),
        repairs: shown.iter().map(|mended| repair(mended, true)).collect(),
    }
}

/// One of them, with its structure if that is asked for.
pub(in crate::admin) fn repair(mended: &RepairEntry, structure: bool) -> Repair {
    let tools = mended.tool_names();
    let found = |finding: &Finding| Found {
        kind: finding.kind.code(),
        message: finding.message,
        tool: tools.get(finding.id.as_str()).map(|tool| (*tool).to_owned()),
        call_id: Some(finding.id.clone()).filter(|id| !id.is_empty()),
        explanation: finding.kind.explanation(),
    };
    let sketches = mended.structure.as_deref();
    let before = sketches.and_then(|sketches| sketches.before.as_ref());
    let after = sketches.and_then(|sketches| sketches.after.as_ref());
    let shown = |body: Option<&BodyStructure>, is_after| body.filter(|_| structure).map(|body| sketch(body, is_after));
    Repair {
        id: mended.id.clone(),
        at: date(mended.at),
        upstream: mended.upstream.clone(),
        format: mended.format.map(crate::wire::Format::label),
        mode: mended.mode.map(crate::repair::Mode::label),
        outcome: mended.outcome,
        status: mended.status,
        messages: before.map(|body| body.messages),
        findings: mended.findings.iter().map(found).collect(),
        finding_count: mended.finding_count,
        actions: mended
            .actions
            .iter()
            .map(|(action, count)| Done {
                action: action.label(),
                count: *count,
                explanation: action.explanation(),
            })
            .collect(),
        sketched: before.is_some(),
        before: shown(before, false),
        after: shown(after, true),
    }
}

fn sketch(body: &BodyStructure, is_after: bool) -> Sketch {
    let block = |block: &BlockStructure| Block {
        kind: block.kind,
        id: block.id.clone(),
        tool: block.tool.clone(),
        new: is_after && block.changed,
        gone: !is_after && block.changed,
    };
    let message = |message: &MessageStructure| Message {
        index: message.index,
        role: message.role,
        blocks: message.blocks.iter().map(block).collect(),
    };
    Sketch {
        messages: body.messages,
        shown: body.shown.iter().map(message).collect(),
    }
}
