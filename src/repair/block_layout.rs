//! Lays out a history whose results are parts of a user's message (Anthropic Messages, Gemini).

use std::collections::HashSet;

use crate::{
    conversation::{Content, FlawKind, Part, PartId, PartKind, Role, TurnId},
    repair::{
        history_plan::PartChange,
        layout::{LastSpeaker, Layout},
        texts,
    },
    splice::{Edit, Piece},
    wire::{
        anthropic,
        json::{self, Slot},
    },
};

/// The messages as they go upstream.
pub(super) fn layout_blocks(layout: &Layout<'_>) -> Vec<Slot> {
    let mut builder = BlockLayout {
        layout,
        done: Vec::new(),
        open: None,
        before: LastSpeaker::default(),
    };
    let behind: HashSet<usize> = layout
        .plan
        .turns
        .iter()
        .filter(|(_, plan)| plan.moves_systems)
        .flat_map(|(turn, _)| layout.pairing.turns[*turn].systems.clone())
        .collect();
    for unit in 0..layout.pairing.units.len() {
        if !behind.contains(&unit) {
            builder.add_unit(unit);
        }
        builder.push_answers_of(unit);
        builder.push_systems_behind(unit);
    }
    builder.close_message();
    builder.done
}

struct BlockLayout<'l, 'c> {
    layout: &'l Layout<'c>,
    done: Vec<Slot>,
    /// The message that is being written: units that belong to it may join it.
    open: Option<OpenMessage>,
    before: LastSpeaker,
}

/// A message that is being written.
struct OpenMessage {
    /// The message its first unit came from.
    message: usize,
    /// Whether it is written over that message, or is one of our own beside it.
    replaces_original: bool,
    items: Vec<MessageBlock>,
}

/// What comes of a unit.
#[derive(Default)]
struct UnitBlocks {
    /// Its blocks.
    items: Vec<MessageBlock>,
    /// Quotes that stand in a message of their own behind it.
    own_message: Vec<Vec<Piece>>,
}

/// A block of a message.
enum MessageBlock {
    /// A part that stays, with edits inside it.
    Unmoved(PartId, Vec<Edit>),
    /// A result that is put in.
    Answer(Vec<Piece>),
    /// Any other block of ours, or one from elsewhere.
    New(Vec<Piece>),
}

impl MessageBlock {
    /// The block in another place than its own.
    fn into_new(self, parts: &[Part<'_>]) -> Self {
        match self {
            Self::Unmoved(part, edits) => Self::New(json::moved(parts[part.index()].span, edits)),
            other => other,
        }
    }
}

impl BlockLayout<'_, '_> {
    fn add_unit(&mut self, unit: usize) {
        let found = &self.layout.pairing.units[unit];
        let (message, role) = (found.message, found.role);
        if !self.layout.is_changed(message) {
            self.close_message();
            self.before = self.before.after_message(role);
            self.done.push(Slot::Old(message, Vec::new()));
            return;
        }
        let UnitBlocks {
            items,
            own_message: apart,
        } = self.unit_blocks(unit);
        if items.is_empty() && apart.is_empty() {
            self.replace_emptied(unit, role);
        } else if !items.is_empty() {
            self.before = self.before.after_message(role);
            self.add_blocks(unit, items);
        }
        self.push_own_message(apart);
    }

    /// Puts the blocks of a unit where they belong: into the message that is open, or one of their own.
    fn add_blocks(&mut self, unit: usize, items: Vec<MessageBlock>) {
        let found = &self.layout.pairing.units[unit];
        let message = found.message;
        if found.inner {
            self.close_message();
            self.push_new_message(items);
            return;
        }
        let over = self.is_first_of_message(unit);
        let joins = over && self.layout.message_fixes.get(&message) == Some(&FlawKind::SplitTurn);
        match self.open.as_mut() {
            Some(open) if open.message == message => open.items.extend(items),
            Some(open) if joins => {
                let parts = &self.layout.conversation.parts;
                open.items.extend(items.into_iter().map(|item| item.into_new(parts)));
            }
            _ => {
                self.close_message();
                self.open = Some(OpenMessage {
                    message,
                    replaces_original: over,
                    items,
                });
            }
        }
    }

    /// Quotes that stand in a message of their own.
    fn push_own_message(&mut self, apart: Vec<Vec<Piece>>) {
        if !apart.is_empty() {
            self.close_message();
            self.before = LastSpeaker::User;
            self.done.push(Slot::New(self.layout.format().message(true, apart)));
        }
    }

    /// Whether no earlier unit of the same message was laid out over the original.
    fn is_first_of_message(&self, unit: usize) -> bool {
        let units = &self.layout.pairing.units;
        let message = units[unit].message;
        let earlier = units[..unit]
            .iter()
            .rev()
            .take_while(|before| before.message == message);
        !earlier.into_iter().any(|before| !before.inner)
    }

