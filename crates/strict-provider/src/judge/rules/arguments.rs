//! Servers that parse the arguments of historical calls, and their words for those that they cannot read.

use serde_json::Value;

use super::{
    ArgumentReader,
    history_calls::HistoryCall,
    python_json::{JsonFault, TopValue, read_json},
};
use crate::{
    Format,
    judge::{Refusal, Verdict},
};

/// A reason why arguments cannot be read.
enum ArgumentFlaw {
    /// No arguments, or an empty text.
    Empty,
    /// A text that is no JSON.
    Unparsable(Vec<char>, JsonFault),
    /// JSON, but no object.
    NoObject,
    /// An object or another value where a text is due, or a text where an object is due.
    WrongType,
}

/// Refuses the first call whose arguments the server cannot read.
pub(super) fn check_arguments(reader: ArgumentReader, calls: &[HistoryCall<'_>]) -> Verdict {
    for call in calls {
        let Some(flaw) = find_flaw(call) else { continue };
        let refused = match reader {
            ArgumentReader::Vllm => vllm_words(&flaw),
            ArgumentReader::Sglang => Some(sglang_words(&flaw)),
            ArgumentReader::LlamaCpp => llama_words(&flaw),
            // Protobuf reads a missing Struct as an empty one.
            ArgumentReader::Gemini if call.arguments.is_none_or(Value::is_null) => None,
            reader => Some(fixed_words(reader, call)),
        };
        let Some(words) = refused else { continue };
        return Err(Refusal {
            // llama.cpp reports its parser's exception as its own failure.
            status: if reader == ArgumentReader::LlamaCpp { 500 } else { 400 },
            ..Refusal::new(words, [call.id_text()])
        });
    }
    Ok(())
}

fn find_flaw(call: &HistoryCall<'_>) -> Option<ArgumentFlaw> {
    let is_text = match call.format {
        Format::Chat | Format::Responses => true,
        Format::Messages | Format::Gemini => false,
    };
    match call.arguments {
        None | Some(Value::Null) => Some(ArgumentFlaw::Empty),
        Some(Value::String(text)) if is_text => flaw_of_text(text),
        Some(Value::Object(_)) if !is_text => None,
        Some(Value::String(text)) if text.is_empty() => Some(ArgumentFlaw::Empty),
        Some(_) => Some(ArgumentFlaw::WrongType),
    }
}

fn flaw_of_text(text: &str) -> Option<ArgumentFlaw> {
    if text.trim().is_empty() {
        return Some(ArgumentFlaw::Empty);
    }
    let letters: Vec<char> = text.chars().collect();
    match read_json(&letters) {
        Ok(TopValue::Object) => None,
        Ok(TopValue::Other) => Some(ArgumentFlaw::NoObject),
        Err(fault) => Some(ArgumentFlaw::Unparsable(letters, fault)),
    }
}

/// Returns the words of a server that has one sentence for every flaw.
fn fixed_words(reader: ArgumentReader, call: &HistoryCall<'_>) -> String {
    match reader {
        ArgumentReader::Qwen => {
            "<400> InternalError.Algo.InvalidParameter: The \"function.arguments\" parameter of the \
                                 code model must be in JSON format."
                .to_owned()
        }
        ArgumentReader::NearAi => "Assistant tool call function.arguments must be valid JSON.".to_owned(),
        ArgumentReader::Codegraff => {
            let (message, index) = (call.message, call.index);
            format!(
                "invalid_prompt: Invalid request: messages.{message}.tool_calls.{index}.function.arguments: arguments \
                 must be a valid JSON object string"
            )
        }
        ArgumentReader::Gemini => {
            let value = call.arguments.map(Value::to_string).unwrap_or_default();
            let place = &call.place;
            format!("Invalid value at '{place}.args' (type.googleapis.com/google.protobuf.Struct), {value}")
        }
        ArgumentReader::MiniMax | ArgumentReader::Vllm | ArgumentReader::Sglang | ArgumentReader::LlamaCpp => {
            let id = call.id_text();
            format!("invalid params, invalid function arguments json string, tool_call_id: {id} (2013)")
        }
    }
}

/// Returns vLLM's words. It reads empty arguments as an empty object.
fn vllm_words(flaw: &ArgumentFlaw) -> Option<String> {
    match flaw {
        ArgumentFlaw::Empty => None,
        ArgumentFlaw::Unparsable(text, fault) => Some(format!("{}: {}", fault.words, JsonFault::place(text, fault.at))),
        // Jinja's words for a template that lists the members of the arguments.
        ArgumentFlaw::NoObject => Some("Can only get item pairs from a mapping.".to_owned()),
        ArgumentFlaw::WrongType => Some("Input should be a valid string".to_owned()),
    }
}

/// Returns the words of `SGLang`: orjson's, or its own since it demands an object.
fn sglang_words(flaw: &ArgumentFlaw) -> String {
    match flaw {
        ArgumentFlaw::Empty => "Input is a zero-length, empty document: line 1 column 1 (char 0)".to_owned(),
        ArgumentFlaw::Unparsable(text, fault) => {
            // orjson names the end of an open string, Python its start.
            let is_cut = fault.words.starts_with("Unterminated") || fault.at >= text.len();
            let (words, at) = match fault.words {
                _ if is_cut => ("unexpected end of data", text.len()),
                "Extra data" => ("unexpected content after document", fault.at),
                _ => ("unexpected character", fault.at),
            };
            format!("{words}: {}", JsonFault::place(text, at))
        }
        ArgumentFlaw::NoObject => "'str object' has no attribute 'items'".to_owned(),
        ArgumentFlaw::WrongType => "Input should be a valid string".to_owned(),
    }
}

/// Returns the words of llama.cpp. It accepts an object in place of its text, and JSON that is no object.
fn llama_words(flaw: &ArgumentFlaw) -> Option<String> {
    const LEAD: &str = "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error at";
    const MIDDLE: &str = "syntax error while parsing value -";
    match flaw {
        ArgumentFlaw::NoObject | ArgumentFlaw::WrongType => None,
        ArgumentFlaw::Empty => Some(format!(
            "{LEAD} line 1, column 1: {MIDDLE} unexpected end of input; expected '[', '{{', or a literal"
        )),
        ArgumentFlaw::Unparsable(text, fault) => {
            let is_open = fault.words.starts_with("Unterminated");
            let at = if is_open { text.len() } else { fault.at };
            let (line, column) = JsonFault::line_and_column(text, at);
            let reason = if is_open {
                let read: String = text[fault.at..].iter().collect();
                format!("invalid string: missing closing quote; last read: '{read}'")
            } else if at >= text.len() {
                "unexpected end of input; expected '[', '{', or a literal".to_owned()
            } else {
                format!("invalid literal; last read: '{}'", text[at])
            };
            Some(format!("{LEAD} line {line}, column {column}: {MIDDLE} {reason}"))
        }
    }
}
