//! Layout of histories whose results are parts of a user's message (Anthropic Messages, Gemini).

use std::collections::HashSet;

use crate::{
    conversation::{Content, FlawKind, Part, PartId, PartKind, Role, TurnId},
    repair::{
        history_plan::PartChange,
        layout::{LastSpeaker, Layout},
        texts,
    },
    splice::{Edit, Piece},
    wire::json::{self, ListElement},
    work,
};

/// Returns the messages to send.
pub(super) fn layout_blocks(layout: &Layout<'_>) -> Vec<ListElement> {
    let mut builder = BlockLayout {
        layout,
        done: Vec::new(),
        open: None,
        before: LastSpeaker::default(),
    };
    // These system messages are written after the answering user message, not in their own place.
    let after: HashSet<usize> = layout
        .plan
        .turns
        .iter()
        .filter(|(_, plan)| plan.moves_systems)
        .flat_map(|(turn, _)| layout.pairing.turns[*turn].systems.clone())
        .inspect(|_| work::count(1))
        .collect();
    for unit in 0..layout.pairing.units.len() {
        work::count(1);
        if !after.contains(&unit) {
            builder.add_unit(unit);
        }
        builder.push_results_of(unit);
        // After the answering message, since Anthropic accepts them only after a complete user turn.
        builder.push_systems_after(unit);
    }
    builder.close_message();
    builder.done
}

struct BlockLayout<'l, 'c> {
    layout: &'l Layout<'c>,
    done: Vec<ListElement>,
    /// The message that is being written. Further units of it are added to it.
    open: Option<OpenMessage>,
    before: LastSpeaker,
}

/// A message that is being written.
struct OpenMessage {
    /// The message of its first unit.
    message: usize,
    /// `true` if it replaces that message. `false` if it is a new message beside it.
    replaces_original: bool,
    items: Vec<MessageBlock>,
}

/// The blocks of one unit.
#[derive(Default)]
struct UnitBlocks {
    /// Blocks of the unit's message.
    items: Vec<MessageBlock>,
    /// Quotes for a message of their own after it.
    own_message: Vec<Vec<Piece>>,
}

/// A block of a message.
enum MessageBlock {
    /// A part that stays, with edits inside it.
    Unmoved(PartId, Vec<Edit>),
    /// An inserted result.
    Result(Vec<Piece>),
    /// Any other new block, or one from another message.
    New(Vec<Piece>),
}

impl MessageBlock {
    /// Returns the block for a place other than its own.
    fn into_new(self, parts: &[Part<'_>]) -> Self {
        match self {
            Self::Unmoved(part, edits) => Self::New(json::edited_value(parts[part.index()].span, edits)),
            other => other,
        }
    }
}

impl BlockLayout<'_, '_> {
    fn add_unit(&mut self, unit: usize) {
        let found = &self.layout.pairing.units[unit];
        let (message, role) = (found.message, found.role);
        work::count(found.parts.len());
        if !self.layout.is_changed(message) {
            self.close_message();
            // An emptied unit further on depends on the last speaker, so unchanged messages count too.
            self.before = self.before.after_message(role);
            self.done.push(ListElement::Kept(message, Vec::new()));
            return;
        }
        let UnitBlocks { items, own_message } = self.unit_blocks(unit);
        if items.is_empty() && own_message.is_empty() {
            self.replace_emptied(unit, role);
        } else if !items.is_empty() {
            self.before = self.before.after_message(role);
            self.add_blocks(unit, items);
        }
        self.push_own_message(own_message);
    }

    /// Adds the blocks of a unit to the open message or to a new one.
    fn add_blocks(&mut self, unit: usize, items: Vec<MessageBlock>) {
        work::count(items.len());
        let found = &self.layout.pairing.units[unit];
        let message = found.message;
        // A piece of results inside an assistant message becomes a user message of its own.
        if found.inner {
            self.close_message();
            self.push_new_message(items);
            return;
        }
        let replaces_original = self.is_first_of_message(unit);
        let joins = replaces_original && self.layout.message_fixes.get(&message) == Some(&FlawKind::SplitTurn);
        match self.open.as_mut() {
            // The results between two pieces of one message have moved away, so the pieces join again.
            Some(open) if open.message == message => open.items.extend(items),
            // The blocks leave their message for the one before it, so their edits must travel with them.
            Some(open) if joins => {
                let parts = &self.layout.conversation.parts;
                open.items.extend(items.into_iter().map(|item| item.into_new(parts)));
            }
            _ => {
                self.close_message();
                self.open = Some(OpenMessage {
                    message,
                    replaces_original,
                    items,
                });
            }
        }
    }

