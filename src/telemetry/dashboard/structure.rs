//! The structure of a body around its findings and repairs: roles, kinds of blocks, ids and tools. Never content.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Range,
    time::Duration,
};

use bytes::Bytes;
use serde::Serialize;
use similar::{Algorithm, DiffOp};
use utoipa::ToSchema;

use crate::{
    clock,
    conversation::{Conversation, PartKind, Role},
    printable::printable_name,
    splice::Segments,
    wire::{Wire, json::Json},
};

/// Limit of a body whose structure is built, in bytes.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Limit of shown messages in one body.
const MESSAGES_MAX: usize = 40;
/// Limit of shown blocks in one message.
const BLOCKS_MAX: usize = 64;
/// Neighbours that are shown on each side of a message with a finding or a change.
const NEIGHBOURS: usize = 1;
/// Timeout of the comparison of two bodies. After it the result is coarser.
const COMPARE_TIMEOUT: Duration = Duration::from_millis(50);

/// A body whose structure is to be built.
#[derive(Debug)]
pub struct StructureJob {
    /// The id of the request.
    pub id: String,
    /// The body as it was received.
    pub before: Bytes,
    /// The body that was sent in its place; `None` if it was sent unchanged, or not at all.
    pub after: Option<Segments>,
    /// The format and dialect of the body.
    pub wire: Wire,
    /// The indices of messages with findings.
    pub finding_messages: Vec<usize>,
}

impl StructureJob {
    /// Returns `true` if a body is too large for its structure to be built.
    pub(super) fn is_too_large(&self) -> bool {
        let after = self.after.as_ref().map_or(0, Segments::len);
        after.max(self.before.len()) > BODY_BYTES_MAX
    }
}

/// The structure of a body before and after the repair.
#[derive(Clone, Debug, Default)]
pub struct StructureChange {
    /// The body as it was received; `None` if it could not be read.
    pub before: Option<BodyStructure>,
    /// The body as it was sent; `None` if it was not changed.
    pub after: Option<BodyStructure>,
}

/// The structure of a body around its findings and repairs. Never content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Sketch)]
pub struct BodyStructure {
    /// The number of messages in the body.
    pub messages: usize,
    /// The messages that are shown. A jump in `index` marks messages that are left out.
    pub shown: Vec<MessageStructure>,
}

/// The structure of one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Message)]
pub struct MessageStructure {
    /// The index of the message, from 0.
    pub index: usize,
    /// `user`, `assistant`, `tool` or `system`.
    pub role: &'static str,
    /// The first blocks, 64 at most.
    pub blocks: Vec<BlockStructure>,
}

/// The structure of one block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Block)]
pub struct BlockStructure {
    /// `call`, `result`, `server_call`, `server_result`, `thinking`, `compaction` or `other`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The id of a call, or of the call that a result answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool of that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// True if the received body has no such block in this place.
    pub new: bool,
    /// True if the sent body has no such block in this place.
    pub gone: bool,
}

impl StructureChange {
    /// Builds the structures of a body before and after, around findings and changes.
    pub(super) fn build_change(job: &StructureJob) -> Self {
        let Some(before) = FlatBody::read_body(&job.before, job.wire) else {
            return Self::default();
        };
        let sent = job.after.as_ref().map(Segments::to_vec);
        let after = sent.as_deref().and_then(|sent| FlatBody::read_body(sent, job.wire));
        let found = job.finding_messages.iter().copied();
        let none = BTreeSet::new();
        let Some(after) = after else {
            let places: BTreeSet<usize> = found.collect();
            let calls = before.calls_after(&places, []);
            return Self {
                before: Some(before.structure_around(places, calls, &none, &none)),
                after: None,
            };
        };
        let (removed, added) = changed_blocks(&before.blocks, &after.blocks);
        // Findings are indices of the received body. In the sent body, messages may have other indices.
        let places: BTreeSet<usize> = found.chain(before.messages_with(&removed)).collect();
        // A result that was put in belongs to a call, which may stand far before the findings.
        let placed = added.iter().filter_map(|at| after.blocks.get(*at)?.id.as_deref());
        let calls = before.calls_after(&places, placed);
        Self {
            before: Some(before.structure_around(places, calls, &none, &removed)),
            after: Some(after.structure_around(after.messages_with(&added), Vec::new(), &added, &none)),
        }
    }
}

/// Returns the indices of blocks that only `before` contains, and of those that only `after` contains.
fn changed_blocks(before: &[FlatBlock], after: &[FlatBlock]) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let deadline = clock::std_now() + COMPARE_TIMEOUT;
    // Histories can have thousands of blocks, and a diff is quadratic in the worst case.
    let ops = similar::capture_diff_slices_deadline(Algorithm::Myers, before, after, Some(deadline));
    let (mut removed, mut added) = (BTreeSet::new(), BTreeSet::new());
    for op in ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. })) {
        removed.extend(op.old_range());
        added.extend(op.new_range());
    }
    (removed, added)
}

/// A body as one list of blocks, which can be compared with another.
struct FlatBody<'a> {
    conversation: Conversation<'a>,
    blocks: Vec<FlatBlock>,
    /// The range of blocks of each message.
    messages: Vec<Range<usize>>,
}

/// The part of a block that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FlatBlock {
    role: &'static str,
    kind: &'static str,
    id: Option<String>,
}

