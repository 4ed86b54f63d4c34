//! Look-ups that both layouts of results need: changed messages and places of results.

use std::collections::HashMap;

use crate::{
    conversation::{
        CallFault, Conversation, FlawKind, PartId, PartKind, Role, TurnId,
        pairing::{Pairing, ResultRole},
    },
    repair::{
        RealResult,
        history_plan::{HistoryPlan, PlannedResult, ResultSource},
        legal_ids::legal_name,
        quote_labels::QuoteLabels,
        result_block, texts,
    },
    splice::{Edit, Piece, Span},
    wire::{
        self, AnsweredCall, Format, Wire,
        json::{self, Json},
    },
    work,
};

/// A plan with its history, and the look-ups that both layouts need.
pub(super) struct Layout<'c> {
    pub(super) plan: &'c HistoryPlan,
    pub(super) pairing: &'c Pairing,
    pub(super) conversation: &'c Conversation<'c>,
    pub(super) json: Json<'c>,
    wire: Wire,
    /// Fields to fix, by part. A result may have two: its content and its name.
    part_fixes: HashMap<PartId, Vec<FlawKind>>,
    /// Fields to fix, by message.
    pub(super) message_fixes: HashMap<usize, FlawKind>,
    /// For each unit: the turn with its insert point there.
    insert_points: Vec<Option<TurnId>>,
    /// For each unit: the turn that ends there, has no insert point, and has insertions.
    ends: Vec<Option<TurnId>>,
    /// For each message: `true` if anything in it changes.
    changed: Vec<bool>,
    labels: QuoteLabels<'c>,
}

impl<'c> Layout<'c> {
    /// Returns the look-ups for `plan`.
    pub(super) fn new(
        plan: &'c HistoryPlan,
        pairing: &'c Pairing,
        conversation: &'c Conversation<'c>,
        wire: Wire,
    ) -> Self {
        let mut layout = Self {
            plan,
            pairing,
            conversation,
            json: Json::new(conversation.body),
            wire,
            part_fixes: HashMap::new(),
            message_fixes: HashMap::new(),
            insert_points: vec![None; pairing.units.len()],
            ends: vec![None; pairing.units.len()],
            changed: vec![false; conversation.messages.len()],
            labels: QuoteLabels::new(conversation, pairing),
        };
        work::count(pairing.units.len().saturating_add(conversation.messages.len()));
        for flaw in &plan.fixes {
            work::count(1);
            match flaw.part {
                Some(part) => layout.part_fixes.entry(part).or_default().push(flaw.kind),
                None => drop(layout.message_fixes.insert(flaw.message, flaw.kind)),
            }
        }
        for (index, turn) in pairing.turns.iter().enumerate() {
            work::count(1);
            let index = TurnId::new(index);
            match turn.insert_at {
                Some(anchor) => layout.insert_points[anchor.unit] = Some(index),
                // No result stays there, so the new ones follow the turn's last unit.
                None if plan.turns.contains_key(&index) => layout.ends[turn.units.end - 1] = Some(index),
                None => {}
            }
        }
        layout.mark_changed();
        layout
    }

    /// Marks the messages that change.
    fn mark_changed(&mut self) {
        let (plan, pairing) = (self.plan, self.pairing);
        let parts = plan
            .part_changes
            .keys()
            .chain(plan.new_ids.keys())
            .chain(&plan.unsigned)
            .chain(self.part_fixes.keys());
        let by_part = parts.map(|part| self.conversation.parts[*part].message);
        let anchored = plan.turns.keys().filter_map(|turn| pairing.turns[*turn].insert_at);
        let units = anchored
            .map(|anchor| anchor.unit)
            .chain(plan.deferred_quotes.keys().copied());
        // A merge changes the message before as well, because the blocks move into it. Empty ones between them go.
        let fixes = &self.message_fixes;
        let is_empty = |message: &usize| {
            work::count(1);
            fixes.get(message) == Some(&FlawKind::EmptyMessage)
        };
        let merged = fixes.iter().filter(|(_, flaw)| **flaw == FlawKind::SplitTurn);
        let merged = merged.filter_map(|(message, _)| (0..*message).rev().find(|before| !is_empty(before)));
        let by_unit = units.map(|unit| pairing.units[unit].message);
        // An assistant message with results is split, whatever else the plan says.
        let inner = pairing.units.iter().filter(|unit| unit.inner).map(|unit| unit.message);
        let messages: Vec<usize> = by_part
            .chain(by_unit)
            .chain(inner)
            .chain(self.message_fixes.keys().copied())
            .chain(merged)
            .chain(plan.arranged.iter().copied())
            .collect();
        work::count(pairing.units.len());
        for message in messages {
            work::count(1);
            self.changed[message] = true;
        }
    }

