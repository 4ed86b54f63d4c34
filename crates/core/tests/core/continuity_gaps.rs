//! Gaps in a body: where they are found, and how a value is written there. And what a watcher notes of an answer.

use antiphon_core::{
    repair::{ContinuityKind, Insertions, PairingContext, RepairPolicy, continuity_gaps, parse},
    wire::{
        Format, Wire,
        watch::{CARRIED_BYTES_MAX, Framing, Watcher},
    },
};
use bytes::Bytes;

/// Fills every gap of a body with `V`. Returns the number of gaps and the body.
fn filled(wire: &str, body: &str) -> (usize, String) {
    let (wire, body): (Wire, Bytes) = (wire.parse().unwrap(), body.to_owned().into());
    let policy = RepairPolicy::default();
    let paired = parse(&body, wire).unwrap().pair(PairingContext::new(&policy));
    let gaps = continuity_gaps(&paired, &ContinuityKind::ALL, None);
    let values: Vec<_> = gaps.iter().map(|gap| (gap.message, gap.kind, "V\"")).collect();
    let insertions = Insertions {
        texts: &[],
        values: &values,
    };
    let filled = insertions.put_into(&paired, &body).unwrap();
    let text = String::from_utf8(filled.to_vec()).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
    // A filled body has no gap.
    let again = parse(&filled, wire).unwrap().pair(PairingContext::new(&policy));
    assert_eq!(continuity_gaps(&again, &ContinuityKind::ALL, None), []);
    (gaps.len(), text)
}

const CALL: &str = r#"{"id":"call_00_aB3dE5fG7hJ9","function":{"name":"f","arguments":"{}"}}"#;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn values_are_written_where_they_are_missing() {
    let chat = |message: &str| format!(r#"{{"messages":[{{"role":"user","content":"go"}},{message}]}}"#);
    let signed = r#""extra_content":{"google":{"thought_signature":"S"}},"#;
    let call = CALL.strip_prefix('{').unwrap();
    for (wire, body, count, wanted) in [
        // Both values of Chat Completions, in front of the other members.
        (
            "openai-chat",
            chat(&format!(r#"{{"role":"assistant","tool_calls":[{CALL}]}}"#)),
            2,
            r#"{"reasoning_content":"V\"","role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"V\""}},"id""#,
        ),
        // Null is missing, an empty text is not.
        (
            "openai-chat",
            chat(&format!(r#"{{ "reasoning_content" : null , "role":"assistant","tool_calls":[{{{signed}{call}]}}"#)),
            1,
            r#"{ "reasoning_content" : "V\"" , "role""#,
        ),
        (
            "openai-chat",
            chat(&format!(r#"{{"reasoning_content":"","role":"assistant","tool_calls":[{{{signed}{call}]}}"#)),
            0,
            r#"{"reasoning_content":"","role""#,
        ),
        // What else the client stores there stays.
        (
            "openai-chat",
            chat(&format!(
                r#"{{"reasoning_content":"","role":"assistant","tool_calls":[{{"extra_content":{{"a":1}},{call}]}}"#
            )),
            1,
            r#""extra_content":{"google":{"thought_signature":"V\""},"a":1}"#,
        ),
        // A turn without calls has no gap, and neither has a call that was made without thinking.
        ("openai-chat", chat(r#"{"role":"assistant","content":"hi"}"#), 0, "hi"),
        (
            "openai-chat",
            chat(&format!(
                r#"{{"role":"assistant","tool_calls":[{{{signed}{}]}}"#,
                call.replace("call_00_a", "call_00_ET_a")
            )),
            0,
            "ET_",
        ),
        // An id that is not unique names no call.
        (
            "openai-chat",
            chat(&format!(
                r#"{{"role":"assistant","tool_calls":[{CALL}]}},{{"role":"assistant","tool_calls":[{CALL}]}}"#
            )),
            0,
            "call_00",
        ),
        // The first call of a step, and of the first of two contents in a row.
        (
            "gemini",
            r#"{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"text":"a"},{"functionCall":{"name":"f"}},{"functionCall":{"name":"g"}}]},{"role":"model","parts":[{"functionCall":{"name":"h"}}]}]}"#
                .to_owned(),
            1,
            r#"{"text":"a"},{"thoughtSignature":"V\"","functionCall":{"name":"f"}},{"functionCall":{"name":"g"}}"#,
        ),
        (
            "gemini",
            r#"{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"},"thought_signature":""}]}]}"#.to_owned(),
            1,
            r#""thought_signature":"V\"""#,
        ),
        // The container, and an object that names skills only.
        (
            "anthropic",
            r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}}]}]}"#
                .to_owned(),
            1,
            r#"{"container":"V\"","messages""#,
        ),
        (
            "anthropic",
            r#"{"container":{"skills":[]},"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}}]}]}"#
                .to_owned(),
            1,
            r#""container":{"id":"V\"","skills":[]}"#,
        ),
        // Code that has ended waits for nothing, and the client's own container stays.
        (
            "anthropic",
            r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}},{"type":"code_execution_tool_result","tool_use_id":"srv"}]}]}"#
                .to_owned(),
            0,
            "srv",
        ),
        (
            "anthropic",
            r#"{"container":"c","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01AbC9dE3fG","name":"f","input":{},"caller":{"type":"code","tool_id":"srv"}}]}]}"#
                .to_owned(),
            0,
            r#"{"container":"c","#,
        ),
    ] {
        let (gaps, text) = filled(wire, &body);
        assert_eq!(gaps, count, "{body}");
        assert!(text.contains(wanted), "{text}\nlacks {wanted}");
        if count == 0 {
            assert_eq!(text, body);
        }
    }
}

