//! Plan → edit list: the choice between the two layouts of results.

use crate::{
    repair::{blocks, history_plan::HistoryPlan, layout::Layout, messages, parsed::PairedHistory, words},
    splice::{EditList, Overlap},
    wire::{
        Wire,
        json::{self, Json, Slot},
    },
};

/// Returns the edits that carry out `plan`.
pub(super) fn edits(plan: &HistoryPlan, history: &PairedHistory<'_>, wire: Wire) -> Result<EditList, Overlap> {
    let (pairing, conversation) = (&history.pairing, &history.conversation);
    let json = Json::new(conversation.body);
    let held = plan.held.iter().map(|id| wire.format.held_answer(id, words::HELD));
    let Some(array) = conversation.array else {
        let edit = wire.format.in_front_of_text(json, held.collect());
        return EditList::new(edit.into_iter().collect(), conversation.body.len());
    };
    let layout = Layout::new(plan, pairing, conversation, wire);
    let mut slots = if wire.rules().place.is_user_parts() {
        blocks::slots(&layout)
    } else {
        messages::slots(&layout)
    };
    slots.splice(0..0, held.map(Slot::New));
    if plan.opening {
        slots.insert(0, Slot::New(wire.format.note(words::OPENING)));
    }
    let spans: Vec<_> = conversation.messages.iter().map(|message| message.span).collect();
    EditList::new(json::rebuild(array, &spans, slots), conversation.body.len())
}
