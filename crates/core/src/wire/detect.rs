//! Detects the wire format of a body without a request path, such as a file.

use crate::{
    splice::Span,
    wire::{
        Format, HistoryShape, Unreadable, Wire,
        interactions::{self, InteractionMarks},
        json::{self, Json, JsonKind},
        openai_responses::is_item_type,
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
    #[error("no `messages`, `input` or `contents` with a history in this body")]
    NoHistory,
}

/// Name of Bedrock's own format, which is not read.
const CONVERSE: &str = "Bedrock Converse";

/// Name of Bedrock's count of the tokens of a request, whose `input` is an object around that request.
const COUNT_TOKENS: &str = "Bedrock CountTokens";

/// Detects the format by the keys and blocks of `body`. A history that fits both formats counts as Chat Completions.
pub fn detect_wire(body: &[u8]) -> Result<Wire, Undetected> {
    let json = Json::new(body);
    json::validate(body)?;
    let mut top = TopLevelHints::default();
    json.for_each_member(json.root_span()?, |key, value| top.read_top_key(json, key, value))?;
    let Some(messages) = top.messages else {
        if let Some(name) = top.foreign_input(json) {
            return Err(Undetected::Unsupported(name));
        }
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
        return Err(Undetected::Unsupported(CONVERSE));
    }
    Ok(if votes.chat || !(votes.anthropic || top.anthropic) {
        Wire::OPENAI_CHAT
    } else {
        Wire::ANTHROPIC
    })
}

/// Returns the name of the format of `body` if it is plainly not that of `wire`. `None` in any doubt.
///
/// A broken body may look like another format, so only members count that no body of the expected format has.
pub fn plainly_other_format(body: &[u8], wire: Wire) -> Option<&'static str> {
    let json = Json::new(body);
    json::validate(body).ok()?;
    let mut top = TopLevelHints::default();
    json.for_each_member(json.root_span().ok()?, |key, value| top.read_top_key(json, key, value))
        .ok()?;
    if top.has_history_of(wire.format) {
        return top.contradiction(json, wire.format);
    }
    // Without a history of its own, a list under the key of one other format decides.
    let foreign = |key: Option<Span>| key.filter(|list| json.kind(*list) == JsonKind::Array);
    match (foreign(top.messages), foreign(top.input), foreign(top.contents)) {
        (Some(_), None, None) => detect_wire(body).map_or_else(unsupported_name, |found| Some(found.format.api_name())),
        (None, Some(_), None) => top
            .foreign_input(json)
            .or_else(|| Some(Format::OpenAiResponses.api_name())),
        (None, None, None) if top.counts_tokens(json) => Some(COUNT_TOKENS),
        (None, None, Some(_)) => Some(Format::Gemini.api_name()),
        _ => None,
    }
}

/// Returns `true` for a value with the marks of a message: a role, Gemini's parts, or the type of an item of Responses.
pub fn is_message(json: Json<'_>, value: Span) -> bool {
    if json.kind(value) != JsonKind::Object {
        return false;
    }
    if let Some(parts) = json.member(value, "parts") {
        // Parts with types are those of a user interface, and no format of a provider.
        let mut parts = json.elements(parts).into_iter();
        return !parts.any(|part| json.string_member(part, "type").is_some());
    }
    json.string_member(value, "role").is_some() || is_item_type(&json.member_text(value, "type"))
}

/// Returns the name of a known format that is not read.
fn unsupported_name(undetected: Undetected) -> Option<&'static str> {
    match undetected {
        Undetected::Unsupported(name) => Some(name),
        Undetected::Unreadable(_) | Undetected::NoHistory => None,
    }
}

/// Signs of a format among the keys at the top.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent signs of several formats")]
struct TopLevelHints {
    messages: Option<Span>,
    input: Option<Span>,
    contents: Option<Span>,
    /// A key that only requests of Responses have, and that replaces the history.
    remote_state: bool,
    marks: InteractionMarks,
    anthropic: bool,
    /// A key that only Messages has. Unlike `anthropic`, no gateway adds it to a chat body.
    anthropic_key: bool,
    converse: bool,
    other: Option<Wire>,
}

