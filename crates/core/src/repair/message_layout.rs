//! Layout of histories whose results are messages of their own (Chat Completions, Responses).

use crate::{
    conversation::{FlawKind, PartId, PartKind, Role, TurnId},
    repair::{
        history_plan::PartChange,
        layout::{LastSpeaker, Layout},
        texts,
    },
    splice::{Edit, Piece, Span},
    wire::json::ListElement,
    work,
};

/// Returns the messages to send.
pub(super) fn layout_messages(layout: &Layout<'_>) -> Vec<ListElement> {
    let mut builder = MessageLayout {
        layout,
        done: Vec::new(),
        before: LastSpeaker::default(),
        is_after_results: false,
        reasoning: Vec::new(),
    };
    for unit in 0..layout.pairing.units.len() {
        work::count(1);
        builder.add_unit(unit);
        if let Some(turn) = layout.turn_inserting_at(unit).or_else(|| layout.turn_ending_at(unit)) {
            builder.insert_planned(turn);
        }
        builder.push_quotes_after(unit);
    }
    builder.release_reasoning();
    builder.done
}

struct MessageLayout<'l, 'c> {
    layout: &'l Layout<'c>,
    done: Vec<ListElement>,
    before: LastSpeaker,
    /// `true` if the last message is a result.
    is_after_results: bool,
    /// Reasoning items at the end. Each belongs to the next item, and nothing may come between.
    reasoning: Vec<ListElement>,
}

impl MessageLayout<'_, '_> {
    /// Adds a unit with its changes.
    fn add_unit(&mut self, unit: usize) {
        let layout = self.layout;
        let found = &layout.pairing.units[unit];
        // A part with a change is the only one of its message in these formats, so the first one decides.
        let part = PartId::new(found.parts.start);
        match layout.plan.part_changes.get(&part).filter(|_| !found.parts.is_empty()) {
            Some(PartChange::Removed) if found.role == Role::Tool => return self.replace_vacated(unit),
            Some(PartChange::Removed) => return,
            Some(PartChange::Quoted) => return self.push_user_message(self.write_quote(part)),
            Some(PartChange::AsText) => return self.push_user_message(self.write_call_as_text(part)),
            None => {}
        }
        let fix = layout.message_fixes.get(&found.message);
        if fix == Some(&FlawKind::EmptyMessage) {
            return;
        }
        let mut edits: Vec<Edit> = PartId::all(found.parts.clone())
            .flat_map(|part| layout.edits_inside(part))
            .collect();
        let span = layout.conversation.messages[found.message].span;
        if let Some(flaw) = fix {
            edits.extend(layout.message_fix_edits(span, *flaw));
        }
        if let Some(parts) = layout.plan.deferred_quotes.get(&unit) {
            let quotes = self.write_quoted_parts(parts);
            edits.extend(layout.format().insert_parts_before(layout.json, span, quotes));
        }
        let thinks = |part: PartId| matches!(layout.conversation.parts[part].kind, PartKind::Thinking);
        if layout.is_items() && PartId::all(found.parts.clone()).any(thinks) {
            // OpenAI refuses reasoning "without its required following item", so nothing may come between the two.
            self.reasoning.push(ListElement::Kept(found.message, edits));
        } else {
            self.push(found.role, ListElement::Kept(found.message, edits));
        }
    }

    /// Adds a user's message before pending reasoning.
    fn push_user_message(&mut self, pieces: Vec<Piece>) {
        self.bridge_to(Role::User);
        // Reasoning stays pending, because the next item is still the one that it belongs to.
        self.before = LastSpeaker::User;
        self.done.push(ListElement::New(pieces));
    }

    /// Adds the pending reasoning before the next item.
    fn release_reasoning(&mut self) {
        work::count(self.reasoning.len());
        self.done.append(&mut self.reasoning);
    }

    /// Adds the quotes after a unit.
    fn push_quotes_after(&mut self, unit: usize) {
        for part in self.layout.plan.quotes_after.get(&unit).into_iter().flatten() {
            work::count(1);
            self.push_user_message(self.write_quote(*part));
        }
    }

    /// Adds a message after the pending reasoning, which belongs to it.
    fn push(&mut self, role: Role, element: ListElement) {
        self.release_reasoning();
        self.bridge_to(role);
        self.before = self.before.after_message(role);
        self.done.push(element);
    }

    /// Adds an assistant message before the user's message that follows results, if the provider demands one.
    fn bridge_to(&mut self, role: Role) {
        if self.layout.plan.adds_bridges && self.is_after_results && role == Role::User {
            let bridge = self.layout.format().write_text_message(false, texts::BRIDGE);
            self.done.push(ListElement::New(bridge));
        }
        self.is_after_results = role == Role::Tool;
    }

    /// Replaces a tool message that left its place, by a note unless a user or tool message is beside it.
    ///
    /// Without the note the history could end with the assistant, which providers read as a prefill.
    fn replace_vacated(&mut self, unit: usize) {
        // In a flat list of items a final assistant text is no prefill.
        let items = self.layout.is_items();
        if !items && self.before == LastSpeaker::NoneOrAssistant && !self.layout.is_in_gap_of_calls(unit) {
            self.push(
                Role::User,
                ListElement::New(self.layout.format().write_text_message(true, texts::VACATED)),
            );
        }
    }

    /// Adds a turn's new results after those that stay, then its quotes.
    fn insert_planned(&mut self, turn: TurnId) {
        let Some(plan) = self.layout.plan.turns.get(&turn) else {
            return;
        };
        for result in &plan.results {
            work::count(1);
            self.push(Role::Tool, ListElement::New(self.layout.write_result(result)));
        }
        // Text between tool messages would end their run, so quotes come last.
        for part in &plan.quotes {
            work::count(1);
            self.push_user_message(self.write_quote(*part));
        }
    }

    /// Writes a result as a user's message.
    fn write_quote(&self, part: PartId) -> Vec<Piece> {
        let (id, name) = self.layout.quoted_label(part);
        let span = self.layout.conversation.parts[part].span;
        let format = self.layout.format();
        format.write_quote_message(self.layout.json, span, &id, name.as_deref())
    }

    /// Writes a call that cannot be answered, and the reasoning directly before it, as text.
    fn write_call_as_text(&self, part: PartId) -> Vec<Piece> {
        let conversation = self.layout.conversation;
        let mut reasoning: Vec<Span> = conversation
            .reasoning_before(part)
            .map(|part| conversation.parts[part].span)
            .collect();
        // The reasoning was collected backwards from the call.
        reasoning.reverse();
        let (id, name) = self.layout.quoted_label(part);
        let (call, format) = (conversation.parts[part].span, self.layout.format());
        format.write_call_as_text(self.layout.json, call, &reasoning, &id, name.as_deref())
    }

    /// Writes results as content parts for the beginning of a user's message.
    fn write_quoted_parts(&self, parts: &[PartId]) -> Vec<Vec<Piece>> {
        let write = |part: &PartId| {
            work::count(1);
            let (id, name) = self.layout.quoted_label(*part);
            let span = self.layout.conversation.parts[*part].span;
            let format = self.layout.format();
            format.write_quote_parts(self.layout.json, span, &id, name.as_deref())
        };
        parts.iter().flat_map(write).collect()
    }
}
