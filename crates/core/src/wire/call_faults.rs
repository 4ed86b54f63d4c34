//! Malformed calls: input that is no JSON object, and names outside the providers' pattern.
//!
//! A model's call may be cut off, and clients store and resend it for ever.

use serde::de::IgnoredAny;

use crate::{
    conversation::{CallFault, InputFault, NameFault, Text},
    splice::{Edit, Piece, Span},
    wire::{
        Format,
        call_checks::{character_fault, object_fault},
        gemini,
        json::{self, Json, JsonKind, is_blank, is_object, quote_string},
    },
    work,
};

/// Longest tool name in bytes that every provider accepts (`OpenAI` and Bedrock: 64, Anthropic: 128).
const NAME_BYTES_MAX: usize = 64;

/// The form in which a format writes the input of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputForm {
    /// An object: `input` (Anthropic), `args` (Gemini).
    Object,
    /// A string that contains an object as JSON: `arguments` (Chat Completions, Responses).
    Text,
}

/// The members of a call that providers judge.
#[derive(Clone, Copy, Debug)]
struct JudgedCall {
    /// The object with the name and the input.
    owner: Span,
    /// The key of the input.
    key: &'static str,
    form: InputForm,
    /// `true` if the input may be missing or null.
    is_optional: bool,
    /// `true` if the provider refuses it without a name.
    needs_name: bool,
}

impl JudgedCall {
    /// Locates the judged members of the call at `call`. `None` if its input is free text, or of another kind.
    fn locate(format: Format, json: Json<'_>, call: Span) -> Option<Self> {
        let (owner, key, form, is_optional) = match format {
            Format::Anthropic => (call, "input", InputForm::Object, false),
            // The input of a custom tool is free text.
            Format::OpenAiChat => (json.member(call, "function")?, "arguments", InputForm::Text, false),
            Format::OpenAiResponses => match json.member_text(call, "type").as_ref() {
                b"function_call" => (call, "arguments", InputForm::Text, false),
                b"tool_search_call" => (call, "arguments", InputForm::Object, false),
                _ => return None,
            },
            Format::Gemini => (
                gemini::write::call_in_part(json, call)?,
                "args",
                InputForm::Object,
                true,
            ),
        };
        (json.kind(owner) == JsonKind::Object).then_some(Self {
            owner,
            key,
            form,
            is_optional,
            needs_name: form == InputForm::Text,
        })
    }

    fn input_fault(&self, json: Json<'_>) -> Option<InputFault> {
        let input = json.member(self.owner, self.key);
        let fault = match self.form {
            InputForm::Object => object_fault(json, input),
            InputForm::Text => text_fault(json, input),
        };
        let is_absent = input.is_none_or(|input| json.kind(input) == JsonKind::Null);
        fault.filter(|_| !(self.is_optional && is_absent))
    }

    fn name_fault(&self, format: Format, json: Json<'_>) -> Option<NameFault> {
        let name = json.member(self.owner, "name");
        match name.filter(|name| json.kind(*name) != JsonKind::Null) {
            Some(name) => text_name_fault(format, json, name),
            None => self.needs_name.then_some(NameFault::Missing),
        }
    }
}

/// Returns the fault of a call's input where a string with an object is required. `None` if it is one.
fn text_fault(json: Json<'_>, input: Option<Span>) -> Option<InputFault> {
    let Some(input) = input else {
        return Some(InputFault::Empty);
    };
    match json.kind(input) {
        JsonKind::Null => Some(InputFault::Empty),
        JsonKind::Object => Some(InputFault::NotText),
        JsonKind::String if is_blank(json.bytes(input)) => Some(InputFault::Empty),
        JsonKind::String => {
            let text = json.decode_string(input);
            work::count(text.len());
            match serde_json::from_slice::<IgnoredAny>(&text) {
                Ok(_) => (!is_object(&text)).then_some(InputFault::NotObject),
                Err(_) => Some(InputFault::NotJson),
            }
        }
        _ => Some(InputFault::NotObject),
    }
}

/// Returns the fault of the call at `call`, by the rules of the strictest servers. `None` if it has none.
pub(crate) fn find_call_fault(format: Format, json: Json<'_>, call: Span) -> Option<CallFault> {
    let judged = JudgedCall::locate(format, json, call)?;
    CallFault::new(judged.input_fault(json), judged.name_fault(format, json))
}

/// Returns the name in the result at `result` if it breaks the pattern. `None` if it is legal, or there is none.
pub(crate) fn bad_result_name(format: Format, json: Json<'_>, result: Span) -> Option<Span> {
    let name = json.member(name_owner_of_result(format, json, result)?, "name")?;
    text_name_fault(format, json, name).map(|_| name)
}

/// Returns the name of the call at `call`, as its JSON string. `None` if it has none.
pub(crate) fn judged_name(format: Format, json: Json<'_>, call: Span) -> Option<Span> {
    json.member(JudgedCall::locate(format, json, call)?.owner, "name")
}

