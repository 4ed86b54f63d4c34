//! One record of a session of Qwen Code, and the facts that are kept of it. No text is kept.

use crate::{
    sessions::link_id::LinkId,
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// The marks of a record.
pub(super) mod mark {
    /// A message: a prompt, an answer or a result.
    pub(in super::super) const MESSAGE: u8 = 1;
    /// An answer of the model.
    pub(in super::super) const ANSWER: u8 = 1 << 1;
    /// The client skips its line as a whole.
    pub(in super::super) const LOST: u8 = 1 << 2;
    /// A summary, which replaces what stands before it.
    pub(in super::super) const SUMMARY: u8 = 1 << 3;
    /// Its line is no single JSON object.
    pub(in super::super) const SKIPPED: u8 = 1 << 4;
}

/// A record that others may follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct QwenRecord {
    /// Its id, which several fragments of one record share.
    pub(super) id: LinkId,
    /// The id of the record that it follows.
    pub(super) parent: LinkId,
    /// Offset in the file.
    pub(super) byte: u64,
    pub(super) line: u64,
    pub(super) len: u32,
    /// Number of the parts of all records before it.
    pub(super) parts: u32,
    pub(super) marks: u8,
}

impl QwenRecord {
    /// Returns `true` if it has any of these marks.
    pub(super) const fn has(&self, marks: u8) -> bool {
        self.marks & marks != 0
    }
}

/// A call or a result.
#[derive(Clone, Debug)]
pub(super) struct QwenPart {
    pub(super) is_call: bool,
    /// `true` if the arguments of a call are no object.
    pub(super) is_malformed: bool,
    pub(super) id: Box<[u8]>,
}

/// The record in a line, as the client checks it.
#[derive(Clone, Copy)]
pub(super) struct ReadRecord<'a> {
    pub(super) json: Json<'a>,
    pub(super) id: LinkId,
    pub(super) parent: LinkId,
    pub(super) marks: u8,
    message: Option<Span>,
    session: Span,
    version: Option<Span>,
}

/// The types of records. The client skips others.
const KINDS: [&[u8]; 4] = [b"user", b"assistant", b"tool_result", b"system"];

/// Begins of the names of system records that are no part of the chain.
const BESIDE: [&[u8]; 3] = [b"session_artifact_", b"session_sources_snapshot", b"managed_session_"];

impl<'a> ReadRecord<'a> {
    /// Reads a record. `None` if the client skips it, or if it is no part of the chain.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        let json = Json::new(text);
        let root = Span::new(0, text.len());
        let names = [
            "type",
            "subtype",
            "uuid",
            "parentUuid",
            "sessionId",
            "version",
            "message",
            "systemPayload",
        ];
        let [kind, subtype, id, parent, session, version, message, payload] = json.members(root, names);
        let kind = json.decode_string(json.only_string(kind?)?);
        let subtype = subtype.map(|subtype| json.decode_string(subtype)).unwrap_or_default();
        let is_system = &*kind == b"system";
        let is_beside = is_system && BESIDE.iter().any(|start| subtype.starts_with(start));
        let parent = parent?;
        let is_linked = matches!(json.kind(parent), JsonKind::String | JsonKind::Null);
        let session = json.only_string(session?)?;
        if !KINDS.contains(&&*kind) || is_beside || !is_linked || json.string_inside(session).is_empty() {
            return None;
        }
        let id = LinkId::read(&json.decode_string(id?)).0;
        let message = message.filter(|message| !is_system && json.kind(*message) == JsonKind::Object);
        let is_shown = &*subtype == b"realtime_message";
        let is_summary = &*subtype == b"chat_compression"
            && payload.is_some_and(|payload| json.member(payload, "compressedHistory").is_some());
        let marks = [
            (message.is_some() && !is_shown, mark::MESSAGE),
            (&*kind == b"assistant", mark::ANSWER),
            (is_system && is_summary, mark::SUMMARY),
        ];
        let marks = marks.iter().filter(|(is_so, _)| *is_so);
        (!id.is_none()).then(|| Self {
            json,
            id,
            parent: LinkId::read(&json.decode_string(parent)).0,
            marks: marks.fold(0, |all, (_, mark)| all | mark),
            message,
            session,
            version,
        })
    }

    /// Returns the id of the session.
    pub(super) fn session(&self) -> String {
        String::from_utf8_lossy(&self.json.decode_string(self.session)).into_owned()
    }

    /// Returns the version of the client. Empty if it has none.
    pub(super) fn version(&self) -> String {
        let version = self.version.map(|version| self.json.decode_string(version));
        String::from_utf8_lossy(&version.unwrap_or_default()).into_owned()
    }

    /// Calls `each` with every call and result of the message. Those without an id are none for the client.
    pub(super) fn for_each_part(&self, mut each: impl FnMut(QwenPart)) {
        let json = self.json;
        let parts = self.message.and_then(|message| json.member(message, "parts"));
        let Some(parts) = parts else { return };
        // One after the other: a hostile list has more places than memory.
        let walked = json.for_each_element(parts, |part| {
            let [call, result] = json.members(part, ["functionCall", "functionResponse"]);
            for (value, is_call) in [(call, true), (result, false)] {
                let id = value.map(|value| json.member_text(value, "id")).unwrap_or_default();
                let arguments = value.and_then(|value| json.member(value, "args"));
                if !id.is_empty() {
                    each(QwenPart {
                        is_call,
                        is_malformed: is_call && arguments.is_some_and(|given| json.kind(given) != JsonKind::Object),
                        id: (*id).into(),
                    });
                }
            }
        });
        // Something else than a list has no parts.
        let _ = walked.is_ok();
    }
}