    /// The blocks of a unit: what stays, with answers and quotes at the anchor.
    fn unit_blocks(&self, unit: usize) -> UnitBlocks {
        let layout = self.layout;
        let turn = layout.turn_anchored_at(unit);
        let anchor = turn.and_then(|turn| layout.pairing.turns[turn].insert_at);
        let behind = anchor.and_then(|anchor| anchor.behind);
        let mut laid = UnitBlocks::default();
        if behind.is_none() {
            self.insert_planned(unit, turn, &mut laid);
        }
        let found = &layout.pairing.units[unit];
        let says_nothing = layout.message_fixes.get(&found.message) == Some(&FlawKind::EmptyMessage);
        for part in PartId::all(found.parts.clone()).filter(|_| !says_nothing) {
            match layout.plan.part_changes.get(&part) {
                None => laid.items.push(MessageBlock::Unmoved(part, layout.edits_inside(part))),
                Some(PartChange::Removed) => {}
                Some(PartChange::Quoted | PartChange::AsText) => self.push_quote(part, &mut laid),
            }
            if behind == Some(part) {
                self.insert_planned(unit, turn, &mut laid);
            }
        }
        laid
    }

    fn insert_planned(&self, unit: usize, turn: Option<TurnId>, laid: &mut UnitBlocks) {
        if let Some(plan) = turn.and_then(|turn| self.layout.plan.turns.get(&turn)) {
            let answers = plan
                .answers
                .iter()
                .map(|answer| MessageBlock::Answer(self.layout.write_answer(answer)));
            laid.items.extend(answers);
            for part in &plan.quotes {
                self.push_quote(*part, laid);
            }
        }
        for part in self.layout.plan.deferred_quotes.get(&unit).into_iter().flatten() {
            self.push_quote(*part, laid);
        }
    }

    /// A quote stands among the other blocks; in Gemini, where results and words are counted, in a content of its own.
    fn push_quote(&self, part: PartId, laid: &mut UnitBlocks) {
        let (id, name) = self.layout.quoted_label(part);
        let span = self.layout.conversation.parts[part.index()].span;
        let format = self.layout.format();
        let blocks = format.quote_parts(self.layout.json, span, &id, name.as_deref());
        if format.quotes_apart() {
            laid.own_message.extend(blocks);
        } else {
            laid.items.extend(blocks.into_iter().map(MessageBlock::New));
        }
    }

    /// A unit of which nothing is left. A user turn may vanish behind another one, or where results follow: else an
    /// assistant turn would come first, come last (prefill is refused by Claude 4.6 and later), or be merged with the
    /// one before.
    fn replace_emptied(&mut self, unit: usize, role: Role) {
        let found = &self.layout.pairing.units[unit];
        let had_parts = !found.parts.is_empty();
        let mended = self.layout.message_fixes.get(&found.message) == Some(&FlawKind::EmptyMessage);
        if !had_parts && !mended {
            self.close_message();
            self.before = self.before.after_message(role);
            self.done.push(Slot::Old(found.message, Vec::new()));
        } else if role == Role::User
            && !found.inner
            && self.before == LastSpeaker::NoneOrAssistant
            && !self.layout.is_in_gap_of_calls(unit)
        {
            self.close_message();
            self.before = LastSpeaker::User;
            self.done.push(Slot::New(self.layout.format().note(texts::VACATED)));
        }
    }

    /// Answers of a turn without a user message behind it make one of their own.
    fn push_answers_of(&mut self, unit: usize) {
        let Some(turn) = self.layout.turn_ending_at(unit) else {
            return;
        };
        let mut laid = UnitBlocks::default();
        self.insert_planned(usize::MAX, Some(turn), &mut laid);
        if !laid.items.is_empty() {
            self.close_message();
            self.before = LastSpeaker::User;
            self.push_new_message(laid.items);
        }
        self.push_own_message(laid.own_message);
    }

    /// System messages that stood in front of the answering user message follow it.
    fn push_systems_behind(&mut self, unit: usize) {
        let Some(turn) = self.layout.turn_anchored_at(unit) else {
            return;
        };
        if self.layout.plan.turns.get(&turn).is_some_and(|plan| plan.moves_systems) {
            for system in self.layout.pairing.turns[turn].systems.clone() {
                self.close_message();
                let message = self.layout.pairing.units[system].message;
                let span = self.layout.conversation.messages[message].span;
                let items = self.unit_blocks(system).items;
                if !self.layout.is_changed(message) {
                    self.done.push(Slot::New(vec![Piece::Original(span)]));
                } else if !items.is_empty() {
                    let edits = self.rewrite_message(message, items);
                    self.done.push(Slot::New(json::moved(span, edits)));
                }
            }
        }
    }

    fn close_message(&mut self) {
        let Some(OpenMessage {
            message,
            items,
            replaces_original: over,
        }) = self.open.take()
        else {
            return;
        };
        if self.layout.conversation.messages[message].role == Role::User {
            return self.push_user_message(message, items);
        }
        let items = self.order_blocks(message, items);
        self.done.push(if over {
            Slot::Old(message, self.rewrite_message(message, items))
        } else {
            Slot::New(self.write_message(false, items))
        });
    }

