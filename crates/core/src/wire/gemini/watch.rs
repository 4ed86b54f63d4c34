//! The reader of `generateContent` answers, streamed or complete, and of Code Assist, which wraps them.
//!
//! Shapes: Gemini API reference, 2026-11. Names are read in both spellings. A search at the provider becomes visible
//! only after its end, and there is no heartbeat.

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        facts::{
            AnswerErrorFields, CallInput, CarriedCall, EmittedCall, EventActivity, Facts, OutputPhase, ServerTool,
            Usage, bounded_text, non_empty_text, note_model, read_count, read_elements, read_members, read_object,
            skip_value,
        },
        json::{Cursor, JsonKind},
    },
};

/// Known finish reasons, and reasons for which a prompt is blocked, in lower case.
pub(crate) const STOP_REASONS: [&str; 14] = [
    "stop",
    "max_tokens",
    "safety",
    "recitation",
    "language",
    "other",
    "blocklist",
    "prohibited_content",
    "spii",
    "malformed_function_call",
    "image_safety",
    "unexpected_tool_call",
    "too_many_tool_calls",
    "missing_thought_signature",
];

/// Reads one chunk.
pub(crate) fn read_chunk(data: &[u8], facts: &mut Facts) -> EventActivity {
    let mut error = AnswerErrorFields::default();
    // Taken before the walk: an error in the last chunk itself still counts.
    let over = facts.terminal || facts.stop.is_some();
    read_object(data, |cursor, key| match key {
        b"error" => error.read_error(cursor),
        // Code Assist wraps the answer.
        b"response" => read_members(cursor, |cursor, key| read_answer_member(key, cursor, facts)),
        _ => read_answer_member(key, cursor, facts),
    });
    if error.is_error() && !over {
        (facts.error, facts.terminal) = (Some(error.to_answer_error()), true);
    }
    EventActivity::Progress
}

fn read_answer_member(key: &[u8], cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    match key {
        b"candidates" => read_elements(cursor, |cursor| read_candidate(cursor, facts)),
        b"usageMetadata" | b"usage_metadata" => read_usage(cursor, facts),
        b"modelVersion" | b"model_version" => note_model(facts, cursor),
        b"promptFeedback" | b"prompt_feedback" => read_members(cursor, |cursor, key| match key {
            b"blockReason" | b"block_reason" => read_stop_reason(cursor, facts),
            _ => skip_value(cursor),
        }),
        _ => skip_value(cursor),
    }
}

fn read_candidate(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    read_members(cursor, |cursor, key| match key {
        b"content" => read_members(cursor, |cursor, key| match key {
            b"parts" => read_elements(cursor, |cursor| read_part(cursor, facts)),
            _ => skip_value(cursor),
        }),
        b"finishReason" | b"finish_reason" => {
            let read = read_stop_reason(cursor, facts);
            facts.has_output |= facts.stop.is_some();
            read
        }
        _ => skip_value(cursor),
    })
}

/// Reads the reason for which the answer ended or was blocked.
fn read_stop_reason(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    let reason = cursor.read_text()?;
    // Some chunks have an unspecified reason while the answer continues.
    if !reason.is_empty() && !reason.ends_with(b"_UNSPECIFIED") {
        (facts.stop, facts.terminal) = (non_empty_text(&reason), true);
        facts.reasoning.end_open();
    }
    Ok(())
}

/// Reads one part, which contains one kind of output.
fn read_part(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    facts.has_output = true;
    let (mut what, mut tool) = (GeminiPartKind::Text, GeminiTool::default());
    let mut thought = false;
    let mut signature = Text::default();
    let read = read_members(cursor, |cursor, key| {
        what = match key {
            b"functionCall" | b"function_call" => GeminiPartKind::Call,
            b"executableCode" | b"executable_code" | b"toolCall" | b"tool_call" => GeminiPartKind::ServerCall,
            b"codeExecutionResult" | b"code_execution_result" | b"toolResponse" | b"tool_response" => {
                GeminiPartKind::ServerResult
            }
            b"thought" => {
                thought = cursor.read_true()?;
                return Ok(());
            }
            b"thoughtSignature" | b"thought_signature" => {
                signature = cursor.read_text()?;
                return Ok(());
            }
            _ => return skip_value(cursor),
        };
        // A null member is no call.
        tool.is_present = cursor.peek_kind() == JsonKind::Object;
        read_members(cursor, |cursor, key| tool.read_member(key, cursor))
    });
    if thought {
        facts.reasoning = OutputPhase::Open;
    } else {
        facts.reasoning.end_open();
    }
    if tool.is_present {
        if facts.carried.is_wanted() && matches!(what, GeminiPartKind::Call) {
            facts.carried.add_call(CarriedCall {
                id: tool.id.to_vec(),
                name: tool.name.to_vec(),
                arguments: tool.arguments.to_vec(),
                signature: signature.to_vec(),
                index: None,
            });
        }
        tool.note_tool(what, facts);
    }
    read
}