    /// Returns `true` if anything in a message changes.
    pub(super) fn is_changed(&self, message: usize) -> bool {
        self.changed[message]
    }

    /// Returns the turn with its insert point at this unit.
    pub(super) fn turn_inserting_at(&self, unit: usize) -> Option<TurnId> {
        self.insert_points[unit]
    }

    /// Returns the turn that ends with this unit, has no insert point, and has insertions.
    pub(super) fn turn_ending_at(&self, unit: usize) -> Option<TurnId> {
        self.ends[unit]
    }

    /// Returns the edits inside a part that stays: new ids, fixed fields.
    pub(super) fn edits_inside(&self, part: PartId) -> Vec<Edit> {
        let span = self.conversation.parts[part].span;
        let mut edits = Vec::new();
        if let Some(id) = self.plan.new_ids.get(&part) {
            edits.extend(self.set_id(part, Piece::Made(json::quote_string(id))));
        }
        if self.plan.unsigned.contains(&part) {
            edits.extend(wire::remove_gemini_signature(self.json, span));
        }
        for flaw in self.part_fixes.get(&part).into_iter().flatten() {
            work::count(1);
            let call = self.answered_call(part).map(|call| self.conversation.parts[call].span);
            let texts = wire::FlawTexts {
                error: texts::ERROR_WITHOUT_TEXT,
                tool_name: self.new_name(span, *flaw),
            };
            let format = self.wire.format;
            edits.extend(wire::flaw_edits(format, self.json, span, *flaw, call, texts));
        }
        edits
    }

    /// Returns the edits that repair a flaw of the whole message at `span`.
    pub(super) fn message_fix_edits(&self, span: Span, flaw: FlawKind) -> Vec<Edit> {
        wire::flaw_edits(
            self.wire.format,
            self.json,
            span,
            flaw,
            None,
            wire::FlawTexts::default(),
        )
    }

    /// Returns the name that the call at `part` gets, as a JSON string. `None` if it keeps its own.
    fn new_call_name(&self, part: PartId) -> Option<Piece> {
        let mut flaws = self.part_fixes.get(&part)?.iter();
        let name = flaws.find_map(|flaw| self.new_name(self.conversation.parts[part].span, *flaw))?;
        Some(Piece::Made(json::quote_string(&name)))
    }

    /// Returns the tool name that repairs a flaw of the part at `span`. `None` if the flaw concerns no name.
    fn new_name(&self, span: Span, flaw: FlawKind) -> Option<String> {
        let format = self.wire.format;
        let name = match flaw {
            FlawKind::Call(CallFault { name: Some(_), .. }) => wire::judged_name(format, self.json, span),
            FlawKind::ResultName => Some(wire::bad_result_name(format, self.json, span)?),
            _ => return None,
        };
        // A function of the old name alone, so a call and its result stay alike. A missing one counts as empty.
        let old = name.map(|name| self.json.decode_string(name)).unwrap_or_default();
        Some(legal_name(&old))
    }

    /// Returns the part of the call that the result at `part` answers.
    fn answered_call(&self, part: PartId) -> Option<PartId> {
        match self.pairing.role_of(part) {
            Some(ResultRole::Answers(call)) => Some(self.pairing.calls[call].part),
            _ => None,
        }
    }

