//! The reader of one record.

use super::{
    entry::{EntryList, InputShape, PartSort, RecordEntry, hash_bytes, mark, short_hash},
    quoted::{input_form, mended_input, quote_content},
};
use crate::{
    conversation::lost_results::{LOST_BYTES_MAX, is_lost, may_be_lost},
    sessions::{
        client::ClientVersion,
        link_id::{LinkId, UUID_CHARS},
        members::RecordMembers,
        records::SessionRecord,
    },
    splice::Span,
    wire::{
        cannot_be_anthropics,
        json::{Json, JsonKind},
    },
};

/// Messages from before a compaction that are sent after it.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptMessages {
    /// The number of the record of the compaction.
    pub(super) boundary: u32,
    /// Their ids.
    pub(super) ids: Vec<LinkId>,
    /// The first and the last one of a chain of them, as older versions write it.
    pub(super) segment: Option<(LinkId, LinkId)>,
}

/// The record that names the end of the conversation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastPrompt {
    /// The id of the end.
    pub(super) leaf: LinkId,
    /// Offset of the record in the file.
    pub(super) byte: u64,
    /// Its length.
    pub(super) len: u64,
    /// Number of the records before it.
    pub(super) after: u32,
}

/// The records of a session.
#[derive(Debug, Default)]
pub(super) struct ReadLog {
    /// The records that others may follow, and all messages.
    pub(super) list: EntryList,
    /// The last record that names the end of the conversation.
    pub(super) last_prompt: Option<LastPrompt>,
    /// The messages that the last compaction has kept.
    pub(super) kept: KeptMessages,
    /// The newest version that has written records.
    pub(super) version: Option<ClientVersion>,
    /// The id of the session.
    pub(super) session: Option<String>,
}

/// Names of the members of a block that are read.
const BLOCK_MEMBERS: [&str; 7] = ["type", "id", "tool_use_id", "name", "input", "content", "signature"];

impl ReadLog {
    /// Reads a record.
    pub(super) fn add_record(&mut self, record: &SessionRecord<'_>) {
        let (json, members) = (record.members.json, &record.members);
        let [kind, subtype, uuid, parent, sidechain, shown] = [
            "type",
            "subtype",
            "uuid",
            "parentUuid",
            "isSidechain",
            "isApiErrorMessage",
        ]
        .map(|name| members.get(name));
        let [message, session, version, leaf, compaction] =
            ["message", "sessionId", "version", "leafUuid", "compactMetadata"].map(|name| members.get(name));
        let text = |value: Option<Span>| value.map(|value| json.decode_string(value)).unwrap_or_default();
        let is_true = |value: Option<Span>| value.is_some_and(|value| json.bytes(value) == b"true");
        self.note_origin(&text(session), &text(version));
        let kind = text(kind);
        if &*kind == b"last-prompt" && !record.is_skipped {
            self.last_prompt = Some(LastPrompt {
                leaf: LinkId::read(&text(leaf)).0,
                byte: record.byte,
                len: record.text.len() as u64,
                after: self.list.count(),
            });
        }
        // Records of what was sent have messages too, and are no conversation. An error of the server is only shown.
        let is_message = matches!(&*kind, b"user" | b"assistant") && message.is_some() && !is_true(shown);
        let (uuid, is_real) = LinkId::read(&text(uuid));
        if uuid.is_none() && !is_message {
            return;
        }
        let mut entry = RecordEntry {
            byte: record.byte,
            line: record.line,
            uuid,
            len: u32::try_from(record.text.len()).unwrap_or(u32::MAX),
            parts: self.list.part_count(),
            ..RecordEntry::default()
        };
        // Escapes would make the text in the file longer than the id.
        let parent_bytes = parent.map_or(0, |parent| json.string_inside(parent).len());
        let is_boundary = &*kind == b"system" && *text(subtype) == *b"compact_boundary";
        entry.parent = LinkId::read(&text(parent)).0;
        let marks = [
            (is_real, mark::REAL_UUID),
            (parent_bytes == UUID_CHARS, mark::REAL_PARENT),
            (record.is_skipped, mark::SKIPPED),
            (is_true(sidechain), mark::SIDECHAIN),
            (is_boundary, mark::BOUNDARY),
            (is_message, mark::MESSAGE),
            (&*kind == b"assistant", mark::ASSISTANT),
        ];
        entry.marks = marks
            .iter()
            .filter(|(is_so, _)| *is_so)
            .fold(0, |all, (_, mark)| all | mark);
        let said = message.filter(|_| is_message);
        let content = said.map_or_else(|| kind.as_ref(), |message| json.bytes(message));
        entry.content = short_hash([&*text(parent), content]);
        if said.is_some() {
            self.read_message(members, &mut entry);
        }
        if is_boundary {
            self.kept = kept_messages(json, compaction, self.list.count());
        }
        self.list.push(entry);
    }

