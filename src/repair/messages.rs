//! Lays out a history whose results are messages of their own (Chat Completions, Responses).

use crate::{
    conversation::{FlawKind, PartKind, Role},
    repair::{
        history_plan::Lift,
        layout::{Before, Layout},
        words,
    },
    splice::{Edit, Piece, Span},
    wire::{self, json::Slot, openai_chat::write, openai_responses},
};

/// The messages as they go upstream.
pub(super) fn slots(layout: &Layout<'_>) -> Vec<Slot> {
    let mut builder = Builder {
        layout,
        done: Vec::new(),
        before: Before::default(),
        reasoning: Vec::new(),
    };
    for unit in 0..layout.pairing.units.len() {
        builder.unit(unit);
        if let Some(turn) = layout.anchored(unit).or_else(|| layout.ended(unit)) {
            builder.put_in(turn);
        }
        builder.put_behind(unit);
    }
    builder.release();
    builder.done
}

struct Builder<'l, 'c> {
    layout: &'l Layout<'c>,
    done: Vec<Slot>,
    before: Before,
    /// Reasoning items that stand last: each belongs to the item that follows, and nothing comes between.
    reasoning: Vec<Slot>,
}

impl Builder<'_, '_> {
    fn unit(&mut self, unit: usize) {
        let layout = self.layout;
        let found = &layout.pairing.units[unit];
        let part = found.parts.start;
        match layout.plan.lifts.get(&part).filter(|_| !found.parts.is_empty()) {
            Some(Lift::Gone) if found.role == Role::Tool => return self.vacated(unit),
            Some(Lift::Gone) => return,
            Some(Lift::Quoted) => return self.push_words(self.quote(part)),
            Some(Lift::Folded) => return self.push_words(self.fold(part)),
            None => {}
        }
        let fix = layout.message_fixes.get(&found.message);
        if fix == Some(&FlawKind::EmptyMessage) {
            return;
        }
        let mut edits: Vec<Edit> = found.parts.clone().flat_map(|part| layout.inside(part)).collect();
        let span = layout.conversation.messages[found.message].span;
        if let Some(flaw) = fix {
            edits.extend(wire::mended(layout.json, span, *flaw, None, ""));
        }
        if let Some(parts) = layout.plan.deferred.get(&unit) {
            edits.push(write::in_front(layout.json, span, self.quoted_parts(parts)));
        }
        let thinks = |part: usize| matches!(layout.conversation.parts[part].kind, PartKind::Thinking);
        if layout.is_items() && found.parts.clone().any(thinks) {
            self.reasoning.push(Slot::Old(found.message, edits));
        } else {
            self.push(found.role, Slot::Old(found.message, edits));
        }
    }

    /// A user's message in front of reasoning that waits for the item it belongs to.
    fn push_words(&mut self, pieces: Vec<Piece>) {
        self.before = Before::User;
        self.done.push(Slot::New(pieces));
    }

    /// Puts the reasoning that waits where it stood: in front of what comes next.
    fn release(&mut self) {
        self.done.append(&mut self.reasoning);
    }

    /// What is quoted behind a unit.
    fn put_behind(&mut self, unit: usize) {
        for part in self.layout.plan.behind.get(&unit).into_iter().flatten() {
            self.push_words(self.quote(*part));
        }
    }

    fn push(&mut self, role: Role, slot: Slot) {
        self.release();
        self.before = self.before.then(role);
        self.done.push(slot);
    }

    /// A tool message that left its place. Where it was the only word behind an assistant's words, a user turn stays:
    /// else the history could end with the assistant, and would then read as words put into its mouth.
    fn vacated(&mut self, unit: usize) {
        // In a flat list of items words of the assistant at the end are not put into its mouth.
        let items = self.layout.is_items();
        if !items && self.before == Before::NobodyOrAssistant && !self.layout.is_in_gap_of_calls(unit) {
            self.push(Role::User, Slot::New(self.layout.format().note(words::VACATED)));
        }
    }

    /// Answers behind the results that stand, then what is quoted behind them.
    fn put_in(&mut self, turn: usize) {
        let Some(plan) = self.layout.plan.turns.get(&turn) else {
            return;
        };
        for answer in &plan.answers {
            self.push(Role::Tool, Slot::New(self.layout.answer(answer)));
        }
        for part in &plan.quotes {
            self.push_words(self.quote(*part));
        }
    }

    fn quote(&self, part: usize) -> Vec<Piece> {
        let (id, name) = self.layout.quoted_label(part);
        let span = self.layout.conversation.parts[part].span;
        let format = self.layout.format();
        format.quote_message(self.layout.json, span, &id, name.as_deref())
    }

    /// A call that nobody can answer, and the reasoning right before it, as text.
    fn fold(&self, part: usize) -> Vec<Piece> {
        let conversation = self.layout.conversation;
        let mut reasoning: Vec<Span> = conversation
            .reasoning_before(part)
            .map(|part| conversation.parts[part].span)
            .collect();
        reasoning.reverse();
        let (id, name) = self.layout.quoted_label(part);
        let call = conversation.parts[part].span;
        openai_responses::write::fold(self.layout.json, call, &reasoning, &id, name.as_deref())
    }

    fn quoted_parts(&self, parts: &[usize]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                pieces.push(Piece::Constant(","));
            }
            let (id, name) = self.layout.quoted_label(*part);
            let span = self.layout.conversation.parts[*part].span;
            pieces.extend(write::quote_parts(self.layout.json, span, &id, name.as_deref()));
        }
        pieces
    }
}
