//! Gemini. The responses of a call turn are in the next content, as many as calls, matched by id or by name.

use serde_json::Value;

use super::{Verdict, history, refuse, refuse_plainly, rules::missing_signature};

/// Keys in JSON and in proto spelling.
const CALL: [&str; 2] = ["functionCall", "function_call"];
const RESPONSE: [&str; 2] = ["functionResponse", "function_response"];

const CALL_TURN: &str =
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.";
const RESPONSE_TURN: &str = "Please ensure that function response turn comes immediately after a function call turn.";
const COUNT: &str = "Please ensure that the number of function response parts is equal to the number of function call \
                     parts of the function call turn.";

/// Vertex AI's words for a content without parts: <https://github.com/langchain-ai/langchainjs/issues/9987>, 2026-02.
const NO_PARTS_VERTEX: &str = "Unable to submit request because it must include at least one parts field, which describes \
                               the prompt input. Learn more: \
                               https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/gemini";

/// The condition for required signatures on the first call of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Signatures {
    /// The body names a model that signs.
    ByModel,
    /// Always, since the path names such a model.
    Wanted,
    /// Always, in the words of Vertex.
    WantedByVertex,
}

/// A content and its parts.
struct Content<'a> {
    role: &'a str,
    calls: Vec<Part<'a>>,
    responses: Vec<Part<'a>>,
    /// `true` if it contains text, images or anything else of the user or model.
    ordinary: bool,
}

/// A call or a response: the part, its name, and its id, if any.
#[derive(Clone, Copy)]
struct Part<'a> {
    value: &'a Value,
    name: &'a str,
    id: Option<&'a str>,
}

impl<'a> Part<'a> {
    fn read(value: &'a Value, keys: [&str; 2]) -> Option<Self> {
        let inner = member_by_spelling(value, keys).filter(|inner| inner.is_object())?;
        let name = inner.get("name").and_then(Value::as_str).unwrap_or_default();
        let id = inner.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        Some(Self { value, name, id })
    }

    /// Returns its id, or its name if it has no id, for error texts.
    fn label(&self) -> &'a str {
        self.id.unwrap_or(self.name)
    }

    /// Reports whether this response may answer `call`: by id if both have one, else by name.
    fn answers(&self, call: &Self) -> bool {
        match (self.id, call.id) {
            (Some(own), Some(id)) => own == id,
            _ => self.name == call.name,
        }
    }

    fn is_signed(&self) -> bool {
        member_by_spelling(self.value, ["thoughtSignature", "thought_signature"])
            .and_then(Value::as_str)
            .is_some_and(|signature| !signature.is_empty())
    }
}

/// Returns a member by its JSON or proto spelling.
fn member_by_spelling<'a>(value: &'a Value, [camel, snake]: [&str; 2]) -> Option<&'a Value> {
    value.get(camel).or_else(|| value.get(snake))
}

/// Judges every request of a body: a single one, wrapped or plain, or those of a batch.
pub(super) fn judge(body: &Value, signatures: Signatures) -> Verdict {
    let requests = history::gemini(body);
    if requests.is_empty() {
        return refuse_plainly("* GenerateContentRequest.contents: contents is not specified");
    }
    requests.into_iter().try_for_each(|request| {
        let model = request.get("model").or_else(|| body.get("model"));
        let named = model
            .and_then(Value::as_str)
            .is_some_and(|model| model.contains("gemini-3"));
        judge_request(request, named, signatures)
    })
}

fn judge_request(request: &Value, is_named: bool, signatures: Signatures) -> Verdict {
    let list = request
        .get("contents")
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty());
    let Some(list) = list else {
        return refuse_plainly("* GenerateContentRequest.contents: contents is not specified");
    };
    let mut contents = Vec::new();
    for (index, value) in list.iter().enumerate() {
        contents.push(read_content(index, value, signatures == Signatures::WantedByVertex)?);
    }
    for (at, content) in contents.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &contents[before]);
        check_call_turn(content, before)?;
        check_response_turn(content, before)?;
        if let Some(next) = contents.get(at + 1) {
            check_responses(&content.calls, &next.responses)?;
        }
    }
    if is_named || signatures != Signatures::ByModel {
        return check_signatures(&contents, signatures == Signatures::WantedByVertex);
    }
    Ok(())
}

