//! Edits that repair one flaw inside a part.

use crate::{
    conversation::FlawKind,
    splice::{Edit, Span},
    wire::{
        Format, HistoryShape, anthropic,
        call_faults::{call_fault_edits, set_result_name},
        json::Json,
        openai_chat, openai_responses,
    },
};

/// Text that the repair of a flaw writes.
#[derive(Debug, Default)]
pub(crate) struct FlawTexts {
    /// The text of an error result without content.
    pub(crate) error: &'static str,
    /// The new name of a tool, in a call or a result. `None` if the name stays.
    pub(crate) tool_name: Option<String>,
}

/// Returns the edits that repair a flaw of the part at `part`.
///
/// `call` is the call that the part answers, if the part is a result.
pub(crate) fn flaw_edits(
    format: Format,
    json: Json<'_>,
    part: Span,
    flaw: FlawKind,
    call: Option<Span>,
    texts: FlawTexts,
) -> Vec<Edit> {
    match flaw {
        FlawKind::Call(fault) => call_fault_edits(format, json, part, fault, texts.tool_name),
        FlawKind::ResultName => {
            let name = texts.tool_name.as_deref();
            let set = name.and_then(|name| set_result_name(format, json, part, name));
            set.into_iter().collect()
        }
        FlawKind::ErrorWithoutContent
        | FlawKind::EmptyCalls
        | FlawKind::ResultKind
        | FlawKind::ResultContent
        | FlawKind::InputPart
        | FlawKind::RepeatedItemId => own_edits(format.history(), json, part, flaw, call, texts.error),
        // These move or remove whole parts and messages, which the layout of the history does.
        FlawKind::BlankText | FlawKind::EmptyPart | FlawKind::EmptyMessage | FlawKind::SplitTurn => Vec::new(),
    }
}

/// Returns the edits that repair a flaw which one shape of histories has alone. `error` is the text of an error result.
fn own_edits(
    history: HistoryShape,
    json: Json<'_>,
    part: Span,
    flaw: FlawKind,
    call: Option<Span>,
    error: &'static str,
) -> Vec<Edit> {
    use HistoryShape::{Chat, Contents, Items, Messages};
    match (history, flaw) {
        (Messages, FlawKind::ErrorWithoutContent) => vec![anthropic::write::set_error_text(json, part, error)],
        (Chat, FlawKind::EmptyCalls) => openai_chat::write::drop_empty_calls(json, part),
        (Chat, FlawKind::ResultContent) => {
            let set = openai_chat::write::set_content_as_text(json, part);
            set.into_iter().collect()
        }
        (Items, FlawKind::ResultKind) => {
            let set = call.map(|call| openai_responses::write::set_result_kind(json, part, call));
            set.into_iter().collect()
        }
        (Items, FlawKind::InputPart) => openai_responses::write::set_output_types(json, part),
        (Items, FlawKind::RepeatedItemId) => openai_responses::write::drop_item_id(json, part),
        // The readers of the other shapes do not note it.
        (Messages | Chat | Items | Contents, _) => Vec::new(),
    }
}