impl TopLevelHints {
    fn read_top_key(&mut self, json: Json<'_>, key: &[u8], value: Span) {
        self.marks.note_key(key);
        match key {
            b"messages" => self.messages = Some(value),
            b"input" => {
                self.input = Some(value);
                // Any other value is no history of this format.
                if matches!(json.kind(value), JsonKind::Array | JsonKind::String | JsonKind::Null) {
                    self.other = Some(Wire::OPENAI_RESPONSES);
                }
            }
            b"contents" => {
                self.contents = Some(value);
                self.other = Some(Wire::GEMINI);
            }
            b"items" | b"previous_response_id" | b"conversation" | b"prompt" => self.remote_state = true,
            b"generateContentRequest" => self.other = Some(Wire::GEMINI),
            b"request" if json.member(value, "contents").is_some() => self.other = Some(Wire::GEMINI),
            b"batch" if json.kind(value) == JsonKind::Object => self.other = Some(Wire::GEMINI),
            b"requests" if json.kind(value) == JsonKind::Array => self.other = Some(Wire::ANTHROPIC),
            b"toolConfig" | b"inferenceConfig" => self.converse = true,
            b"system" | b"anthropic_version" | b"thread" => {
                self.anthropic = true;
                self.anthropic_key = true;
            }
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

impl TopLevelHints {
    /// Reports whether `input` has the steps of Gemini's Interactions.
    fn is_interactions(&self, json: Json<'_>) -> bool {
        let mut marks = self.marks;
        for item in self.input.map(|list| json.elements(list)).unwrap_or_default() {
            let has_call_id = json.member(item, "call_id").is_some();
            marks.note_item(
                &json.member_text(item, "type"),
                &json.member_text(item, "role"),
                has_call_id,
            );
        }
        marks.is_interactions()
    }

    /// Returns the name of the format to which `input` belongs, if that is not Responses.
    fn foreign_input(&self, json: Json<'_>) -> Option<&'static str> {
        if self.is_interactions(json) {
            Some(interactions::NAME)
        } else {
            self.counts_tokens(json).then_some(COUNT_TOKENS)
        }
    }

    /// Reports whether `input` is the object around a request whose tokens Bedrock is to count.
    fn counts_tokens(&self, json: Json<'_>) -> bool {
        let has = |input: Span, key: &str| json.member(input, key).is_some();
        let input = self.input.filter(|input| json.kind(*input) == JsonKind::Object);
        input.is_some_and(|input| has(input, "converse") || has(input, "invokeModel"))
    }

    /// Reports whether the body has a key that may contain a history of this format.
    fn has_history_of(&self, format: Format) -> bool {
        match format.history() {
            HistoryShape::Messages => self.messages.is_some() || self.other == Some(Wire::ANTHROPIC),
            HistoryShape::Chat => self.messages.is_some(),
            HistoryShape::Items => self.input.is_some() || self.remote_state,
            // Gemini's requests may be wrapped, under several keys.
            HistoryShape::Contents => self.other == Some(Wire::GEMINI),
        }
    }

    /// Returns the format that the history under the expected key plainly has instead.
    fn contradiction(&self, json: Json<'_>, format: Format) -> Option<&'static str> {
        let votes = || {
            let mut votes = MessageHints::default();
            json.for_each_element(self.messages?, |message| votes.read_message(json, message))
                .ok()?;
            Some(votes)
        };
        let (votes, other) = match format.history() {
            HistoryShape::Items => {
                let alone = self.messages.is_none() && self.contents.is_none();
                return self.foreign_input(json).filter(|_| alone);
            }
            HistoryShape::Messages => {
                let votes = votes()?;
                let is_chat = votes.chat_calls && !votes.anthropic && !self.anthropic_key;
                (votes, is_chat.then_some(Format::OpenAiChat))
            }
            HistoryShape::Chat => {
                let votes = votes()?;
                let is_anthropic = votes.anthropic_calls && !votes.chat;
                (votes, is_anthropic.then_some(Format::Anthropic))
            }
            // No other format has its keys.
            HistoryShape::Contents => return None,
        };
        // Both formats demand a type of each block, so that these are no broken blocks of theirs.
        let is_converse = votes.converse_calls && !votes.chat && !votes.anthropic && !self.anthropic_key;
        other.map(Format::api_name).or_else(|| is_converse.then_some(CONVERSE))
    }
}

/// Signs of a format in the messages.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent signs of three formats")]
struct MessageHints {
    chat: bool,
    /// Calls or results that only Chat Completions has.
    chat_calls: bool,
    anthropic: bool,
    /// Calls or results that only Messages has.
    anthropic_calls: bool,
    converse: bool,
    /// Calls or results that only Converse has.
    converse_calls: bool,
}

impl MessageHints {
    fn read_message(&mut self, json: Json<'_>, message: Span) {
        let (mut content, mut chat) = (None, false);
        let walked = json.for_each_member(message, |key, value| match key {
            b"role" => {
                let role = json.decode_string(value);
                chat |= matches!(&*role, b"tool" | b"function" | b"developer");
                self.chat_calls |= *role == *b"tool";
            }
            b"tool_calls" => {
                chat = true;
                // Some clients write an empty list into every format.
                self.chat_calls |= json.kind(value) == JsonKind::Array && !json.is_empty(value);
            }
            b"function_call" | b"tool_call_id" => chat = true,
            b"content" => content = Some(value),
            _ => {}
        });
        self.chat |= walked.is_ok() && chat;
        for block in content.map(|list| json.elements(list)).unwrap_or_default() {
            self.read_block(json, block);
        }
    }

    fn read_block(&mut self, json: Json<'_>, block: Span) {
        if let Some(kind) = json.member(block, "type").map(|kind| json.decode_string(kind)) {
            let known = matches!(&*kind, b"thinking" | b"redacted_thinking" | b"document" | b"image");
            self.anthropic |= known || kind.ends_with(b"tool_use") || kind.ends_with(b"tool_result");
            self.anthropic_calls |= *kind == *b"tool_use" || *kind == *b"tool_result";
            return;
        }
        // Blocks of Converse have no type; a member names their kind.
        let has_any = |keys: &[&str]| keys.iter().any(|key| json.member(block, key).is_some());
        self.converse |= has_any(&["toolUse", "toolResult", "text"]);
        self.converse_calls |= has_any(&["toolUse", "toolResult"]);
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
            (
                r#"{"model":"gemini-3.5-flash","input":[{"type":"user_input","content":[]},{"type":"function_call","id":"a","name":"f","arguments":{}},{"type":"function_result","call_id":"a","result":"r"}]}"#,
                Err(Undetected::Unsupported("Gemini Interactions")),
            ),
            (
                r#"{"input":"x","previous_interaction_id":"v1_a"}"#,
                Err(Undetected::Unsupported("Gemini Interactions")),
            ),
            (
                r#"{"input":[{"type":"function_call","id":"fc_1","name":"f","arguments":{}}]}"#,
                Ok(Wire::OPENAI_RESPONSES),
            ),
            (
                r#"{"input":{"converse":{"messages":[{"role":"user","content":[{"text":"x"}]}]}}}"#,
                Err(Undetected::Unsupported("Bedrock CountTokens")),
            ),
            (
                r#"{"input":{"invokeModel":{"body":"e30="}}}"#,
                Err(Undetected::Unsupported("Bedrock CountTokens")),
            ),
            (r#"{"input":{"role":"user","content":"x"}}"#, Err(Undetected::NoHistory)),
            (r#"{"input":7}"#, Err(Undetected::NoHistory)),
            (
                r#"{"input":null,"previous_response_id":"r"}"#,
                Ok(Wire::OPENAI_RESPONSES),
            ),
            ("{}", Err(Undetected::NoHistory)),
            ("{", Err(Undetected::Unreadable(Unreadable::NotJson))),
            (r#"{"messages":7}"#, Err(Undetected::Unreadable(Unreadable::Shape))),
        ];
        for (body, wanted) in rows {
            assert_eq!(detect_wire(body.as_bytes()), *wanted, "{body}");
        }
    }

    #[test]
    fn only_unmistakable_members_contradict_a_named_format() {
        let chat_calls = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]}"#;
        let chat_result = r#"{"model":"claude-x","messages":[{"role":"tool","tool_call_id":"a","content":"r"}]}"#;
        let mixed = r#"{"messages":[{"role":"tool","content":[{"type":"tool_result","tool_use_id":"a"}]}]}"#;
        let use_block = r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a"}]}]}"#;
        let converse = r#"{"messages":[{"role":"assistant","content":[{"toolUse":{}}]}]}"#;
        let plain = r#"{"messages":[{"role":"user","content":"x"}]}"#;
        let items = r#"{"input":[{"type":"function_call_output","call_id":"a","output":"r"}]}"#;
        let steps = r#"{"input":[{"type":"function_result","call_id":"a","result":"r"}]}"#;
        let count = r#"{"input":{"converse":{"messages":[]}}}"#;
        let contents = r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}]}"#;
        let rows: &[(&str, &str, Option<&str>)] = &[
            (chat_calls, "anthropic", Some("Chat Completions")),
            (chat_result, "anthropic-bedrock", Some("Chat Completions")),
            (mixed, "anthropic", None),
            (mixed, "openai-chat", None),
            (r#"{"system":"s","messages":[{"role":"tool"}]}"#, "anthropic", None),
            (
                r#"{"messages":[{"role":"assistant","tool_calls":[]}]}"#,
                "anthropic",
                None,
            ),
            (use_block, "openai-chat-compatible", Some("Messages")),
            (use_block, "anthropic", None),
            (converse, "anthropic", Some("Bedrock Converse")),
            (converse, "openai-chat", Some("Bedrock Converse")),
            // A block that lost its type is a broken block, not another format.
            (
                r#"{"messages":[{"role":"user","content":[{"text":"x"}]}]}"#,
                "anthropic",
                None,
            ),
            (plain, "anthropic", None),
            (plain, "openai-chat", None),
            (plain, "openai-responses", Some("Chat Completions")),
            (plain, "gemini", Some("Chat Completions")),
            (use_block, "gemini", Some("Messages")),
            (converse, "gemini", Some("Bedrock Converse")),
            (items, "openai-chat", Some("Responses")),
            (items, "anthropic", Some("Responses")),
            (items, "openai-responses", None),
            (items, "gemini", Some("Responses")),
            (steps, "openai-responses", Some("Gemini Interactions")),
            (steps, "gemini", Some("Gemini Interactions")),
            (count, "openai-responses", Some("Bedrock CountTokens")),
            (count, "anthropic", Some("Bedrock CountTokens")),
            (count, "openai-chat", Some("Bedrock CountTokens")),
            (contents, "anthropic", Some("generateContent")),
            (contents, "openai-responses", Some("generateContent")),
            (contents, "gemini", None),
            (r#"{"requests":[]}"#, "anthropic", None),
            (r#"{"request":{"contents":[]},"messages":[]}"#, "gemini", None),
            (
                r#"{"previous_response_id":"r","messages":[]}"#,
                "openai-responses",
                None,
            ),
            (r#"{"messages":[],"input":[]}"#, "gemini", None),
            (r#"{"input":"x"}"#, "openai-chat", None),
            ("{}", "gemini", None),
            ("{", "gemini", None),
        ];
        for (body, wire, wanted) in rows {
            let wire: Wire = wire.parse().expect("a wire");
            assert_eq!(plainly_other_format(body.as_bytes(), wire), *wanted, "{wire} {body}");
        }
    }
}
