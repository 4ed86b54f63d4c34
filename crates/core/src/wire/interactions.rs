//! The marks that tell Gemini's Interactions from Responses. Both call their history `input`.
//!
//! Interactions pair `function_call.id` with `function_result.call_id`. No reader of this crate knows them, so such a
//! body is never read as Responses: an edit would add items that Google does not know.
//! Source: the types of the package `google-genai` 3.4.0 (2026-11), `CreateModelInteraction` and `Step`.

/// Kinds of steps that no item of Responses has. `function_call`, `file_search_call` and `tool_search_call` are in both.
const STEP_KINDS: [&[u8]; 20] = [
    b"code_execution_call",
    b"code_execution_result",
    b"file_search_result",
    b"function_result",
    b"google_maps_call",
    b"google_maps_result",
    b"google_search_call",
    b"google_search_result",
    b"mcp_server_tool_call",
    b"mcp_server_tool_result",
    b"model_output",
    b"processing_call",
    b"processing_result",
    b"retrieval_call",
    b"retrieval_result",
    b"thought",
    b"tool_search_result",
    b"url_context_call",
    b"url_context_result",
    b"user_input",
];

/// Name of the format in messages.
pub(super) const NAME: &str = "Gemini Interactions";

/// Marks of both formats in one body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InteractionMarks {
    interactions: bool,
    responses: bool,
}

impl InteractionMarks {
    /// Notes a key at the top of the body.
    pub(super) fn note_key(&mut self, key: &[u8]) {
        match key {
            b"previous_interaction_id" => self.interactions = true,
            b"previous_response_id" | b"conversation" | b"instructions" => self.responses = true,
            _ => {}
        }
    }

    /// Notes an item: its type, its role, and its `call_id` if it has that member. Texts are empty if missing.
    pub(super) fn note_item(&mut self, kind: &[u8], role: &[u8], has_call_id: bool) {
        match kind {
            b"function_call" => self.responses |= has_call_id,
            b"message" | b"reasoning" | b"item_reference" | b"compaction" => self.responses = true,
            // The schema before May 2026 had turns without a type, and Gemini's role.
            b"" => self.interactions |= role == b"model",
            _ if kind.ends_with(b"_output") && kind != b"model_output" => self.responses = true,
            _ => self.interactions |= STEP_KINDS.contains(&kind),
        }
    }

    /// Reports whether the body belongs to Interactions and cannot belong to Responses.
    pub(super) const fn is_interactions(self) -> bool {
        // A mark of Responses decides, so that an odd item never stops the repair of a real Responses body.
        self.interactions && !self.responses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_responses_decides() {
        type Items = &'static [(&'static str, &'static str, bool)];
        let rows: &[(Items, bool)] = &[
            (&[("user_input", "", false), ("function_result", "", true)], true),
            (&[("", "model", false)], true),
            (&[("", "user", false)], false),
            (&[("function_call", "", false)], false),
            (&[("function_call", "", false), ("thought", "", false)], true),
            (&[("function_call", "", true), ("thought", "", false)], false),
            (
                &[("function_result", "", true), ("function_call_output", "", true)],
                false,
            ),
            (&[("message", "user", false), ("model_output", "", false)], false),
            (&[("an_unknown_kind", "", false)], false),
        ];
        for (items, wanted) in rows {
            let mut marks = InteractionMarks::default();
            for (kind, role, has_call_id) in *items {
                marks.note_item(kind.as_bytes(), role.as_bytes(), *has_call_id);
            }
            assert_eq!(marks.is_interactions(), *wanted, "{items:?}");
        }
        let mut marks = InteractionMarks::default();
        marks.note_key(b"previous_interaction_id");
        assert!(marks.is_interactions());
        marks.note_key(b"instructions");
        assert!(!marks.is_interactions());
    }
}
