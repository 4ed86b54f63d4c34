//! Chat Completions. An assistant message with calls is followed by an unbroken run of exactly its tool messages.

use std::collections::HashSet;

use serde_json::Value;

use super::{Verdict, contents, messages, refuse, refuse_plainly};

/// The requirements of one reader of the format.
#[expect(clippy::struct_excessive_bools, reason = "a table of independent demands")]
pub(super) struct Rules {
    /// Largest length of an id.
    id_max: usize,
    /// `true` for xAI's ids: a tool message without one answers the first open call, calls of one message may share one, and
    /// a call may have further results (openclaw/openclaw#84730). Only user messages may have a name.
    loose_ids: bool,
    /// `true` for DeepSeek's error texts and roles.
    deepseek: bool,
    /// `true` if a tool message may contain images.
    pictures: bool,
    /// `true` if a call may have an empty name.
    empty_names: bool,
    /// `true` if a tool message may contain texts, and parts without a type, in its list (vLLM).
    untyped_parts: bool,
}

impl Rules {
    pub(super) const STANDARD: Self = Self {
        id_max: 40,
        loose_ids: false,
        deepseek: false,
        pictures: false,
        empty_names: false,
        untyped_parts: false,
    };
    pub(super) const COMPATIBLE: Self = Self {
        id_max: usize::MAX,
        pictures: true,
        empty_names: true,
        untyped_parts: true,
        ..Self::STANDARD
    };
    pub(super) const DEEPSEEK: Self = Self {
        deepseek: true,
        untyped_parts: false,
        ..Self::COMPATIBLE
    };
    pub(super) const XAI: Self = Self {
        loose_ids: true,
        ..Self::COMPATIBLE
    };
}

/// A message and its place in the body.
struct Message<'a> {
    index: usize,
    role: &'a str,
    value: &'a Value,
}

impl<'a> Message<'a> {
    fn calls(&self) -> &'a [Value] {
        match self.value.get("tool_calls") {
            Some(Value::Array(calls)) if self.role == "assistant" => calls,
            _ => &[],
        }
    }

    fn answers(&self) -> &'a str {
        self.value
            .get("tool_call_id")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Reports whether the value under `key` is present and not null.
    fn has(&self, key: &str) -> bool {
        self.value.get(key).is_some_and(|value| !value.is_null())
    }
}

fn call_id(call: &Value) -> &str {
    call.get("id").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the messages. Legacy function messages are skipped.
fn read_messages(body: &Value) -> Result<Vec<Message<'_>>, super::Refusal> {
    let role = |value: &Value| matches!(value.get("role"), Some(Value::String(role)) if role == "function");
    Ok(messages(body)?
        .iter()
        .enumerate()
        .filter(|(_, value)| !role(value))
        .map(|(index, value)| {
            let role = value.get("role").and_then(Value::as_str).unwrap_or_default();
            Message { index, role, value }
        })
        .collect())
}

pub(super) fn judge(body: &Value, rules: &Rules) -> Verdict {
    let messages = read_messages(body)?;
    let mut rest = messages.as_slice();
    while let Some((message, behind)) = rest.split_first() {
        rest = behind;
        check_message(message, rules)?;
        if message.role == "tool" {
            return refuse_stray(message, rules);
        }
        let calls = message.calls();
        if calls.is_empty() {
            continue;
        }
        check_names(message, calls, rules)?;
        check_ids(message, calls, rules)?;
        let length = rest.iter().take_while(|message| message.role == "tool").count();
        let (run, after) = rest.split_at(length);
        for tool in run {
            check_message(tool, rules)?;
        }
        check_answers(calls, run, rules)?;
        rest = after;
    }
    Ok(())
}

/// Checks a message by itself.
fn check_message(message: &Message<'_>, rules: &Rules) -> Verdict {
    let index = message.index;
    let known: &[&str] = if rules.deepseek {
        &["system", "user", "assistant", "tool", "latest_reminder"]
    } else {
        &["system", "developer", "user", "assistant", "tool"]
    };
    if !known.contains(&message.role) {
        return refuse_plainly(format!("Invalid value: '{}' for messages[{index}].role.", message.role));
    }
    if message.role == "tool" && !rules.loose_ids && message.answers().is_empty() {
        return refuse_plainly(
            "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
        );
    }
    if message.role == "tool" {
        check_data(message, rules)?;
    }
    if message.role == "tool"
        && let Err(words) = contents::chat(message.value.get("content"), rules.pictures)
    {
        return refuse(
            format!("Invalid value for 'messages[{index}].content': {words}"),
            [message.answers()],
        );
    }
    if rules.loose_ids && message.role != "user" && message.has("name") {
        return refuse_plainly("Only messages of role 'user' can have a name.");
    }
    if message.role == "assistant"
        && matches!(message.value.get("tool_calls"), Some(Value::Array(calls)) if calls.is_empty())
    {
        return refuse_plainly(format!(
            "Invalid 'messages[{index}].tool_calls': empty array. Expected an array with minimum length 1, \
             but got an empty array instead."
        ));
    }
    let says = ["content", "tool_calls", "function_call", "refusal", "audio"]
        .iter()
        .any(|key| message.has(key));
    if message.role == "assistant" && !says {
        return refuse_plainly(if rules.deepseek {
            "Invalid assistant message: content or tool_calls must be set"
        } else {
            "Invalid value for 'content': expected a string, got null."
        });
    }
    Ok(())
}