fn read_content(index: usize, value: &Value, is_vertex: bool) -> Result<Content<'_>, super::Refusal> {
    let role = match value.get("role") {
        None | Some(Value::Null) => "user",
        Some(role) => role.as_str().unwrap_or_default(),
    };
    let refused = |message: String| super::Refusal::plain(message);
    if !matches!(role, "user" | "model" | "function") {
        return Err(refused("Please use a valid role: user, model.".into()));
    }
    let parts = value
        .get("parts")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if parts.is_empty() && is_vertex {
        return Err(refused(NO_PARTS_VERTEX.into()));
    }
    if parts.is_empty() {
        let words = format!("* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty.");
        return Err(refused(words));
    }
    for (at, part) in parts.iter().enumerate() {
        let place = format!("GenerateContentRequest.contents[{index}].parts[{at}]");
        if is_empty(part) {
            let words = format!("* {place}.data: required oneof field 'data' must have one initialized field");
            return Err(refused(words));
        }
        for keys in [CALL, RESPONSE] {
            if Part::read(part, keys).is_some_and(|part| part.name.is_empty()) {
                return Err(refused(format!("* {place}.{}.name: Name cannot be empty.", keys[1])));
            }
        }
        let response = member_by_spelling(part, RESPONSE).map(|response| &response["response"]);
        if response.is_some_and(|response| !response.is_object()) {
            let words = format!(
                "Invalid value at '{place}.function_response.response' (type.googleapis.com/google.protobuf.Struct)"
            );
            return Err(refused(words));
        }
    }
    let calls: Vec<Part<'_>> = parts.iter().filter_map(|part| Part::read(part, CALL)).collect();
    let responses: Vec<Part<'_>> = parts.iter().filter_map(|part| Part::read(part, RESPONSE)).collect();
    Ok(Content {
        role,
        ordinary: calls.len() + responses.len() < parts.len(),
        calls,
        responses,
    })
}

/// Reports whether a part has no member: <https://github.com/router-for-me/CLIProxyAPI/issues/1292>, 2026-01. In the JSON
/// of a protobuf, `null` is the same as a missing member.
fn is_empty(part: &Value) -> bool {
    part.as_object()
        .is_some_and(|members| members.values().all(Value::is_null))
}

/// Checks a call turn: it is the model's, and directly follows a turn of the user or of responses.
fn check_call_turn(content: &Content<'_>, before: Option<&Content<'_>>) -> Verdict {
    let behind_user = before.is_some_and(|before| before.role != "model");
    if content.calls.is_empty() || (content.role == "model" && behind_user) {
        return Ok(());
    }
    refuse(CALL_TURN.to_owned(), content.calls.iter().map(Part::label))
}

/// Checks a response turn: it is not the model's, and directly follows its call turn.
fn check_response_turn(content: &Content<'_>, before: Option<&Content<'_>>) -> Verdict {
    let Some(first) = content.responses.first() else {
        return Ok(());
    };
    if content.role != "model" && before.is_some_and(|before| !before.calls.is_empty()) {
        return Ok(());
    }
    refuse_stray(first)
}

fn refuse_stray(response: &Part<'_>) -> Verdict {
    let words = format!("{RESPONSE_TURN} Got function response with name '{}'.", response.name);
    refuse(words, [response.label()])
}

/// Checks that each call has a response and the reverse. The last turn of the history may contain open calls.
fn check_responses(calls: &[Part<'_>], responses: &[Part<'_>]) -> Verdict {
    if calls.is_empty() {
        return Ok(());
    }
    // Responses with an id are matched first, so that matching by name does not take their calls.
    let mut order: Vec<&Part<'_>> = responses.iter().collect();
    order.sort_by_key(|response| response.id.is_none());
    let mut open: Vec<&Part<'_>> = calls.iter().collect();
    let mut strays = Vec::new();
    for response in order {
        let same = |call: &&Part<'_>| response.id.is_some() && call.id == response.id;
        let at = open
            .iter()
            .position(same)
            .or_else(|| open.iter().position(|call| response.answers(call)));
        match at {
            Some(at) => drop(open.remove(at)),
            None => strays.push(response),
        }
    }
    if calls.len() != responses.len() {
        let named: Vec<&str> = open
            .iter()
            .map(|call| call.label())
            .chain(strays.iter().map(|s| s.label()))
            .collect();
        return refuse(COUNT.to_owned(), named);
    }
    strays.first().map_or(Ok(()), |first| refuse_stray(first))
}

/// Checks that the first call of every step after the last user text is signed.
fn check_signatures(contents: &[Content<'_>], is_vertex: bool) -> Verdict {
    let border = contents
        .iter()
        .rposition(|content| content.role != "model" && content.ordinary);
    for (index, content) in contents.iter().enumerate().skip(border.map_or(0, |border| border + 1)) {
        if let Some(first) = content.calls.first().filter(|first| !first.is_signed()) {
            let words = missing_signature(is_vertex, first.name, index + 1);
            return refuse(words, [first.label()]);
        }
    }
    Ok(())
}
