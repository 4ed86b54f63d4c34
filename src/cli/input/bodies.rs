//! The JSON values that `check` understands: request bodies, lines of batch files, messages, and lists of messages.
//!
//! Anything else is refused: its calls would not be seen, and the report would call it healthy.

use bytes::Bytes;

use super::{
    origin::{BodyOrigin, BodySource, FoundBody, LineSource},
    text_lines::TextLine,
};
use crate::{
    splice::Span,
    wire::{
        Format, Wire, detect_wire, is_message,
        json::{Json, JsonKind},
    },
};

/// Keys of the histories of all formats.
const HISTORY_KEYS: [&str; 3] = ["messages", "input", "contents"];
/// Keys that replace the history: the provider has it.
const REMOTE_KEYS: [&str; 3] = ["previous_response_id", "conversation", "prompt"];
/// Members of a line of a batch file that contain its body: at OpenAI, at Anthropic, and at Bedrock.
const BATCH_KEYS: [&str; 3] = ["body", "params", "modelInput"];
/// Types of lines by which agents name who speaks, or what is called.
const TURN_TYPES: [&str; 8] = [
    "user",
    "assistant",
    "model",
    "gemini",
    "tool",
    "tool_use",
    "tool_call",
    "tool_result",
];
/// The members that are missing in a value that is no body.
const NO_HISTORY: &str = "it has no `messages`, `input` or `contents` with a history";
/// The members of which a message has at least one.
const NO_MESSAGE: &str = "no `role`, no `parts`, and no `type` of a known item";

/// Reads the bodies of lines that no agent wrote. Returns the description of the first line that is not understood.
pub(super) fn read_bodies(text: &Bytes, lines: &[TextLine<'_>], wire: Option<Wire>) -> Result<Vec<FoundBody>, String> {
    let found: Vec<Option<Span>> = lines.iter().map(|line| body_of_value(line.json, line.root)).collect();
    if found.iter().all(Option::is_none) {
        return Ok(vec![body_of_messages(lines, wire)?]);
    }
    let read = lines.iter().zip(found).map(|(line, body)| {
        let number = line.number;
        let body = body.ok_or_else(|| format!("line {number} is no request body: {NO_HISTORY}"))?;
        let span = body.shifted(line.start);
        Ok(FoundBody {
            body: text.slice(span.start..span.end),
            origin: BodyOrigin::Line(number),
            source: Some(BodySource::of_body(span)),
        })
    });
    read.collect()
}

/// Puts the messages of lines together.
fn body_of_messages(lines: &[TextLine<'_>], wire: Option<Wire>) -> Result<FoundBody, String> {
    if let Some(line) = lines.iter().find(|line| !is_message(line.json, line.root)) {
        let number = line.number;
        return Err(format!(
            "line {number} is neither a request body nor a message: {NO_HISTORY}, {NO_MESSAGE}"
        ));
    }
    let items: Vec<(usize, &[u8])> = lines
        .iter()
        .map(|line| (line.number, line.json.bytes(line.root)))
        .collect();
    let values: Vec<(Json<'_>, Span)> = lines.iter().map(|line| (line.json, line.root)).collect();
    Ok(body_of_items(history_key(&values, wire), &items, LineSource::Messages))
}

/// Reads a list of messages as a body. `None` if the value is no list, or an empty one.
pub(super) fn wrap_list(json: Json<'_>, root: Span, wire: Option<Wire>) -> Option<Result<FoundBody, String>> {
    let items = Some(root).filter(|root| json.kind(*root) == JsonKind::Array);
    let items = json.elements(items?);
    let values: Vec<(Json<'_>, Span)> = items.iter().map(|item| (json, *item)).collect();
    if let Some(at) = items.iter().position(|item| !is_message(json, *item)) {
        let number = at + 1;
        return Some(Err(format!(
            "item {number} of the list is no message: it has {NO_MESSAGE}"
        )));
    }
    let mut body = format!("{{\"{}\":", history_key(&values, wire)).into_bytes();
    let key_bytes = body.len();
    body.extend(json.bytes(root));
    body.extend(b"}");
    let found = FoundBody {
        body: body.into(),
        origin: BodyOrigin::WholeFile,
        source: Some(BodySource { span: root, key_bytes }),
    };
    (!items.is_empty()).then_some(Ok(found))
}

/// Writes a body with these items, each from its line.
pub(super) fn body_of_items(key: &str, items: &[(usize, &[u8])], source: LineSource) -> FoundBody {
    let texts: Vec<&[u8]> = items.iter().map(|(_, text)| *text).collect();
    let mut body = format!("{{\"{key}\":[").into_bytes();
    body.extend(texts.join(&b','));
    body.extend(b"]}");
    let lines = items.iter().map(|(number, _)| *number).collect();
    FoundBody {
        body: body.into(),
        origin: BodyOrigin::Lines { source, lines },
        source: None,
    }
}

/// Returns `true` if a line has content, but belongs to no stream: a body, a message, or what an agent has said or
/// called.
pub(super) fn is_of_other_kind(line: &TextLine<'_>) -> bool {
    is_message(line.json, line.root)
        || TURN_TYPES.contains(&line.text("type").as_str())
        || body_of_value(line.json, line.root).is_some()
}

/// Returns the request body that a value is, or that it contains as a line of a batch file. `None` if it is neither.
fn body_of_value(json: Json<'_>, value: Span) -> Option<Span> {
    if is_body(json, value) {
        return Some(value);
    }
    let mut inside = BATCH_KEYS.iter().filter_map(|key| json.member(value, key));
    inside.find(|inside| is_body(json, *inside))
}

/// Returns `true` for a value with a history.
pub(super) fn is_body(json: Json<'_>, value: Span) -> bool {
    let history = |key: &str| json.member(value, key);
    let has_list = |history: Span| json.kind(history) == JsonKind::Array;
    if HISTORY_KEYS.iter().filter_map(|key| history(key)).any(has_list) {
        return true;
    }
    let has_type = json.member(value, "type").is_some();
    if let Some(input) = history("input") {
        // The input of a custom tool is a string too, but its item has a type.
        return json.kind(input) == JsonKind::String && !has_type;
    }
    // A body without a history of its own is healthy if the provider has it.
    if !has_type && REMOTE_KEYS.iter().any(|key| json.member(value, key).is_some()) {
        return true;
    }
    // Some bodies have their history deeper inside, such as those of Gemini's batch files.
    let has_history_key = HISTORY_KEYS.iter().any(|key| history(key).is_some());
    !has_history_key && !has_type && !is_message(json, value) && detect_wire(json.bytes(value)).is_ok()
}

/// Returns the key of the history that these messages belong under, by their own keys, else by the given format.
fn history_key(items: &[(Json<'_>, Span)], wire: Option<Wire>) -> &'static str {
    let has = |item: &(Json<'_>, Span), name: &str| item.0.member(item.1, name).is_some();
    // Members of a single format decide even against `--wire`, so that the mistake is reported.
    if items.iter().any(|item| has(item, "parts")) {
        return "contents";
    }
    // Items such as calls and their outputs have a type and no role. A message may have lost its role.
    let is_item = |item: &(Json<'_>, Span)| {
        !has(item, "role") && has(item, "type") && *item.0.member_text(item.1, "type") != *b"message"
    };
    if items.iter().any(is_item) {
        return "input";
    }
    match wire.map(|wire| wire.format) {
        Some(Format::OpenAiResponses) => "input",
        Some(Format::Anthropic | Format::OpenAiChat | Format::Gemini) | None => "messages",
    }
}