impl<'a> FlatBody<'a> {
    /// Reads a body; `None` if it is unreadable.
    fn read_body(body: &'a [u8], wire: Wire) -> Option<Self> {
        let conversation = wire.read(body).ok()?;
        let (mut blocks, mut messages) = (Vec::new(), Vec::new());
        for message in &conversation.messages {
            let (role, first) = (role_name(message.role), blocks.len());
            for part in conversation.parts.get(message.parts.clone()).unwrap_or_default() {
                let (kind, id) = kind_and_id(&part.kind);
                blocks.push(FlatBlock { role, kind, id });
            }
            if blocks.len() == first {
                // The content is a plain string: one block represents it, so that each message has a block.
                blocks.push(FlatBlock {
                    role,
                    kind: "other",
                    id: None,
                });
            }
            messages.push(first..blocks.len());
        }
        Some(Self {
            conversation,
            blocks,
            messages,
        })
    }

    /// Returns the indices of messages that contain any of these blocks.
    fn messages_with(&self, blocks: &BTreeSet<usize>) -> Vec<usize> {
        let has_any = |range: &Range<usize>| blocks.range(range.clone()).next().is_some();
        let messages = self.messages.iter().enumerate();
        messages
            .filter(|(_, range)| has_any(range))
            .map(|(index, _)| index)
            .collect()
    }

    /// Returns the indices of the messages with the calls that the messages `places` answer, and with those of `ids`.
    fn calls_after<'i>(&'i self, places: &BTreeSet<usize>, ids: impl IntoIterator<Item = &'i str>) -> Vec<usize> {
        let last = places.last().copied().unwrap_or_default();
        let blocks_of = |index: &usize| {
            self.messages
                .get(*index)
                .and_then(|range| self.blocks.get(range.clone()))
        };
        let in_places = places.iter().filter_map(blocks_of).flatten();
        let answered = in_places.filter_map(|block| block.id.as_deref());
        let wanted: HashSet<&str> = answered.chain(ids).collect();
        // Counters such as `call_0` occur again in each run: the last call before the places is the one that is meant.
        let mut calls: HashMap<&str, usize> = HashMap::new();
        for index in 0..=last {
            for block in blocks_of(&index).unwrap_or_default() {
                let id = block.id.as_deref().filter(|id| wanted.contains(id));
                if let Some(id) = id.filter(|_| matches!(block.kind, "call" | "server_call")) {
                    calls.insert(id, index);
                }
            }
        }
        calls.into_values().collect()
    }

    /// Returns the structure around the messages with the indices `places`, and that of the messages `calls`. Only one of
    /// the two bodies has the blocks in `new` and in `gone`.
    fn structure_around(
        &self,
        places: impl IntoIterator<Item = usize>,
        calls: Vec<usize>,
        new: &BTreeSet<usize>,
        gone: &BTreeSet<usize>,
    ) -> BodyStructure {
        // Results name only their call, so the tool is looked up by the call's id.
        let tools = self.tool_names();
        let with_neighbours = places
            .into_iter()
            .flat_map(|place| place.saturating_sub(NEIGHBOURS)..=place.saturating_add(NEIGHBOURS));
        // A set, so that neighbours of several places are shown once, in order.
        let mut shown: BTreeSet<usize> = with_neighbours.filter(|index| *index < self.messages.len()).collect();
        // Calls come second: they must not take the room of the findings.
        let room = MESSAGES_MAX.saturating_sub(shown.len());
        shown.extend(calls.into_iter().take(room));
        let message = |index: usize| {
            let range = self.messages.get(index)?.clone();
            let first = self.blocks.get(range.start)?;
            let block = |at: usize| {
                let FlatBlock { kind, id, .. } = self.blocks.get(at)?;
                let tool = id.as_ref().and_then(|id| tools.get(id)).cloned();
                Some(BlockStructure {
                    kind,
                    id: id.clone(),
                    tool,
                    new: new.contains(&at),
                    gone: gone.contains(&at),
                })
            };
            Some(MessageStructure {
                index,
                role: first.role,
                blocks: range.take(BLOCKS_MAX).filter_map(block).collect(),
            })
        };
        BodyStructure {
            messages: self.messages.len(),
            shown: shown.into_iter().take(MESSAGES_MAX).filter_map(message).collect(),
        }
    }

    /// Returns the names of the called tools, by call id.
    fn tool_names(&self) -> HashMap<String, String> {
        let body = self.conversation.body;
        let json = Json::new(body);
        let calls = self.conversation.parts.iter().filter_map(|part| {
            let id = match &part.kind {
                PartKind::Call(call) => shown_name(&call.id),
                PartKind::ServerCall(call) => shown_name(&call.id),
                _ => return None,
            };
            let name = (self.conversation.details)(body, part.span).name?;
            Some((id?, shown_name(&json.decode_string(name))?))
        });
        calls.collect()
    }
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::System => "system",
    }
}

fn kind_and_id(kind: &PartKind<'_>) -> (&'static str, Option<String>) {
    match kind {
        PartKind::Call(call) => ("call", shown_name(&call.id)),
        PartKind::Result(result) => ("result", shown_name(&result.id)),
        PartKind::ServerCall(call) => ("server_call", shown_name(&call.id)),
        PartKind::ServerResult(id) => ("server_result", shown_name(id)),
        PartKind::Thinking => ("thinking", None),
        PartKind::Compaction => ("compaction", None),
        PartKind::Other => ("other", None),
    }
}

/// Returns an id or a name, escaped and shortened; `None` if it is empty.
fn shown_name(name: &[u8]) -> Option<String> {
    (!name.is_empty()).then(|| printable_name(name))
}
