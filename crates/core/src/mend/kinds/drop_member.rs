//! A member goes from every object that has it: a message of a role, a block or an item of a type, a call.

use crate::mend::{
    body::MendBody,
    candidate::{BlockPlace, Candidate, Change},
};

/// Members that a format requires somewhere, or that pair calls with results: none of them goes.
const REQUIRED: [&str; 18] = [
    "role",
    "content",
    "parts",
    "type",
    "text",
    "id",
    "call_id",
    "tool_use_id",
    "tool_call_id",
    "tool_calls",
    "function",
    "functionCall",
    "functionResponse",
    "name",
    "input",
    "arguments",
    "output",
    "source",
];

/// Returns the objects with this member.
pub(in crate::mend) fn find(body: &MendBody<'_>, member: &str) -> Vec<Candidate> {
    if member.is_empty() || REQUIRED.contains(&member) {
        return Vec::new();
    }
    let json = body.json;
    let remove = |object| json.remove_member(object, member);
    let mut found = Vec::new();
    for (at, message) in body.messages.iter().enumerate() {
        let edits = remove(message.span);
        if !edits.is_empty() {
            let class = if message.kind.is_empty() {
                &message.role
            } else {
                &message.kind
            };
            found.push(Candidate::of_message(
                at,
                &String::from_utf8_lossy(class),
                Change::Edit(edits),
            ));
        }
        for call in &message.calls {
            let edits = remove(*call);
            if !edits.is_empty() {
                found.push(Candidate::of_message(at, "tool_calls", Change::Edit(edits)));
            }
        }
    }
    for (list, blocks) in body.lists.iter().enumerate() {
        for (at, block) in blocks.blocks.iter().enumerate() {
            let edits = remove(block.span);
            if !edits.is_empty() {
                let class = String::from_utf8_lossy(&block.kind);
                let place = BlockPlace { list, at };
                found.push(Candidate::of_block(blocks.message, place, &class, Change::Edit(edits)));
            }
        }
    }
    found
}
