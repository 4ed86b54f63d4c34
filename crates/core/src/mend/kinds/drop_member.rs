//! A member goes from every object that has it: a message of a role, a block or an item of a type, a call.

use crate::{
    mend::{
        body::MendBody,
        call_keys::{CALL_KEYS, RESULT_KEYS},
        call_order::{inner_object, pairs_without_ids},
        candidate::{BlockPlace, Candidate, MendChange},
        required_members::{CALL, is_required},
    },
    splice::{Edit, Span},
    wire::HistoryShape,
    work,
};

/// The class of parts (Gemini), which have one schema whatever they hold.
const PART: &str = "parts";
/// The class of calls and results in parts: ids leave both or none.
const PART_CALL: &str = "functionCall";

/// Returns the objects with this member.
pub(in crate::mend) fn find(body: &MendBody<'_>, member: &str) -> Vec<Candidate> {
    if member.is_empty() {
        return Vec::new();
    }
    let mut search = Search {
        body,
        member,
        found: Vec::new(),
    };
    search.read_messages();
    search.read_blocks();
    search.found
}

struct Search<'s, 'b> {
    body: &'s MendBody<'b>,
    member: &'s str,
    found: Vec<Candidate>,
}

impl Search<'_, '_> {
    fn read_messages(&mut self) {
        let is_items = match self.body.wire.format.history() {
            HistoryShape::Items => true,
            HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Contents => false,
        };
        for (at, message) in self.body.messages.iter().enumerate() {
            work::count(1);
            let class = if message.kind.is_empty() {
                &message.role
            } else {
                &message.kind
            };
            let class = String::from_utf8_lossy(class);
            if let Some(change) = self.removal(message.span, &class, is_items) {
                self.found.push(Candidate::of_message(at, &class, change));
            }
            for call in &message.calls {
                work::count(1);
                if let Some(change) = self.removal(*call, CALL, false) {
                    self.found.push(Candidate::of_message(at, CALL, change));
                }
                let inner = self.body.json.member(*call, "function");
                if let Some(change) = inner.and_then(|inner| self.removal(inner, "function", false)) {
                    self.found.push(Candidate::of_message(at, "function", change));
                }
            }
        }
    }

    fn read_blocks(&mut self) {
        let body = self.body;
        let has_parts = match body.wire.format.history() {
            HistoryShape::Contents => true,
            HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items => false,
        };
        // Without their ids the results must still find their calls.
        let reads_calls = has_parts && (self.member != "id" || pairs_without_ids(body));
        for (list, blocks) in body.lists.iter().enumerate() {
            for (at, block) in blocks.blocks.iter().enumerate() {
                work::count(1);
                let place = BlockPlace { list, at };
                let class = String::from_utf8_lossy(&block.kind);
                if let Some(change) = self.removal(block.span, &class, false) {
                    let class = if has_parts { PART } else { &class };
                    let candidate = Candidate::of_block(blocks.message, place, class, change);
                    self.found.push(candidate);
                }
                for keys in [CALL_KEYS, RESULT_KEYS].into_iter().filter(|_| reads_calls) {
                    let inner = inner_object(body, block.span, keys);
                    let [class, ..] = keys;
                    if let Some(change) = inner.and_then(|inner| self.removal(inner, class, false)) {
                        let candidate = Candidate::of_block(blocks.message, place, PART_CALL, change);
                        self.found.push(candidate);
                    }
                }
            }
        }
    }

    /// Returns the removal of the member from an object of this class. `None` if it lacks it or needs it.
    fn removal(&self, object: Span, class: &str, is_item: bool) -> Option<MendChange> {
        if is_required(self.member, class, is_item) {
            return None;
        }
        let edits: Vec<Edit> = self.body.json.remove_member(object, self.member);
        (!edits.is_empty()).then_some(MendChange::Edit(edits))
    }
}