/// The kind of a part.
#[derive(Clone, Copy)]
enum GeminiPartKind {
    Text,
    Call,
    ServerCall,
    ServerResult,
}

/// The members of a call or result that facts come from.
#[derive(Default)]
struct GeminiTool<'a> {
    is_present: bool,
    id: Text<'a>,
    name: Text<'a>,
    /// The arguments as JSON.
    arguments: &'a [u8],
    /// Set if `arguments` may not be all of them.
    is_in_pieces: bool,
}

impl<'a> GeminiTool<'a> {
    fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"id" => self.id = cursor.read_text()?,
            b"name" | b"toolType" | b"tool_type" => self.name = cursor.read_text()?,
            b"args" => self.arguments = cursor.skip_bytes()?,
            // The arguments come in pieces (Google, "Function calling", streamed arguments, 2026-11).
            b"partialArgs" | b"partial_args" | b"willContinue" | b"will_continue" => {
                self.is_in_pieces = true;
                skip_value(cursor)?;
            }
            _ => skip_value(cursor)?,
        }
        Ok(())
    }

    fn note_tool(&self, what: GeminiPartKind, facts: &mut Facts) {
        match what {
            // A call whose arguments are streamed has its name in the first piece only.
            GeminiPartKind::Call if !self.name.is_empty() => {
                let mut input = CallInput::default();
                if facts.calls.notes_inputs && !self.is_in_pieces {
                    input.set_json(self.arguments);
                }
                facts.calls.push_call(EmittedCall {
                    id: bounded_text(&self.id),
                    name: bounded_text(&self.name),
                    called_by_code: false,
                    input,
                    place: None,
                });
            }
            GeminiPartKind::ServerCall => facts.server_tools.start_tool(ServerTool {
                id: bounded_text(&self.id),
                name: non_empty_text(&self.name).unwrap_or_else(|| "code_execution".into()),
                index: None,
            }),
            GeminiPartKind::ServerResult => {
                let id = bounded_text(&self.id);
                // Ids are rare: a result without one belongs to the last tool.
                if id.is_empty() || !facts.server_tools.end_tool(|tool| tool.id == id) {
                    facts.server_tools.end_tool(|_| true);
                }
            }
            GeminiPartKind::Text | GeminiPartKind::Call => {}
        }
    }
}

/// Reads the token counts, which every chunk repeats in full.
fn read_usage(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    let (mut usage, mut some) = (Usage::default(), false);
    let [mut prompt, mut tools, mut candidates] = [0_u64; 3];
    let read = read_members(cursor, |cursor, key| {
        some = true;
        match key {
            b"promptTokenCount" | b"prompt_token_count" => read_count(&mut prompt, cursor),
            b"toolUsePromptTokenCount" | b"tool_use_prompt_token_count" => read_count(&mut tools, cursor),
            b"cachedContentTokenCount" | b"cached_content_token_count" => read_count(&mut usage.cache_read, cursor),
            b"candidatesTokenCount" | b"candidates_token_count" => read_count(&mut candidates, cursor),
            b"thoughtsTokenCount" | b"thoughts_token_count" => read_count(&mut usage.reasoning, cursor),
            _ => skip_value(cursor),
        }
    });
    if some {
        // The provider counts cached tokens as prompt tokens too, and thoughts apart from the candidates.
        usage.input = prompt.saturating_add(tools).saturating_sub(usage.cache_read);
        usage.output = candidates.saturating_add(usage.reasoning);
        facts.usage = usage;
    }
    read
}