    /// Adds a user message with quotes, if there are any.
    fn push_own_message(&mut self, own_message: Vec<Vec<Piece>>) {
        if !own_message.is_empty() {
            self.close_message();
            self.before = LastSpeaker::User;
            self.done
                .push(ListElement::New(self.layout.format().write_message(true, own_message)));
        }
    }

    /// Returns `true` if no earlier unit replaces the same message.
    fn is_first_of_message(&self, unit: usize) -> bool {
        let units = &self.layout.pairing.units;
        let message = units[unit].message;
        let earlier = units[..unit]
            .iter()
            .rev()
            .take_while(|before| before.message == message)
            .inspect(|_| work::count(1));
        !earlier.into_iter().any(|before| !before.inner)
    }

    /// Returns the blocks of a unit: parts that stay, with results and quotes at the turn's insert point.
    fn unit_blocks(&self, unit: usize) -> UnitBlocks {
        let layout = self.layout;
        let turn = layout.turn_inserting_at(unit);
        let anchor = turn.and_then(|turn| layout.pairing.turns[turn].insert_at);
        let after = anchor.and_then(|anchor| anchor.after);
        let mut laid = UnitBlocks::default();
        // Without a result that stays, inserted results come first, because text must follow results.
        if after.is_none() {
            self.insert_planned(unit, turn, &mut laid);
        }
        let found = &layout.pairing.units[unit];
        let says_nothing = layout.message_fixes.get(&found.message) == Some(&FlawKind::EmptyMessage);
        // Blank blocks vanish, but results may still go into their message.
        for part in PartId::all(found.parts.clone()).filter(|_| !says_nothing) {
            match layout.plan.part_changes.get(&part) {
                None => laid.items.push(MessageBlock::Unmoved(part, layout.edits_inside(part))),
                Some(PartChange::Removed) => {}
                Some(PartChange::Quoted | PartChange::AsText) => self.push_quote(part, &mut laid),
            }
            if after == Some(part) {
                self.insert_planned(unit, turn, &mut laid);
            }
        }
        let removed = &layout.conversation.removed_thinking;
        if laid.items.is_empty() && PartId::all(found.parts.clone()).any(|part| removed.binary_search(&part).is_ok()) {
            // Not every provider combines the messages on both sides, so the turn stays with a note.
            let (format, note) = (layout.format(), json::constant_string(texts::WITHOUT_THINKING));
            let block = json::enclose(format.text_block_start(), note, "}");
            laid.items.push(MessageBlock::New(block));
        }
        laid
    }

    /// Adds the results and quotes of a turn, and the quotes that were deferred to this unit.
    fn insert_planned(&self, unit: usize, turn: Option<TurnId>, laid: &mut UnitBlocks) {
        if let Some(plan) = turn.and_then(|turn| self.layout.plan.turns.get(&turn)) {
            work::count(plan.results.len().saturating_add(plan.quotes.len()));
            let results = plan
                .results
                .iter()
                .map(|result| MessageBlock::Result(self.layout.write_result(result)));
            laid.items.extend(results);
            // After the results: text between results would end their place.
            for part in &plan.quotes {
                self.push_quote(*part, laid);
            }
        }
        for part in self.layout.plan.deferred_quotes.get(&unit).into_iter().flatten() {
            self.push_quote(*part, laid);
        }
    }

    /// Adds a quote to the other blocks, or to a message of its own (Gemini, which counts the parts beside results).
    fn push_quote(&self, part: PartId, laid: &mut UnitBlocks) {
        let (id, name) = self.layout.quoted_label(part);
        let span = self.layout.conversation.parts[part.index()].span;
        let format = self.layout.format();
        let blocks = format.write_quote_parts(self.layout.json, span, &id, name.as_deref());
        if format.needs_quote_message() {
            laid.own_message.extend(blocks);
        } else {
            laid.items.extend(blocks.into_iter().map(MessageBlock::New));
        }
    }

    /// Replaces a unit without remaining blocks.
    ///
    /// A user turn may vanish after another one, or before results. Elsewhere a note stays in its place. Without it an
    /// assistant turn would come first, come last (Claude 4.6 and later refuse prefill), or merge with the one before.
    fn replace_emptied(&mut self, unit: usize, role: Role) {
        let found = &self.layout.pairing.units[unit];
        let had_parts = !found.parts.is_empty();
        let is_fixed = self.layout.message_fixes.get(&found.message) == Some(&FlawKind::EmptyMessage);
        // The client sent it empty, and nothing asks for a change.
        if !had_parts && !is_fixed {
            self.close_message();
            self.before = self.before.after_message(role);
            self.done.push(ListElement::Kept(found.message, Vec::new()));
        } else if role == Role::User
            && !found.inner
            && self.before == LastSpeaker::NoneOrAssistant
            && !self.layout.is_in_gap_of_calls(unit)
        {
            self.close_message();
            self.before = LastSpeaker::User;
            self.done.push(ListElement::New(
                self.layout.format().write_text_message(true, texts::VACATED),
            ));
        }
    }

