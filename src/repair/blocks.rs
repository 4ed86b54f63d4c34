//! Lays out a history whose results are parts of a user's message (Anthropic Messages, Gemini).

use std::collections::HashSet;

use crate::{
    conversation::{Content, FlawKind, Part, PartKind, Role},
    repair::{
        history_plan::Lift,
        layout::{Before, Layout},
        words,
    },
    splice::{Edit, Piece},
    wire::{
        anthropic,
        json::{self, Slot},
    },
};

/// The messages as they go upstream.
pub(super) fn slots(layout: &Layout<'_>) -> Vec<Slot> {
    let mut builder = Builder {
        layout,
        done: Vec::new(),
        open: None,
        before: Before::default(),
    };
    let behind: HashSet<usize> = layout
        .plan
        .turns
        .iter()
        .filter(|(_, plan)| plan.systems)
        .flat_map(|(turn, _)| layout.pairing.turns[*turn].systems.clone())
        .collect();
    for unit in 0..layout.pairing.units.len() {
        if !behind.contains(&unit) {
            builder.unit(unit);
        }
        builder.own_message(unit);
        builder.systems_behind(unit);
    }
    builder.close();
    builder.done
}

struct Builder<'l, 'c> {
    layout: &'l Layout<'c>,
    done: Vec<Slot>,
    /// The message that is being written: units that belong to it may join it.
    open: Option<Draft>,
    before: Before,
}

/// A message that is being written.
struct Draft {
    /// The message its first unit came from.
    message: usize,
    /// Whether it is written over that message, or is one of our own beside it.
    over: bool,
    items: Vec<Item>,
}

/// What comes of a unit.
#[derive(Default)]
struct Laid {
    /// Its blocks.
    items: Vec<Item>,
    /// Quotes that stand in a message of their own behind it.
    apart: Vec<Vec<Piece>>,
}

/// A block of a message.
enum Item {
    /// A part that stays, with edits inside it.
    Stay(usize, Vec<Edit>),
    /// A result that is put in.
    Answer(Vec<Piece>),
    /// Any other block of ours, or one from elsewhere.
    New(Vec<Piece>),
}

impl Item {
    /// The block in another place than its own.
    fn lifted(self, parts: &[Part<'_>]) -> Self {
        match self {
            Self::Stay(part, edits) => Self::New(json::moved(parts[part].span, edits)),
            other => other,
        }
    }
}

impl Builder<'_, '_> {
    fn unit(&mut self, unit: usize) {
        let found = &self.layout.pairing.units[unit];
        let (message, role) = (found.message, found.role);
        if !self.layout.touches(message) {
            self.close();
            self.before = self.before.then(role);
            self.done.push(Slot::Old(message, Vec::new()));
            return;
        }
        let Laid { items, apart } = self.items(unit);
        if items.is_empty() && apart.is_empty() {
            self.emptied(unit, role);
        } else if !items.is_empty() {
            self.before = self.before.then(role);
            self.lay(unit, items);
        }
        self.put_apart(apart);
    }

    /// Puts the blocks of a unit where they belong: into the message that is open, or one of their own.
    fn lay(&mut self, unit: usize, items: Vec<Item>) {
        let found = &self.layout.pairing.units[unit];
        let message = found.message;
        if found.inner {
            self.close();
            self.push_fresh(items);
            return;
        }
        let over = self.is_first_of_message(unit);
        let joins = over && self.layout.message_fixes.get(&message) == Some(&FlawKind::SplitTurn);
        match self.open.as_mut() {
            Some(open) if open.message == message => open.items.extend(items),
            Some(open) if joins => {
                let parts = &self.layout.conversation.parts;
                open.items.extend(items.into_iter().map(|item| item.lifted(parts)));
            }
            _ => {
                self.close();
                self.open = Some(Draft { message, over, items });
            }
        }
    }

