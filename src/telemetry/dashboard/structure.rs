//! The structure of a body around what was found and done: roles, kinds of blocks, ids and tools. Never content.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    time::Duration,
};

use similar::{Algorithm, DiffOp};

use crate::{
    clock,
    conversation::{Conversation, PartKind, Role},
    wire::{Wire, json::Json},
};

/// Messages that are shown of one body.
const SHOWN_MAX: usize = 40;
/// Blocks that are shown of one message.
const BLOCKS_MAX: usize = 64;
/// Characters of an id or of a tool's name.
const TEXT_MAX: usize = 128;
/// Messages around a place that are shown with it.
const AROUND: usize = 1;
/// Time for the comparison of two bodies; a coarser one comes out behind it.
const PATIENCE: Duration = Duration::from_millis(50);

/// A body in a sketch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyStructure {
    /// Messages that it has.
    pub messages: usize,
    /// Those that are shown, in their order.
    pub shown: Vec<MessageStructure>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageStructure {
    /// Its index, from 0.
    pub index: usize,
    /// `user`, `assistant`, `tool` or `system`.
    pub role: &'static str,
    /// Its blocks, 64 at most.
    pub blocks: Vec<BlockStructure>,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockStructure {
    /// `call`, `result`, `server_call`, `server_result`, `thinking`, `compaction` or `other`.
    pub kind: &'static str,
    /// The id of a call, or of the call that a result answers.
    pub id: Option<String>,
    /// The tool of that call.
    pub tool: Option<String>,
    /// Whether the other body of the two has nothing like it in this place.
    pub changed: bool,
}

/// A body, flat: what is compared.
struct Flat<'a> {
    conversation: Conversation<'a>,
    blocks: Vec<Block>,
    /// The blocks of each message.
    messages: Vec<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Block {
    role: &'static str,
    kind: &'static str,
    id: Option<String>,
}

/// The sketches of a body as it came, and of what went up in its place. `found` are the messages in which something was
/// found. None of a body that cannot be read.
pub(super) fn sketch(
    before: &[u8],
    after: Option<&[u8]>,
    wire: Wire,
    found: &[usize],
) -> (Option<BodyStructure>, Option<BodyStructure>) {
    let Some(before) = Flat::of(before, wire) else {
        return (None, None);
    };
    let after = after.and_then(|after| Flat::of(after, wire));
    let Some(after) = after else {
        return (Some(before.sketch(found.iter().copied(), &BTreeSet::new())), None);
    };
    let by = clock::instant() + PATIENCE;
    let (old, new) = (&before.blocks, &after.blocks);
    let ops = similar::capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(by));
    let (mut gone, mut came) = (BTreeSet::new(), BTreeSet::new());
    for op in ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. })) {
        gone.extend(op.old_range());
        came.extend(op.new_range());
    }
    let places = found.iter().copied().chain(before.messages_of(&gone));
    let sketched = before.sketch(places, &gone);
    (Some(sketched), Some(after.sketch(after.messages_of(&came), &came)))
}

impl<'a> Flat<'a> {
    fn of(body: &'a [u8], wire: Wire) -> Option<Self> {
        let conversation = wire.read(body).ok()?;
        let (mut blocks, mut messages) = (Vec::new(), Vec::new());
        for message in &conversation.messages {
            let (role, first) = (role(message.role), blocks.len());
            for part in conversation.parts.get(message.parts.clone()).unwrap_or_default() {
                let (kind, id) = kind(&part.kind);
                blocks.push(Block { role, kind, id });
            }
            if blocks.len() == first {
                // Words as they are, without a block around them.
                blocks.push(Block {
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

    /// The messages in which these blocks are.
    fn messages_of(&self, blocks: &BTreeSet<usize>) -> Vec<usize> {
        let has = |range: &Range<usize>| blocks.range(range.clone()).next().is_some();
        let messages = self.messages.iter().enumerate();
        messages
            .filter(|(_, range)| has(range))
            .map(|(index, _)| index)
            .collect()
    }

    fn sketch(&self, places: impl IntoIterator<Item = usize>, changed: &BTreeSet<usize>) -> BodyStructure {
        let tools = self.tools();
        let around = places
            .into_iter()
            .flat_map(|place| place.saturating_sub(AROUND)..=place.saturating_add(AROUND));
        let shown: BTreeSet<usize> = around.filter(|index| *index < self.messages.len()).collect();
        let message = |index: usize| {
            let range = self.messages.get(index)?.clone();
            let first = self.blocks.get(range.start)?;
            let block = |at: usize| {
                let Block { kind, id, .. } = self.blocks.get(at)?;
                let tool = id.as_ref().and_then(|id| tools.get(id)).cloned();
                Some(BlockStructure {
                    kind,
                    id: id.clone(),
                    tool,
                    changed: changed.contains(&at),
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
            shown: shown.into_iter().take(SHOWN_MAX).filter_map(message).collect(),
        }
    }

    /// The tools of the calls, by id.
    fn tools(&self) -> HashMap<String, String> {
        let body = self.conversation.body;
        let json = Json::new(body);
        let calls = self.conversation.parts.iter().filter_map(|part| {
            let id = match &part.kind {
                PartKind::Call(call) => plain(&call.id),
                PartKind::ServerCall(call) => plain(&call.id),
                _ => return None,
            };
            let name = (self.conversation.details)(body, part.span).name?;
            Some((id?, plain(&json.decode(name))?))
        });
        calls.collect()
    }
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::System => "system",
    }
}

fn kind(kind: &PartKind<'_>) -> (&'static str, Option<String>) {
    match kind {
        PartKind::Call(call) => ("call", plain(&call.id)),
        PartKind::Result(result) => ("result", plain(&result.id)),
        PartKind::ServerCall(call) => ("server_call", plain(&call.id)),
        PartKind::ServerResult(id) => ("server_result", plain(id)),
        PartKind::Thinking => ("thinking", None),
        PartKind::Compaction => ("compaction", None),
        PartKind::Other => ("other", None),
    }
}

/// An id or a name as text that can be shown; none where there is none.
pub(super) fn plain(bytes: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .filter(|letter| !letter.is_control())
        .take(TEXT_MAX)
        .collect();
    (!text.is_empty()).then_some(text)
}
