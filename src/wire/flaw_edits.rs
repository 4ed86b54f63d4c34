//! Edits that repair one flaw inside a part.

use crate::{
    conversation::FlawKind,
    splice::{Edit, Span},
    wire::{anthropic, json::Json, openai_chat, openai_responses},
};

/// Returns the edits that repair a flaw of the part at `part`.
///
/// `call` is the call that the part answers, if the part is a result. `error` is the text for an error result without
/// content.
pub(crate) fn flaw_edits(
    json: Json<'_>,
    part: Span,
    flaw: FlawKind,
    call: Option<Span>,
    error: &'static str,
) -> Vec<Edit> {
    // Each kind that is repaired here exists in one format only, so the kind selects the writer.
    match flaw {
        FlawKind::InputEmpty => vec![anthropic::write::set_empty_input(json, part)],
        FlawKind::InputText => anthropic::write::set_text_input(json, part).into_iter().collect(),
        FlawKind::ErrorWithoutContent => vec![anthropic::write::set_error_text(json, part, error)],
        FlawKind::EmptyCalls => openai_chat::write::drop_empty_calls(json, part),
        FlawKind::ResultKind => {
            let set = call.map(|call| openai_responses::write::set_result_kind(json, part, call));
            set.into_iter().collect()
        }
        FlawKind::RepeatedItemId => openai_responses::write::drop_item_id(json, part),
        // These move or remove whole parts and messages, which the layout of the history does.
        FlawKind::BlankText | FlawKind::EmptyMessage | FlawKind::SplitTurn => Vec::new(),
    }
}
