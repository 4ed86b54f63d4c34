//! The model's next reply, and the parts of a request that decide it.

use serde_json::{Map, Value, json};

use crate::{Format, Reply, ToolCall};

/// Largest depth of an invented input.
const DEPTH_MAX: usize = 4;
/// Largest number of tools that are considered.
const TOOLS_MAX: usize = 256;

/// Returns an unscripted reply: a call of an offered tool, or a text after a tool result or without tools.
pub(crate) fn next_reply(format: Format, body: &Value, new_id: &dyn Fn() -> String) -> Reply {
    if ends_with_a_result(format, body) {
        return Reply::Text("Thank you, that is what I wanted to know.".to_owned());
    }
    let declines = body
        .get("tool_choice")
        .is_some_and(|choice| *choice == "none" || choice["type"] == "none");
    let offered = if declines {
        Vec::new()
    } else {
        offered_tools(format, body)
    };
    // A reading tool is preferred, since a client may really run it.
    let looks = |(name, _): &&(&str, &Value)| {
        let name = name.to_ascii_lowercase();
        ["read", "list", "get", "search", "find", "grep", "glob", "ls", "weather"]
            .iter()
            .any(|word| name.contains(word))
    };
    let Some((name, schema)) = offered.iter().find(looks).or_else(|| offered.first()) else {
        return Reply::Text("I hear you. Offer me a tool, and I will call it.".to_owned());
    };
    let input = invent_value("", schema, 0);
    Reply::Calls(vec![ToolCall {
        id: new_id(),
        name: (*name).to_owned(),
        input: if input.is_object() { input } else { json!({}) },
    }])
}

fn ends_with_a_result(format: Format, body: &Value) -> bool {
    let last = |key: &str| body.get(key).and_then(Value::as_array).and_then(|list| list.last());
    let holds =
        |list: &Value, is_it: fn(&Value) -> bool| list.as_array().is_some_and(|blocks| blocks.iter().any(is_it));
    let found = match format {
        Format::Messages => {
            last("messages").map(|message| holds(&message["content"], |block| block["type"] == "tool_result"))
        }
        Format::Chat => last("messages").map(|message| message["role"] == "tool"),
        Format::Responses => {
            last("input").map(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output")))
        }
        Format::Gemini => last("contents").map(|content| {
            holds(&content["parts"], |part| {
                part.get("functionResponse")
                    .or_else(|| part.get("function_response"))
                    .is_some()
            })
        }),
    };
    found.unwrap_or(false)
}

/// Returns names and schemas of the client's tools.
fn offered_tools(format: Format, body: &Value) -> Vec<(&str, &Value)> {
    let offered = body
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .take(TOOLS_MAX);
    match format {
        Format::Messages => offered
            .filter(|tool| tool.get("input_schema").is_some())
            .filter_map(tool_with_schema)
            .collect(),
        Format::Chat => offered
            .filter_map(|tool| tool_with_schema(tool.get("function")?))
            .collect(),
        Format::Responses => offered
            .filter(|tool| tool["type"] == "function")
            .filter_map(tool_with_schema)
            .collect(),
        Format::Gemini => offered
            .filter_map(|tool| {
                tool.get("functionDeclarations")
                    .or_else(|| tool.get("function_declarations"))
            })
            .filter_map(Value::as_array)
            .flatten()
            .take(TOOLS_MAX)
            .filter_map(tool_with_schema)
            .collect(),
    }
}

fn tool_with_schema(tool: &Value) -> Option<(&str, &Value)> {
    Some((tool.get("name")?.as_str()?, schema_of(tool)))
}

fn schema_of(tool: &Value) -> &Value {
    const KEYS: [&str; 4] = [
        "input_schema",
        "parameters",
        "parametersJsonSchema",
        "parameters_json_schema",
    ];
    KEYS.iter().find_map(|key| tool.get(key)).unwrap_or(&Value::Null)
}

/// Returns a harmless value of this schema, with only its required members.
fn invent_value(key: &str, schema: &Value, depth: usize) -> Value {
    if let Some(first) = schema
        .get("enum")
        .and_then(Value::as_array)
        .and_then(|values| values.first())
    {
        return first.clone();
    }
    let kind = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("object")
        .to_ascii_lowercase();
    match kind.as_str() {
        "object" if depth < DEPTH_MAX => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let member = |name: &Value| {
                let name = name.as_str()?;
                let inner = schema
                    .get("properties")
                    .and_then(|all| all.get(name))
                    .unwrap_or(&Value::Null);
                Some((name.to_owned(), invent_value(name, inner, depth + 1)))
            };
            Value::Object(required.filter_map(member).collect::<Map<_, _>>())
        }
        "object" => json!({}),
        "array" => json!([]),
        "integer" | "number" => json!(1),
        "boolean" => json!(false),
        _ => harmless_text(key).into(),
    }
}

/// Returns a text that does no harm if it is really run, opened or requested.
fn harmless_text(key: &str) -> &'static str {
    let key = key.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| key.contains(word));
    if has(&["command", "cmd", "script", "code"]) {
        "true"
    } else if has(&["path", "file", "dir", "folder"]) {
        "."
    } else if has(&["url", "uri"]) {
        "http://127.0.0.1/"
    } else {
        "antiphon"
    }
}
