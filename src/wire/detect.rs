//! Detects the wire format of a body without a request path, such as a file.

use crate::{
    splice::Span,
    wire::{
        Unreadable, Wire,
        json::{self, Json, JsonKind},
    },
};

/// The error if no format was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undetected {
    /// A body that cannot be read at all.
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    /// A known format that this version does not read, by its name.
    #[error("this looks like a {0} body, a format that this version does not support")]
    Unsupported(&'static str),
    /// A body without the history of any format.
    #[error("no `messages`, `input` or `contents` in this body; name its format with --wire if it has one")]
    NoHistory,
}

/// Detects the format by the keys and blocks of `body`. A history that fits both formats counts as Chat Completions.
pub fn detect_wire(body: &[u8]) -> Result<Wire, Undetected> {
    let json = Json::new(body);
    json::validate(body)?;
    let mut top = TopLevelHints::default();
    json.for_each_member(json.root_span()?, |key, value| top.read_top_key(json, key, value))?;
    let Some(messages) = top.messages else {
        return top.other.ok_or(Undetected::NoHistory);
    };
    let mut votes = MessageHints::default();
    if json
        .for_each_element(messages, |message| votes.read_message(json, message))
        .is_err()
    {
        return Err(Undetected::Unreadable(Unreadable::Shape));
    }
    // Converse has `messages` too: without this check its blocks would be read as another format's.
    if votes.converse || top.converse {
        return Err(Undetected::Unsupported("Bedrock Converse"));
    }
    Ok(if votes.chat || !(votes.anthropic || top.anthropic) {
        Wire::OPENAI_CHAT
    } else {
        Wire::ANTHROPIC
    })
}

/// Signs of a format among the keys at the top.
#[derive(Default)]
struct TopLevelHints {
    messages: Option<Span>,
    anthropic: bool,
    converse: bool,
    other: Option<Wire>,
}

impl TopLevelHints {
    fn read_top_key(&mut self, json: Json<'_>, key: &[u8], value: Span) {
        match key {
            b"messages" => self.messages = Some(value),
            b"input" => self.other = Some(Wire::OPENAI_RESPONSES),
            b"contents" | b"generateContentRequest" => self.other = Some(Wire::GEMINI),
            b"request" if json.member(value, "contents").is_some() => self.other = Some(Wire::GEMINI),
            b"batch" if json.kind(value) == JsonKind::Object => self.other = Some(Wire::GEMINI),
            b"requests" if json.kind(value) == JsonKind::Array => self.other = Some(Wire::ANTHROPIC),
            b"toolConfig" | b"inferenceConfig" => self.converse = true,
            b"system" | b"anthropic_version" | b"thread" => self.anthropic = true,
            // A chat body for a router names the model with a prefix (`anthropic/claude-…`).
            b"model" => self.anthropic |= json.decode_string(value).starts_with(b"claude"),
            b"tools" => {
                let mut tools = json.elements(value).into_iter();
                self.anthropic |= tools.any(|tool| json.member(tool, "input_schema").is_some());
            }
            _ => {}
        }
    }
}

/// Signs of a format in the messages.
#[derive(Default)]
struct MessageHints {
    chat: bool,
    anthropic: bool,
    converse: bool,
}

impl MessageHints {
    fn read_message(&mut self, json: Json<'_>, message: Span) {
        let (mut content, mut chat) = (None, false);
        let walked = json.for_each_member(message, |key, value| match key {
            b"role" => chat |= matches!(&*json.decode_string(value), b"tool" | b"function" | b"developer"),
            b"tool_calls" | b"function_call" | b"tool_call_id" => chat = true,
            b"content" => content = Some(value),
            _ => {}
        });
        self.chat |= walked.is_ok() && chat;
        for block in content.map(|list| json.elements(list)).unwrap_or_default() {
            self.read_block(json, block);
        }
    }

    fn read_block(&mut self, json: Json<'_>, block: Span) {
        match json.member(block, "type").map(|kind| json.decode_string(kind)) {
            Some(kind) => {
                let known = matches!(&*kind, b"thinking" | b"redacted_thinking" | b"document" | b"image");
                self.anthropic |= known || kind.ends_with(b"tool_use") || kind.ends_with(b"tool_result");
            }
            // Blocks of Converse have no type; a member names their kind.
            None => {
                self.converse |= ["toolUse", "toolResult", "text"]
                    .iter()
                    .any(|key| json.member(block, key).is_some());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_their_marks() {
        let rows: &[(&str, Result<Wire, Undetected>)] = &[
            (r#"{"messages":[{"role":"user","content":"x"}]}"#, Ok(Wire::OPENAI_CHAT)),
            (
                r#"{"model":"claude-opus-4-5","messages":[{"role":"user","content":"x"}]}"#,
                Ok(Wire::ANTHROPIC),
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}"#,
                Ok(Wire::ANTHROPIC),
            ),
            (
                r#"{"messages":[{"role":"tool","tool_call_id":"a","content":"x"}]}"#,
                Ok(Wire::OPENAI_CHAT),
            ),
            (r#"{"system":"s","messages":[]}"#, Ok(Wire::ANTHROPIC)),
            (
                r#"{"messages":[{"role":"user","content":[{"text":"x"}]}]}"#,
                Err(Undetected::Unsupported("Bedrock Converse")),
            ),
            (r#"{"input":"x"}"#, Ok(Wire::OPENAI_RESPONSES)),
            (r#"{"contents":[]}"#, Ok(Wire::GEMINI)),
            (r#"{"project":"p","request":{"contents":[]}}"#, Ok(Wire::GEMINI)),
            (
                r#"{"requests":[{"custom_id":"a","params":{"messages":[]}}]}"#,
                Ok(Wire::ANTHROPIC),
            ),
            ("{}", Err(Undetected::NoHistory)),
            ("{", Err(Undetected::Unreadable(Unreadable::NotJson))),
            (r#"{"messages":7}"#, Err(Undetected::Unreadable(Unreadable::Shape))),
        ];
        for (body, wanted) in rows {
            assert_eq!(detect_wire(body.as_bytes()), *wanted, "{body}");
        }
    }
}