/// Returns the names that the request declares under `tools`, decoded. A tool of the provider may have none.
pub(crate) fn declared_names(json: Json<'_>) -> Vec<Vec<u8>> {
    let tools = json.root_span().ok().and_then(|root| json.member(root, "tools"));
    let mut names = Vec::new();
    for tool in tools.map(|tools| json.elements(tools)).unwrap_or_default() {
        // Chat Completions nests the declaration; Gemini lists several in one tool.
        let nested = ["function", "custom"].iter().find_map(|key| json.member(tool, key));
        let listed = ["functionDeclarations", "function_declarations"]
            .iter()
            .find_map(|key| json.member(tool, key));
        let declarations = match listed {
            Some(list) => json.elements(list),
            None => vec![nested.unwrap_or(tool)],
        };
        let declared = declarations
            .into_iter()
            .map(|declared| json.member_text(declared, "name"));
        names.extend(declared.filter(|name| !name.is_empty()).map(Text::into_owned));
    }
    names
}

/// Returns the fault of the name at `name`. `None` if it is legal, or no text.
fn text_name_fault(format: Format, json: Json<'_>, name: Span) -> Option<NameFault> {
    character_fault(format, json, name)
        .or_else(|| (json.decode_string(name).len() > NAME_BYTES_MAX).then_some(NameFault::Illegal))
}

fn name_owner_of_result(format: Format, json: Json<'_>, result: Span) -> Option<Span> {
    match format {
        Format::OpenAiChat => Some(result),
        Format::Gemini => gemini::write::response_in_part(json, result),
        Format::Anthropic | Format::OpenAiResponses => None,
    }
}

/// Returns the edits that give the call at `call` an input that the provider accepts, and `name` as its name.
///
/// The words stay: what contains no object becomes `{"INVALID_JSON": "<raw text>"}`, the form that Anthropic documents
/// (Fine-grained tool streaming, 2026-11).
pub(crate) fn call_fault_edits(
    format: Format,
    json: Json<'_>,
    call: Span,
    fault: CallFault,
    name: Option<String>,
) -> Vec<Edit> {
    let Some(judged) = JudgedCall::locate(format, json, call) else {
        return Vec::new();
    };
    let set_input = fault
        .input
        .map(|_| json.set_member(judged.owner, judged.key, legal_input(json, &judged)));
    let set_name = name.map(|name| json.set_member(judged.owner, "name", vec![Piece::Made(quote_string(&name))]));
    set_input.into_iter().chain(set_name).collect()
}

/// Returns the edit that sets `name` in the result at `result`. `None` if its format has no name there.
pub(crate) fn set_result_name(format: Format, json: Json<'_>, result: Span, name: &str) -> Option<Edit> {
    let owner = name_owner_of_result(format, json, result)?;
    Some(json.set_member(owner, "name", vec![Piece::Made(quote_string(name))]))
}

/// Returns the input that replaces a malformed one.
fn legal_input(json: Json<'_>, judged: &JudgedCall) -> Vec<Piece> {
    let input = json
        .member(judged.owner, judged.key)
        .filter(|input| !is_empty_input(json, *input));
    let Some(input) = input else {
        return vec![Piece::Constant(match judged.form {
            InputForm::Object => "{}",
            InputForm::Text => r#""{}""#,
        })];
    };
    let object = object_inside(json, input);
    match (judged.form, object) {
        (InputForm::Object, Some(object)) => vec![Piece::Made(object)],
        // The client's own string, whose bytes need no new spelling.
        (InputForm::Object, None) if json.kind(input) == JsonKind::String => {
            json::enclose(INVALID_START, vec![Piece::Original(input)], "}")
        }
        (InputForm::Object, None) => vec![Piece::Made(invalid_object(json, input))],
        (InputForm::Text, object) => {
            let object = object.unwrap_or_else(|| invalid_object(json, input));
            vec![Piece::Made(quote_string(&object))]
        }
    }
}

/// The beginning of the object that carries a text which is no object.
const INVALID_START: &str = r#"{"INVALID_JSON":"#;

fn is_empty_input(json: Json<'_>, input: Span) -> bool {
    match json.kind(input) {
        JsonKind::Null => true,
        JsonKind::Array => json.is_empty(input),
        JsonKind::String => is_blank(json.bytes(input)),
        JsonKind::Object | JsonKind::Other => false,
    }
}

/// Returns the object that the input is or contains as JSON text, once or twice encoded. `None` if there is none.
fn object_inside(json: Json<'_>, input: Span) -> Option<String> {
    if json.kind(input) == JsonKind::Object {
        work::count_bytes(input.len());
        return std::str::from_utf8(json.bytes(input)).ok().map(ToOwned::to_owned);
    }
    let text = json.decode_string(input);
    // A client may have encoded the arguments once more.
    let inner = Json::new(&text);
    let twice = inner
        .root_span()
        .map(|root| inner.decode_string(root))
        .unwrap_or_default();
    let object = [&*text, &*twice].into_iter().find(|text| is_object(text))?;
    std::str::from_utf8(object).ok().map(|object| object.trim().to_owned())
}

/// Returns the object that carries an input which contains none.
fn invalid_object(json: Json<'_>, input: Span) -> String {
    let raw = match json.kind(input) {
        JsonKind::String => json.decode_string(input),
        _ => json.bytes(input).into(),
    };
    // A lone surrogate has no UTF-8, and a strict server would refuse its escape.
    format!("{INVALID_START}{}}}", quote_string(&String::from_utf8_lossy(&raw)))
}