/// Refuses the content of a tool message that is an object, or a list with an element that is no part.
///
/// `OpenAI`: <https://github.com/langchain-ai/langchainjs/issues/11092>, 2026-06. vLLM iterates over the keys of an
/// object: <https://github.com/NousResearch/hermes-agent/issues/48244>, 2026-06.
fn check_data(message: &Message<'_>, rules: &Rules) -> Verdict {
    let (index, is_deepseek) = (message.index, rules.deepseek);
    let is_untyped = |part: &Value| part.is_string() || part.get("text").is_some() || part.get("image_url").is_some();
    let is_part = |part: &Value| part["type"].is_string() || (rules.untyped_parts && is_untyped(part));
    let words = match message.value.get("content") {
        Some(Value::Object(_)) if is_deepseek => "content should be a string or a list".to_owned(),
        Some(Value::Object(members)) => {
            let key = members.keys().next().map(String::as_str).unwrap_or_default();
            format!(
                "1 validation error for ValidatorIterator\n0\n  Input should be a valid dictionary [type=dict_type, \
                 input_value='{key}', input_type=str]"
            )
        }
        Some(Value::Array(parts)) => match parts.iter().position(|part| !is_part(part)) {
            Some(_) if is_deepseek => "missing field `type`".to_owned(),
            Some(at) => format!("Missing required parameter: 'messages[{index}].content[{at}].type'."),
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    refuse(words, [message.answers()])
}

/// Checks that every function of a call has a name.
///
/// An empty one: <https://github.com/continuedev/continue/issues/9784>, 2026-01.
fn check_names(message: &Message<'_>, calls: &[Value], rules: &Rules) -> Verdict {
    for (at, call) in calls.iter().enumerate() {
        let Some(function) = call.get("function").filter(|function| function.is_object()) else {
            continue;
        };
        let place = format!("messages[{}].tool_calls[{at}].function.name", message.index);
        let words = match function.get("name") {
            None | Some(Value::Null) if rules.deepseek => "missing field `name`".to_owned(),
            None | Some(Value::Null) => format!("Missing required parameter: '{place}'."),
            Some(Value::String(name)) if name.is_empty() && !rules.empty_names => format!(
                "Invalid '{place}': empty string. Expected a string with minimum length 1, but got an empty string \
                 instead."
            ),
            _ => continue,
        };
        return refuse(words, [call_id(call)]);
    }
    Ok(())
}

fn refuse_stray(message: &Message<'_>, rules: &Rules) -> Verdict {
    let words = if rules.deepseek {
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
    } else {
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
    };
    refuse(words.to_owned(), [message.answers()])
}

/// Checks the call ids of one message: present, short enough, and unique.
fn check_ids(message: &Message<'_>, calls: &[Value], rules: &Rules) -> Verdict {
    let index = message.index;
    let mut seen = HashSet::new();
    for (at, call) in calls.iter().enumerate() {
        let id = call_id(call);
        if id.is_empty() && !rules.loose_ids {
            return refuse_plainly(format!(
                "Missing required parameter: 'messages[{index}].tool_calls[{at}].id'."
            ));
        }
        if id.len() > rules.id_max {
            let words = format!(
                "Invalid 'messages[{index}].tool_calls[{at}].id': string too long. Expected a string with maximum \
                 length {}, but got a string with length {} instead.",
                rules.id_max,
                id.len()
            );
            return refuse(words, [id]);
        }
        if !id.is_empty() && !seen.insert(id) && !rules.loose_ids {
            return refuse(
                format!("Duplicate value for 'tool_call_id' of {id} in message[{index}]"),
                [id],
            );
        }
    }
    Ok(())
}

/// Checks that the tool messages after one message answer each of its calls once, and nothing else.
fn check_answers(calls: &[Value], run: &[Message<'_>], rules: &Rules) -> Verdict {
    let mut open: Vec<&str> = calls.iter().map(call_id).collect();
    let mut done: HashSet<&str> = HashSet::new();
    let mut unnamed = 0;
    let mut stranger = None;
    for tool in run {
        let answers = tool.answers();
        if answers.is_empty() {
            unnamed += 1;
        } else if let Some(at) = open.iter().position(|id| *id == answers) {
            done.insert(open.remove(at));
        } else if done.contains(answers) {
            if rules.loose_ids {
                continue;
            }
            let words = format!(
                "Duplicate value for 'tool_call_id' of {answers} in message[{}]",
                tool.index
            );
            return refuse(words, [answers]);
        } else {
            stranger.get_or_insert(answers);
        }
    }
    if unnamed > open.len() {
        return refuse_plainly("More tool messages than open tool calls.");
    }
    done.extend(open.drain(..unnamed));
    if rules.loose_ids {
        open.retain(|id| !done.contains(id));
    }
    if !open.is_empty() {
        let lead = "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
                    'tool_call_id'.";
        let words = match (rules.deepseek, stranger) {
            (true, None) => format!("{lead} (insufficient tool messages following tool_calls message)"),
            _ => format!(
                "{lead} The following tool_call_ids did not have response messages: {}",
                open.join(", ")
            ),
        };
        return refuse(words, open);
    }
    match stranger {
        Some(id) => refuse(
            format!("Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."),
            [id],
        ),
        None => Ok(()),
    }
}

/// Judges as Mistral does: a table of roles, as many answers as calls, ids of nine letters and digits.
///
/// Mistral also refuses a final assistant message. That is not about tool calls, so it is not judged.
pub(super) fn mistral(body: &Value) -> Verdict {
    let messages = read_messages(body)?;
    for pair in messages.windows(2) {
        let (from, to) = (pair[0].role, pair[1].role);
        let legal = match from {
            "system" => matches!(to, "user" | "assistant" | "system"),
            "user" => matches!(to, "assistant" | "system" | "user"),
            "assistant" => matches!(to, "assistant" | "user" | "tool"),
            "tool" => matches!(to, "assistant" | "tool" | "user"),
            _ => false,
        };
        if !legal {
            return refuse(
                format!("Unexpected role '{to}' after role '{from}'"),
                [pair[1].answers()],
            );
        }
    }
    if let Some(message) = messages.first().filter(|message| message.role == "tool") {
        return refuse("Unexpected role 'tool' at the start".to_owned(), [message.answers()]);
    }
    let mut rest = messages.as_slice();
    while let Some((message, behind)) = rest.split_first() {
        let length = behind.iter().take_while(|message| message.role == "tool").count();
        let (run, after) = behind.split_at(length);
        rest = after;
        check_mistral_answers(message, run)?;
    }
    Ok(())
}

fn check_mistral_answers(message: &Message<'_>, run: &[Message<'_>]) -> Verdict {
    let calls = message.calls();
    if message.role == "assistant" && calls.is_empty() && !message.has("content") {
        return refuse_plainly("Assistant message must have either content or tool_calls, but not both.");
    }
    for tool in run {
        check_data(tool, &Rules::STANDARD)?;
    }
    // Its own code: mistral-common 1.13.1.
    for call in calls {
        let name = call.get("function").map(|function| &function["name"]);
        if name.is_some_and(|name| name.as_str().is_none_or(str::is_empty)) {
            let words = "Function name was  but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum \
                         length of 64.";
            return refuse(words.to_owned(), [call_id(call)]);
        }
    }
    let mut ids = HashSet::new();
    for id in calls.iter().map(call_id).chain(run.iter().map(Message::answers)) {
        if id.len() != 9 || !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            let words = format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
            return refuse(words, [id]);
        }
    }
    for id in calls.iter().map(call_id) {
        if !ids.insert(id) {
            return refuse(format!("Duplicate tool call id {id} in assistant message"), [id]);
        }
    }
    let mut seen = HashSet::new();
    for id in run.iter().map(Message::answers) {
        if !ids.contains(id) {
            return refuse(format!("Unexpected tool call id {id} in tool results"), [id]);
        }
        if !seen.insert(id) {
            return refuse(format!("Duplicate tool call id {id} in tool results"), [id]);
        }
    }
    if seen.len() != ids.len() {
        let open = calls.iter().map(call_id).filter(|id| !seen.contains(id));
        return refuse("Not the same number of function calls and responses".to_owned(), open);
    }
    Ok(())
}
