//! Results that are kept: cut out of one body, put back into a later one.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
};

use memchr::memmem;

use super::{
    append::told,
    naming::{input_hash, is_strong},
};
use crate::{
    conversation::{Answer, AskedCall, CallDetails, Outline},
    splice::{Edit, EditList, Piece, Span},
    wire::{
        Format,
        json::{Json, Kind},
    },
};

/// The result at `result` without `cache_control`; none where it is no object in plain text.
pub fn cut(body: &[u8], result: Span) -> Option<String> {
    let json = Json::new(body);
    if json.kind(result) != Kind::Object {
        return None;
    }
    // Mostly there is none to be taken out; a key may be written with escapes.
    let bytes = result.of(body);
    if memmem::find(bytes, b"cache_control").is_none() && memmem::find(bytes, b"\\u").is_none() {
        return std::str::from_utf8(bytes).ok().map(ToOwned::to_owned);
    }
    let mut edits = json.unset(result, "cache_control");
    for content in ["content", "output"] {
        let Some(list) = json
            .member(result, content)
            .filter(|list| json.kind(*list) == Kind::Array)
        else {
            continue;
        };
        json.elements(list, |block| {
            if json.kind(block) == Kind::Object {
                edits.extend(json.unset(block, "cache_control"));
            }
        })
        .ok()?;
    }
    let list = EditList::new(edits, body.len()).ok()?;
    let bytes = inside(body, result, list.as_slice());
    String::from_utf8(bytes).ok()
}

/// Bytes of a result that is kept: a longer one is the client's to keep.
const BROUGHT_BYTES_MAX: usize = 256 * 1024;

/// A result that a client brought behind the last turn.
#[derive(Clone, PartialEq, Eq)]
pub struct Brought {
    /// The id of its call, or the tool where there is no id.
    pub id: Box<[u8]>,
    /// The tool.
    pub tool: Vec<u8>,
    /// Where its id may come again: what it asks for, and what stands in front of it.
    pub input: Option<[u8; 32]>,
    /// How many calls of its id stand before it.
    pub occurrence: usize,
    /// The result, as [`cut`] gives it.
    pub block: String,
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Brought({} bytes)", self.block.len())
    }
}

/// What tells a call whose id may come again from others: its input, and the message in front of its turn's.
pub fn asked_hash(input: &[u8], before: &[u8; 32]) -> [u8; 32] {
    blake3::keyed_hash(&input_hash(input), before).into()
}

/// The results behind the last turn that say what a tool said, of calls that stand in the body; those of ids that may come
/// again only where the lane tells them from others (`in_lane`).
pub fn brought(body: &[u8], format: Format, outline: &Outline, in_lane: bool) -> Vec<Brought> {
    let json = Json::new(body);
    // Calls of one turn mostly have one message in front of them.
    let mut said = None;
    let mut said_before = |call: &AskedCall| match said {
        Some((at, said)) if at == call.before => said,
        _ if call.before.is_empty() => [0; 32],
        _ => said.insert((call.before, told(call.before.of(body)))).1,
    };
    // Of calls of one name the first is answered first.
    let mut open: HashMap<&[u8], VecDeque<&AskedCall>> = HashMap::new();
    for call in &outline.asked {
        open.entry(&call.id).or_default().push_back(call);
    }
    let paired = outline.answers.iter().map(|answer| {
        let call = open.get_mut(&*answer.id).and_then(VecDeque::pop_front);
        (answer, call)
    });
    let real = paired.filter(|(answer, _)| {
        let fits = answer.at.len() <= BROUGHT_BYTES_MAX;
        fits && !answer.lost && !answer.id.is_empty()
    });
    let one = |(answer, call): (&Answer, Option<&AskedCall>)| {
        let call = call?;
        let CallDetails { name, input, .. } = format.details(body, call.at);
        let tool = json.decode(name?).into_owned();
        let again = !is_strong(&answer.id, &tool);
        if again && !in_lane {
            return None;
        }
        Some(Brought {
            id: answer.id.clone(),
            input: again.then(|| asked_hash(input.map_or(b"", |span| json.bytes(span)), &said_before(call))),
            occurrence: call.occurrence,
            tool,
            block: cut(body, answer.at)?,
        })
    };
    real.filter_map(one).collect()
}

/// Whether a kept result names this very call.
pub fn names_call(block: &str, id: &[u8]) -> bool {
    let json = Json::new(block.as_bytes());
    let Ok(root) = json.root() else { return false };
    ["tool_use_id", "tool_call_id", "call_id", "id"]
        .into_iter()
        .any(|key| json.member(root, key).is_some_and(|value| *json.decode(value) == *id))
}

/// A content as JSON, without `cache_control` in its blocks.
pub fn bare(content: &str) -> String {
    let json = Json::new(content.as_bytes());
    let Some(list) = json.root().ok().filter(|root| json.kind(*root) == Kind::Array) else {
        return content.to_owned();
    };
    let mut edits = Vec::new();
    let walked = json.elements(list, |block| {
        if json.kind(block) == Kind::Object {
            edits.extend(json.unset(block, "cache_control"));
        }
    });
    let edits = walked.ok().and_then(|()| EditList::new(edits, content.len()).ok());
    let bare = edits.and_then(|edits| String::from_utf8(inside(content.as_bytes(), list, edits.as_slice())).ok());
    bare.unwrap_or_else(|| content.to_owned())
}

/// The bytes of `span` with the edits, which lie inside it and only remove.
fn inside(body: &[u8], span: Span, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(span.len());
    let mut at = span.start;
    for edit in edits {
        bytes.extend_from_slice(Span::new(at, edit.span.start).of(body));
        at = edit.span.end;
    }
    bytes.extend_from_slice(Span::new(at, span.end).of(body));
    bytes
}

/// A kept result under the id that its call has in this body.
pub(super) fn put(format: Format, block: &str, id: Option<Piece>) -> Vec<Piece> {
    let json = Json::new(block.as_bytes());
    let edit = json
        .root()
        .ok()
        .zip(id)
        .and_then(|(root, id)| format.set_result_id(json, root, id));
    let Some(Edit { span, pieces }) = edit else {
        return vec![Piece::Made(block.to_owned())];
    };
    let text = |range: std::ops::Range<usize>| Piece::Made(block.get(range).unwrap_or_default().to_owned());
    let mut all = vec![text(0..span.start)];
    all.extend(pieces);
    all.push(text(span.end..block.len()));
    all
}