    /// Adds a message with the results of a turn that has no insert point.
    fn push_results_of(&mut self, unit: usize) {
        let Some(turn) = self.layout.turn_ending_at(unit) else {
            return;
        };
        let mut laid = UnitBlocks::default();
        // No unit has this number, so no deferred quote joins the results.
        self.insert_planned(usize::MAX, Some(turn), &mut laid);
        if !laid.items.is_empty() {
            self.close_message();
            self.before = LastSpeaker::User;
            self.push_new_message(laid.items);
        }
        self.push_own_message(laid.own_message);
    }

    /// Moves system messages from before the answering user message to after it.
    fn push_systems_after(&mut self, unit: usize) {
        let Some(turn) = self.layout.turn_inserting_at(unit) else {
            return;
        };
        if self.layout.plan.turns.get(&turn).is_some_and(|plan| plan.moves_systems) {
            for system in self.layout.pairing.turns[turn].systems.clone() {
                work::count(1);
                self.close_message();
                let message = self.layout.pairing.units[system].message;
                let span = self.layout.conversation.messages[message].span;
                let items = self.unit_blocks(system).items;
                if !self.layout.is_changed(message) {
                    self.done.push(ListElement::New(vec![Piece::Original(span)]));
                } else if !items.is_empty() {
                    let edits = self.rewrite_message(message, items);
                    self.done.push(ListElement::New(json::edited_value(span, edits)));
                }
            }
        }
    }

    fn close_message(&mut self) {
        let Some(OpenMessage {
            message,
            items,
            replaces_original,
        }) = self.open.take()
        else {
            return;
        };
        if self.layout.conversation.messages[message].role == Role::User {
            // User messages are never split into pieces, so the open one always replaces its original.
            return self.push_user_message(message, items);
        }
        let items = self.order_blocks(message, items);
        self.done.push(if replaces_original {
            ListElement::Kept(message, self.rewrite_message(message, items))
        } else {
            ListElement::New(self.write_message(false, items))
        });
    }

    /// Returns the edits that give a message of the body these blocks.
    fn rewrite_message(&self, message: usize, items: Vec<MessageBlock>) -> Vec<Edit> {
        work::count(items.len());
        let found = &self.layout.conversation.messages[message];
        let unchanged = matches!(items.as_slice(), [MessageBlock::Unmoved(_, edits)] if edits.is_empty());
        match found.content {
            Content::Blocks(list) => {
                let spans: Vec<_> = self
                    .layout
                    .conversation
                    .parts_of(found)
                    .iter()
                    .map(|part| part.span)
                    .collect();
                let wanted = items.into_iter().map(|item| match item {
                    MessageBlock::Unmoved(part, edits) => {
                        ListElement::Kept(self.layout.conversation.part_ordinal(part), edits)
                    }
                    MessageBlock::Result(pieces) | MessageBlock::New(pieces) => ListElement::New(pieces),
                });
                json::rebuild_list(list, &spans, wanted.collect())
            }
            // A string that stays alone stays a string, so that its bytes do not change.
            Content::Text(_) if unchanged => Vec::new(),
            Content::Text(_) | Content::Opaque => {
                let blocks = self.write_blocks(items);
                vec![self.layout.format().set_parts(self.layout.json, found.span, blocks)]
            }
        }
    }

    /// Writes a new message with these blocks.
    fn write_message(&self, of_user: bool, items: Vec<MessageBlock>) -> Vec<Piece> {
        self.layout.format().write_message(of_user, self.write_blocks(items))
    }

    fn write_blocks(&self, items: Vec<MessageBlock>) -> Vec<Vec<Piece>> {
        work::count(items.len());
        let parts = &self.layout.conversation.parts;
        let block = |item| match item {
            MessageBlock::Result(pieces) | MessageBlock::New(pieces) => Some(pieces),
            MessageBlock::Unmoved(part, edits) => {
                let found = &parts[part.index()];
                let content = self.layout.conversation.messages[found.message].content;
                match content {
                    // A blank string contains nothing, and providers refuse a blank text block.
                    Content::Text(span) if json::is_blank(self.layout.json.bytes(span)) => None,
                    Content::Text(span) => {
                        let start = self.layout.format().text_block_start();
                        Some(json::enclose(start, vec![Piece::Original(span)], "}"))
                    }
                    _ => Some(json::edited_value(found.span, edits)),
                }
            }
        };
        items.into_iter().filter_map(block).collect()
    }