    fn set_id(&self, part: PartId, id: Piece) -> Option<Edit> {
        let found = &self.conversation.parts[part];
        // Calls and results name the id in different members.
        match found.kind {
            PartKind::Call(_) => self.wire.format.set_call_id(self.json, found.span, id),
            _ => self.wire.format.set_result_id(self.json, found.span, id),
        }
    }

    /// Writes a result as a block or message of the format.
    pub(super) fn write_result(&self, result: &PlannedResult) -> Vec<Piece> {
        let (id, format) = (self.call_id(result.call), self.wire.format);
        let part = self.conversation.parts[result.call].span;
        let call = |id| AnsweredCall {
            part,
            id,
            new_name: self.new_call_name(result.call),
            // Anthropic rejects a result that does not repeat the toolset of its call.
            toolset: self.conversation.call_details(result.call).toolset,
        };
        match &result.source {
            ResultSource::Part(part) => self.write_moved(*part, result.call),
            ResultSource::Placeholder(text) => format.write_placeholder(self.json, call(id), text.text()),
            ResultSource::Real(RealResult::Content { content, failed }) => {
                // A tool service does not know the format of the conversation, so its content is adapted here.
                let error = texts::ERROR_WITHOUT_TEXT;
                let content = self.wire.fit_content(self.json, part, content, *failed, error);
                format.write_result(self.json, call(id), content, *failed)
            }
            ResultSource::Real(RealResult::Block(block)) => result_block::block_with_id(format, block, id),
        }
    }

    /// Writes a result of this body as that of `call`: its own bytes, with the id of the call if that changes.
    fn write_moved(&self, part: PartId, call: PartId) -> Vec<Piece> {
        let mut edits = self.edits_inside(part);
        // A copy for a repeated call has another id than the original result.
        if let Some(id) = self
            .plan
            .new_ids
            .get(&call)
            .filter(|id| self.plan.new_ids.get(&part) != Some(id))
        {
            let set = self.set_id(part, Piece::Made(json::quote_string(id)));
            // Both ids would be written to one span, and overlapping edits are refused.
            edits.retain(|edit| set.as_ref().is_none_or(|set| edit.span != set.span));
            edits.extend(set);
        }
        json::edited_value(self.conversation.parts[part].span, edits)
    }

    /// Returns the id of a call as it is sent: its own bytes, or the new id. `None` if it has none.
    fn call_id(&self, call: PartId) -> Option<Piece> {
        if let Some(id) = self.plan.new_ids.get(&call) {
            return Some(Piece::Made(json::quote_string(id)));
        }
        let span = self.conversation.parts[call].span;
        // The client's own bytes, since an id may be escaped in a way that a new string would not repeat.
        self.wire.format.call_id(self.json, span).map(Piece::Original)
    }

    /// Returns the id and the tool's name of a quoted result, or of a call that becomes text.
    pub(super) fn quoted_label(&self, part: PartId) -> (String, Option<String>) {
        self.labels.label_of(part)
    }

    /// Returns `true` if calls and results are items of one flat list.
    pub(super) const fn is_items(&self) -> bool {
        self.wire.pairing_rules().place.is_items()
    }

    /// Returns the format of the body.
    pub(super) const fn format(&self) -> Format {
        self.wire.format
    }

    /// Returns `true` if this unit follows a turn with calls, so that results lie or are inserted beside it.
    pub(super) fn is_in_gap_of_calls(&self, unit: usize) -> bool {
        let turns = &self.pairing.turns;
        // Turns and their gaps are in document order and do not overlap.
        let turn = turns.get(turns.partition_point(|turn| turn.gap.end <= unit));
        turn.is_some_and(|turn| turn.gap.contains(&unit) && !turn.calls.is_empty())
    }
}

/// The author of the last message in the layout so far, instructions aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastSpeaker {
    /// No message yet, or the assistant's: an emptied user turn must leave a note.
    #[default]
    NoneOrAssistant,
    /// The user or a tool.
    User,
}

impl LastSpeaker {
    /// Returns the state after a message of `role`.
    pub(super) fn after_message(self, role: Role) -> Self {
        match role {
            Role::Assistant => Self::NoneOrAssistant,
            Role::User | Role::Tool => Self::User,
            Role::System => self,
        }
    }
}