    /// The edits that give a message of the body these blocks.
    fn rewrite_message(&self, message: usize, items: Vec<MessageBlock>) -> Vec<Edit> {
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
                let slots = items.into_iter().map(|item| match item {
                    MessageBlock::Unmoved(part, edits) => Slot::Old(self.layout.conversation.part_ordinal(part), edits),
                    MessageBlock::Answer(pieces) | MessageBlock::New(pieces) => Slot::New(pieces),
                });
                json::rebuild(list, &spans, slots.collect())
            }
            Content::Text(_) if unchanged => Vec::new(),
            Content::Text(_) | Content::Opaque => {
                let blocks = self.write_blocks(items);
                vec![self.layout.format().set_parts(self.layout.json, found.span, blocks)]
            }
        }
    }

    /// A message of our own that holds these blocks.
    fn write_message(&self, of_user: bool, items: Vec<MessageBlock>) -> Vec<Piece> {
        self.layout.format().message(of_user, self.write_blocks(items))
    }

    fn write_blocks(&self, items: Vec<MessageBlock>) -> Vec<Vec<Piece>> {
        let parts = &self.layout.conversation.parts;
        let block = |item| match item {
            MessageBlock::Answer(pieces) | MessageBlock::New(pieces) => Some(pieces),
            MessageBlock::Unmoved(part, edits) => {
                let found = &parts[part.index()];
                let content = self.layout.conversation.messages[found.message].content;
                match content {
                    // A blank string says nothing, and a blank text block is refused.
                    Content::Text(span) if json::is_blank(self.layout.json.bytes(span)) => None,
                    Content::Text(span) => Some(anthropic::write::text_block(span)),
                    _ => Some(json::moved(found.span, edits)),
                }
            }
        };
        items.into_iter().filter_map(block).collect()
    }

    /// Writes a user's message; where results stand apart, as two. The client's own message keeps the results that it
    /// has brought, else the words.
    fn push_user_message(&mut self, message: usize, items: Vec<MessageBlock>) {
        let stays = |item: &MessageBlock| matches!(item, MessageBlock::Unmoved(..));
        let (results, words) = self.split_results(items);
        if words.is_empty() {
            self.done
                .push(Slot::Old(message, self.rewrite_message(message, results)));
        } else if results.iter().any(stays) {
            self.done
                .push(Slot::Old(message, self.rewrite_message(message, results)));
            self.done.push(Slot::New(self.write_message(true, words)));
        } else {
            if !results.is_empty() {
                self.done.push(Slot::New(self.write_message(true, results)));
            }
            self.done.push(Slot::Old(message, self.rewrite_message(message, words)));
        }
    }

    /// A user's message of our own; where results stand apart, two.
    fn push_new_message(&mut self, items: Vec<MessageBlock>) {
        let (results, words) = self.split_results(items);
        for items in [results, words] {
            if !items.is_empty() {
                self.done.push(Slot::New(self.write_message(true, items)));
            }
        }
    }

    /// The results among these blocks, and the others where they need a message of their own.
    fn split_results(&self, items: Vec<MessageBlock>) -> (Vec<MessageBlock>, Vec<MessageBlock>) {
        let kind = |item: &MessageBlock| match item {
            MessageBlock::Unmoved(part, _) => Some(&self.layout.conversation.parts[part.index()].kind),
            MessageBlock::Answer(_) | MessageBlock::New(_) => None,
        };
        // Nothing moves in front of a compaction.
        let compacts = |item: &MessageBlock| matches!(kind(item), Some(PartKind::Compaction));
        if !self.layout.plan.results_apart || items.iter().any(compacts) {
            return (items, Vec::new());
        }
        let is_result = |item: &MessageBlock| {
            matches!(item, MessageBlock::Answer(_)) || matches!(kind(item), Some(PartKind::Result(_)))
        };
        items.into_iter().partition(is_result)
    }

    /// The blocks of an assistant's message, words in front of calls where they must not stand behind.
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
            MessageBlock::Answer(_) | MessageBlock::New(_) => BlockRank::Words,
        };
        words_in_front(items, rank, |item| item.into_new(parts))
    }
}

/// The role of a block of an assistant's message in the order of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockRank {
    /// Moves in front of calls.
    Words,
    /// Stays behind the words of its stretch.
    Call,
    /// Keeps its place among the calls.
    Server,
    /// Ends a stretch: nothing moves over thinking, which may be signed.
    Barrier,
}

/// Puts the words of each stretch in front of its calls; both keep their order. `lift` marks words that move.
fn words_in_front<T>(items: Vec<T>, rank: impl Fn(&T) -> BlockRank, lift: impl Fn(T) -> T) -> Vec<T> {
    let mut ordered = Vec::with_capacity(items.len());
    let mut calls = Vec::new();
    for item in items {
        match rank(&item) {
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
