//! Hashes of inputs and messages that do not depend on how a client serialises them.

use std::ops::Range;

use serde_json::{Map, Value};

use crate::{
    conversation::Conversation,
    digest::{HashTexts as _, hash_value},
    wire::json::Json,
    work,
};

/// Members that clients and providers add or remove without changing the message.
const LABELS: [&str; 3] = ["cache_control", "id", "status"];

/// Returns the hash of an input. It covers the value if the input is JSON or a string of JSON, and else the text.
pub fn input_hash(raw: &[u8]) -> [u8; 32] {
    work::count(raw.len());
    let json = Json::new(raw);
    let text = json
        .root_span()
        .map(|root| json.decode_string(root))
        .unwrap_or_default();
    // Chat and Responses carry arguments as JSON in a string, so both forms must give one hash.
    let text = if raw.first() == Some(&b'"') { &text[..] } else { raw };
    let mut hash = blake3::Hasher::new();
    match serde_json::from_slice::<Value>(text) {
        Ok(value) => hash_value(&value, &mut hash),
        // Models and clients also produce broken arguments, which still distinguish their call.
        Err(_) => hash.add_text(text),
    }
    hash.finalize().into()
}

/// Returns the hash of the messages of a turn.
pub(super) fn turn_hash(conversation: &Conversation<'_>, turn: Range<usize>) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    for message in conversation.messages.get(turn).unwrap_or_default() {
        work::count(1);
        hash_message(message.span.of(conversation.body), &mut hash);
    }
    hash.finalize().into()
}

/// Returns the hash of a message, independent of its serialisation.
pub(super) fn message_hash(message: &[u8]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    hash_message(message, &mut hash);
    hash.finalize().into()
}

fn hash_message(message: &[u8], hash: &mut blake3::Hasher) {
    work::count(message.len());
    match serde_json::from_slice(message) {
        Ok(value) => hash_value(&without_labels(value), hash),
        // Lone surrogates and deep nesting fail this parser, so the bytes identify the message.
        Err(_) => drop(hash.update(message)),
    }
}

/// Removes labels and reasoning, and turns a string into a list of one text block.
fn without_labels(value: Value) -> Value {
    let Value::Object(members) = value else { return value };
    let keep = |(key, value): (String, Value)| {
        let value = match (key.as_str(), value) {
            ("content", Value::String(text)) => Value::Array(vec![text_value(text)]),
            ("content" | "parts", Value::Array(list)) => Value::Array(
                list.into_iter()
                    .filter(|block| !is_reasoning(block))
                    .map(without_labels)
                    .collect(),
            ),
            (_, value) => value,
        };
        // Some clients write null for a member that others leave out.
        (!LABELS.contains(&key.as_str()) && !value.is_null()).then_some((key, value))
    };
    Value::Object(members.into_iter().filter_map(keep).collect())
}

fn text_value(text: String) -> Value {
    let mut block = Map::new();
    block.insert("type".to_owned(), Value::String("text".to_owned()));
    block.insert("text".to_owned(), Value::String(text));
    Value::Object(block)
}

fn is_reasoning(block: &Value) -> bool {
    // Clients strip reasoning from older turns, so a hash over it would change between requests.
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
    matches!(kind, "thinking" | "redacted_thinking") || block.get("thought") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_what_it_says() {
        let same = [
            r#"{"a":1,"b":["x",1.0,-0.0]}"#,
            r#"{ "b" : [ "x" , 1 , 0 ] , "a" : 1.0 }"#,
            r#""{\"b\":[\"\\u0078\",1,0],\"a\":1}""#,
        ];
        for one in same {
            assert_eq!(input_hash(one.as_bytes()), input_hash(same[0].as_bytes()), "{one}");
        }
        let others = [
            r#"{"a":1,"b":["x",1.0,1]}"#,
            r#"{"a":"1","b":["x",1,0]}"#,
            r#"{"a":1,"b":["x","1",0]}"#,
            r#"{"a":1,"b":["x",1],"":0}"#,
            r"{}",
            "",
            r#""{""#,
            r#"{"a":9007199254740993}"#,
            r#"{"a":9007199254740992}"#,
        ];
        let mut hashes: Vec<_> = others.iter().map(|other| input_hash(other.as_bytes())).collect();
        hashes.push(input_hash(same[0].as_bytes()));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len() + 1);
    }
}
