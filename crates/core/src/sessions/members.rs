//! The members of a record that its readers look at, found in one walk.

use crate::{splice::Span, wire::json::Json, work};

/// Names of these members, for all clients.
const NAMES: [&str; 27] = [
    "type",
    "uuid",
    "parentUuid",
    "message",
    "sessionId",
    "timestamp",
    "version",
    "payload",
    "ordinal",
    "isSidechain",
    "isApiErrorMessage",
    "subtype",
    "leafUuid",
    "compactMetadata",
    "messageId",
    "snapshot",
    "data",
    "parentId",
    "cwd",
    "content",
    "$set",
    "role",
    "messages",
    "contents",
    "call_id",
    "custom_id",
    "parts",
];

/// Names of the members of `message` that are looked at.
const MESSAGE_NAMES: [&str; 3] = ["id", "content", "parts"];

/// A record, with the places of its members.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordMembers<'a> {
    /// The record.
    pub(super) json: Json<'a>,
    top: [Option<Span>; NAMES.len()],
    message: [Option<Span>; MESSAGE_NAMES.len()],
}

impl<'a> RecordMembers<'a> {
    /// Reads the object in `record`, from bracket to bracket. Of one that cannot be walked it finds no member.
    pub(super) fn read(record: &'a [u8]) -> Self {
        let json = Json::new(record);
        let mut read = Self {
            json,
            top: [None; NAMES.len()],
            message: [None; MESSAGE_NAMES.len()],
        };
        let walked = json.for_each_member(Span::new(0, record.len()), |key, value| {
            if let Some(found) = place_of(&NAMES, key).and_then(|place| read.top.get_mut(place)) {
                *found = Some(value);
            }
        });
        if walked.is_err() {
            read.top = [None; NAMES.len()];
        }
        if let Some(message) = read.get("message") {
            read.message = json.members(message, MESSAGE_NAMES);
        }
        read
    }

    /// Returns the last member of this name.
    pub(super) fn get(&self, name: &str) -> Option<Span> {
        let place = place_of(&NAMES, name.as_bytes());
        debug_assert!(place.is_some(), "{name} is not read");
        self.top.get(place?).copied().flatten()
    }

    /// Returns the last member of this name of `message`.
    pub(super) fn in_message(&self, name: &str) -> Option<Span> {
        let place = place_of(&MESSAGE_NAMES, name.as_bytes());
        debug_assert!(place.is_some(), "{name} of a message is not read");
        self.message.get(place?).copied().flatten()
    }
}

fn place_of(names: &[&str], key: &[u8]) -> Option<usize> {
    work::count(1);
    names.iter().position(|name| name.as_bytes() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_of_a_walk_for_each_name() {
        for text in [
            r#"{"type":"user","uuid":"a","x":{"type":1},"message":{"id":1,"parts":[],"content":"c","id":"m"},"type":"b"}"#,
            r#"{"message":"text","$set":{},"t\u0079pe":"escaped"}"#,
            r#"{"message":{"id":"#,
            "{}",
            "[]",
        ] {
            let (json, root) = (Json::new(text.as_bytes()), Span::new(0, text.len()));
            let read = RecordMembers::read(text.as_bytes());
            for name in NAMES {
                assert_eq!(read.get(name), json.member(root, name), "{name} of {text}");
            }
            let message = json.member(root, "message");
            for name in MESSAGE_NAMES {
                let wanted = message.and_then(|message| json.member(message, name));
                assert_eq!(read.in_message(name), wanted, "{name} of the message of {text}");
            }
        }
    }
}