    /// Adds a user's message, or two if results must be apart.
    ///
    /// The original message then contains the results that the client sent, or else the text.
    fn push_user_message(&mut self, message: usize, items: Vec<MessageBlock>) {
        let stays = |item: &MessageBlock| matches!(item, MessageBlock::Unmoved(..));
        let (results, words) = self.split_results(items);
        // Reusing the original message leaves its other members and most of its bytes as they are.
        if words.is_empty() {
            self.done
                .push(ListElement::Kept(message, self.rewrite_message(message, results)));
        } else if results.iter().any(stays) {
            self.done
                .push(ListElement::Kept(message, self.rewrite_message(message, results)));
            self.done.push(ListElement::New(self.write_message(true, words)));
        } else {
            if !results.is_empty() {
                self.done.push(ListElement::New(self.write_message(true, results)));
            }
            self.done
                .push(ListElement::Kept(message, self.rewrite_message(message, words)));
        }
    }

    /// Adds a new user message. If results must be apart, adds two.
    fn push_new_message(&mut self, items: Vec<MessageBlock>) {
        let (results, words) = self.split_results(items);
        for items in [results, words] {
            if !items.is_empty() {
                self.done.push(ListElement::New(self.write_message(true, items)));
            }
        }
    }

    /// Splits blocks into results and others, if these must be apart. Otherwise the second list is empty.
    fn split_results(&self, items: Vec<MessageBlock>) -> (Vec<MessageBlock>, Vec<MessageBlock>) {
        let kind = |item: &MessageBlock| match item {
            MessageBlock::Unmoved(part, _) => Some(&self.layout.conversation.parts[part.index()].kind),
            MessageBlock::Result(_) | MessageBlock::New(_) => None,
        };
        work::count(items.len());
        // The provider ignores blocks before a compaction, so none may change sides.
        let compacts = |item: &MessageBlock| matches!(kind(item), Some(PartKind::Compaction));
        if !self.layout.plan.results_apart || items.iter().any(compacts) {
            return (items, Vec::new());
        }
        let is_result = |item: &MessageBlock| {
            matches!(item, MessageBlock::Result(_)) || matches!(kind(item), Some(PartKind::Result(_)))
        };
        items.into_iter().partition(is_result)
    }

    /// Returns the blocks of an assistant's message, with text moved before calls if the plan says so.
    fn order_blocks(&self, message: usize, items: Vec<MessageBlock>) -> Vec<MessageBlock> {
        if !self.layout.plan.arranged.contains(&message) {
            return items;
        }
        let parts = &self.layout.conversation.parts;
        let rank = |item: &MessageBlock| match item {
            MessageBlock::Unmoved(part, _) => match parts[part.index()].kind {
                PartKind::Call(_) => BlockRank::Call,
                PartKind::Other => BlockRank::Words,
                PartKind::Thinking | PartKind::Compaction => BlockRank::Barrier,
                PartKind::ServerCall(_) | PartKind::ServerResult(_) | PartKind::Result(_) => BlockRank::Server,
            },
            MessageBlock::Result(_) | MessageBlock::New(_) => BlockRank::Words,
        };
        // Blocks that stay must keep rising indices, so text that moves is written as new.
        words_in_front(items, rank, |item| item.into_new(parts))
    }
}

/// The role of a block in the order of an assistant's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockRank {
    /// Moves before calls.
    Words,
    /// Stays after the text of its stretch.
    Call,
    /// Keeps its place among the calls.
    Server,
    /// Ends a stretch: nothing moves over thinking, which may be signed.
    Barrier,
}

/// Puts the text of each stretch before its calls. Both keep their order. `lift` marks text that moves.
fn words_in_front<T>(items: Vec<T>, rank: impl Fn(&T) -> BlockRank, lift: impl Fn(T) -> T) -> Vec<T> {
    let mut ordered = Vec::with_capacity(items.len());
    let mut calls = Vec::new();
    for item in items {
        work::count(1);
        match rank(&item) {
            // No call precedes it in this stretch, so it stays.
            BlockRank::Words | BlockRank::Server if calls.is_empty() => ordered.push(item),
            BlockRank::Words => ordered.push(lift(item)),
            BlockRank::Call | BlockRank::Server => calls.push(item),
            BlockRank::Barrier => {
                ordered.append(&mut calls);
                ordered.push(item);
            }
        }
    }
    ordered.append(&mut calls);
    ordered
}
