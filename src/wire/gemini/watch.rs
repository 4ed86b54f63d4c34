//! The reader of `generateContent` answers, streamed or complete, and of Code Assist, which wraps them.
//!
//! Shapes: Gemini API reference, 2026-11. Names are read in both spellings. A search at the provider becomes visible
//! only after its end, and there is no heartbeat.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        facts::{
            EmittedCall, Facts, FaultFields, Phase, Seen, ServerTool, Usage, count, inside, items, kept, model, said,
            skip, walk,
        },
        json::{Cursor, Kind},
    },
};

/// Known finish reasons, and reasons for which a prompt is blocked, in lower case.
pub(crate) const STOPS: [&str; 14] = [
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
pub(crate) fn read(data: &[u8], facts: &mut Facts) -> Seen {
    let mut error = FaultFields::default();
    // Taken before the walk: an error in the last chunk itself still counts.
    let over = facts.terminal || facts.stop.is_some();
    walk(data, |cursor, key| match key {
        b"error" => error.take(cursor),
        // Code Assist wraps the answer.
        b"response" => inside(cursor, |cursor, key| member(key, cursor, facts)),
        _ => member(key, cursor, facts),
    });
    if error.is_seen() && !over {
        (facts.error, facts.terminal) = (Some(error.fault()), true);
    }
    Seen::Progress
}

fn member(key: &[u8], cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    match key {
        b"candidates" => items(cursor, |cursor| candidate(cursor, facts)),
        b"usageMetadata" | b"usage_metadata" => usage(cursor, facts),
        b"modelVersion" | b"model_version" => model(facts, cursor),
        b"promptFeedback" | b"prompt_feedback" => inside(cursor, |cursor, key| match key {
            b"blockReason" | b"block_reason" => stop(cursor, facts),
            _ => skip(cursor),
        }),
        _ => skip(cursor),
    }
}

fn candidate(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    inside(cursor, |cursor, key| match key {
        b"content" => inside(cursor, |cursor, key| match key {
            b"parts" => items(cursor, |cursor| part(cursor, facts)),
            _ => skip(cursor),
        }),
        b"finishReason" | b"finish_reason" => {
            let read = stop(cursor, facts);
            facts.begun |= facts.stop.is_some();
            read
        }
        _ => skip(cursor),
    })
}

/// Reads the reason for which the answer ended or was blocked.
fn stop(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    let reason = cursor.text()?;
    // Some chunks have an unspecified reason while the answer continues.
    if !reason.is_empty() && !reason.ends_with(b"_UNSPECIFIED") {
        (facts.stop, facts.terminal) = (said(&reason), true);
        if facts.reasoning == Phase::Open {
            facts.reasoning = Phase::Over;
        }
    }
    Ok(())
}

/// Reads one part, which contains one kind of output.
fn part(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    facts.begun = true;
    let (mut what, mut tool) = (What::Words, Tool::default());
    let mut thought = false;
    let read = inside(cursor, |cursor, key| {
        what = match key {
            b"functionCall" | b"function_call" => What::Call,
            b"executableCode" | b"executable_code" | b"toolCall" | b"tool_call" => What::Server,
            b"codeExecutionResult" | b"code_execution_result" | b"toolResponse" | b"tool_response" => What::Result,
            b"thought" => {
                thought = cursor.is_true()?;
                return Ok(());
            }
            _ => return skip(cursor),
        };
        // A null member is no call.
        tool.seen = cursor.kind() == Kind::Object;
        inside(cursor, |cursor, key| tool.take(key, cursor))
    });
    facts.reasoning = match (thought, facts.reasoning) {
        (true, _) => Phase::Open,
        (false, Phase::Open) => Phase::Over,
        (false, before) => before,
    };
    if tool.seen {
        tool.note(what, facts);
    }
    read
}

/// The kind of a part.
#[derive(Clone, Copy)]
enum What {
    Words,
    Call,
    Server,
    Result,
}

/// The members of a call or result that facts come from.
#[derive(Default)]
struct Tool<'a> {
    seen: bool,
    id: Text<'a>,
    name: Text<'a>,
}

impl<'a> Tool<'a> {
    fn take(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"id" => self.id = cursor.text()?,
            b"name" | b"toolType" | b"tool_type" => self.name = cursor.text()?,
            _ => skip(cursor)?,
        }
        Ok(())
    }

    fn note(&self, what: What, facts: &mut Facts) {
        match what {
            // A call whose arguments are streamed has its name in the first piece only.
            What::Call if !self.name.is_empty() => facts.calls.emit(EmittedCall {
                id: kept(&self.id),
                name: kept(&self.name),
                by_code: false,
                place: None,
            }),
            What::Server => facts.server_tools.start(ServerTool {
                id: kept(&self.id),
                name: said(&self.name).unwrap_or_else(|| "code_execution".into()),
                index: None,
            }),
            What::Result => {
                let id = kept(&self.id);
                // Ids are rare: a result without one belongs to the last tool.
                if id.is_empty() || !facts.server_tools.end(|tool| tool.id == id) {
                    facts.server_tools.end(|_| true);
                }
            }
            What::Words | What::Call => {}
        }
    }
}

/// Reads the token counts, which every chunk repeats in full.
fn usage(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    let (mut usage, mut some) = (Usage::default(), false);
    let [mut prompt, mut tools, mut candidates] = [0_u64; 3];
    let read = inside(cursor, |cursor, key| {
        some = true;
        match key {
            b"promptTokenCount" | b"prompt_token_count" => count(&mut prompt, cursor),
            b"toolUsePromptTokenCount" | b"tool_use_prompt_token_count" => count(&mut tools, cursor),
            b"cachedContentTokenCount" | b"cached_content_token_count" => count(&mut usage.cache_read, cursor),
            b"candidatesTokenCount" | b"candidates_token_count" => count(&mut candidates, cursor),
            b"thoughtsTokenCount" | b"thoughts_token_count" => count(&mut usage.reasoning, cursor),
            _ => skip(cursor),
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