/// Returns what a watcher notes of a Chat Completions stream in pieces of `size` bytes.
fn noted(stream: &str, size: usize) -> (Option<String>, Option<String>, Option<String>) {
    let mut watcher = Watcher::new(Some(Format::OpenAiChat), Framing::Events).noting_carried();
    stream.as_bytes().chunks(size).for_each(|piece| watcher.push(piece));
    watcher.finish();
    let carried = &watcher.facts().carried;
    assert!(!format!("{:?}", watcher.facts()).contains("secret"), "content in Debug");
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    (
        carried.reasoning().map(str::to_owned),
        carried.call().map(|call| text(&call.arguments)),
        carried.call().map(|call| text(&call.signature)),
    )
}

fn chunk(delta: &serde_json::Value) -> String {
    format!(
        "data: {}\n\n",
        serde_json::json!({"choices": [{"index": 0, "delta": delta}]})
    )
}

#[test]
fn a_watcher_notes_the_same_however_the_answer_is_cut() {
    use serde_json::json;
    let mut stream = chunk(&json!({"role": "assistant", "content": null}));
    for words in ["se", "cret ", "\u{1f600}\n", "end"] {
        stream += &chunk(&json!({"reasoning_content": words}));
    }
    stream += &chunk(&json!({"tool_calls": [
        {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": ""},
            "extra_content": {"google": {"thought_signature": "sig"}}},
        {"index": 1, "id": "call_2", "function": {"name": "g", "arguments": "{\"b\":2}"}}]}));
    for words in ["{\"a\"", ":1", "}"] {
        stream += &chunk(&json!({"tool_calls": [{"index": 0, "function": {"arguments": words}}]}));
        stream += &chunk(&json!({"tool_calls": [{"index": 1, "function": {"arguments": "x"}}]}));
    }
    stream += "data: [DONE]\n\n";
    let wanted = (
        Some("secret \u{1f600}\nend".to_owned()),
        Some("{\"a\":1}".to_owned()),
        Some("sig".to_owned()),
    );
    for size in [1, 2, 7, 64, 4096] {
        assert_eq!(noted(&stream, size), wanted, "{size}");
    }
    // Of a longer answer nothing is noted: half a value must not be put back.
    let piece = "x".repeat(1000);
    let long = chunk(&json!({"reasoning_content": piece})).repeat(CARRIED_BYTES_MAX / 1000 + 1);
    assert_eq!(noted(&(long + &stream), 4096), (Some(String::new()), None, None));
}
