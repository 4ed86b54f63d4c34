//! Lays out a history whose results are messages of their own in a run behind the call (Chat Completions).

use crate::{
    conversation::{FlawKind, Role},
    repair::{
        edits::{Before, Layout},
        plan::Lift,
        words,
    },
    splice::{Edit, Piece},
    wire::{json::Slot, openai_chat::write},
};

/// The messages as they go upstream.
pub(super) fn slots(layout: &Layout<'_>) -> Vec<Slot> {
    let mut builder = Builder {
        layout,
        done: Vec::new(),
        before: Before::default(),
    };
    for unit in 0..layout.pairing.units.len() {
        builder.unit(unit);
        if let Some(turn) = layout.anchored(unit).or_else(|| layout.ended(unit)) {
            builder.put_in(turn);
        }
    }
    builder.done
}

struct Builder<'l, 'c> {
    layout: &'l Layout<'c>,
    done: Vec<Slot>,
    before: Before,
}

impl Builder<'_, '_> {
    fn unit(&mut self, unit: usize) {
        let layout = self.layout;
        let found = &layout.pairing.units[unit];
        if found.role == Role::Tool {
            match layout.plan.lifts.get(&found.parts.start) {
                Some(Lift::Gone) => return self.vacated(unit),
                Some(Lift::Quoted) => return self.push(Role::User, Slot::New(self.quote(found.parts.start))),
                None => {}
            }
        }
        let fix = layout.message_fixes.get(&found.message);
        if fix == Some(&FlawKind::EmptyMessage) {
            return;
        }
        let mut edits: Vec<Edit> = found.parts.clone().flat_map(|part| layout.inside(part)).collect();
        let span = layout.conversation.messages[found.message].span;
        if fix == Some(&FlawKind::EmptyCalls) {
            edits.extend(write::drop_empty_calls(layout.json, span));
        }
        if let Some(parts) = layout.plan.deferred.get(&unit) {
            edits.push(write::in_front(layout.json, span, self.quoted_parts(parts)));
        }
        self.push(found.role, Slot::Old(found.message, edits));
    }

    fn push(&mut self, role: Role, slot: Slot) {
        self.before = self.before.then(role);
        self.done.push(slot);
    }

    /// A tool message that left its place. Where it was the only word behind an assistant's words, a user turn stays:
    /// else the history could end with the assistant, and would then read as words put into its mouth.
    fn vacated(&mut self, unit: usize) {
        if self.before == Before::NobodyOrAssistant && !self.layout.is_in_gap_of_calls(unit) {
            self.push(Role::User, Slot::New(write::note(words::VACATED)));
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
            self.push(Role::User, Slot::New(self.quote(*part)));
        }
    }

    fn quote(&self, part: usize) -> Vec<Piece> {
        let (id, name) = self.layout.quoted_label(part);
        write::quote(
            self.layout.json,
            self.layout.conversation.parts[part].span,
            &id,
            name.as_deref(),
        )
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
