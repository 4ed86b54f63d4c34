//! Turns a plan into a list of edits, with the layout that fits the format.

use crate::{
    conversation::{Conversation, Role},
    repair::{block_layout, history_plan::HistoryPlan, layout::Layout, message_layout, parsed::PairedHistory, texts},
    splice::{EditList, Overlap},
    wire::{
        Wire,
        json::{self, Json, ListElement},
    },
    work,
};

/// Returns the edits that carry out `plan`.
pub(super) fn edits_of(plan: &HistoryPlan, history: &PairedHistory<'_>, wire: Wire) -> Result<EditList, Overlap> {
    let (pairing, conversation) = (&history.pairing, &history.conversation);
    let json = Json::new(conversation.body);
    let remote_results = plan
        .remote_calls
        .iter()
        .map(|id| wire.format.write_remote_result(id, texts::REMOTE_CALL_RESULT));
    // A Responses `input` that is a string has no calls, so only remote calls can need a result.
    let Some(array) = conversation.array else {
        let edit = wire.format.insert_before_text(json, remote_results.collect());
        return EditList::new(edit.into_iter().collect(), conversation.body.len());
    };
    let layout = Layout::new(plan, pairing, conversation, wire);
    let mut elements = if wire.pairing_rules().place.is_user_parts() {
        block_layout::layout_blocks(&layout)
    } else {
        message_layout::layout_messages(&layout)
    };
    // The provider appends the body to its own history, which ends with the remote calls.
    work::count(elements.len());
    elements.splice(0..0, remote_results.map(ListElement::New));
    if plan.adds_opening {
        let opening = ListElement::New(wire.format.write_text_message(true, texts::OPENING));
        work::count(elements.len());
        elements.insert(opening_place(&elements, conversation, wire), opening);
    }
    work::count(conversation.messages.len());
    let spans: Vec<_> = conversation.messages.iter().map(|message| message.span).collect();
    EditList::new(json::rebuild_list(array, &spans, elements), conversation.body.len())
}

/// Returns the index of the element in front of which the opening stands.
fn opening_place(elements: &[ListElement], conversation: &Conversation<'_>, wire: Wire) -> usize {
    let messages = &conversation.messages;
    let is_instructions = |element: &&ListElement| match element {
        ListElement::Kept(index, _) => messages.get(*index).is_some_and(|message| message.role == Role::System),
        ListElement::New(_) => false,
    };
    // Anthropic accepts instructions only after a user's message, chat templates only at the beginning.
    if wire.pairing_rules().place.is_user_parts() {
        return 0;
    }
    elements.iter().take_while(is_instructions).count()
}