    /// Quotes that stand in a message of their own.
    fn put_apart(&mut self, apart: Vec<Vec<Piece>>) {
        if !apart.is_empty() {
            self.close();
            self.before = Before::User;
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
    fn items(&self, unit: usize) -> Laid {
        let layout = self.layout;
        let turn = layout.anchored(unit);
        let anchor = turn.and_then(|turn| layout.pairing.turns[turn].anchor);
        let behind = anchor.and_then(|anchor| anchor.behind);
        let mut laid = Laid::default();
        if behind.is_none() {
            self.put_in(unit, turn, &mut laid);
        }
        let found = &layout.pairing.units[unit];
        let says_nothing = layout.message_fixes.get(&found.message) == Some(&FlawKind::EmptyMessage);
        for part in found.parts.clone().filter(|_| !says_nothing) {
            match layout.plan.lifts.get(&part) {
                None => laid.items.push(Item::Stay(part, layout.inside(part))),
                Some(Lift::Gone) => {}
                Some(Lift::Quoted | Lift::Folded) => self.quote(part, &mut laid),
            }
            if behind == Some(part) {
                self.put_in(unit, turn, &mut laid);
            }
        }
        laid
    }

    fn put_in(&self, unit: usize, turn: Option<usize>, laid: &mut Laid) {
        if let Some(plan) = turn.and_then(|turn| self.layout.plan.turns.get(&turn)) {
            let answers = plan
                .answers
                .iter()
                .map(|answer| Item::Answer(self.layout.answer(answer)));
            laid.items.extend(answers);
            for part in &plan.quotes {
                self.quote(*part, laid);
            }
        }
        for part in self.layout.plan.deferred.get(&unit).into_iter().flatten() {
            self.quote(*part, laid);
        }
    }

    /// A quote stands among the other blocks; in Gemini, where results and words are counted, in a content of its own.
    fn quote(&self, part: usize, laid: &mut Laid) {
        let (id, name) = self.layout.quoted_label(part);
        let span = self.layout.conversation.parts[part].span;
        let format = self.layout.format();
        let blocks = format.quote_parts(self.layout.json, span, &id, name.as_deref());
        if format.quotes_apart() {
            laid.apart.extend(blocks);
        } else {
            laid.items.extend(blocks.into_iter().map(Item::New));
        }
    }

    /// A unit of which nothing is left. A user turn may vanish behind another one, or where results follow: else an
    /// assistant turn would come first, come last (prefill is refused by Claude 4.6 and later), or be merged with the
    /// one before.
    fn emptied(&mut self, unit: usize, role: Role) {
        let found = &self.layout.pairing.units[unit];
        let had_parts = !found.parts.is_empty();
        let mended = self.layout.message_fixes.get(&found.message) == Some(&FlawKind::EmptyMessage);
        if !had_parts && !mended {
            self.close();
            self.before = self.before.then(role);
            self.done.push(Slot::Old(found.message, Vec::new()));
        } else if role == Role::User
            && !found.inner
            && self.before == Before::NobodyOrAssistant
            && !self.layout.is_in_gap_of_calls(unit)
        {
            self.close();
            self.before = Before::User;
            self.done.push(Slot::New(self.layout.format().note(words::VACATED)));
        }
    }

    /// Answers of a turn without a user message behind it make one of their own.
    fn own_message(&mut self, unit: usize) {
        let Some(turn) = self.layout.ended(unit) else {
            return;
        };
        let mut laid = Laid::default();
        self.put_in(usize::MAX, Some(turn), &mut laid);
        if !laid.items.is_empty() {
            self.close();
            self.before = Before::User;
            self.push_fresh(laid.items);
        }
        self.put_apart(laid.apart);
    }

    /// System messages that stood in front of the answering user message follow it.
    fn systems_behind(&mut self, unit: usize) {
        let Some(turn) = self.layout.anchored(unit) else {
            return;
        };
        if self.layout.plan.turns.get(&turn).is_some_and(|plan| plan.systems) {
            for system in self.layout.pairing.turns[turn].systems.clone() {
                self.close();
                let message = self.layout.pairing.units[system].message;
                let span = self.layout.conversation.messages[message].span;
                let items = self.items(system).items;
                if !self.layout.touches(message) {
                    self.done.push(Slot::New(vec![Piece::Original(span)]));
                } else if !items.is_empty() {
                    let edits = self.rewritten(message, items);
                    self.done.push(Slot::New(json::moved(span, edits)));
                }
            }
        }
    }

    fn close(&mut self) {
        let Some(Draft { message, items, over }) = self.open.take() else {
            return;
        };
        if self.layout.conversation.messages[message].role == Role::User {
            return self.close_user(message, items);
        }
        let items = self.ordered(message, items);
        self.done.push(if over {
            Slot::Old(message, self.rewritten(message, items))
        } else {
            Slot::New(self.fresh(false, items))
        });
    }

    /// The edits that give a message of the body these blocks.
    fn rewritten(&self, message: usize, items: Vec<Item>) -> Vec<Edit> {
        let found = &self.layout.conversation.messages[message];
        let unchanged = matches!(items.as_slice(), [Item::Stay(_, edits)] if edits.is_empty());
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
                    Item::Stay(part, edits) => Slot::Old(self.layout.conversation.ordinal(part), edits),
                    Item::Answer(pieces) | Item::New(pieces) => Slot::New(pieces),
                });
                json::rebuild(list, &spans, slots.collect())
            }
            Content::Text(_) if unchanged => Vec::new(),
            Content::Text(_) | Content::Opaque => {
                let blocks = self.blocks(items);
                vec![self.layout.format().set_parts(self.layout.json, found.span, blocks)]
            }
        }
    }

    /// A message of our own that holds these blocks.
    fn fresh(&self, of_user: bool, items: Vec<Item>) -> Vec<Piece> {
        self.layout.format().message(of_user, self.blocks(items))
    }

    fn blocks(&self, items: Vec<Item>) -> Vec<Vec<Piece>> {
        let parts = &self.layout.conversation.parts;
        let block = |item| match item {
            Item::Answer(pieces) | Item::New(pieces) => Some(pieces),
            Item::Stay(part, edits) => {
                let found = &parts[part];
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
    fn close_user(&mut self, message: usize, items: Vec<Item>) {
        let stays = |item: &Item| matches!(item, Item::Stay(..));
        let (results, words) = self.apart(items);
        if words.is_empty() {
            self.done.push(Slot::Old(message, self.rewritten(message, results)));
        } else if results.iter().any(stays) {
            self.done.push(Slot::Old(message, self.rewritten(message, results)));
            self.done.push(Slot::New(self.fresh(true, words)));
        } else {
            if !results.is_empty() {
                self.done.push(Slot::New(self.fresh(true, results)));
            }
            self.done.push(Slot::Old(message, self.rewritten(message, words)));
        }
    }

    /// A user's message of our own; where results stand apart, two.
    fn push_fresh(&mut self, items: Vec<Item>) {
        let (results, words) = self.apart(items);
        for items in [results, words] {
            if !items.is_empty() {
                self.done.push(Slot::New(self.fresh(true, items)));
            }
        }
    }

    /// The results among these blocks, and the others where they need a message of their own.
    fn apart(&self, items: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
        let kind = |item: &Item| match item {
            Item::Stay(part, _) => Some(&self.layout.conversation.parts[*part].kind),
            Item::Answer(_) | Item::New(_) => None,
        };
        // Nothing moves in front of a compaction.
        let compacts = |item: &Item| matches!(kind(item), Some(PartKind::Compaction));
        if !self.layout.plan.results_apart || items.iter().any(compacts) {
            return (items, Vec::new());
        }
        let is_result =
            |item: &Item| matches!(item, Item::Answer(_)) || matches!(kind(item), Some(PartKind::Result(_)));
        items.into_iter().partition(is_result)
    }

    /// The blocks of an assistant's message, words in front of calls where they must not stand behind.
    fn ordered(&self, message: usize, items: Vec<Item>) -> Vec<Item> {
        if !self.layout.plan.arranged.contains(&message) {
            return items;
        }
        let parts = &self.layout.conversation.parts;
        let rank = |item: &Item| match item {
            Item::Stay(part, _) => match parts[*part].kind {
                PartKind::Call(_) => Rank::Call,
                PartKind::Other => Rank::Words,
                PartKind::Thinking | PartKind::Compaction => Rank::Barrier,
                PartKind::ServerCall(_) | PartKind::ServerResult(_) | PartKind::Result(_) => Rank::Server,
            },
            Item::Answer(_) | Item::New(_) => Rank::Words,
        };
        words_in_front(items, rank, |item| item.lifted(parts))
    }
}

/// The role of a block of an assistant's message in the order of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
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
fn words_in_front<T>(items: Vec<T>, rank: impl Fn(&T) -> Rank, lift: impl Fn(T) -> T) -> Vec<T> {
    let mut ordered = Vec::with_capacity(items.len());
    let mut calls = Vec::new();
    for item in items {
        match rank(&item) {
            Rank::Words | Rank::Server if calls.is_empty() => ordered.push(item),
            Rank::Words => ordered.push(lift(item)),
            Rank::Call | Rank::Server => calls.push(item),
            Rank::Barrier => {
                ordered.append(&mut calls);
                ordered.push(item);
            }
        }
    }
    ordered.append(&mut calls);
    ordered
}