    fn note_origin(&mut self, session: &[u8], version: &[u8]) {
        let version = std::str::from_utf8(version).ok().and_then(ClientVersion::parse);
        self.version = self.version.max(version);
        // A session that goes on from another one begins with its records, so the last id is the file's own.
        if !session.is_empty() && self.session.as_deref().is_none_or(|known| known.as_bytes() != session) {
            self.session = String::from_utf8(session.to_vec()).ok();
        }
    }

    fn read_message(&mut self, members: &RecordMembers<'_>, entry: &mut RecordEntry) {
        let json = members.json;
        let [id, content] = ["id", "content"].map(|name| members.in_message(name));
        let id = id.map(|id| json.decode_string(id)).unwrap_or_default();
        if entry.has(mark::ASSISTANT) && !id.is_empty() {
            entry.message = hash_bytes([id.as_ref()]);
        }
        let blocks = content.map(|content| json.elements(content)).unwrap_or_default();
        if blocks.is_empty() {
            entry.marks |= mark::TEXT;
        }
        for block in blocks {
            self.read_block(json, block, entry);
        }
    }

    /// Reads a block. Only the author of its kind may write it.
    fn read_block(&mut self, json: Json<'_>, block: Span, entry: &mut RecordEntry) {
        let members = json.members(block, BLOCK_MEMBERS);
        let [kind, call, answered, name, input, content, signature] = members;
        let text = |value: Option<Span>| value.map(|value| json.decode_string(value)).unwrap_or_default();
        let kind = text(kind);
        let is_answer = entry.has(mark::ASSISTANT);
        let (sort, id, fits) = match (kind.as_ref(), is_answer) {
            (b"tool_use", true) => {
                let form = input_form(json, name, input);
                let fits = form != InputShape::Sound && mended_input(json, block).is_some();
                (PartSort::Call(form), call, fits)
            }
            (b"tool_result", false) => {
                entry.marks |= mark::RESULTS;
                let fits = quote_content(json, block, content).is_some();
                let sort = if is_lost_result(json, content) {
                    PartSort::LostResult
                } else {
                    PartSort::Result
                };
                (sort, answered, fits)
            }
            (b"server_tool_use" | b"mcp_tool_use", true) => (PartSort::ServerCall, call, false),
            (kind, true) if kind.ends_with(b"_tool_result") => (PartSort::ServerResult, answered, false),
            (b"thinking", true) if is_foreign(json, signature) => (PartSort::ForeignThinking, None, false),
            _ => {
                entry.marks |= mark::TEXT;
                return;
            }
        };
        let number = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        self.list
            .push_part(sort, &text(id), number(block.start), number(block.len()), fits);
    }
}

fn is_foreign(json: Json<'_>, signature: Option<Span>) -> bool {
    signature.is_none_or(|signature| cannot_be_anthropics(json, signature))
}

/// The beginning of the words that the client writes for a call which the user has interrupted (2.1.332, 2026-11).
///
/// Alone they are what happened. Beside a real result they hide it.
const INTERRUPTED: &[u8] = b"\"[Request interrupted by user";

/// Returns `true` if a result with this content only says that there is none.
fn is_lost_result(json: Json<'_>, content: Option<Span>) -> bool {
    let text = content.and_then(|content| match json.kind(content) {
        JsonKind::Array => {
            let elements = json.elements(content);
            let [only] = elements.as_slice() else { return None };
            json.string_member(*only, "text")
        }
        _ => json.only_string(content),
    });
    let Some(text) = text.filter(|text| text.len() <= LOST_BYTES_MAX) else {
        return false;
    };
    let string = json.bytes(text);
    string.starts_with(INTERRUPTED) || (may_be_lost(string) && is_lost(&json.decode_string(text)))
}

fn kept_messages(json: Json<'_>, compaction: Option<Span>, boundary: u32) -> KeptMessages {
    let member = |owner: Option<Span>, name| owner.and_then(|owner| json.member(owner, name));
    let messages = member(compaction, "preservedMessages");
    let list = member(messages, "allUuids").or_else(|| member(messages, "uuids"));
    let ids = list.map(|list| json.elements(list)).unwrap_or_default();
    let read = |id: Span| LinkId::read(&json.decode_string(id)).0;
    let segment = member(compaction, "preservedSegment");
    let ends = member(segment, "headUuid").zip(member(segment, "tailUuid"));
    KeptMessages {
        boundary,
        ids: ids.into_iter().map(read).collect(),
        segment: ends.map(|(head, tail)| (read(head), read(tail))),
    }
}
